"""`leveret user|vhost|permission …` as a user runs them, against a running node."""

import io
import json
from types import SimpleNamespace

import pytest

from broker.cli import run

pytestmark = pytest.mark.leveret_only


@pytest.fixture
def leveret(broker, monkeypatch, capsys):
    """Runs a command in this process, with this piped in."""
    monkeypatch.setenv("LEVERET_URL", broker.http_url(""))

    def command(*arguments, given=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = run(arguments)
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return command


def said(result):
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


def failed(result):
    assert (result.returncode != 0, result.stdout) == (True, ""), result
    (line,) = result.stderr.splitlines()
    assert line.startswith("leveret: ")
    return line


@pytest.fixture
def names(house):
    names = house.fresh("cmd-u"), house.fresh("cmd-v")
    yield names
    house.api.call("DELETE", "users", names[0])
    house.api.call("DELETE", "vhosts", names[1])


def test_a_user_is_added_changed_limited_and_deleted(leveret, house, names):
    user, _ = names
    told = said(leveret("user", "add", user, "--tag", "management", given="first\n"))
    assert told.startswith(f"user '{user}' is added; it has no permissions yet")
    assert "there is a user" in failed(leveret("user", "add", user, given="x\n"))
    log_in = ("--user", user, "--password")
    assert said(leveret("vhost", "list", "--json", *log_in, "first")) == "[]\n"
    changed = said(leveret("user", "password", user, given="second\n"))
    assert changed == f"the password of user '{user}' is changed\n"
    assert "Login failed" in failed(leveret("vhost", "list", *log_in, "first"))
    assert said(leveret("user", "tag", user, "monitoring", "x")).endswith(": monitoring, x\n")
    assert said(leveret("vhost", "list", "--json", *log_in, "second")) != "[]\n"
    said(leveret("user", "limit", user, "max-connections", "5"))
    listed = {one["name"]: one for one in json.loads(said(leveret("user", "list", "--json")))}
    tags, limits = ["monitoring", "x"], {"max-connections": 5}
    assert listed[user] == {"name": user, "tags": tags, "limits": limits}
    table = said(leveret("user", "list"))
    assert f"{user}" in table
    assert "max-connections 5" in table
    said(leveret("user", "limit", user, "max-connections", "none"))
    assert house.api.call("GET", "user-limits", user).json == []
    said(leveret("user", "password", user, "--none"))
    assert house.api.call("GET", "users", user).json["password_hash"] == ""
    assert said(leveret("user", "delete", user)) == f"user '{user}' is deleted\n"
    assert "there is no user" in failed(leveret("user", "delete", user))


def test_a_vhost_is_added_limited_and_deleted(leveret, house, names):
    _, vhost = names
    add = ("vhost", "add", vhost, "--description", "for tests", "--tag", "a")
    assert said(leveret(*add)) == f"vhost '{vhost}' is added\n"
    assert said(leveret(*add)) == f"vhost '{vhost}' is changed\n"
    said(leveret("vhost", "limit", vhost, "max-queues", "7"))
    listed = {one["name"]: one for one in json.loads(said(leveret("vhost", "list", "--json")))}
    assert listed[vhost] == {
        "name": vhost,
        "description": "for tests",
        "tags": ["a"],
        "limits": {"max-queues": 7},
    }
    assert "for tests" in said(leveret("vhost", "list"))
    result = leveret("vhost", "delete", vhost, given="n\n")
    assert result.returncode != 0
    assert house.api.call("GET", "vhosts", vhost).status == 200
    assert said(leveret("vhost", "delete", vhost, "--yes")) == f"vhost '{vhost}' is deleted\n"
    assert "there is no vhost" in failed(leveret("vhost", "delete", vhost, "--yes"))


def test_permissions_are_set_listed_and_cleared(leveret, house, names):
    user, vhost = names
    said(leveret("vhost", "add", vhost))
    said(leveret("user", "add", user, "--no-password"))
    patterns = ("--configure", "^a", "--write", ".*", "--read", "")
    said(leveret("permission", "set", user, "--vhost", vhost, *patterns))
    mine = ("permission", "list", "--vhost", vhost, "--of", user, "--json")
    row = {"user": user, "vhost": vhost, "configure": "^a", "write": ".*", "read": ""}
    assert json.loads(said(leveret(*mine))) == [row]
    keys = ("--write", "^{username}", "--read", ".*")
    said(leveret("permission", "set-topic", user, "amq.topic", "--vhost", vhost, *keys))
    (topics,) = json.loads(said(leveret(*mine, "--topics")))
    assert (topics["exchange"], topics["write"]) == ("amq.topic", "^{username}")
    assert "^{username}" in said(leveret("permission", "list", "--topics"))
    said(leveret("permission", "clear-topic", user, "amq.topic", "--vhost", vhost))
    said(leveret("permission", "clear", user, "--vhost", vhost))
    assert json.loads(said(leveret(*mine))) == []
    nothing = leveret("permission", "list", "--vhost", vhost, "--of", user)
    assert said(nothing) == "no permissions\n"
    assert "has no permissions" in failed(leveret("permission", "clear", user, "--vhost", vhost))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("user", "add", "x"), "a password is read from standard input"),
        (("user", "limit", "guest", "max-connections", "many"), "neither a whole number nor none"),
        (("user", "limit", "guest", "max-queues", "1"), "max-queues"),
        (("user", "tag", "nobody", "x"), "there is no user 'nobody'"),
        (("permission", "set", "guest", "--configure", ""), "Missing option"),
        (("permission", "clear", "nobody"), "has no permissions"),
        (("user", "list", "--url", "http://127.0.0.1:1"), "cannot reach a node"),
    ],
)
def test_a_mistake_is_told_in_one_line(leveret, arguments, text):
    assert text in failed(leveret(*arguments))


def test_a_pattern_that_is_none_is_told(leveret):
    patterns = ("--configure", "(", "--write", "", "--read", "")
    assert "not a regular expression" in failed(leveret("permission", "set", "guest", *patterns))
