"""What tests of the life of a message start from."""

import pytest

from tests.semantics.stage import KINDS, Stage
from tests.support.scene import Scene
from tests.support.wire import WireChannel


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, scene: Scene, channel: WireChannel) -> Stage:
    return Stage(scene, channel, request.param)
