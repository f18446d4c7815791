"""What a partition's log remembers in place of the entries that moved to segments.

    state   0         4           8         16            24                80
            +---------+-----------+---------+-------------+-----------------+-----------+--------+
            |version I|producers I|staging Q|next offset Q|end of segments  | producers | staging|
            +---------+-----------+---------+-------------+-----------------+-----------+--------+
    end     what the growing segment holds, as in an index: base Q, end Q, size bytes Q, first ms q,
            latest ms q, records Q, cleaned to Q

`producers` and `staging` are the sizes of the states of the producer table and of staged rows at
the end. Little-endian.
"""

import struct
from typing import Final, NamedTuple

from queues.stream.index import Summary

VERSION: Final = 2

_HEAD: Final = struct.Struct("<IIQQQQQqqQQ")


class PartitionState(NamedTuple):
    next_offset: int
    end: Summary
    producers: bytes
    staging: bytes = b""

    def encode(self) -> bytes:
        sizes = (len(self.producers), len(self.staging))
        head = _HEAD.pack(VERSION, *sizes, self.next_offset, *self.end)
        return head + self.producers + self.staging

    @classmethod
    def decode(cls, state: bytes) -> "PartitionState":
        version, producers, staging, next_offset, *end = _HEAD.unpack_from(state)
        if version != VERSION:
            raise ValueError(f"checkpoint of version {version}, expected {VERSION}")
        staged_at = _HEAD.size + producers
        staged = state[staged_at : staged_at + staging]
        return cls(next_offset, Summary(*end), state[_HEAD.size : staged_at], staged)
