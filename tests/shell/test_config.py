"""Settings: where a value comes from, and what is said about a wrong one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from broker.config import SETTINGS, Config
from broker.settings import (
    Choice,
    ConfigError,
    Directory,
    FlagError,
    Names,
    Seconds,
    Text,
    WholeNumber,
)
from broker.user_settings import PermissionConfig, UserConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def write_toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "leveret.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_with_nothing_given_the_defaults_hold() -> None:
    assert Config.load(None, {}, {}) == Config()


def test_a_variable_beats_the_file_and_a_flag_beats_both(write_toml: Any) -> None:
    path = write_toml("amqp_port = 1\nhttp_port = 1\nchannel_max = 1")
    env = {"LEVERET_HTTP_PORT": "2", "LEVERET_CHANNEL_MAX": "2"}
    config = Config.load(path, env, {"channel_max": "3"})
    assert (config.amqp_port, config.http_port, config.channel_max) == (1, 2, 3)


def test_every_field_but_the_users_is_a_setting_with_a_variable_and_a_flag() -> None:
    fields = {field.name for field in dataclasses.fields(Config)}
    assert fields - {setting.name for setting in SETTINGS} == {"users"}
    by_name = {setting.name: setting for setting in SETTINGS}
    assert by_name["frame_max_bytes"].variable == "LEVERET_FRAME_MAX_BYTES"
    assert by_name["frame_max_bytes"].flag == "--frame-max-bytes"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_default_is_a_value_its_own_setting_allows(setting: Any) -> None:
    default = getattr(Config(), setting.name)
    assert setting.kind.check(default) == default
    if "<" not in setting.default_text:
        assert setting.kind.from_text(setting.default_text) == default


def test_every_kind_of_value_can_be_given_as_text() -> None:
    env = {
        "LEVERET_HOST": "localhost",
        "LEVERET_DATA_DIR": "some/dir",
        "LEVERET_VHOSTS": "/, staging",
        "LEVERET_LOOPBACK_USERS": "",
        "LEVERET_HANDSHAKE_TIMEOUT_S": "2.5",
        "LEVERET_LOG_FORMAT": "json",
    }
    config = Config.load(None, env, {})
    assert config.host == "localhost"
    assert config.data_dir == Path("some/dir")
    assert config.vhosts == ("/", "staging")
    assert config.loopback_users == ()
    assert config.handshake_timeout_s == 2.5
    assert config.log_format == "json"


def test_a_whole_number_of_seconds_in_the_file_becomes_a_float(write_toml: Any) -> None:
    config = Config.load(write_toml("shutdown_grace_s = 3"), {}, {})
    assert config.shutdown_grace_s == 3.0
    assert isinstance(config.shutdown_grace_s, float)


def test_guest_may_do_everything_in_every_vhost_when_no_users_are_configured() -> None:
    config = Config.load(None, {"LEVERET_VHOSTS": "/,a"}, {})
    (user,) = config.users
    assert user.name == "guest"
    assert user.tags == ("administrator",)
    assert [p.vhost for p in user.permissions] == ["/", "a"]


def test_users_are_read_with_their_tags_and_permissions(write_toml: Any) -> None:
    path = write_toml(
        """
        vhosts = ["/", "shop"]

        [[users]]
        name = "admin"
        password_hash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
        tags = ["administrator"]

        [[users]]
        name = "worker"
        password = "s3cret"

        [[users.permissions]]
        vhost = "shop"
        write = "^orders"
        read = ".*"
        """
    )
    admin, worker = Config.load(path, {}, {}).users
    assert admin.tags == ("administrator",)
    assert admin.password is None
    assert worker == UserConfig(
        name="worker",
        password="s3cret",
        permissions=(PermissionConfig(vhost="shop", configure="", write="^orders", read=".*"),),
    )


def test_secrets_do_not_show_when_a_config_is_printed(write_toml: Any) -> None:
    path = write_toml('[[users]]\nname = "u"\npassword = "s3cret"')
    assert "s3cret" not in repr(Config.load(path, {}, {}))


NUMBER = "it must be a whole number from 0 to 65535"

WRONG_TEXTS = [
    ("amqp_port", "abc", NUMBER),
    ("amqp_port", "", NUMBER),
    ("amqp_port", "65536", NUMBER),
    ("amqp_port", "-1", NUMBER),
    ("heartbeat_s", "1.5", NUMBER),
    ("frame_max_bytes", "4095", "from 4096 to 16777216"),
    ("handshake_timeout_s", "0", "a number of seconds from 0.01 to 600"),
    ("handshake_timeout_s", "nan", "a number of seconds"),
    ("shutdown_grace_s", "inf", "a number of seconds"),
    ("host", "", "a text that is not empty"),
    ("data_dir", "", "the path of a directory"),
    ("node_name", "two@at@signs", "of the form name or name@host"),
    ("node_name", "a b@c", "of the form name or name@host"),
    ("advertised_host", "a b", "a text without blanks"),
    ("vhosts", "", "a list of at least 1 name"),
    ("vhosts", "a,,b", "a list of at least 1 name"),
    ("vhosts", "a,a", "none twice"),
    ("log_level", "loud", "one of debug, info, warning, error"),
    ("log_format", "xml", "one of text, json"),
]


@pytest.mark.parametrize(("name", "text", "allowed"), WRONG_TEXTS)
def test_a_wrong_variable_is_named_with_its_value_and_what_is_allowed(
    name: str, text: str, allowed: str
) -> None:
    variable = "LEVERET_" + name.upper()
    with pytest.raises(ConfigError) as caught:
        Config.load(None, {variable: text}, {})
    message = str(caught.value)
    assert message.startswith(f"variable {variable}: {text!r} is not allowed; it must be ")
    assert allowed in message


@pytest.mark.parametrize(("name", "text", "allowed"), WRONG_TEXTS)
def test_a_wrong_flag_is_named_with_its_value_and_what_is_allowed(
    name: str, text: str, allowed: str
) -> None:
    flag = "--" + name.replace("_", "-")
    with pytest.raises(FlagError) as caught:
        Config.load(None, {}, {name: text})
    message = str(caught.value)
    assert message.startswith(f"flag {flag}: {text!r} is not allowed; it must be ")
    assert allowed in message


@pytest.mark.parametrize(
    ("line", "shown", "allowed"),
    [
        ('amqp_port = "5672"', "'5672'", NUMBER),
        ("amqp_port = true", "True", NUMBER),
        ("amqp_port = 70000", "70000", NUMBER),
        ("handshake_timeout_s = true", "True", "a number of seconds"),
        ("handshake_timeout_s = 1e9", "1000000000.0", "a number of seconds"),
        ("host = 1", "1", "a text"),
        ("data_dir = 1", "1", "the path of a directory"),
        ('vhosts = "/"', "'/'", "a list"),
        ("vhosts = [1]", "[1]", "a list"),
        ("log_level = 1", "1", "one of debug"),
    ],
)
def test_a_wrong_key_is_named_with_its_file_its_value_and_what_is_allowed(
    write_toml: Any, line: str, shown: str, allowed: str
) -> None:
    path = write_toml(line)
    with pytest.raises(ConfigError) as caught:
        Config.load(path, {}, {})
    message = str(caught.value)
    key = line.split(maxsplit=1)[0]
    assert message.startswith(f"{path}, key {key}: {shown} is not allowed; it must be ")
    assert allowed in message


def test_an_unknown_key_variable_or_override_is_refused_by_name(write_toml: Any) -> None:
    with pytest.raises(ConfigError, match=r"leveret\.toml, key amqp_prot: there is no such sett"):
        Config.load(write_toml("amqp_prot = 1"), {}, {})
    with pytest.raises(ConfigError, match="variable LEVERET_AMQP_PROT: there is no such setting"):
        Config.load(None, {"LEVERET_AMQP_PROT": "1"}, {})
    with pytest.raises(FlagError, match="flag --amqp-prot: there is no such setting"):
        Config.load(None, {}, {"amqp_prot": "1"})


def test_variables_kubernetes_makes_for_a_service_called_leveret_do_no_harm() -> None:
    env = {
        "LEVERET_SERVICE_HOST": "10.0.0.1",
        "LEVERET_SERVICE_PORT": "5672",
        "LEVERET_SERVICE_PORT_AMQP": "5672",
        "LEVERET_PORT": "tcp://10.0.0.1:5672",
        "LEVERET_PORT_5672_TCP": "tcp://10.0.0.1:5672",
        "LEVERET_PORT_5672_TCP_ADDR": "10.0.0.1",
    }
    assert Config.load(None, env, {}) == Config()


def test_the_variable_that_names_the_config_file_is_not_a_setting() -> None:
    assert Config.load(None, {"LEVERET_CONFIG": "x.toml"}, {}) == Config()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read: No such file"):
        Config.load(tmp_path / "gone.toml", {}, {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        Config.load(tmp_path, {}, {})


def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path: Path, write_toml: Any) -> None:
    with pytest.raises(ConfigError, match=r"leveret\.toml: is not TOML: .*line 2"):
        Config.load(write_toml("amqp_port = 1\nhttp_port =\n"), {}, {})
    (tmp_path / "latin.toml").write_bytes(b"host = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin\.toml: is not UTF-8 text"):
        Config.load(tmp_path / "latin.toml", {}, {})


NAMED = 'name = "u"\npassword = "p"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("users = 3", "key users: 3 is not allowed; it must be a list of tables"),
        ("users = [3]", "key users[1]: it must be a table"),
        ('[[users]]\npassword = "p"', "key users[1]: a user needs a name"),
        ("[[users]]\nname = 3", "key users[1].name: 3 is not allowed; it must be a text"),
        ('[[users]]\nname = "u"', "('u'): a user needs either password or password_hash"),
        (f'[[users]]\n{NAMED}password_hash = "x"', "needs either password or password_hash"),
        ('[[users]]\nname = "u"\npassword = ""', "('u').password: it must be a text that is not"),
        ('[[users]]\nname = "u"\npassword = 987', "('u').password: it must be a text that is not"),
        (
            '[[users]]\nname = "u"\npassword_hash = "!"',
            "('u').password_hash: it must be what rabbit",
        ),
        ('[[users]]\nname = "u"\npassword_hash = "AAAA"', "but is 3 bytes long instead of 36"),
        (f"[[users]]\n{NAMED}tags = 3", "('u').tags: 3 is not allowed; it must be a list of"),
        (f"[[users]]\n{NAMED}rights = 3", "key users[1].rights: there is no such key (known: "),
        (f"[[users]]\n{NAMED}[[users]]\n{NAMED}", "there are two users called 'u'"),
        (f"[[users]]\n{NAMED}permissions = 3", "permissions: 3 is not allowed"),
        (f"[[users]]\n{NAMED}[[users.permissions]]", "('u').permissions[1]: a permission needs a"),
        (
            f'[[users]]\n{NAMED}[[users.permissions]]\nvhost = "/"\nread = "("',
            "('u').permissions[1].read: '(' is not a regular expression: missing )",
        ),
        (
            f'[[users]]\n{NAMED}[[users.permissions]]\nvhost = "/"\nread = "a(?=b)"',
            "permissions[1].read: 'a(?=b)' is not a regular expression",
        ),
        (
            f'[[users]]\n{NAMED}[[users.permissions]]\nvhost = "/"\nget = ""',
            "permissions[1].get: there is no such key (known: configure, read, vhost, write)",
        ),
        (
            f'[[users]]\n{NAMED}[[users.permissions]]\nvhost = "typo"',
            "'u' has permissions in vhost 'typo', which is not one of the configured vhosts ('/')",
        ),
    ],
)
def test_a_mistake_in_a_user_is_told_with_its_place(
    write_toml: Any, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load(write_toml(text), {}, {})
    assert problem in str(caught.value)
    assert "987" not in str(caught.value), "a mistyped password is still a secret"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_documentation_lists_every_setting_with_its_default_flag_and_variable(
    setting: Any,
) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{setting.name}` |")]
    for text in (setting.default_text, setting.flag, setting.variable):
        assert f"`{text}`" in row


def test_the_documentation_lists_no_setting_that_does_not_exist() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    settings = [name for name in rows if name in {s.name for s in SETTINGS}]
    others = set(rows) - set(settings)
    assert settings == [setting.name for setting in SETTINGS]
    user_keys = {field.name for kind in (UserConfig, PermissionConfig) for field in _fields(kind)}
    assert others == user_keys | {"hashing_algorithm"}


def test_the_documented_example_is_a_valid_file(write_toml: Any) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    admin, worker = Config.load(write_toml(example), {}, {}).users
    assert (admin.name, worker.name) == ("admin", "worker")
    assert worker.permissions[0].configure == r"^worker\."


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)


@pytest.mark.parametrize(
    "kind",
    [WholeNumber(0, 1), Seconds(0, 1), Text(), Choice("a"), Directory(), Names(at_least=1)],
    ids=lambda kind: type(kind).__name__,
)
def test_no_kind_of_setting_takes_a_value_of_another_type(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        kind.check({"not": "this"})


def test_variables_for_commands_are_no_settings() -> None:
    env = {"LEVERET_URL": "http://x", "LEVERET_USER": "me", "LEVERET_PASSWORD": "secret"}
    env["LEVERET_SPARK_CACHE"] = "off"
    assert Config.load(None, env, {}) == Config()
