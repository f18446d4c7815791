"""Confluent's own Python client, serializer and deserializer against the broker."""

import json
import struct

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.registry.conftest import field, fresh, record

pytestmark = pytest.mark.leveret_only


def avro(schema, **more):
    return Schema(json.dumps(schema), "AVRO", **more)


def code_of(action, *arguments, **options):
    with pytest.raises(SchemaRegistryError) as caught:
        action(*arguments, **options)
    return caught.value.error_code


@pytest.fixture
def first(unique):
    return avro(unique)


@pytest.fixture
def second(unique):
    return avro({**unique, "fields": [*unique["fields"], field("b", default=0)]})


@pytest.fixture
def third(unique):
    return avro({**unique, "fields": [*unique["fields"], field("c")]})


def test_schemas_are_registered_and_found(confluent, subject, first, second):
    one = confluent.register_schema(subject, first)
    full = confluent.register_schema_full_response(subject, second, normalize_schemas=True)
    assert (full.subject, full.version, full.schema_id) == (subject, 2, one + 1)
    assert confluent.get_schema(one).schema_str == first.schema_str.replace(" ", "")
    assert confluent.get_schema(one, subject).schema_type == "AVRO"
    assert confluent.get_schema_by_guid(full.guid).schema_str == second.schema_str.replace(" ", "")
    assert subject in confluent.get_subjects()
    assert confluent.get_subjects(subject_prefix=subject) == [subject]
    assert confluent.get_versions(subject) == [1, 2]
    assert confluent.get_versions(subject, offset=1, limit=1) == [2]
    assert confluent.get_latest_version(subject).version == 2
    assert confluent.get_version(subject, 1).schema_id == one
    assert confluent.lookup_schema(subject, first).version == 1
    assert confluent.get_subjects_by_schema_id(one) == [subject]
    versions = confluent.get_schema_versions(one)
    assert [(each.subject, each.version) for each in versions] == [(subject, 1)]
    assert confluent.get_schema_types() == ["AVRO"]
    assert confluent.get_contexts() == ["."]


def test_the_same_schema_has_the_same_id_everywhere(broker, confluent, subject, first):
    one = confluent.register_schema(subject, first)
    with SchemaRegistryClient(
        {"url": broker.http_url(""), "basic.auth.user.info": "guest:guest"}
    ) as other:
        assert other.register_schema(subject, first) == one
        assert other.register_schema(fresh(), first) == one
    assert confluent.get_versions(subject) == [1]


def test_an_incompatible_schema_is_refused(confluent, subject, first, second, third):
    confluent.register_schema(subject, first)
    assert confluent.test_compatibility(subject, second)
    assert confluent.test_compatibility_all_versions(subject, second)
    assert not confluent.test_compatibility(subject, third, verbose=True)
    assert not confluent.test_compatibility_all_versions(subject, third)
    assert code_of(confluent.register_schema, subject, third) == 409
    assert confluent.get_versions(subject) == [1]


def test_levels_are_set_read_and_deleted(confluent, subject, first, third):
    assert confluent.get_compatibility() == "BACKWARD"
    assert code_of(confluent.get_compatibility, subject) == 40408
    confluent.register_schema(subject, first)
    assert confluent.set_compatibility(subject, "none") == {"compatibility": "NONE"}
    assert confluent.get_compatibility(subject) == "NONE"
    confluent.register_schema(subject, third)
    confluent.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert confluent.get_config(subject).compatibility_level == "FULL"
    assert confluent.delete_config(subject).compatibility_level == "FULL"
    assert code_of(confluent.get_config, subject) == 40408
    assert code_of(confluent.set_compatibility, subject, "sideways") == 42203
    try:
        confluent.set_compatibility(level="forward")
        assert confluent.get_compatibility() == "FORWARD"
    finally:
        confluent.delete_config()
    assert confluent.get_compatibility() == "BACKWARD"


def test_modes_are_set_read_and_deleted(confluent, subject, first, second):
    assert confluent.get_global_mode() == "READWRITE"
    assert code_of(confluent.get_mode, subject) == 40409
    confluent.register_schema(subject, first)
    assert confluent.update_mode(subject, "READONLY") == "READONLY"
    assert confluent.get_mode(subject) == "READONLY"
    assert code_of(confluent.register_schema, subject, second) == 42205
    assert code_of(confluent.delete_subject, subject) == 42205
    assert code_of(confluent.update_mode, subject, "IMPORT") == 42205
    assert confluent.delete_mode(subject) == "READONLY"
    try:
        confluent.update_mode(subject, "READWRITE")
        assert confluent.update_global_mode("READONLY_OVERRIDE") == "READONLY_OVERRIDE"
        assert confluent.get_mode(subject) == "READONLY_OVERRIDE"
        assert code_of(confluent.register_schema, subject, second) == 42205
    finally:
        confluent.update_global_mode("READWRITE")
    assert code_of(confluent.update_mode, subject, "READONLY_OVERRIDE") == 42204
    confluent.register_schema(subject, second)


def test_what_is_deleted_can_be_read_until_it_is_deleted_for_good(
    confluent, subject, first, second
):
    one = confluent.register_schema(subject, first)
    confluent.register_schema(subject, second)
    assert confluent.delete_version(subject, 1) == 1
    assert confluent.get_versions(subject) == [2]
    assert confluent.get_versions(subject, deleted=True) == [1, 2]
    assert confluent.get_versions(subject, deleted_only=True) == [1]
    confluent.clear_caches()
    assert confluent.get_schema(one).schema_str == first.schema_str.replace(" ", "")
    assert confluent.get_version(subject, 1, deleted=True).schema_id == one
    confluent.clear_caches()
    assert code_of(confluent.get_version, subject, 1) == 40402
    assert code_of(confluent.delete_version, subject, 1) == 40406
    assert code_of(confluent.delete_version, subject, 2, permanent=True) == 40407
    assert confluent.delete_version(subject, 1, permanent=True) == 1
    confluent.clear_caches()
    assert code_of(confluent.get_schema, one) == 40403
    assert code_of(confluent.delete_subject, subject, permanent=True) == 40405
    assert confluent.delete_subject(subject) == [2]
    assert code_of(confluent.delete_subject, subject) == 40404
    assert subject not in confluent.get_subjects()
    assert confluent.get_subjects(subject_prefix=subject, deleted_only=True) == [subject]
    assert confluent.delete_subject(subject, permanent=True) == [2]
    assert confluent.get_subjects(subject_prefix=subject, deleted=True) == []
    assert code_of(confluent.delete_subject, subject) == 40401


def test_schemas_refer_to_others(confluent, subject, unique):
    inner = unique["name"]
    used = confluent.register_schema(subject, avro({**unique, "namespace": "x"}))
    refers = [SchemaReference(f"x.{inner}", subject, 1)]
    outer = avro(record(field("i", f"x.{inner}"), name=f"{inner}_o"), references=refers)
    user = fresh()
    one = confluent.register_schema(user, outer)
    assert confluent.get_referenced_by(subject, 1) == [one]
    assert confluent.get_version(user, 1).schema.references[0].subject == subject
    assert code_of(confluent.delete_version, subject, 1) == 42206
    assert code_of(confluent.delete_subject, subject) == 42206
    missing = avro(json.loads(outer.schema_str), references=[SchemaReference("n", subject, 9)])
    assert code_of(confluent.register_schema, fresh(), missing) == 42201
    serialize = AvroSerializer(confluent, outer, conf={"subject.name.strategy": lambda *_: user})
    context = SerializationContext("t", MessageField.VALUE)
    data = serialize({"i": {"a": 5}}, context)
    assert struct.unpack_from(">bI", data) == (0, one)
    assert AvroDeserializer(confluent)(data, context) == {"i": {"a": 5}}
    confluent.delete_subject(user)
    assert confluent.delete_subject(subject) == [1]
    assert confluent.get_schema(used).schema_str


def test_metadata_goes_with_a_schema(confluent, subject, first):
    told = Metadata(None, MetadataProperties({"owner": "me", "stage": "test"}), None)
    plain = confluent.register_schema(subject, first)
    described = Schema(first.schema_str, "AVRO", metadata=told)
    assert confluent.register_schema(subject, described) != plain
    found = confluent.get_latest_with_metadata(subject, {"owner": "me"})
    assert found.version == 2
    assert found.schema.metadata.properties == told.properties
    assert code_of(confluent.get_latest_with_metadata, subject, {"owner": "you"}) == 40403


def test_serializer_and_deserializer(confluent, unique):
    topic = fresh()
    context = SerializationContext(topic, MessageField.VALUE)
    old, new = unique, {**unique, "fields": [*unique["fields"], field("b", "string", default="?")]}
    write_old = AvroSerializer(confluent, json.dumps(old))
    write_new = AvroSerializer(confluent, json.dumps(new))
    read_as_written = AvroDeserializer(confluent)
    read_old = AvroDeserializer(confluent, json.dumps(old))
    read_new = AvroDeserializer(confluent, json.dumps(new))
    first, second = write_old({"a": 1}, context), write_new({"a": 2, "b": "x"}, context)
    assert first[0] == second[0] == 0
    assert confluent.get_versions(f"{topic}-value") == [1, 2]
    assert [read_as_written(each, context) for each in (first, second)] == [
        {"a": 1},
        {"a": 2, "b": "x"},
    ]
    assert [read_old(each, context) for each in (first, second)] == [{"a": 1}, {"a": 2}]
    assert [read_new(each, context) for each in (first, second)] == [
        {"a": 1, "b": "?"},
        {"a": 2, "b": "x"},
    ]


def test_a_serializer_with_an_incompatible_schema_fails(confluent, unique):
    topic = fresh()
    context = SerializationContext(topic, MessageField.VALUE)
    AvroSerializer(confluent, json.dumps(unique))({"a": 1}, context)
    bad = {**unique, "fields": [field("a", "string")]}
    assert code_of(AvroSerializer(confluent, json.dumps(bad)), {"a": "x"}, context) == 409
    fixed = {"auto.register.schemas": False}
    unknown = {**unique, "fields": [*unique["fields"], field("z", default=1)]}
    assert (
        code_of(AvroSerializer(confluent, json.dumps(unknown), conf=fixed), {"a": 1}, context)
        == 40403
    )
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    assert AvroSerializer(confluent, None, conf=latest)({"a": 7}, context)[0] == 0


@pytest.mark.parametrize("kind", ["JSON", "PROTOBUF"])
def test_other_types_are_refused_in_words(confluent, subject, kind):
    with pytest.raises(SchemaRegistryError, match="only of type AVRO") as caught:
        confluent.register_schema(subject, Schema('{"type": "object"}', kind))
    assert caught.value.error_code == 42201


def test_a_token_will_do(broker, web, subject, first):
    token = web.call("POST", "api", "login", body={"username": "guest", "password": "guest"})
    conf = {
        "url": broker.http_url(""),
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": token.json["token"],
        "bearer.auth.logical.cluster": "lsrc",
    }
    with SchemaRegistryClient(conf) as client:
        assert client.register_schema(subject, first)
    with SchemaRegistryClient({**conf, "bearer.auth.token": "wrong"}) as client:
        assert code_of(client.get_subjects) == 401
