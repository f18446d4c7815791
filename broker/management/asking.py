"""The same question to all other nodes of a cluster."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import trio

from broker.http.admin import HTTP_OK
from broker.http.messages import HttpError

if TYPE_CHECKING:
    from broker.http.admin import Call, Elsewhere
    from queues.raft.messages import NodeId


async def ask(
    call: Call, elsewhere: Elsewhere, node: NodeId, path: str, body: object = None
) -> Any:
    """What another node answers at an internal route; None if it went meanwhile."""
    request = dataclasses.replace(
        call.request, method="POST", path=path, body=json.dumps(body).encode()
    )
    try:
        response = await elsewhere.carry(node, request, call.user)
    except HttpError:
        return None
    return json.loads(response.body) if response.status == HTTP_OK else None


async def ask_all(call: Call, path: str, body: object = None) -> list[Any]:
    """The answers of those that are up, in no order."""
    if call.elsewhere is None or call.passed_on:
        return []
    answers: list[Any] = []

    async def ask_one(elsewhere: Elsewhere, node: NodeId) -> None:
        answer = await ask(call, elsewhere, node, path, body)
        if answer is not None:
            answers.append(answer)

    async with trio.open_nursery() as nursery:
        for node in call.elsewhere.others():
            nursery.start_soon(ask_one, call.elsewhere, node)
    return answers
