"""The topic exchange: a trie over dotted words, `*` for one word and `#` for any number.

A key is matched by walking all branches of the trie at once, word by word. A node is reached from
its one parent only, so no node is visited twice. Patterns in the trie have two `*` at most, and a
`#` at their end only: a key of n words meets n² / 2 nodes of one depth at most, not all of them.
Patterns with more wildcards are matched together: see exchanges.topic_wide.
"""

from collections.abc import Sequence
from typing import Final

from exchanges import tally
from exchanges.table import Arguments, Destination, Found
from exchanges.topic_wide import ANY_NUMBER, ANY_WORD, WidePatterns, shortened

STARS_MAX: Final = 2  # of a pattern in the trie


class _Node:
    """The patterns that share one prefix; `destinations` are those whose pattern ends here."""

    __slots__ = ("any_number", "any_word", "destinations", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.any_word: _Node | None = None
        self.any_number: _Node | None = None
        self.destinations: dict[Destination, int] = {}

    def leads_on(self) -> bool:
        return bool(self.words) or self.any_word is not None or self.any_number is not None

    def child(self, word: str) -> "_Node | None":
        if word == "*":
            return self.any_word
        if word == "#":
            return self.any_number
        return self.words.get(word)

    def grow(self, word: str) -> "_Node":
        node = self.child(word)
        if node is None:
            node = _Node()
            if word == "*":
                self.any_word = node
            elif word == "#":
                self.any_number = node
            else:
                self.words[word] = node
        return node

    def prune(self, word: str) -> None:
        if word == "*":
            self.any_word = None
        elif word == "#":
            self.any_number = None
        else:
            del self.words[word]


class TopicTable:
    __slots__ = ("_root", "_wide")

    reads_headers = False
    reads_every_key = True

    def __init__(self, _exchange_arguments: Arguments) -> None:
        self._root = _Node()
        self._wide = WidePatterns()

    def bind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        words = shortened(_split(key))
        if _is_wide(words):
            self._wide.bind(destination, words)
            return
        node = self._root
        for word in words:
            node = node.grow(word)
        tally.add(node.destinations, destination)

    def unbind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        words = shortened(_split(key))
        if _is_wide(words):
            self._wide.unbind(destination, words)
            return
        node = self._root
        path = []
        for word in words:
            path.append((node, word))
            child = node.child(word)
            assert child is not None, f"{key!r} is not bound"
            node = child
        tally.remove(node.destinations, destination)
        for parent, word in reversed(path):
            if node.destinations or node.leads_on():
                break
            parent.prune(word)
            node = parent

    def match(self, key: str, _headers: Arguments, found: Found) -> None:
        words = _split(key)
        self._wide.match(words, found)
        reached = [self._root]
        for word in words:
            _end_in_any_number(reached, found)
            reached = _advance(reached, word)
            if not reached:
                return
        _end_in_any_number(reached, found)
        for node in reached:
            if node.destinations:
                found.update(node.destinations)


def _split(key: str) -> Sequence[str]:
    """The empty key has no words, while "." has two empty ones."""
    return key.split(".") if key else ()


def _is_wide(words: Sequence[str]) -> bool:
    return words.count(ANY_WORD) > STARS_MAX or ANY_NUMBER in words[:-1]


def _advance(reached: list[_Node], word: str) -> list[_Node]:
    """The nodes that one more word leads to."""
    following = []
    for node in reached:
        child = node.words.get(word)
        if child is not None:
            following.append(child)
        if node.any_word is not None:
            following.append(node.any_word)
    return following


def _end_in_any_number(reached: list[_Node], found: Found) -> None:
    """What ends with `#` here matches, whatever words are still to come."""
    for node in reached:
        if node.any_number is not None:
            found.update(node.any_number.destinations)
