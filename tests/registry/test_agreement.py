"""Requests of several nodes in one log: all make the same of them, and late ones are refused."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.registry.state import AVRO, CHANGED, REQUEST
from tests.cluster_catalog.fakes import Cluster, Node, snapshot


def started():
    cluster = Cluster(3)
    begun = [cluster.start(number) for number in cluster.nodes]
    cluster.elect(1)
    for number in cluster.nodes:
        cluster.hear_of_leader(number)
    cluster.settle()
    assert begun == [[None]] * 3
    return cluster


def registration(schemas, subject, text, references=()):
    """As a node asks for it, by what it knows."""
    touched = [subject, *(each[1] for each in references)]
    seen = [[name, schemas.token(name)] for name in touched]
    digest = hashlib.md5(text.encode()).digest()
    content = [digest, AVRO, text, [list(each) for each in references], None, None]
    return [REQUEST, seen, [["register", subject, None, None, *content]]]


def deletion(schemas, subject):
    seen = [[subject, schemas.token(subject)]]
    versions = schemas.subjects.get(subject, {})
    changes = [
        ["-subject-version", subject, number]
        if version.deleted
        else ["subject-version", subject, number, version.schema_id, True]
        for number, version in versions.items()
    ]
    return [REQUEST, seen, changes]


def ask(cluster, number, change):
    answers = []
    cluster.nodes[number].catalog.request(change, answers.append)
    return answers


def schemas_of(cluster, number):
    return cluster.nodes[number].state.schemas


def same_everywhere(cluster):
    states = [snapshot(node) for node in cluster.nodes.values()]
    assert states[0] == states[1] == states[2]
    # And on a node that gets a checkpoint instead of the log.
    node = cluster.nodes[1]
    late = Node(cluster, 3, 2, (node.at, node.catalog.encoded_state()))
    assert snapshot(late) == states[0]
    assert [*late.state.schemas.changes()] == [*node.state.schemas.changes()]
    assert late.state.schemas.next_id == node.state.schemas.next_id
    late.state.schemas.make(["subject-mode", "of another time", "READONLY"])
    late.catalog.install(node.at, node.catalog.encoded_state())
    assert [*late.state.schemas.changes()] == [*node.state.schemas.changes()]


def test_of_two_that_race_the_first_in_the_log_is_made():
    cluster = started()
    asked = [
        ask(cluster, number, registration(schemas_of(cluster, number), "s", f"t{number}"))
        for number in (2, 3)
    ]
    cluster.settle()
    results = [answer for (answer,) in asked]
    assert results.count(None) == 1
    (refused,) = [each for each in results if each is not None]
    assert refused.text == CHANGED
    assert schemas_of(cluster, 1).versions("s") == [1]
    same_everywhere(cluster)


def test_a_new_level_makes_what_was_decided_by_the_old_one_void():
    cluster = started()
    late = registration(schemas_of(cluster, 2), "s", "t")
    assert_made(
        cluster, 1, [REQUEST, [], [["subject-config", None, {"compatibilityLevel": "FULL"}]]]
    )
    answers = ask(cluster, 2, late)
    cluster.settle()
    assert [answer.text for answer in answers] == [CHANGED]
    assert schemas_of(cluster, 3).subjects == {}


def test_what_is_referred_to_is_not_deleted_by_who_did_not_know():
    cluster = started()
    assert_made(cluster, 1, registration(schemas_of(cluster, 1), "used", "t"))
    late = deletion(schemas_of(cluster, 3), "used")
    user = registration(schemas_of(cluster, 2), "user", "u", [("T", "used", 1)])
    assert_made(cluster, 2, user)
    answers = ask(cluster, 3, late)
    cluster.settle()
    assert [answer.text for answer in answers] == [CHANGED]
    assert schemas_of(cluster, 1).referrers("used", 1) == [2]
    same_everywhere(cluster)


def assert_made(cluster, number, change):
    answers = ask(cluster, number, change)
    cluster.settle()
    assert answers == [None]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 3]),
            st.sampled_from(["register", "refer", "delete", "settle", "elect"]),
            st.sampled_from(["s", "t"]),
            st.integers(0, 3),
        ),
        max_size=25,
    )
)
def test_any_requests_leave_all_nodes_the_same(steps):
    cluster = started()
    ids = {}  # every id that was ever seen, and its schema
    for number, kind, subject, which in steps:
        schemas = schemas_of(cluster, number)
        if kind == "register":
            ask(cluster, number, registration(schemas, subject, f"text {which}"))
        elif kind == "refer" and schemas.versions("s"):
            references = [("T", "s", schemas.versions("s")[-1])]
            ask(cluster, number, registration(schemas, "u", f"user {which}", references))
        elif kind == "delete":
            ask(cluster, number, deletion(schemas, subject))
        elif kind == "elect":
            cluster.elect(number, adopted=which)
            for each in cluster.nodes:
                cluster.hear_of_leader(each)
        else:
            cluster.settle()
            for schema_id, schema in schemas_of(cluster, number).by_id.items():
                assert ids.setdefault(schema_id, schema.text) == schema.text
    cluster.settle()
    same_everywhere(cluster)
    schemas = schemas_of(cluster, 1)
    texts = [schema.text for schema in schemas.by_id.values()]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("missing", ["-subject-version", "subject-mode"])
def test_a_change_to_what_is_not_there_does_no_harm(missing):
    cluster = started()
    change = [missing, "none", 1] if missing.startswith("-") else [missing, "none", "READONLY"]
    assert_made(cluster, 1, [REQUEST, [], [change]])
    same_everywhere(cluster)
