"""Parts of the commands by themselves: JSON there and back, pace, what all commands have."""

import contextlib
import json

import click
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.cli import leveret
from clients.commands.message_json import check_properties, json_value, parse_message, text_of
from clients.commands.pacing import Pace
from clients.commands.values import parse_values

DAILY = (
    "publish",
    "consume",
    "tail",
    "get",
    "queues",
    "exchanges",
    "bindings",
    "purge",
    "bench",
)


@given(st.binary(max_size=300))
def test_any_body_survives_json(body):
    payload, encoding = text_of(body)
    line = json.dumps({"payload": payload, "payload_encoding": encoding}).encode()
    assert parse_message(line).body == body


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_what_json_can_hold_is_left_as_it_is(value):
    assert json_value(value) == value


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_a_line_of_anything_is_a_message_or_a_reason(line):
    with contextlib.suppress(ValueError):  # and nothing else
        assert isinstance(parse_message(line).body, bytes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("{}", "payload"),
        ('{"payload": null}', "payload"),
        ('{"payload": "x", "payload_encoding": "rot13"}', "rot13"),
        ('{"payload": "x!", "payload_encoding": "base64"}', "base64"),
        ('{"payload": "x", "routingkey": "q"}', "'routingkey'"),
        ('{"payload": "x", "routing_key": 7}', "routing_key"),
        ('{"payload": "x", "properties": []}', "not a JSON object"),
        ('{"payload": "x", "properties": {"color": "red"}}', "'color'"),
        ('{"payload": "x", "properties": {"priority": "high"}}', "whole number"),
        ('{"payload": "x", "properties": {"priority": true}}', "whole number"),
        ('{"payload": "x", "properties": {"expiration": 1000}}', "a text"),
        ('{"payload": "x", "properties": {"headers": ["a"]}}', "an object"),
        ('{"payload": "\\ud800"}', "surrogates"),
    ],
)
def test_a_line_that_is_no_message_is_told_why(line, reason):
    with pytest.raises(ValueError, match=reason):
        parse_message(line.encode())


def test_properties_are_as_amqp_has_them():
    check_properties({"headers": {"a": 1}, "priority": 3, "message_id": "x"})


def test_values_are_json_where_they_can_be():
    given_values = ("a=1", "b=true", 'c="1"', "d=text", "e=", "f=[1]", "g=" + "[" * 100_000)
    found = parse_values(given_values, "--header")
    assert found.pop("g") == "[" * 100_000
    assert found == {"a": 1, "b": True, "c": "1", "d": "text", "e": "", "f": [1]}


async def test_a_pace_is_kept(autojump_clock):
    pace = Pace(10)
    start = trio.current_time()
    for _ in range(21):
        await pace.wait()
    assert trio.current_time() - start == pytest.approx(2.0)


async def test_lost_time_is_made_up_for_by_a_second_at_most(autojump_clock):
    pace = Pace(10)
    await pace.wait()
    await trio.sleep(100)
    start = trio.current_time()
    for _ in range(31):
        await pace.wait()
    assert trio.current_time() - start == pytest.approx(2.0, abs=0.15)


def _leaves(command: click.Command, path: tuple[str, ...]):
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, command


LEAVES = [leaf for name in DAILY for leaf in _leaves(leveret.commands[name], (name,))]


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_every_daily_command_has_json_help_and_the_broker_to_reach(path, command):
    flags = {flag for option in command.params for flag in option.opts}
    assert {"--json", "--user", "--password"} <= flags
    assert flags & {"--url", "--amqp-url"}
    assert all(option.help for option in command.params if isinstance(option, click.Option)), path
    assert command.help
