"""Routes, errors and corners of the API, request by request."""

import json

import pytest

from tests.registry.conftest import field, fresh, record

pytestmark = pytest.mark.leveret_only

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@pytest.fixture
def known(web, subject, unique):
    """A subject with one version."""
    web.registered(subject, unique)
    return subject


def test_answers_are_of_confluents_type_unless_plain_json_is_asked_for(web, known):
    assert web.call("GET", "subjects").headers["Content-Type"] == CONTENT_TYPE
    assert web.call("GET", "subjects", "none", "versions").headers["Content-Type"] == CONTENT_TYPE
    web.headers["Accept"] = "application/json"
    assert web.call("GET", "subjects").headers["Content-Type"] == "application/json"


# method, path, query, body, code; {s} is a subject with version 1 only
REFUSALS = [
    ("GET", "subjects/none/versions", {}, None, 40401),
    ("GET", "subjects/none/versions/1", {}, None, 40401),
    ("GET", "subjects/none/versions/latest", {}, None, 40401),
    ("GET", "subjects/{s}/versions/2", {}, None, 40402),
    ("GET", "subjects/{s}/versions/0", {}, None, 42202),
    ("GET", "subjects/{s}/versions/1.5", {}, None, 42202),
    ("GET", "subjects/{s}/versions/99999999999999999999", {}, None, 42202),
    ("GET", "subjects/{s}/versions/-2", {}, None, 42202),
    ("GET", "subjects/{s}/versions/²", {}, None, 42202),
    ("GET", "subjects/{s}/versions/oldest/schema", {}, None, 42202),
    ("GET", "subjects/{s}/versions/2/referencedby", {}, None, 40402),
    ("GET", "subjects/none/metadata", {}, None, 40401),
    ("GET", "subjects/{s}/versions", {"offset": "x"}, None, 400),
    ("GET", "schemas/ids/2147483647", {}, None, 40403),
    ("GET", "schemas/ids/nothing", {}, None, 40403),
    ("GET", "schemas/ids/2147483647/versions", {}, None, 40403),
    ("GET", "schemas/guids/nothing", {}, None, 40403),
    ("GET", "schemas/guids/7d444840-9dc0-11d1-b245-5ffdce74fad2", {}, None, 40403),
    ("GET", "config/none", {}, None, 40408),
    ("GET", "mode/none", {}, None, 40409),
    ("DELETE", "config/none", {}, None, 40401),
    ("DELETE", "mode/none", {}, None, 40401),
    ("DELETE", "subjects/none", {}, None, 40401),
    ("DELETE", "subjects/{s}/versions/2", {}, None, 40402),
    ("DELETE", "subjects/{s}/versions/x", {}, None, 42202),
    ("DELETE", "subjects/{s}", {"permanent": "true"}, None, 40405),
    ("DELETE", "subjects/{s}/versions/1", {"permanent": "true"}, None, 40407),
    ("PUT", "config", {}, {"compatibility": "UP"}, 42203),
    ("PUT", "config/{s}", {}, {}, 42203),
    ("PUT", "config/{s}", {}, {"compatibility": "FULL", "compatibilityGroup": "g"}, 422),
    ("PUT", "mode", {}, {"mode": "OFF"}, 42204),
    ("PUT", "mode/{s}", {}, {"mode": "IMPORT"}, 42205),
    ("PUT", "mode/{s}", {}, b"no json", 422),
    ("POST", "subjects/none", {}, {"schema": '"int"'}, 40401),
    ("POST", "subjects/{s}", {}, {"schema": '"int"'}, 40403),
    ("POST", "subjects/{s}", {}, {"schema": "int"}, 42201),
    ("POST", "subjects/{s}/versions", {}, {}, 42201),
    ("POST", "subjects/{s}/versions", {}, {"schema": 5}, 42201),
    ("POST", "subjects/{s}/versions", {}, {"schema": {"type": "int"}}, 42201),
    ("POST", "subjects/{s}/versions", {}, [1], 422),
    ("POST", "subjects/{s}/versions", {}, b"", 422),
    ("POST", "subjects/{s}/versions", {}, {"schema": '"int"'}, 409),
    ("POST", "subjects/{s}/versions", {}, {"schema": '"int"', "schemaType": "XML"}, 42201),
    ("POST", "subjects/{s}/versions", {}, {"schema": '"int"', "references": 1}, 42201),
    ("POST", "subjects/{s}/versions", {}, {"schema": '"int"', "references": [{}]}, 42201),
    ("POST", "subjects/{s}/versions", {}, {"schema": '"int"', "metadata": 1}, 42201),
    ("POST", "subjects/new/versions", {}, {"schema": '"int"', "id": 5}, 42205),
    ("POST", "subjects/new/versions", {}, {"schema": '"int"', "version": 2}, 42202),
    ("POST", "subjects/:.other:s/versions", {}, {"schema": '"int"'}, 42208),
    ("POST", "subjects/__GLOBAL/versions", {}, {"schema": '"int"'}, 42208),
    ("POST", "subjects/a\nb/versions", {}, {"schema": '"int"'}, 42208),
    ("POST", "compatibility/subjects/none/versions/latest", {}, {"schema": '"int"'}, 40401),
    ("POST", "compatibility/subjects/{s}/versions/2", {}, {"schema": '"int"'}, 40402),
    ("POST", "compatibility/subjects/{s}/versions/x", {}, {"schema": '"int"'}, 42202),
    ("POST", "compatibility/subjects/{s}/versions", {}, {"schema": "{"}, 42201),
]


@pytest.mark.parametrize(("method", "path", "query", "body", "code"), REFUSALS)
def test_a_refusal_has_confluents_code(web, known, method, path, query, body, code):
    parts = [part.replace("{s}", known) for part in path.split("/")]
    answer = web.call(method, *parts, body=body, **query)
    assert answer.code == code, answer
    assert answer.status == int(str(code)[:3])
    assert answer.json["message"]
    assert web.call("GET", "subjects", known, "versions").json == [1]


def test_registering_answers_with_all_there_is_to_know(web, subject, unique):
    answer = web.register(subject, json.dumps(unique, indent=4)).json
    assert (answer["subject"], answer["version"]) == (subject, 1)
    assert answer["schema"] == json.dumps(unique, separators=(",", ":"))
    found = web.call("GET", "subjects", subject, "versions", "latest").json
    assert found == answer
    assert web.call("GET", "subjects", subject, "versions", "-1").json == answer
    text = web.call("GET", "subjects", subject, "versions", "1", "schema")
    assert text.json == unique
    by_id = web.call("GET", "schemas", "ids", str(answer["id"]), fetchMaxId="true").json
    assert by_id["schema"] == answer["schema"]
    assert by_id["maxId"] >= answer["id"]
    assert web.call("GET", "schemas", "ids", str(answer["id"]), "schema").json == unique
    ids = web.call("GET", "schemas", "guids", answer["guid"], "ids").json
    assert ids == [{"context": ".", "id": answer["id"]}]


def test_another_spelling_is_the_same_schema(web, subject, unique):
    one = web.registered(subject, unique)
    turned = dict(reversed(unique.items()))
    assert web.registered(subject, json.dumps(turned, indent=2)) == one
    assert web.registered(subject, {**unique, "name": f"{unique['name']}"}, normalize=True) == one
    assert web.call("GET", "subjects", subject, "versions").json == [1]


def test_a_deleted_schema_that_is_registered_again_is_a_new_version(web, known, unique):
    one = web.call("GET", "subjects", known, "versions", "1").json["id"]
    web.call("DELETE", "subjects", known, "versions", "1")
    answer = web.register(known, unique).json
    assert (answer["version"], answer["id"]) == (2, one)
    web.call("DELETE", "subjects", known)
    web.call("DELETE", "subjects", known, permanent="true")
    again = web.register(known, unique).json
    assert again["version"] == 1
    assert again["id"] > one  # ids are never given out twice


def test_deleted_versions_count_for_nothing(web, subject, unique):
    web.registered(subject, unique)
    other = {**unique, "fields": [field("a", "string")]}
    assert web.register(subject, other).code == 409
    web.call("DELETE", "subjects", subject, "versions", "1")
    assert web.register(subject, other).json["version"] == 2


def test_checking_says_why_if_it_is_asked(web, known, unique):
    new = {**unique, "fields": [*unique["fields"], field("b")]}
    body = {"schema": json.dumps(new)}
    path = ("compatibility", "subjects", known, "versions")
    assert web.call("POST", *path, "1", body=body).json == {"is_compatible": False}
    verbose = web.call("POST", *path, body=body, verbose="True").json
    assert not verbose["is_compatible"]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in verbose["messages"][0]
    web.call("PUT", "config", known, body={"compatibility": "NONE"})
    assert web.call("POST", *path, "1", body=body).json["is_compatible"]
    unknown = ("compatibility", "subjects", fresh(), "versions")
    assert web.call("POST", *unknown, body=body).json["is_compatible"]


def test_a_level_of_all_counts_where_there_is_no_other(web, known):
    assert web.call("GET", "config", known, defaultToGlobal="true").json == {
        "compatibilityLevel": "BACKWARD"
    }
    assert web.call("GET", "mode", known, defaultToGlobal="true").json == {"mode": "READWRITE"}


def test_deleting_a_subject_forgets_its_settings(web, known):
    web.call("PUT", "config", known, body={"compatibility": "FULL"})
    web.call("PUT", "mode", known, body={"mode": "READWRITE"})
    assert web.call("DELETE", "subjects", known).json == [1]
    assert web.call("GET", "config", known).code == 40408
    assert web.call("GET", "mode", known).code == 40409


def test_lists_come_in_pages(web, unique):
    prefix = fresh("page-")
    for number in range(5):
        web.registered(f"{prefix}.{number}", unique)
    names = [f"{prefix}.{number}" for number in range(5)]
    listed = web.call("GET", "subjects", subjectPrefix=prefix, offset=1, limit=2).json
    assert listed == names[1:3]
    assert web.call("GET", "subjects", subjectPrefix=f":*:{prefix}").json == names
    rows = web.call("GET", "schemas", subjectPrefix=prefix, latestOnly="true", limit=3).json
    assert [row["subject"] for row in rows] == names[:3]
    one = rows[0]["id"]
    assert web.call("GET", "schemas", "ids", str(one), "subjects", limit=2).json == names[:2]
    only = web.call("GET", "schemas", "ids", str(one), "versions", subject=names[3]).json
    assert only == [{"subject": names[3], "version": 1}]


def test_import_mode_takes_ids_and_versions_as_they_are(web, subject, unique):
    taken = web.registered(fresh(), unique)
    assert web.call("PUT", "mode", subject, body={"mode": "import"}).json == {"mode": "IMPORT"}
    mine = {**unique, "name": unique["name"] + "_i"}
    wanted = taken + 1000
    assert web.register(subject, mine).code == 42205
    assert web.register(subject, mine, id=taken).code == 42207
    assert web.register(subject, unique, id=wanted).code == 42207
    answer = web.register(subject, mine, id=wanted, version=7).json
    assert (answer["id"], answer["version"]) == (wanted, 7)
    earlier = {**mine, "fields": [field("x", "string")]}
    answer = web.register(subject, earlier, id=wanted + 1, version=3).json
    assert answer["version"] == 3
    assert web.call("GET", "subjects", subject, "versions").json == [3, 7]
    assert web.register(subject, {**mine, "doc": "!"}, id=wanted + 2, version=3).code == 42202
    web.call("PUT", "mode", subject, body={"mode": "READWRITE"})
    after = {**mine, "doc": "after"}
    assert web.registered(subject, after) > wanted + 1


def test_a_subject_of_the_default_context_is_the_subject(web, known):
    assert web.call("GET", "subjects", f":.:{known}", "versions").json == [1]


def test_a_subject_may_have_any_printable_name(web, unique):
    name = fresh("Ünïcode / %2F ? # +") + "é"
    web.registered(name, unique)
    assert web.call("GET", "subjects", subjectPrefix=name).json == [name]
    assert web.call("GET", "subjects", name, "versions", "1").json["subject"] == name


def test_references_of_references_are_followed(web, unique):
    base = unique["name"]
    names = [fresh() for _ in range(3)]
    web.registered(names[0], unique)
    middle = record(field("m", base), name=f"{base}_m")
    refers = [{"name": base, "subject": names[0], "version": 1}]
    web.registered(names[1], middle, references=refers)
    outer = record(field("o", f"{base}_m"), field("b", base), name=f"{base}_o")
    refers = [{"name": f"{base}_m", "subject": names[1], "version": -1}]
    one = web.registered(names[2], outer, references=refers)
    assert web.call("GET", "subjects", names[1], "versions", "1", "referencedby").json == [one]
    # What it refers to counts as if it stood there.
    changed = {**unique, "fields": [field("a", "string")]}
    other = fresh()
    web.registered(other, changed)
    body = {
        "schema": json.dumps(record(field("b", base), name=f"{base}_o")),
        "references": [{"name": base, "subject": other, "version": 1}],
    }
    path = ("compatibility", "subjects", names[2], "versions", "latest")
    assert not web.call("POST", *path, body=body).json["is_compatible"]
