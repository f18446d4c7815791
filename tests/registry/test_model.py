"""Any series of changes: ids, versions and deletions are those of a model too simple to be wrong.

After each change the journal, from any point on, must make the same registry from any checkpoint.
"""

import json
from types import SimpleNamespace

import cbor2
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.config import Config
from broker.http.admin import Call
from broker.http.messages import Request
from broker.journal import encode_change
from broker.node import Node
from broker.protocol.errors import ChannelError
from broker.registry import by_id, subjects
from broker.registry.asking import Ask
from broker.registry.changing import Changer
from broker.registry.errors import RegistryError
from broker.registry.state import CHANGED, Schemas
from broker.security.permissions import Permission
from broker.security.user import User
from tests.registry.conftest import record

USER = User("u", permissions={"/": Permission(".*", ".*", ".*")})
SUBJECTS = st.sampled_from(["s", "t"])
SCHEMAS = st.integers(0, 3)
VERSIONS = st.integers(1, 4)


class Registry(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.node = Node(Config())
        self.recorded = []
        self.checkpoints = [(0, [])]
        self.node.journal = SimpleNamespace(
            record=lambda *change: self.recorded.append(encode_change(change)),
            when_durable=lambda action: action(),
        )
        self.node.schemas.make(["subject-config", None, {"compatibilityLevel": "NONE"}])
        self.recorded.append(
            encode_change(["subject-config", None, {"compatibilityLevel": "NONE"}])
        )
        # The model
        self.subjects = {}  # name → version → [schema, deleted]
        self.ids = {}  # of schemas that some version has
        self.last_id = 0

    def ask(self, handler, parameters, body=None, **query):
        """The answer, or the code of the refusal."""
        request = Request(
            method="",
            path="",
            parameters=parameters,
            body=json.dumps(body or {}).encode(),
            query={name: [text] for name, text in query.items()},
        )
        ask = Ask(Call(node=self.node, user=USER, request=request), self.node.schemas)

        async def answer():
            return await handler(ask)

        try:
            return trio.run(answer)
        except RegistryError as error:
            return -error.code

    def change(self, handler, parameters, body=None, **query):
        async def changed(ask):
            return await handler(Changer(), ask)

        return self.ask(changed, parameters, body, **query)

    def live(self, subject):
        return [v for v, (_, deleted) in self.subjects.get(subject, {}).items() if not deleted]

    def forget_unused(self):
        used = {schema for versions in self.subjects.values() for schema, _ in versions.values()}
        self.ids = {schema: each for schema, each in self.ids.items() if schema in used}
        self.subjects = {name: versions for name, versions in self.subjects.items() if versions}

    @rule(subject=SUBJECTS, schema=SCHEMAS)
    def register(self, subject, schema):
        body = {"schema": json.dumps(record(name=f"R{schema}"))}
        answer = self.change(subjects.register, {"subject": subject}, body)
        versions = self.subjects.setdefault(subject, {})
        known = [v for v in self.live(subject) if versions[v][0] == schema]
        if not known:
            known = [max(versions, default=0) + 1]
            versions[known[0]] = [schema, False]
        if schema not in self.ids:
            self.last_id += 1
            self.ids[schema] = self.last_id
        assert (answer["version"], answer["id"]) == (max(known), self.ids[schema])

    @rule(subject=SUBJECTS, version=VERSIONS, permanent=st.booleans())
    def delete_version(self, subject, version, permanent):
        answer = self.change(
            subjects.delete_version,
            {"subject": subject, "version": str(version)},
            permanent=str(permanent),
        )
        versions = self.subjects.get(subject, {})
        if not versions:
            assert answer == -40401
        elif version not in versions:
            assert answer == -40402
        elif permanent is not versions[version][1]:
            assert answer == (-40407 if permanent else -40406)
        else:
            assert answer == version
            if permanent:
                del versions[version]
            else:
                versions[version][1] = True
        self.forget_unused()

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject, permanent):
        answer = self.change(
            subjects.delete_subject, {"subject": subject}, permanent=str(permanent)
        )
        versions, live = self.subjects.get(subject, {}), self.live(subject)
        if not versions:
            assert answer == -40401
        elif permanent is bool(live):
            assert answer == (-40405 if permanent else -40404)
        elif permanent:
            assert answer == sorted(versions)
            del self.subjects[subject]
        else:
            assert answer == sorted(live)
            for version in live:
                versions[version][1] = True
        self.forget_unused()

    @rule()
    def checkpoint(self):
        state = [encode_change(change) for change in self.node.schemas.changes()]
        self.checkpoints.append((len(self.recorded), state))

    @rule(subject=SUBJECTS)
    def a_change_that_comes_too_late_is_refused(self, subject):
        schemas = self.node.schemas
        before = [*schemas.changes()]
        seen = [(subject, b"of another time")]
        with pytest.raises(ChannelError, match=CHANGED):
            schemas.carry_out(seen, [["subject-mode", subject, "READONLY"]])
        assert [*schemas.changes()] == before

    @invariant()
    def what_it_says_is_what_the_model_has(self):
        for subject in ("s", "t"):
            versions = self.subjects.get(subject, {})
            listed = self.ask(subjects.list_versions, {"subject": subject}, deleted="true")
            assert listed == (sorted(versions) or -40401)
            live = self.ask(subjects.list_versions, {"subject": subject})
            assert live == (sorted(self.live(subject)) or -40401)
        names = sorted(name for name in self.subjects if self.live(name))
        assert self.ask(subjects.list_subjects, {}) == names
        for schema, schema_id in self.ids.items():
            uses = self.ask(by_id.get_versions, {"id": str(schema_id)}, deleted="true")
            assert sorted((use["subject"], use["version"]) for use in uses) == sorted(
                (name, version)
                for name, versions in self.subjects.items()
                for version, (each, _) in versions.items()
                if each == schema
            )
        assert len(self.node.schemas.by_id) == len(self.ids)
        assert self.node.schemas.stored_bytes == sum(
            len(schema.text) for schema in self.node.schemas.by_id.values()
        )

    @invariant()
    def the_journal_makes_the_same(self):
        """From a checkpoint that has some of what comes after it already, too."""
        for index, state in self.checkpoints[-2:]:
            for begin in {index, max(0, index - 3)}:
                again = Schemas()
                for change in [*state, *self.recorded[begin:]]:
                    again.make(cbor2.loads(change))
                assert _content(again) == _content(self.node.schemas)


def _content(schemas):
    return (
        sorted(schemas.changes(), key=repr),
        [schemas.token(name) for name in ("s", "t")],
        (schemas.next_id, schemas.by_digest, schemas.stored_bytes),
    )


def test_an_id_that_is_gone_for_good_stays_taken_in_a_checkpoint():
    schemas, again = Schemas(), Schemas()
    schemas.make(["schema", 7, b"digest", "AVRO", '"int"', [], None, None])
    schemas.make(["subject-version", "s", 1, 7, True])
    schemas.make(["-subject-version", "s", 1])
    assert schemas.by_id == {}
    for change in schemas.changes():
        again.make(change)
    assert again.next_id == schemas.next_id == 8


Registry.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
TestRegistry = Registry.TestCase
