"""What Leveret has beyond RabbitMQ: messages at rest, dead letters, streams, clusters, topics."""

from __future__ import annotations

import dataclasses
from typing import Final

from broker.management.api.words import (
    ANY,
    COUNT,
    NAME,
    NOTHING,
    OBJECT,
    TEXT,
    TRUTH,
    WHOLE,
    Doc,
    Docs,
    Schema,
    choice,
    closed,
    deletes,
    each,
    many,
    maybe,
    pages,
    record,
    ref,
    shows,
    whole,
)

PAGE_MAX: Final = 1000  # messages or records in one answer
BODY_BYTES_MAX: Final = 1024 * 1024
WAIT_MS_MAX: Final = 30_000

_MESSAGE: Final = ref("Message")
_PEEK: Final[dict[str, Schema]] = {
    "count": whole(1, PAGE_MAX),
    "after": whole(-1),
    "body_bytes": whole(0, BODY_BYTES_MAX),
}
_WHICH: Final = record(ids=many(COUNT), all=TRUTH)
MESSAGES: Final[Docs] = {
    "/api/queues/{vhost}/{name}/messages": {
        "GET": shows(
            "Messages, without consuming them",
            record("messages after more", messages=many(_MESSAGE), after=WHOLE, more=TRUTH),
            **_PEEK,
            **each("header routing_key exchange text", TEXT),
            regex=TRUTH,
        )
    },
    "/api/queues/{vhost}/{name}/messages/{id}": {
        "GET": shows("One message", _MESSAGE),
        "DELETE": deletes("Drop one message"),
    },
    "/api/queues/{vhost}/{name}/messages/{id}/move": {
        "POST": Doc(
            summary="Move one message to another queue: safe there before it leaves this one",
            body=record("to", to=NAME),
            answers={204: NOTHING},
            errors=(409,),
        )
    },
    "/api/dlq": {"GET": pages("Queues that dead letters go to", OBJECT)},
    "/api/dlq/{vhost}": {"GET": pages("Those of a vhost", OBJECT)},
    "/api/dlq/{vhost}/{name}": {
        "GET": shows("Dead letters, without consuming them", many(_MESSAGE), **_PEEK)
    },
    "/api/dlq/{vhost}/{name}/replay": {
        "POST": Doc(
            summary="Send dead letters back to the queues that they died in",
            body=_WHICH,
            answers={200: record("replayed left", **each("replayed left", COUNT))},
        )
    },
    "/api/dlq/{vhost}/{name}/drop": {
        "POST": Doc(
            summary="Drop dead letters for good",
            body=_WHICH,
            answers={200: record("dropped left", **each("dropped left", COUNT))},
        )
    },
    "/api/scheduled": {"GET": pages("Queues with messages that wait for their time", OBJECT)},
    "/api/scheduled/{vhost}": {"GET": pages("Those of a vhost", OBJECT)},
    "/api/scheduled/{vhost}/{name}": {
        "GET": shows("The next to be due", many(OBJECT), count=whole(0, PAGE_MAX))
    },
    "/api/scheduled/{vhost}/{name}/{id}": {
        "PUT": Doc(
            summary="Give a message another time",
            body=record(due_ms=WHOLE, delay_ms=WHOLE),
            answers={204: NOTHING},
        ),
        "DELETE": deletes("Cancel a message"),
    },
    "/queues/{name}/config": {
        "GET": shows("What a queue is and what is bound to it", OBJECT, vhost=TEXT)
    },
}
STREAMS: Final[Docs] = {
    "/api/streams": {"GET": pages("Streams", ref("Stream"))},
    "/api/streams/{vhost}": {"GET": pages("Streams of a vhost", ref("Stream"))},
    "/api/streams/{vhost}/{name}": {"GET": shows("A stream and its partitions", ref("Stream"))},
    "/api/streams/{vhost}/{name}/offsets": {
        "GET": shows(
            "Where partitions begin, end, or stand at a time", many(ref("Offset")), at=TEXT
        )
    },
    "/api/streams/{vhost}/{name}/records": {
        "GET": shows(
            "Records from these offsets on",
            record("records next", records=many(OBJECT), next=OBJECT),
            **{"from": TEXT},
            count=whole(1, PAGE_MAX),
            wait_ms=whole(0, 20_000),
        )
    },
    "/api/streams/{vhost}/{name}/staged": {
        "GET": shows("Rows that wait for their transaction", many(OBJECT)),
        "DELETE": shows(
            "Drop such rows", many(OBJECT), producer=TEXT, user=TEXT, partition=whole(0, 2**31 - 1)
        ),
    },
    "/api/stream-groups/{vhost}": {"GET": shows("Consumer groups", many(OBJECT))},
    "/api/stream-groups/{vhost}/{group}": {
        "GET": shows(
            "Members, offsets and lag of a group",
            record("group members offsets", group=TEXT, **each("members offsets", many(OBJECT))),
        )
    },
    "/api/stream-groups/{vhost}/{group}/offsets": {
        "POST": Doc(
            summary="Set offsets of a group without members",
            body=record("stream", stream=NAME, to=TEXT, offset=COUNT, partitions=many(COUNT)),
            answers={200: many(ref("Offset"))},
        )
    },
}
_MOVED: Final = record("moved", moved=COUNT)
CLUSTER: Final[Docs] = {
    "/api/cluster": {
        "GET": Doc(
            summary="The nodes, as the one that answers sees them",
            answers={200: OBJECT},
            errors=(404,),
        )
    },
    "/api/cluster/queues": {
        "GET": Doc(
            summary="Leader and members of every replicated queue",
            answers={200: many(OBJECT)},
            errors=(404,),
        )
    },
    "/api/cluster/nodes/{name}": {
        "PUT": Doc(
            summary="Let a node join",
            body=record("address", address=TEXT),
            answers={201: NOTHING},
            errors=(409,),
        ),
        "DELETE": dataclasses.replace(deletes("Take a node out for good"), errors=(409,)),
    },
    "/api/cluster/nodes/{name}/drain": {
        "PUT": Doc(
            summary="Move what a node leads elsewhere, and give it nothing new",
            answers={200: _MOVED},
            errors=(409,),
        ),
        "DELETE": dataclasses.replace(deletes("End a drain"), errors=(409,)),
    },
    "/api/cluster/transfer": {
        "POST": Doc(
            summary="Have a node lead a queue",
            body=record("vhost queue node", **each("vhost queue node", TEXT)),
            answers={200: OBJECT},
            errors=(404, 409),
        )
    },
    "/api/cluster/rebalance": {
        "POST": Doc(summary="Spread leaders evenly", answers={200: _MOVED}, errors=(404, 409))
    },
    "/api/rebalance/queues": {
        "POST": Doc(
            summary="The same, as RabbitMQ's clients ask for it",
            answers={204: NOTHING},
            errors=(409,),
        )
    },
}


def _topic(doc: Doc) -> Doc:
    """Of the topics API: problems instead of errors, any vhost, and no tag is needed."""
    query = {**doc.query, "vhost": NAME}
    errors = (*doc.errors, 404, 409)
    return dataclasses.replace(doc, problems=True, query=query, errors=errors)


_RECORD: Final = closed(
    "value",
    key=maybe(TEXT),
    keyEncoding=choice("string", "base64"),
    value=maybe({"type": "string", "contentEncoding": "base64"}),
    headers=maybe(OBJECT),
    partition=maybe(COUNT),
)
_PRODUCED: Final = record(
    "topic partition offset timestamp",
    topic=TEXT,
    partition=COUNT,
    offset=maybe(COUNT),
    timestamp=COUNT,
)
_BATCH: Final = record(
    "topic records", topic=TEXT, records=many({"anyOf": [_PRODUCED, ref("Problem")]})
)
_OFFSETS: Final = many(closed("partition offset", **each("partition offset", COUNT)))
_MOVED_TO: Final = record("topic group offsets", topic=TEXT, group=TEXT, offsets=_OFFSETS)
_MEMBER: Final = {"group": NAME, "session": TEXT}
_OF_TOPIC: Final = "/api/topics/{topic}"
_ROUTES: Final[Docs] = {
    "/api/admin/topics": {
        "GET": shows("Topics that the user may read or configure", many(ref("Topic"))),
        "POST": Doc(
            summary="Make a topic",
            body=closed(
                "name",
                name=NAME,
                partitions=whole(1, 1024, 1),
                replicationFactor=whole(1, 99),
                retentionMs=whole(-1, 10**14),
            ),
            answers={200: ref("Topic"), 201: ref("Topic")},
        ),
    },
    "/api/admin/topics/{topic}": {
        "GET": shows("A topic", ref("Topic")),
        "DELETE": deletes("Delete a topic"),
    },
    f"{_OF_TOPIC}/produce": {
        "POST": Doc(
            summary="Append a record, or a batch of them",
            body={"anyOf": [_RECORD, closed("records", records=many(_RECORD))]},
            answers={200: {"anyOf": [_PRODUCED, _BATCH]}},
            query={"acks": choice("all", "1", "0")},
            errors=(413,),
        )
    },
    f"{_OF_TOPIC}/consume": {
        "GET": shows(
            "The next records for a member of a group, waited for",
            record(
                "session topic group records next",
                **each("session topic group", TEXT),
                records=many(OBJECT),
                next=_OFFSETS,
            ),
            **_MEMBER,
            maxMessages=whole(1, PAGE_MAX, 100),
            timeoutMs=whole(0, WAIT_MS_MAX, 0),
            sessionTimeoutMs=whole(1000, 600_000, 30_000),
            **{"from": choice("first", "next")},
        ),
        "DELETE": deletes("End a session at once", **_MEMBER),
    },
    f"{_OF_TOPIC}/commit": {
        "POST": Doc(
            summary="Commit offsets of a group",
            body=closed("group", **_MEMBER, offsets=maybe(_OFFSETS)),
            answers={200: _MOVED_TO},
        )
    },
    f"{_OF_TOPIC}/seek": {
        "POST": Doc(
            summary="Move a session, or what a group has committed",
            body=closed("group", **_MEMBER, offsets=maybe(_OFFSETS), to=ANY),
            answers={200: _MOVED_TO},
        )
    },
    f"{_OF_TOPIC}/lag": {
        "GET": shows(
            "How far a group is behind, by partition",
            record(
                "topic group lag partitions",
                **each("topic group", TEXT),
                lag=COUNT,
                partitions=many(OBJECT),
            ),
            group=NAME,
        )
    },
}
TOPICS: Final[Docs] = {
    path: {method: _topic(doc) for method, doc in methods.items()}
    for path, methods in _ROUTES.items()
}
