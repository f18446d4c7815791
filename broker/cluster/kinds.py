"""Kinds of message between nodes, and the lane that each goes by."""

from enum import IntEnum


class Lane(IntEnum):
    """One of the connections of a link.

    Messages of one lane arrive in the order they were sent; but what is large is passed by all that
    does not belong to it (Mail.send_large).
    """

    CONTROL = 0  # small and urgent: never behind megabytes of something else
    BULK = 1


class Kind(IntEnum):
    """What a message is about. The numbers are on the wire: they are never given twice."""

    lane: Lane

    def __new__(cls, number: int, lane: Lane) -> "Kind":
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.lane = lane
        return kind

    # Of the links themselves, on either lane.
    HEARTBEAT = 1, Lane.CONTROL
    HEARTBEAT_ANSWER = 2, Lane.CONTROL

    RAFT = 10, Lane.CONTROL  # a bundle: votes, answers to appends, small things of many groups
    RAFT_BULK = 11, Lane.BULK  # a bundle of appends
    SNAPSHOT = 12, Lane.BULK
    LEADS = 13, Lane.CONTROL
    META = 14, Lane.CONTROL
    ALARM = 15, Lane.CONTROL
    MEND = 16, Lane.CONTROL  # members that are damaged
    COUNT = 17, Lane.CONTROL  # connections and channels of those that have a limit

    QUEUE = 20, Lane.BULK  # between a queue's fronts and its leader
    STREAM = 21, Lane.BULK  # requests for streams that are led elsewhere
    REPLY = 22, Lane.BULK  # to requesters by their reply-to address
    CALL = 30, Lane.BULK
    ANSWER = 31, Lane.BULK
