"""Transactions of the Trio client: writes that become visible all at once or never."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from broker.protocol.stream_errors import StreamError
from clients.stream_plans import Alone, Plan
from clients.stream_processing import commit_with
from clients.stream_questions import partition_counts
from clients.stream_transaction_core import Staging, TransactionsCore
from clients.trio_stream_connection import StreamLine
from clients.trio_stream_group import GroupConsumer

ABORT_S: Final = 5.0  # for the broker to drop what will not be committed; else it expires there
CHECKPOINT_EVERY: Final = 64  # sends that found room; then others have their turn


class Output:
    """Where the rows of a transaction go."""

    def __init__(self, staging: Staging, run: Callable[[Plan[None]], Awaitable[None]]) -> None:
        self._staging = staging
        self._run = run
        self._sends = 0

    async def send(
        self,
        stream: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, object] | None = None,
        partition: int | None = None,
    ) -> None:
        """Into a batch; a full one is staged. Nobody sees it before the transaction commits.

        After one that was cancelled the transaction can only be aborted.
        """
        full = self._staging.add(stream, value, key, headers, partition)
        self._sends += 1
        if full is not None:
            await self._run(self._staging.stage(stream, full))
        elif self._sends % CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()


class TransactionalProducer:
    """Made by `Streams.transactions`; one transaction at a time."""

    def __init__(self, line: StreamLine, name: str) -> None:
        self._line = line
        self._core = TransactionsCore(name)

    async def open(self) -> None:
        """Fences older ones of that name and aborts what they have not committed."""
        await self._line.run(self._core.open())

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def last(self) -> int:
        """The number of the last transaction that was committed; -1 if none was."""
        return self._core.last

    @asynccontextmanager
    async def transaction(
        self, *streams: str, offsets_of: GroupConsumer | None = None
    ) -> AsyncIterator[Output]:
        """What is sent in the block becomes visible at its end, or nothing if it raises.

        With it, what `offsets_of` was given is committed; if nothing is, `rewind` it. Raises
        RefusedError: TRANSACTION_ABORTED means that nothing is visible, or will be; FencedError if
        another producer of this name took over. If the end of the block is cancelled nobody knows,
        until the next transaction begins: `last` then says which was the last.
        """
        core, run = self._core, self._line.run
        key = await run(core.begin())
        counts = await run(partition_counts(streams)) if streams else {}
        staging = Staging(key, counts)
        try:
            yield Output(staging, run)
            await run(staging.finish())
        except BaseException:
            with suppress(StreamError), trio.move_on_after(ABORT_S, shield=True):
                await run(core.abort(key, staging.parts()))
            raise
        if offsets_of is None:
            await run(core.commit(key, staging.parts()))
        else:
            await offsets_of.run(_with_offsets(core, staging, offsets_of))


def _with_offsets(core: TransactionsCore, staging: Staging, group: GroupConsumer) -> Plan[None]:
    yield Alone(commit_with(core, staging, group.core))
