"""`leveret schema …` against the broker."""

import json

import pytest

from broker.cli import run
from broker.schema_commands import _legible
from tests.registry.conftest import field, fresh

pytestmark = pytest.mark.leveret_only


@pytest.fixture
def leveret(broker, monkeypatch, capsys):
    monkeypatch.setenv("LEVERET_URL", broker.http_url(""))

    def command(*arguments):
        code = run(["schema", *arguments])
        out = capsys.readouterr()
        return code, out.out, out.err

    return command


@pytest.fixture
def file_of(tmp_path):
    def write(schema):
        path = tmp_path / f"{fresh()}.avsc"
        path.write_text(json.dumps(schema))
        return str(path)

    return write


def test_from_registering_to_deleting(leveret, file_of, subject, unique, web):
    code, out, _ = leveret("register", subject, file_of(unique))
    one = web.call("GET", "subjects", subject, "versions", "1").json["id"]
    assert (code, out) == (0, f"subject '{subject}' has it as version 1, id {one}\n")
    wider = {**unique, "fields": [*unique["fields"], field("b", default=1)]}
    assert leveret("check", subject, file_of(wider))[:2] == (0, "compatible\n")
    other = {**unique, "fields": [field("a", "string")]}
    code, _, err = leveret("check", subject, file_of(other))
    assert code == 1
    assert err.startswith("leveret: not compatible: the new schema cannot read data of version 1: ")
    code, _, err = leveret("register", subject, file_of(other))
    assert code == 1
    assert "incompatible with an earlier schema" in err
    assert leveret("register", subject, file_of(wider))[0] == 0
    assert json.loads(leveret("show", subject)[1]) == wider
    assert json.loads(leveret("show", subject, "--version", "1")[1]) == unique
    row = json.loads(leveret("show", subject, "--version", "1", "--json")[1])
    assert (row["version"], row["id"]) == (1, one)
    listed = leveret("list", "--prefix", subject)[1]
    assert unique["name"] in listed
    assert "(a, b)" in listed
    assert len(json.loads(leveret("list", "--prefix", subject, "--json")[1])) == 2
    assert leveret("delete", subject, "--version", "1")[1] == (
        f"subject '{subject}': version 1 deleted\n"
    )
    assert leveret("delete", subject)[1] == f"subject '{subject}': version 2 deleted\n"
    assert leveret("list", "--prefix", subject)[1] == "no schemas\n"
    assert "yes" in leveret("list", "--prefix", subject, "--deleted")[1]
    assert leveret("delete", subject, "--permanent")[1] == (
        f"subject '{subject}': version 1, 2 deleted for good\n"
    )


def test_levels(leveret, subject):
    assert leveret("config")[1] == "BACKWARD\n"
    assert leveret("config", subject, "--level", "full")[1] == "FULL\n"
    assert leveret("config", subject)[1] == "FULL\n"
    assert leveret("config", subject, "--unset")[1] == "BACKWARD\n"


def test_types_of_other_schemas(leveret, file_of, subject, unique, web):
    web.registered(subject, unique)
    user, name = fresh(), unique["name"]
    schema = {"type": "array", "items": name}
    given = ("--ref", f"{name}={subject}:1")
    assert leveret("register", user, file_of(schema), *given)[0] == 0
    assert leveret("register", user, file_of(schema), "--ref", "wrong")[0] == 2


def test_mistakes_are_told_in_one_line(leveret, file_of, subject):
    code, _, err = leveret("show", subject)
    assert (code, err) == (1, f"leveret: Subject '{subject}' not found.\n")
    code, _, err = leveret("register", subject, file_of({"type": "none"}))
    assert (code, err.count("\n")) == (1, 1)
    assert "Invalid schema" in err


def test_a_schema_is_shown_without_what_steers_a_terminal() -> None:
    shown = _legible({"doc": "gr\u00fcn \u009b31m \u202e \x1b[2J"})
    assert "gr\u00fcn" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert json.loads(shown) == {"doc": "gr\u00fcn \u009b31m \u202e \x1b[2J"}
