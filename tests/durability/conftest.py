"""Brokers with several lives."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.durability.life import Life


@pytest.fixture
def new_life(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    lives: list[Life] = []

    def start(*arguments: str) -> Life:
        lives.append(Life(tmp_path / f"life{len(lives)}", *arguments))
        return lives[-1]

    yield start
    for life in lives:
        life.end()


@pytest.fixture
def life(new_life: Callable[..., Life]) -> Life:
    return new_life()
