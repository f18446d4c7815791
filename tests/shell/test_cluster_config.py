"""Settings of a cluster: who is in it, where it is, and its secret, which is never shown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from broker.cluster_settings import Address, ClusterMember
from broker.config import Config
from broker.settings import ConfigError, FlagError

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "a-secret-of-many-letters"
THREE = "a=127.0.0.1:1001,b=127.0.0.1:1002,c=127.0.0.1:1003"


def load(**flags: str) -> Config:
    return Config.load(None, {}, flags)


def test_without_a_cluster_a_node_is_alone() -> None:
    config = load()
    assert not config.clustered
    assert config.other_members == ()


def test_a_node_knows_its_own_entry_and_the_others() -> None:
    config = load(node_name="b", cluster=THREE, cluster_secret=SECRET)
    assert config.clustered
    assert config.own_member == ClusterMember("b", Address("127.0.0.1", 1002))
    assert [str(member) for member in config.other_members] == [
        "a=127.0.0.1:1001",
        "c=127.0.0.1:1003",
    ]
    assert config.peer_address == Address("127.0.0.1", 1002)


def test_it_may_listen_elsewhere_than_where_the_others_find_it() -> None:
    config = load(
        node_name="b", cluster=THREE, cluster_secret=SECRET, cluster_listen="0.0.0.0:7000"
    )
    assert config.peer_address == Address("0.0.0.0", 7000)


def test_the_table_of_a_file_means_the_same_as_the_text_of_a_flag(tmp_path: Path) -> None:
    path = tmp_path / "leveret.toml"
    path.write_text(
        f'node_name = "b"\ncluster_secret = "{SECRET}"\n'
        '[cluster]\na = "127.0.0.1:1001"\nb = "127.0.0.1:1002"\nc = "127.0.0.1:1003"\n'
    )
    from_file = Config.load(path, {}, {})
    assert from_file == load(node_name="b", cluster=THREE, cluster_secret=SECRET)
    path.write_text(f'node_name = "b"\ncluster_secret = "{SECRET}"\ncluster = "{THREE}"\n')
    assert Config.load(path, {}, {}) == from_file


def test_a_port_may_be_left_out_and_a_host_be_an_ipv6_address() -> None:
    config = load(node_name="a", cluster="a=one.example, b=[::1]:99", cluster_secret=SECRET)
    assert [member.address for member in config.cluster] == [
        Address("one.example", 25672),
        Address("::1", 99),
    ]
    assert str(config.cluster[1]) == "b=[::1]:99"


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ("a=h:1,a=h:2", "two nodes are called 'a'"),
        ("a=h:1,b=h:1", "nodes 'a' and 'b' have the same address h:1"),
        ("a=h:0", "the port in 'h:0' is not one that others can reach"),
        ("a=h:65536", "the port in 'h:65536' is not one that others can reach"),
        ("a=h:x", "'h:x' is not an address; it must be host:port"),
        ("a=", "'' is not an address"),
        ("a=::1:5", "'::1:5' is not an address"),
        ("a", "'a' is not a node; it must be name=host:port"),
        ("a=h:1,", "'' is not a node"),
        ("a b=h:1", "'a b' is not the name of a node"),
        ("b=h:1,c=h:2", "this node, 'a', is not among its nodes (b, c)"),
        ("a=h:1,b=h:2", "more than one node needs a cluster_secret or cluster_secret_file"),
    ],
)
def test_what_cannot_be_a_cluster_is_told(cluster: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(node_name="a", cluster=cluster)
    assert problem in str(caught.value)


def test_a_mistake_in_a_flag_is_one_of_the_command_line() -> None:
    with pytest.raises(FlagError, match="flag --cluster: two nodes are called 'a'"):
        load(node_name="a", cluster="a=h:1,a=h:2")


def test_a_cluster_of_one_needs_no_secret() -> None:
    assert load(node_name="a", cluster="a=h:1").clustered


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    config = load(node_name="b", cluster=THREE, cluster_secret=SECRET)
    assert SECRET not in repr(config)
    for env, flags in (
        ({}, {"cluster_secret": "short987"}),
        ({"LEVERET_CLUSTER_SECRET": "987"}, {}),
    ):
        with pytest.raises(ConfigError, match="it is too short") as caught:
            Config.load(None, env, flags)
        assert "987" not in str(caught.value)
    path = tmp_path / "leveret.toml"
    path.write_text("cluster_secret = 987")
    with pytest.raises(ConfigError, match="key cluster_secret: it must be a text") as caught:
        Config.load(path, {}, {})
    assert "987" not in str(caught.value)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def with_file(path: Path) -> Config:
    return load(node_name="b", cluster=THREE, cluster_secret_file=str(path))


def test_the_secret_of_a_file_is_used_without_its_line_end(secret_file: Path) -> None:
    assert with_file(secret_file).cluster_secret == SECRET


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666])
def test_a_secret_that_others_can_get_at_is_refused(secret_file: Path, mode: int) -> None:
    secret_file.chmod(mode)
    with pytest.raises(ConfigError, match=f"has mode {mode:o}.*chmod 600") as caught:
        with_file(secret_file)
    assert SECRET not in str(caught.value)


def test_a_group_may_read_the_secret(secret_file: Path) -> None:
    secret_file.chmod(0o440)
    if os.access(secret_file, os.R_OK):
        assert with_file(secret_file).cluster_secret == SECRET


def test_a_secret_file_that_is_missing_empty_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster_secret_file: .*No such file"):
        with_file(tmp_path / "missing")
    path = tmp_path / "secret"
    for content in (b"", b"short", b"x" * 5000, b"\xff" * 20):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match=r"cluster_secret_file: .*(must hold|not UTF-8)"):
            with_file(path)


def test_the_secret_is_given_in_one_place_only(secret_file: Path) -> None:
    with pytest.raises(ConfigError, match="cluster_secret_file is given too"):
        load(
            node_name="b",
            cluster=THREE,
            cluster_secret=SECRET,
            cluster_secret_file=str(secret_file),
        )


def test_tls_needs_all_of_its_files_and_they_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cluster_tls_key: it is needed where another"):
        load(cluster_tls_certificate="cert.pem")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.touch()
    key.touch()
    with pytest.raises(ConfigError, match=r"cluster_tls_ca: .*No such file"):
        load(
            cluster_tls_certificate=str(certificate),
            cluster_tls_key=str(key),
            cluster_tls_ca=str(tmp_path / "missing"),
        )


def test_clients_are_told_an_address_that_they_can_reach() -> None:
    assert load(host="10.0.0.1").client_address(5) == Address("10.0.0.1", 5)
    told = load(host="10.0.0.1", advertised_host="a.example", advertised_amqp_port="99")
    assert told.client_address(5) == Address("a.example", 99)
    everywhere = load(host="0.0.0.0", node_name="a", cluster="a=a.example:1")
    assert everywhere.client_address(5) == Address("a.example", 5)
