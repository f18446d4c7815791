"""Everything small, so that a few records go through every transition."""

import pytest

from tests.stream.life import SMALL_PARTITION
from tests.stream.walk import SMALL


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SMALL, **SMALL_PARTITION}.items():
        monkeypatch.setattr(name, value)
