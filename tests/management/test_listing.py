"""Lists: pages, names, order, columns; and that only what is shown is made."""

import json
import re
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.http.messages import HttpError, Request
from broker.management.history import Series
from broker.management.listing import (
    Wanted,
    answer_rows,
    in_order,
    make_row,
    pick_columns,
    sort_key,
    wanted,
)
from broker.management.patterns import search_pattern
from broker.management.queue_ranks import rank_of
from broker.management.rates import GIVEN, TICK_S, View
from broker.management.sampler import QUEUE_FIELDS
from broker.management.totals import LENGTH_FIELDS
from tests.support.admin import Api


def ask(**query: str) -> Request:
    return Request(method="GET", path="/", query={key: [text] for key, text in query.items()})


@pytest.fixture(scope="module")
def many(node):
    """Queues q000 to q249, with as many messages as the last digit says."""
    api = Api(node.host, node.http_port)
    names = [f"q{number:03}" for number in range(250)]
    queues = [{"name": name, "vhost": "/", "arguments": {}} for name in names]
    assert api.call("POST", "definitions", body={"queues": queues}).status == 204
    publish = {"properties": {}, "payload": "x", "payload_encoding": "string"}
    for name in names[:10]:
        for _ in range(int(name[-1])):
            body = {**publish, "routing_key": name}
            api.call("POST", "exchanges", "/", "amq.default", "publish", body=body)
    api.close()
    return names


def page(web: Api, query: str):
    answer = web.call("GET", "queues", query=query)
    assert answer.status == 200, answer
    return answer.json


def test_pages_follow_each_other_without_gap(web: Api, many: list[str]) -> None:
    seen = []
    for number in (1, 2, 3):
        shown = page(web, f"page={number}&page_size=100")
        assert (shown["page"], shown["page_count"], shown["page_size"]) == (number, 3, 100)
        assert shown["total_count"] == shown["filtered_count"] == 250
        assert shown["item_count"] == len(shown["items"])
        seen += [row["name"] for row in shown["items"]]
    assert seen == many


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("page=1&name=Q24", [f"q24{n}" for n in range(10)]),
        ("page=1&name=^q.*0$&use_regex=true&page_size=3", ["q000", "q010", "q020"]),
        ("page=1&sort=name&sort_reverse=true&page_size=2", ["q249", "q248"]),
        ("page=1&sort=messages&sort_reverse=true&page_size=3", ["q009", "q008", "q007"]),
        ("page=2&sort=messages&sort_reverse=true&page_size=3", ["q006", "q005", "q004"]),
        ("page=1&sort=nothing&page_size=1", ["q000"]),
        ("page=3&page_size=125", []),
    ],
)
@pytest.mark.usefixtures("many")
def test_filter_and_order(web: Api, query: str, names: list[str]) -> None:
    assert [row["name"] for row in page(web, query)["items"]] == names


@pytest.mark.usefixtures("many")
def test_columns_are_those_asked_for(web: Api) -> None:
    query = "page=1&page_size=1&columns=name,message_stats.publish,nothing,arguments.x"
    assert page(web, "sort=messages&sort_reverse=true&" + query)["items"] == [
        {"name": "q009", "message_stats": {"publish": 9}}
    ]
    plain = page(web, "columns=name")
    assert len(plain) == 250
    assert plain[0] == {"name": "q000"}


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("page=0", "invalid_pagination_parameters"),
        ("page=1&page_size=501", "invalid_pagination_parameters"),
        ("page=1&page_size=0", "invalid_pagination_parameters"),
        ("page=x", "bad_request"),
        ("page=1&page_size=-1", "bad_request"),
        ("page=99999999999", "bad_request"),
        ("page=1&name=(&use_regex=true", "bad_request"),
        ("page=4&page_size=100", "page_out_of_range"),
        ("lengths_age=x&lengths_incr=5", "bad_request"),
        ("lengths_age=99999999&lengths_incr=5", "bad_request"),
    ],
)
@pytest.mark.usefixtures("many")
def test_what_cannot_be_meant_is_refused(web: Api, query: str, error: str) -> None:
    answer = web.call("GET", "queues", query=query)
    assert (answer.status, answer.json["error"]) == (400, error)


ROWS = st.lists(
    st.fixed_dictionaries(
        {"name": st.text("abc", max_size=3)},
        optional={"n": st.none() | st.integers(-3, 3) | st.text("xy", max_size=2)},
    ),
    max_size=30,
)


@given(ROWS, st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_a_page_is_a_slice_of_the_sorted_list(rows, number, size, reverse) -> None:
    numbered = [{**row, "place": place} for place, row in enumerate(rows)]

    def key(row):
        return (sort_key(row.get("n")), row["place"])

    whole = sorted(numbered, key=key, reverse=reverse)
    wish = Wanted(page=number, page_size=size, sort=("n",), reverse=reverse)
    assert in_order(numbered, key, wish)[wish.first :] == whole[wish.first : wish.end]


@given(ROWS, st.integers(1, 9))
def test_rows_that_are_made_already_are_paged_alike(rows, size) -> None:
    request = ask(page="1", page_size=str(size), sort="n")
    answer = trio.run(answer_rows, request, rows, lambda row: row["name"])
    expected = sorted(rows, key=lambda row: (sort_key(row.get("n")), row["name"]))[:size]
    assert json.loads(answer.body)["items"] == expected


def test_only_the_columns_that_are_wanted_are_computed() -> None:
    asked = []
    columns = {name: lambda item, name=name: asked.append(name) or item for name in "abc"}
    assert make_row(7, columns, wanted(ask(columns="b"))) == {"b": 7}
    assert asked == ["b"]


def test_columns_reach_into_objects() -> None:
    row = {"a": {"b": {"c": 1, "d": 2}}, "e": 3}
    assert pick_columns(row, wanted(ask(columns="a.b.c,e,e.f,x"))) == {"a": {"b": {"c": 1}}, "e": 3}


@pytest.mark.parametrize(
    "pattern", ["(a+)+$x", "(a|a)*b", "(.*)*x", "a*a*a*a*b", "^" + "a?" * 40 + "a" * 40 + "b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """With an engine that tries again each of these would take longer than the test may."""
    assert not search_pattern(pattern).found_in("A" * 65536)


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?!x)", "x" * 1001])
def test_what_cannot_be_matched_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        search_pattern(pattern)


@pytest.mark.parametrize("pattern", ["^q", "orders.*eu$", "(a|b)c", "[a-z]{2,5}", r"\d+\.dlq"])
def test_patterns_that_people_use_are_taken(pattern: str) -> None:
    texts = ["q1", "Orders in EU", "xBC", "ab", "7.dlq", ""]
    expected = [re.search(pattern, text, re.IGNORECASE) is not None for text in texts]
    assert [search_pattern(pattern).found_in(text) for text in texts] == expected


def test_a_page_that_is_none_is_an_error() -> None:
    with pytest.raises(HttpError, match="page number 0"):
        wanted(ask(page="0"))


# Of queues, straight ways to what they are sorted by

RANKED = [
    *("messages", "messages_ready", "messages_unacknowledged", "consumers", "message_bytes"),
    *("messages_ram", "memory", "type", "durable", "auto_delete", "exclusive", "policy"),
    *("operator_policy", "arguments", "state", "node"),
    *("message_stats.publish", "message_stats.deliver_get", "message_stats.ack"),
]


@pytest.mark.parametrize("path", RANKED)
@pytest.mark.usefixtures("many")
def test_queues_are_in_the_order_of_what_their_rows_say(web: Api, path: str) -> None:
    def value(row):
        for part in path.split("."):
            row = (row or {}).get(part)
        return row or (0 if path.startswith("message_stats") else row)

    for reverse in (False, True):
        rows = page(web, f"sort={path}&sort_reverse={str(reverse).lower()}&columns=name,{path}")
        shown = [(sort_key(value(row)), row["name"]) for row in rows]
        assert shown == sorted(shown, reverse=reverse)
        assert len(shown) == 250


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=6),
    st.sampled_from(["publish", "ack", "deliver_get", "messages", "messages_ready"]),
)
def test_the_rank_of_a_rate_is_the_rate_that_is_shown(samples, name: str) -> None:
    """For samples at ticks up to the last and beyond it, as while they are being taken."""
    tick, series, total = 5, Series(len(QUEUE_FIELDS)), 0
    for at, more in sorted(samples):
        total += more
        if not len(series) or series.last_tick < at:
            series.add(at, [total + place for place in range(len(QUEUE_FIELDS))], most=10)
    sampler = SimpleNamespace(tick=tick, queues={b"u": series}.items)
    if name.startswith("messages"):
        path = (f"{name}_details", "rate")
        names = LENGTH_FIELDS if name == "messages" else (name,)
    else:
        path = ("message_stats", f"{name}_details", "rate")
        names = GIVEN if name == "deliver_get" else (name,)
    shown = View(series, QUEUE_FIELDS, tick).rate(*names)
    rank = rank_of(path, sampler, None)
    assert rank(SimpleNamespace(uid=b"u")) == shown * TICK_S
    assert rank(SimpleNamespace(uid=b"another")) == 0
