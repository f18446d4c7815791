"""Policies of one test on the broker that all tests share."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.admin import Api

_serial = itertools.count(1)


class Policies:
    """Sets policies under fresh names; `clean_up` deletes those that are left."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._left: list[tuple[str, str]] = []

    def put(
        self,
        pattern: str,
        definition: dict[str, Any],
        *,
        name: str | None = None,
        kind: str = "policies",
        **parts: Any,
    ) -> str:
        """Set a policy, or change the one called `name`."""
        is_new = name is None
        name = name or f"t{os.getpid()}-{next(_serial)}"
        answer = self._api.put_policy(name, pattern, definition, kind=kind, **parts)
        assert answer.status == (201 if is_new else 204), answer
        if is_new:
            self._left.append((kind, name))
        return name

    def delete(self, name: str, kind: str = "policies") -> None:
        assert self._api.delete_policy(name, kind=kind).status == 204
        self._left.remove((kind, name))

    def clean_up(self) -> None:
        for kind, name in list(self._left):
            self.delete(name, kind)


@pytest.fixture
def policies(api: Api) -> Iterator[Policies]:
    policies = Policies(api)
    yield policies
    policies.clean_up()
