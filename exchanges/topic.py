"""The topic exchange: a trie over dotted words, `*` for one word and `#` for any number.

A key is matched by walking all branches of the trie at once, word by word. A node under a word or
a `*` is reached from its one parent only, so no node is visited twice for one word; a `#` node,
once reached, stays reached for the rest of the key. A match therefore costs at most (words in the
key) x (nodes in the trie), however many `#` the patterns have.
"""

from collections.abc import Sequence

from exchanges import tally
from exchanges.table import Arguments, Destination, Found


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
    __slots__ = ("_root",)

    reads_headers = False
    reads_every_key = True

    def __init__(self, _exchange_arguments: Arguments) -> None:
        self._root = _Node()

    def bind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        node = self._root
        for word in _split(key):
            node = node.grow(word)
        tally.add(node.destinations, destination)

    def unbind(self, destination: Destination, key: str, _arguments: Arguments) -> None:
        node = self._root
        path = []
        for word in _split(key):
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
        reached = [self._root]
        open_ended: dict[_Node, None] = {}
        if self._root.any_number is not None:
            _open(self._root.any_number, open_ended, found)
        for word in _split(key):
            reached = _advance(reached, open_ended, word, found)
            if not reached and not open_ended:
                return
        for node in reached:
            if node.destinations:
                found.update(node.destinations)


def _split(key: str) -> Sequence[str]:
    """The empty key has no words, while "." has two empty ones."""
    return key.split(".") if key else ()


def _advance(
    reached: list[_Node], open_ended: dict[_Node, None], word: str, found: Found
) -> list[_Node]:
    """The nodes that one more word leads to; `#` nodes met on the way join `open_ended`."""
    following = []
    for node in [*reached, *open_ended] if open_ended else reached:
        child = node.words.get(word)
        if child is not None:
            following.append(child)
            if child.any_number is not None:
                _open(child.any_number, open_ended, found)
        child = node.any_word
        if child is not None:
            following.append(child)
            if child.any_number is not None:
                _open(child.any_number, open_ended, found)
    return following


def _open(first: _Node, open_ended: dict[_Node, None], found: Found) -> None:
    """Enter a `#` node: what ends in it matches already, whatever words are still to come."""
    node: _Node | None = first
    while node is not None:
        found.update(node.destinations)
        if node.leads_on():
            if node in open_ended:
                return
            open_ended[node] = None
        node = node.any_number
