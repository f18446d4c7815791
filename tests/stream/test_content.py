"""Messages as records and records as deliveries: what comes out is what went in, and its place."""

from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from broker.channel.records import RecordWriter
from queues.stream.content import header_key, is_tombstone, take_apart
from queues.stream.filtering import HeaderFilter
from queues.stream.publishing import divide, partition_of, records_of
from queues.stream.subscription import Records
from tests.protocol.pamqp_frames import unmarshal_all
from tests.stream.scene import messages

# Not empty: pamqp leaves such properties out.
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8)
HEADERS = st.dictionaries(
    st.text("abxyz-", min_size=1, max_size=8), TEXT | st.integers(-9, 9) | st.booleans(), max_size=4
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXT,
        "content_encoding": TEXT,
        "headers": HEADERS,
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 9),
        "correlation_id": TEXT,
        "message_id": TEXT,
        "app_id": TEXT,
    },
)
MESSAGES = st.lists(st.tuples(st.binary(max_size=30), PROPERTIES), min_size=1, max_size=6)


def delivered(records, *, frame_max=131072, channel=3, first=7):
    """The deliveries as pamqp reads them: (tag, method, properties, body)."""
    pieces, size = RecordWriter(channel).write("tag", first, records, frame_max)
    data = b"".join(pieces)
    assert abs(len(data) - size) <= 8 * (2 + len(data) // 20)
    found = []
    for number, frame in unmarshal_all(data):
        assert number == channel
        if isinstance(frame, commands.Basic.Deliver):
            found.append([frame.delivery_tag, frame, None, b""])
        elif hasattr(frame, "properties"):
            found[-1][2] = frame
        else:
            assert len(frame.value) <= frame_max - 8
            found[-1][3] += frame.value
    for one in found:
        assert one[2].body_size == len(one[3])
    return [(tag, method, head.properties, body) for tag, method, head, body in found]


@given(MESSAGES, st.integers(0, 2**62), st.integers(0, 1023))
def test_a_delivery_has_all_that_was_published_and_its_place(given_, offset, partition):
    published = [messages(body, exchange="x", key="k", **props)[0] for body, props in given_]
    columns = records_of(published)
    offsets = range(offset, offset + len(published))
    records = Records(partition, offsets, columns.properties, columns.values)
    got = delivered(records, frame_max=20)
    assert [tag for tag, _, _, _ in got] == list(range(7, 7 + len(published)))
    for place, ((body, props), (_, method, found, came)) in enumerate(
        zip(given_, got, strict=True)
    ):
        assert came == body
        assert (method.exchange, method.routing_key, method.redelivered) == ("x", "k", False)
        headers = dict(found.headers)
        assert headers.pop("x-stream-offset") == offset + place
        assert headers.pop("x-stream-partition") == partition
        assert headers == props.get("headers", {})
        for name in PROPERTIES_NAMES:
            assert getattr(found, name) == props.get(name), name


PROPERTIES_NAMES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "message_id",
    "app_id",
)


def test_records_of_other_origin_are_delivered_too():
    """A bulk publisher need not give properties, and may make up senseless ones."""
    for properties in (b"", b"\xff", b"\0\0\0", b"\0\0\x20\0\0\0\0\x05abc", b"\0\0\0\1", b"\7abc"):
        records = Records(1, [5], [properties], [b"value"])
        ((_, method, found, body),) = delivered(records)
        assert (method.exchange, method.routing_key, body) == ("", "", b"value")
        assert found.headers == {"x-stream-offset": 5, "x-stream-partition": 1}


def test_a_null_value_is_delivered_as_an_empty_body():
    ((_, _, _, body),) = delivered(Records(0, [1], [b""], [None]))
    assert body == b""


@given(
    st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=30),
    st.integers(1, 7),
    st.integers(0, 6),
)
def test_every_record_goes_to_one_partition_in_its_order(keys, partitions, turn):
    made = records_of(messages(*[b"%d" % n for n in range(len(keys))]))
    made.keys[:] = keys
    shares = dict(divide(made, partitions, turn))
    assert sorted(int(v) for share in shares.values() for v in share.values) == list(
        range(len(keys))
    )
    for number, share in shares.items():
        places = [int(value) for value in share.values]
        assert places == sorted(places)
        for place, key in zip(places, share.keys, strict=True):
            assert key == keys[place]
            assert key is None or partition_of(key, partitions) == number
    loose = [n for share in shares.items() for n in [share[0]] * share[1].keys.count(None)]
    counts = [loose.count(number) for number in range(partitions)]
    assert max(counts) - min(counts) <= 1


@given(HEADERS)
def test_headers_are_found_by_name_and_value(headers):
    (message,) = messages(b"", headers=headers)
    (properties,) = records_of([message]).properties
    for name, value in headers.items():
        assert HeaderFilter({name: value}).wants(properties)
        assert not HeaderFilter({name: "another value"}).wants(properties)
        assert not HeaderFilter({name: value, "missing": 1}).wants(properties)
    assert not HeaderFilter({"missing": True}).wants(properties)
    assert header_key(properties) is None
    assert not is_tombstone(properties)


@given(PROPERTIES, TEXT | st.integers(-9, 9), st.booleans())
def test_the_partition_key_is_found_wherever_it_stands(others, key, first):
    rest, mine = others.pop("headers", {}), {"x-partition-key": key}
    headers = mine | rest if first else rest | mine
    (message,) = messages(b"", headers=headers, **others)
    assert records_of([message]).keys == [str(key).encode()]


@given(PROPERTIES)
def test_what_looks_like_a_partition_key_elsewhere_is_none(others):
    others.pop("headers", None)
    others["correlation_id"] = "x-partition-key"
    (message,) = messages(b"", headers={"a": "b"}, **others)
    assert records_of([message]).keys == [None]
    kept = b"\0\1s" + b"\x26\0" + bytes(4) + b"\x0fx-partition-key" + b"S" + bytes(83)
    assert header_key(kept) is None


def test_properties_are_taken_apart_where_headers_would_stand():
    (message,) = messages(b"", content_type="t", message_id="m")
    kept = take_apart(records_of([message]).properties[0])
    assert (kept.before, kept.headers, kept.behind) == (b"\1t", b"", b"\1m")
