"""`/api/streams/{vhost}/{name}/staged`: rows that wait for their transaction, and dropping them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.http.admin import Admin, Call, bad_request
from broker.http.auth import not_authorised
from broker.http.messages import HttpError, Response, json_response
from broker.http.stream_calls import find_stream
from broker.streams.transaction_host import owner_of
from queues.stream.staged_rows import Answer, Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from queues.stream.partition import StreamPartition
    from queues.stream.staging import Share
    from queues.stream.stream import Stream


_SELECTORS: Final = frozenset({"user", "producer", "partition"})


def add_staged_rows(admin: Admin) -> None:
    admin.add("GET", "/api/streams/{vhost}/{name}/staged", _list)
    admin.add("DELETE", "/api/streams/{vhost}/{name}/staged", _drop)


class _Found(NamedTuple):
    number: int
    partition: StreamPartition
    share: Share


async def _list(call: Call) -> Response:
    """Of each partition, the largest first."""
    stream = find_stream(call)
    _must(call, "read", stream)
    return json_response([_row(call, each) for each in _all(stream)])


async def _drop(call: Call) -> Response:
    """What is staged and not prepared: all of it, or of a `producer`, a `user`, a `partition`."""
    stream = find_stream(call)
    _must(call, "write", stream)
    unknown = call.request.query.keys() - _SELECTORS
    if unknown:
        raise bad_request(f"{', '.join(sorted(unknown))}: not known here")
    wanted = [each for each in _all(stream) if _is_wanted(call, each)]
    own = f"{call.user.name}\0"
    if any(not each.share.key.producer.startswith(own) for each in wanted if each.share.key):
        _must(call, "configure", stream)  # rows of others, that is
    rows = [_row(call, each) for each in wanted]
    for each in wanted:
        await _dropped(call, each)
    return json_response(rows)


def _must(call: Call, action: Any, stream: Stream) -> None:
    if not call.user.may(call.vhost().name, action, stream.name):
        raise not_authorised(f"{action} access to {stream.name!r} refused")


def _all(stream: Stream) -> list[_Found]:
    return [
        _Found(number, partition, share)
        for number, partition in enumerate(stream.partitions)
        for share in partition.staged.shares()
    ]


def _is_wanted(call: Call, found: _Found) -> bool:
    if found.share.key is None:
        return False
    user, producer = owner_of(found.share.key)
    is_so = {"user": user, "producer": producer, "partition": str(found.number)}
    return all(values[-1] == is_so[name] for name, values in call.request.query.items())


def _row(call: Call, found: _Found) -> dict[str, Any]:
    share = found.share
    user, producer = (None, None) if share.key is None else owner_of(share.key)
    return {
        "partition": found.number,
        "user": user,
        "producer": producer,
        "epoch": None if share.key is None else share.key.epoch,
        "sequence": None if share.key is None else share.key.sequence,
        "transaction": share.transaction,
        "writers": len(share.writers),
        "rows": share.rows,
        "size_bytes": share.size_bytes,
        "idle_ms": max(0, call.vhost().now_ms() - share.at_ms),
    }


async def _dropped(call: Call, found: _Found) -> None:
    """Wait until all replicas will have it so."""
    answers: list[Answer] = []

    def ask(then: Callable[[], None]) -> None:
        def answer(given: Answer) -> None:
            answers.append(given)
            then()

        found.partition.staged.drop(found.share, answer)

    await call.happens(ask)
    if isinstance(answers[0], Lost):
        raise HttpError(503, f"{answers[0].value}: ask again")
