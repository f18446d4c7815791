"""A destination with nothing but a name, and what a binding table finds."""

from dataclasses import dataclass


@dataclass(eq=False)
class Queue:
    name: str


def matched(table, key="", headers=None):
    found = {}
    table.match(key, headers or {}, found)
    return list(found)
