"""What the tests of the AMQP clients start from."""

import itertools
from collections.abc import Callable

import pytest

_numbers = itertools.count(1)


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names of queues and exchanges that no other test uses."""
    return lambda: f"{request.node.name}-{next(_numbers)}"[:200]


@pytest.fixture
def name(new_name: Callable[[], str]) -> str:
    return new_name()
