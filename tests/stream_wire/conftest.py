"""One node with streams in memory for each test that wants it."""

from collections.abc import Iterator

import pytest

from tests.stream_wire.door import Door


@pytest.fixture
def door() -> Iterator[Door]:
    with Door() as door:
        yield door
