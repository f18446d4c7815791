"""What a consumer group refuses, and why: the peer's mistakes, each a type of its own."""


class GroupError(Exception):
    """A request that a group refuses; nothing of it was done."""


class UnknownMemberError(GroupError):
    """Never joined, left, or was timed out: it must join anew."""


class FencedMemberError(GroupError):
    """Another process joined with the same instance id and took its place."""


class StaleGenerationError(GroupError):
    """The group has moved on: the member must ask for its assignment (join with its id)."""


class NotAssignedError(GroupError):
    """The partition is not, or no longer, this member's."""


class OffsetUnstableError(GroupError):
    """A transaction that moves this offset is being decided: ask again."""


class GroupNotEmptyError(GroupError):
    """Offsets of a group with members are theirs to move."""


class GroupFullError(GroupError):
    """No more members."""


class InvalidCommitError(GroupError):
    """An offset below 0, or metadata that is too long."""


class UnknownRecordError(Exception):
    """A record of the offsets stream that this version cannot read."""
