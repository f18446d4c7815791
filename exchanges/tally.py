"""A multiset as a dict from item to count: how many bindings lead to one destination."""

from typing import TypeVar

Item = TypeVar("Item")


def add(tally: dict[Item, int], item: Item) -> None:
    tally[item] = tally.get(item, 0) + 1


def remove(tally: dict[Item, int], item: Item) -> None:
    left = tally[item] - 1
    if left:
        tally[item] = left
    else:
        del tally[item]
