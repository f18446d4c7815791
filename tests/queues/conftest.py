"""What every test of a queue starts from."""

import pytest

from tests.queues.fakes import FakeContext


@pytest.fixture
def context():
    return FakeContext()
