"""Topic patterns with many wildcards, all matched at once: one bit for each place in a pattern.

A pattern of n words has n + 1 bits in a row; a set bit says that the words before that place are
matched. One more word of a key moves every set bit whose place takes that word on by one, and a
place with `#` keeps its bit. That is a handful of operations on long integers for each word of a
key, however the wildcards are arranged: a tenth of a millisecond for hundreds of patterns that
would have a walk through a trie branch at every word.

    pattern   a  #  b         bits, lowest first: before a, before #, before b, behind b
    key       a . x . b       1000 → 0110 (# may stand for nothing) → 0110 → 0111
"""

import re
from collections.abc import Sequence

from exchanges import tally
from exchanges.table import Destination, Found

ANY_WORD = "*"
ANY_NUMBER = "#"

_SET = re.compile(rb"[^\0]")


def shortened(words: Sequence[str]) -> tuple[str, ...]:
    """The same pattern without a `#` right behind another, which says nothing more."""
    return tuple(
        word
        for place, word in enumerate(words)
        if word != ANY_NUMBER or not place or words[place - 1] != ANY_NUMBER
    )


class WidePatterns:
    """Patterns and their destinations. Bits of a pattern that is gone are used again."""

    __slots__ = (
        "_any_number",
        "_any_word",
        "_at",
        "_bits",
        "_ends",
        "_finals",
        "_free",
        "_starts",
        "_words",
    )

    def __init__(self) -> None:
        self._at: dict[tuple[str, ...], int] = {}  # pattern → its lowest bit
        self._ends: dict[int, dict[Destination, int]] = {}  # highest bit → destinations
        self._bits = 0  # used or free
        self._free: dict[int, list[int]] = {}  # number of bits → where so many are free
        self._starts = 0
        self._finals = 0  # behind the last word of each
        self._any_number = 0
        self._any_word = 0
        self._words: dict[str, int] = {}

    def bind(self, destination: Destination, pattern: tuple[str, ...]) -> None:
        if pattern not in self._at:
            self._add(pattern)
        tally.add(self._ends[self._at[pattern] + len(pattern)], destination)

    def unbind(self, destination: Destination, pattern: tuple[str, ...]) -> None:
        destinations = self._ends[self._at[pattern] + len(pattern)]
        tally.remove(destinations, destination)
        if not destinations:
            self._remove(pattern)

    def _add(self, pattern: tuple[str, ...]) -> None:
        free = self._free.get(len(pattern) + 1)
        if free:
            first = free.pop()
        else:
            first = self._bits
            self._bits += len(pattern) + 1
        self._at[pattern] = first
        self._ends[first + len(pattern)] = {}
        self._toggle(pattern, first)

    def _remove(self, pattern: tuple[str, ...]) -> None:
        first = self._at.pop(pattern)
        del self._ends[first + len(pattern)]
        self._toggle(pattern, first)
        if self._at:
            self._free.setdefault(len(pattern) + 1, []).append(first)
        else:
            self._bits = 0
            self._free.clear()

    def _toggle(self, pattern: tuple[str, ...], first: int) -> None:
        """Set the bits of a pattern that is new, clear those of one that goes."""
        self._starts ^= 1 << first
        self._finals ^= 1 << first + len(pattern)
        for place, word in enumerate(pattern, first):
            if word == ANY_NUMBER:
                self._any_number ^= 1 << place
            elif word == ANY_WORD:
                self._any_word ^= 1 << place
            else:
                self._words[word] = self._words.get(word, 0) ^ 1 << place
                if not self._words[word]:
                    del self._words[word]

    def match(self, words: Sequence[str], found: Found) -> None:
        if not self._at:
            return
        any_number, any_word, known = self._any_number, self._any_word, self._words
        reached = self._starts
        reached |= (reached & any_number) << 1
        for word in words:
            moved = (reached & (known.get(word, 0) | any_word)) << 1
            reached = moved | (reached & any_number)
            reached |= (reached & any_number) << 1
            if not reached:
                return
        raw = (reached & self._finals).to_bytes((self._bits + 8) // 8, "little")
        for one in _SET.finditer(raw):
            place = one.start() * 8
            for bit in range(8):
                if one[0][0] >> bit & 1:
                    found.update(self._ends[place + bit])
