"""A mistake that closes a channel, as data: how to make it and what the broker must answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pamqp import base

from tests.support.frames import Channel, Exchange, Queue, unvalidated
from tests.support.scene import Scene
from tests.support.wire import WireChannel

Provoke = Callable[[Scene, WireChannel, str, str], None]


@dataclass(frozen=True)
class ChannelMistake:
    """What a client does wrong, and how it hears of it. {q} and {x} stand for fresh names."""

    sentence: str
    provoke: Provoke
    code: int
    text: str
    at: type[base.Frame]
    leveret_only: bool

    def check(self, scene: Scene) -> None:
        """Make the mistake; the channel closes as it must, and the connection goes on."""
        channel = scene.channel()
        queue, exchange = scene.queue_name(), scene.exchange_name()
        self.provoke(scene, channel, queue, exchange)
        close = channel.expect_close(self.code, self.text.format(q=queue, x=exchange))
        assert (close.class_id << 16) + close.method_id == self.at.index
        again = channel.conn.open_channel(channel.number)
        assert again.rpc(Channel.Flow(active=True)).active is True


class ChannelMistakes:
    """The mistakes of one test module, collected by decorating what provokes them."""

    def __init__(self) -> None:
        self._mistakes: list[ChannelMistake] = []

    def add(
        self,
        sentence: str,
        code: int,
        text: str,
        at: type[base.Frame],
        *,
        leveret_only: bool = False,
    ) -> Callable[[Provoke], Provoke]:
        def register(provoke: Provoke) -> Provoke:
            self._mistakes.append(ChannelMistake(sentence, provoke, code, text, at, leveret_only))
            return provoke

        return register

    def parameters(self) -> list[Any]:
        return [
            pytest.param(
                case,
                id=case.sentence,
                marks=[pytest.mark.leveret_only] if case.leveret_only else [],
            )
            for case in self._mistakes
        ]


def declare(queue: str, **options: Any) -> base.Frame:
    return unvalidated(Queue.Declare, queue=queue, **options)


def declare_exchange(exchange: str, kind: str = "direct", **options: Any) -> base.Frame:
    return unvalidated(Exchange.Declare, exchange=exchange, exchange_type=kind, **options)
