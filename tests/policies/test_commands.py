"""`leveret policy …` as a user runs it, against a running node."""

import json
import socket
from types import SimpleNamespace

import pytest

from broker.cli import run
from tests.shell.process import leveret
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.leveret_only

PREFIX = "commanded"  # the same in every process, for it is in names of tests
NAME = f"{PREFIX}-limits"


@pytest.fixture
def policy(broker: BrokerProcess, api):
    """Runs the command; what it set is gone after the test."""

    def command(*arguments: str):
        return leveret("policy", *arguments, env={"LEVERET_URL": broker.http_url("")})

    yield command
    for kind in ("policies", "operator-policies"):
        for one in api.call("GET", kind).json:
            if one["name"].startswith(PREFIX):
                api.delete_policy(one["name"], kind=kind)


@pytest.fixture
def quick(broker: BrokerProcess, monkeypatch, capsys):
    """Runs the command in this process, for long tables."""
    monkeypatch.setenv("LEVERET_URL", broker.http_url(""))

    def command(*arguments: str):
        code = run(["policy", *arguments])
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return command


def succeeded(result, text: str) -> None:
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == text


def failed(result, code: int, *expected: str) -> None:
    assert (result.returncode, result.stdout) == (code, ""), result
    (line,) = result.stderr.splitlines()
    assert line.startswith("leveret: ")
    for text in expected:
        assert text in line


def mine(result):
    assert result.returncode == 0, result.stderr
    return [one for one in json.loads(result.stdout) if one["name"].startswith(PREFIX)]


def test_a_policy_is_set_changed_listed_and_deleted(policy):
    definition = {"max-length": 5, "message-ttl": 1000}
    set_it = ("set", NAME, "^cmd[.]x", json.dumps(definition))
    succeeded(policy(*set_it), f"policy '{NAME}' is set in vhost '/'\n")
    again = policy(*set_it, "--priority", "-3", "--apply-to", "classic_queues")
    succeeded(again, f"policy '{NAME}' is changed in vhost '/'\n")
    (shown,) = mine(policy("list", "--json"))
    assert shown == {
        "vhost": "/",
        "name": NAME,
        "pattern": "^cmd[.]x",
        "apply-to": "classic_queues",
        "definition": definition,
        "priority": -3,
    }
    assert mine(policy("list", "--json", "--vhost", "/")) == [shown]
    table = policy("list")
    (row,) = [line for line in table.stdout.splitlines() if NAME in line]
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells == ["/", NAME, "^cmd[.]x", "classic_queues", "-3", json.dumps(definition)]
    succeeded(policy("delete", NAME), f"policy '{NAME}' is deleted from vhost '/'\n")
    assert mine(policy("list", "--json")) == []


def test_operator_policies_are_apart(policy):
    set_it = ("set", NAME, "^no-queue$", '{"max-length": 5}', "--operator")
    succeeded(policy(*set_it), f"operator policy '{NAME}' is set in vhost '/'\n")
    assert mine(policy("list", "--json")) == []
    (shown,) = mine(policy("list", "--json", "--operator"))
    assert shown["definition"] == {"max-length": 5}
    deleted = policy("delete", NAME, "--operator")
    succeeded(deleted, f"operator policy '{NAME}' is deleted from vhost '/'\n")


def test_policies_are_listed_in_the_order_in_which_they_are_tried(policy, quick):
    for name, priority in (("b", 0), ("a", 0), ("c", 5)):
        result = quick(
            "set", f"{PREFIX}-{name}", "^none$", '{"max-length": 1}', f"--priority={priority}"
        )
        assert result.returncode == 0, result.stderr
    names = [one["name"].removeprefix(f"{PREFIX}-") for one in mine(quick("list", "--json"))]
    assert names == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("set", NAME, "(", '{"max-length": 1}'), 1, "pattern is not a regular expression"),
        (("set", NAME, "", '{"nope": 1}'), 1, "nope: not recognised as policy settings"),
        (("set", NAME, "", "[]"), 1, "definition must be an object"),
        (("set", NAME, "", "{"), 2, "DEFINITION: not JSON"),
        (("set", NAME, ""), 2, "Missing argument 'DEFINITION'"),
        (("set", NAME, "", "{}", "--priority", "high"), 2, "--priority"),
        (("set", NAME, "", "{}", "--apply-to", "things"), 2, "--apply-to"),
        (("set", NAME, "", "{}", "--vhost", "nope"), 1, "there is no vhost 'nope'"),
        (("delete", NAME), 1, f"there is no policy '{NAME}' in vhost '/'"),
        (("delete", NAME, "--operator"), 1, f"there is no operator policy '{NAME}'"),
        (("list", "--vhost", "nope"), 1, "there is no vhost 'nope'"),
        (("list", "--url", "ftp://127.0.0.1"), 2, "--url: 'ftp://127.0.0.1' is not an http"),
        (("list", "--url", "127.0.0.1:15672"), 2, "is not an http or https address"),
        (("list", "--user", "stranger"), 1, "not authorised: Login failed"),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(quick, arguments, code, expected):
    failed(quick(*arguments), code, expected)


def test_mistakes_are_told_the_same_way_by_a_process_of_its_own(policy):
    failed(policy("set", NAME, "(", '{"max-length": 1}'), 1, "not a regular expression")
    failed(policy("set", NAME), 2, "Missing argument 'PATTERN'")


def test_user_and_password_come_from_options_or_variables(quick, monkeypatch):
    monkeypatch.setenv("LEVERET_PASSWORD", "wrong")
    failed(quick("list"), 1, "Login failed")
    assert quick("list", "--password", "guest").returncode == 0
    monkeypatch.setenv("LEVERET_PASSWORD", "guest")
    monkeypatch.setenv("LEVERET_USER", "stranger")
    failed(quick("list"), 1, "Login failed")
    assert quick("list", "--user", "guest").returncode == 0


def test_a_node_that_is_not_there_is_one_line(quick):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # so that nobody else listens there
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        failed(quick("list", "--url", url), 1, f"cannot reach a node at {url}")


def test_something_else_at_the_address_is_one_line(broker, quick):
    """An AMQP port answers HTTP with its own protocol header."""
    url = f"http://127.0.0.1:{broker.amqp_port}"
    failed(quick("list", "--url", url), 1, f"node at {url}")
