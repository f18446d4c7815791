"""How often things happened since the node started. Counted once per batch, never per message."""

from typing import Final

FIELDS: Final = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)


class Tally:
    """Of a queue, a channel, or all channels that are closed: counters that only grow."""

    __slots__ = (*FIELDS, "changed", "expecting")

    def __init__(self) -> None:
        self.publish = 0
        self.confirm = 0
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.deliver = 0
        self.deliver_no_ack = 0
        self.get = 0
        self.get_no_ack = 0
        self.get_empty = 0
        self.redeliver = 0
        self.ack = 0
        self.expecting = 0  # of those published: to be confirmed
        self.changed = True  # since somebody looked: this, or anything else about the thing

    def add(self, other: "Tally") -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.expecting += other.expecting
