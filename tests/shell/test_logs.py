"""Logs: their two forms, and that no value can pass for another event or field."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger(logs.ROOT)
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before
    ours.setLevel(before[2])


def capture(form: str, level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    logs.setup(level=level, form=form, stream=stream)
    return stream


def test_an_event_is_one_line_of_time_level_name_and_fields() -> None:
    stream = capture("text")
    log = logs.get("connection").bind(peer="127.0.0.1:5000", name="worker 1")
    log.info("open", user="guest", vhost="/")
    expected = r' info connection\.open peer=127\.0\.0\.1:5000 name="worker 1" user=guest vhost=/\n'
    assert re.fullmatch(TIME + expected, stream.getvalue())


def test_an_event_in_json_is_one_object_on_one_line() -> None:
    stream = capture("json")
    logs.get("connection").warning("blocked", name="worker 1", ready=3, alarm=True, reason=None)
    event = json.loads(stream.getvalue())
    assert re.fullmatch(TIME, event.pop("time"))
    assert event == {
        "level": "warning",
        "event": "connection.blocked",
        "name": "worker 1",
        "ready": 3,
        "alarm": True,
        "reason": None,
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("zoë-日本", "zoë-日本"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nfeed\r", r'"line\nfeed\r"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("next\u2028line\u0085", r'"next\u2028line\u0085"'),
        ("\u202egnp.exe", r'"\u202egnp.exe"'),
        ("\ud800", r'"\ud800"'),
        (b"caf\xe9", r'"caf\\xe9"'),
        (7, "7"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_a_value_is_quoted_and_escaped_where_it_must_be(value: object, shown: str) -> None:
    stream = capture("text")
    logs.get("x").info("y", value=value)
    assert stream.getvalue().removesuffix("\n").split(" ", 3)[3] == f"value={shown}"


FORGED = "bob\n2026-01-01T00:00:00.000Z info auth.granted user=admin"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_hostile_name_cannot_forge_an_event(form: str) -> None:
    stream = capture(form)
    logs.get("connection").bind(name=FORGED).info("open")
    assert len(stream.getvalue().splitlines()) == 1


@settings(derandomize=True)
@given(value=st.text())
def test_any_text_can_be_read_back_out_of_a_line(value: str) -> None:
    stream = capture("text")
    logs.get("x").info("y", first=value, last="end")
    (line,) = stream.getvalue().splitlines()
    fields = line.split(" ", 3)[3]
    assert fields.endswith(" last=end")
    shown = fields.removeprefix("first=").removesuffix(" last=end")
    cut = value if len(value) <= logs.VALUE_CHARS_MAX else value[: logs.VALUE_CHARS_MAX] + "…"
    assert (json.loads(shown) if shown.startswith('"') else shown) == cut


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_huge_value_is_cut(form: str) -> None:
    stream = capture(form)
    logs.get("x").info("y", value="n" * 100_000)
    assert len(stream.getvalue()) < 2 * logs.VALUE_CHARS_MAX


def fail(message: str) -> BaseException:
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        return error


def test_a_traceback_follows_its_event_on_lines_that_cannot_be_taken_for_events() -> None:
    stream = capture("text")
    logs.get("channel").exception("bug", fail(FORGED + "\x1b[2K\u202e"), name="w")
    first, *rest = stream.getvalue().splitlines()
    assert re.fullmatch(TIME + " error channel.bug name=w", first)
    assert rest[0] == "  | Traceback (most recent call last):"
    assert all(line.startswith("  | ") for line in rest)
    assert any("RuntimeError: bob" in line for line in rest)
    assert rest[-1].endswith(r"\u001b[2K\u202e")


def test_a_traceback_is_a_field_in_json() -> None:
    stream = capture("json")
    logs.get("channel").exception("bug", fail(FORGED))
    (line,) = stream.getvalue().splitlines()
    assert "RuntimeError: bob" in json.loads(line)["traceback"]


def test_events_below_the_level_are_not_formatted_at_all() -> None:
    class Explosive:
        def __str__(self) -> str:
            raise AssertionError("was formatted")

    stream = capture("text", level="warning")
    log = logs.get("x")
    log.debug("a", value=Explosive())
    log.info("b", value=Explosive())
    log.warning("c")
    log.error("d")
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == ["x.c", "x.d"]


def test_a_bound_log_leaves_its_parent_as_it_was() -> None:
    stream = capture("text")
    parent = logs.get("x")
    parent.bind(name="child").bind(channel=1).info("a")
    parent.info("b")
    child, own = stream.getvalue().splitlines()
    assert child.endswith("x.a name=child channel=1")
    assert own.endswith("x.b")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_librarys_warning_has_the_same_form(form: str) -> None:
    stream = capture(form)
    logging.getLogger("trio.serve_listeners").warning("out of %s\n", "files")
    logging.getLogger("trio.serve_listeners").info("chatter")
    (line,) = stream.getvalue().splitlines()
    if form == "json":
        assert json.loads(line)["message"] == "out of files\n"
    else:
        assert line.endswith(r'warning trio.serve_listeners message="out of files\n"')


@pytest.mark.parametrize("name", sorted(logs.RESERVED_FIELDS))
def test_a_field_cannot_take_the_name_of_a_part_of_every_event(name: str) -> None:
    capture("json")
    field: dict[str, Any] = {name: 1}
    with pytest.raises(AssertionError):
        logs.get("x").info("y", **field)
    with pytest.raises(AssertionError):
        logs.get("x").bind(**field)
