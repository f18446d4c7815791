"""Who may call: signatures of version 4, checked; permissions of users, as in AMQP."""

import base64
import datetime as dt
import json

import boto3
import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from broker.cli import leveret
from broker.http.messages import Request, split_target
from broker.security.passwords import rabbitmq_hash
from broker.sqs.errors import SqsError
from broker.sqs.signature import SKEW_S, Verifier, read_claim
from tests.sqs.conftest import Raw, connect, name_of
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.leveret_only

NOW = dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC)
USERS = """
auth_failure_delay_s = 0.2

[[users]]
name = "guest"
password = "guest"
tags = ["administrator"]
permissions = [{ vhost = "/", configure = ".*", write = ".*", read = ".*" }]

[[users]]
name = "reader"
password = "reads all day"
permissions = [{ vhost = "/", configure = "", write = "", read = "^q" }]

[[users]]
name = "writer"
password = "writes / it + down"
permissions = [{ vhost = "/", configure = "", write = "^amq.default$", read = "" }]

[[users]]
name = "builder"
password = "builds"
permissions = [{ vhost = "/", configure = "^q", write = "", read = "" }]

[[users]]
name = "hashed"
password_hash = "HASH"
permissions = [{ vhost = "/", configure = ".*", write = ".*", read = ".*" }]

[[users]]
name = "nobody"
password = "has no vhost"
"""


def code_of(failure) -> str:
    return failure.value.response["Error"]["Code"]


# Without a broker: botocore signs, and we check


def signed(
    path="/", *, method="POST", body=b"{}", secret="secret", headers=None, at=NOW, key="KEY"
):
    """A request as botocore signs it."""
    request = AWSRequest(method, f"http://host:1234{path}", data=body, headers=headers or {})
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    signer = SigV4Auth(Credentials(key, secret), "sqs", "eu-west-1")
    request.context["timestamp"] = stamp
    request.headers["X-Amz-Date"] = stamp
    canonical = signer.canonical_request(request)
    to_sign = signer.string_to_sign(request, canonical)
    signer._inject_signature_to_request(request, signer.signature(to_sign, request))
    raw_path, query = split_target(request.url.removeprefix("http://host:1234").encode())
    sent = {name.lower(): value for name, value in request.headers.items()}
    return Request(
        method=method,
        path=raw_path,
        query=query,
        headers={"host": "host:1234", **sent},
        body=body,
    )


def check(request, secret="secret", now=NOW):
    claim = read_claim(request)
    Verifier().check(request, claim, secret, now.timestamp())
    return claim


def refused(request, **options):
    with pytest.raises(SqsError) as failure:
        check(request, **options)
    return failure.value.kind.code


_text = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x2FFF, exclude_categories=["Cs"]), min_size=1
)


@given(
    body=st.binary(max_size=200),
    secret=_text,
    key=st.text("abcXYZ019-_./+@", min_size=1),
    value=st.text("ab  c;,=:", max_size=20),
)
def test_what_botocore_signs_is_right(body, secret, key, value):
    request = signed(body=body, secret=secret, key=key, headers={"X-Amz-Meta": value})
    assert check(request, secret).key_id == key


@pytest.mark.parametrize(
    "path",
    [
        "/000000000000/name",
        "/000000000000/a%20b%2Fc",
        "/sqs/my%20vhost/",
        "/queue/q?Action=SendMessage&MessageBody=a%20b%26c&Empty=",
        "/queue/q?b=2&a=1&a=0&%C3%BC=%C3%A4",
    ],
)
def test_paths_and_queries_are_part_of_it(path):
    check(signed(path, method="GET", body=b""))


def test_whatever_is_changed_makes_it_wrong():
    good = signed(headers={"X-Amz-Target": "AmazonSQS.ListQueues"})
    check(good)
    changed = {
        "method": {"method": "GET"},
        "path": {"path": "/other"},
        "query": {"query": {"Action": ["DeleteQueue"]}},
        "body": {"body": b"{} "},
        "target": {"headers": {**good.headers, "x-amz-target": "AmazonSQS.DeleteQueue"}},
        "host": {"headers": {**good.headers, "host": "other:1234"}},
        "added": {"headers": {**good.headers, "x-amz-security-token": "t"}},
    }
    for part, change in changed.items():
        request = Request(**{**_fields(good), **change})
        assert refused(request) == "SignatureDoesNotMatch", part
    assert refused(good, secret="other") == "SignatureDoesNotMatch"


def _fields(request):
    names = ("method", "path", "query", "headers", "body")
    return {name: getattr(request, name) for name in names}


def test_a_signature_counts_for_a_quarter_of_an_hour():
    for seconds in (-SKEW_S, 0, SKEW_S):
        check(signed(), now=NOW + dt.timedelta(seconds=seconds))
    for seconds in (-SKEW_S - 1, SKEW_S + 1):
        late = NOW + dt.timedelta(seconds=seconds)
        assert refused(signed(), now=late) == "SignatureDoesNotMatch"


def claim(date="20260304", service="sqs", headers="host", signature="x"):
    scope = f"K/{date}/r/{service}/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={headers}, Signature={signature}"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("AWS4-HMAC-SHA256", "IncompleteSignature"),
        ("AWS4-HMAC-SHA256 Credential=K, SignedHeaders=host, Signature=x", "IncompleteSignature"),
        (claim(service="s3"), "SignatureDoesNotMatch"),
        (claim(date="20260303"), "SignatureDoesNotMatch"),
        (claim(headers="x-amz-date"), "SignatureDoesNotMatch"),
        (claim(headers="host;x-amz-date", signature="ü"), "SignatureDoesNotMatch"),
        (claim(headers="host;x-amz-date"), "SignatureDoesNotMatch"),
    ],
)
def test_malformed_claims_are_refused(header, code):
    headers = {"host": "h", "x-amz-date": "20260304T050607Z", "authorization": header}
    assert refused(Request(method="POST", path="/", headers=headers)) == code


def test_a_date_is_needed():
    request = signed()
    headers = {**request.headers, "x-amz-date": "yesterday"}
    assert refused(Request(**{**_fields(request), "headers": headers})) == "IncompleteSignature"


# With a broker


@pytest.mark.parametrize(
    ("user", "secret", "code"),
    [
        ("guest", "wrong", "SignatureDoesNotMatch"),
        ("unknown", "guest", "SignatureDoesNotMatch"),
    ],
)
def test_a_wrong_secret_and_an_unknown_key_are_refused_alike(broker, user, secret, code):
    client = connect(broker, user=user, secret=secret)
    with pytest.raises(ClientError) as failure:
        client.list_queues()
    assert code_of(failure) == code
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_request_without_a_signature_is_refused(broker, raw):
    client = boto3.client(
        "sqs",
        endpoint_url=broker.http_url(""),
        region_name="eu-west-1",
        config=Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ClientError) as failure:
        client.list_queues()
    assert code_of(failure) == "MissingAuthenticationToken"
    answer = raw("POST", "/?Action=ListQueues", auth="Basic eDp5")
    assert (answer.status, "InvalidClientTokenId" in answer.body) == (403, True)


def test_a_clock_that_is_wrong_is_told_so(broker, raw):
    at = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    request = AWSRequest("POST", broker.http_url("/"), data=b"{}")
    request.headers["X-Amz-Target"] = "AmazonSQS.ListQueues"
    signer = SigV4Auth(Credentials("guest", "guest"), "sqs", "eu-west-1")
    request.context["timestamp"] = at.strftime("%Y%m%dT%H%M%SZ")
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    to_sign = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(to_sign, request))
    headers = dict(request.headers)
    auth = headers.pop("Authorization")
    answer = raw("POST", "/", b"{}", auth=auth, **headers)
    assert answer.status == 403
    assert "Signature expired" in json.loads(answer.body)["message"]


def test_secrets_are_not_in_the_log(start_broker):
    broker = start_broker("--log-level", "debug", config=USERS.replace("HASH", _hash()))
    connect(broker, user="reader", secret="reads all day").list_queues()
    with pytest.raises(ClientError):
        connect(broker, user="reader", secret="a secret guess").list_queues()
    log = broker.log_text()
    assert "signature_refused" in log
    assert "reads all day" not in log
    assert "guess" not in log


def _hash():
    return rabbitmq_hash(b"hashed", b"salt").text


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker with users who may do some things and not others, and a queue of theirs."""
    config = USERS.replace("HASH", _hash())
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), config=config) as broker:
        yield broker


SECRETS = {
    "guest": "guest",
    "reader": "reads all day",
    "writer": "writes / it + down",
    "builder": "builds",
}
RIGHTS = {"reader": "read", "writer": "write", "builder": "configure"}
ALLOWED = [
    ("configure", "create_queue", {"QueueName": "q-new"}),
    ("configure", "set_queue_attributes", {"Attributes": {"DelaySeconds": "0"}}),
    ("configure", "tag_queue", {"Tags": {"a": "b"}}),
    ("configure", "untag_queue", {"TagKeys": ["a"]}),
    ("write", "send_message", {"MessageBody": "x"}),
    ("write", "send_message_batch", {"Entries": [{"Id": "1", "MessageBody": "x"}]}),
    ("read", "receive_message", {}),
    ("read", "delete_message", {"ReceiptHandle": "x"}),
    ("read", "delete_message_batch", {"Entries": [{"Id": "1", "ReceiptHandle": "x"}]}),
    ("read", "change_message_visibility", {"ReceiptHandle": "x", "VisibilityTimeout": 0}),
    (
        "read",
        "change_message_visibility_batch",
        {"Entries": [{"Id": "1", "ReceiptHandle": "x", "VisibilityTimeout": 0}]},
    ),
    ("read", "purge_queue", {}),
    ("", "get_queue_attributes", {"AttributeNames": ["All"]}),
    ("", "get_queue_url", {"QueueName": "q"}),
    ("", "list_queues", {}),
    ("", "list_queue_tags", {}),
    ("", "list_dead_letter_source_queues", {}),
    ("configure", "delete_queue", {}),
]
NO_URL = {"create_queue", "get_queue_url", "list_queues"}


@pytest.mark.parametrize("user", RIGHTS)
@pytest.mark.parametrize(("right", "operation", "parameters"), ALLOWED, ids=lambda x: str(x)[:25])
def test_a_user_may_do_what_amqp_would_let_them(guarded, user, right, operation, parameters):
    url = connect(guarded).create_queue(QueueName="q")["QueueUrl"]
    client = connect(guarded, user=user, secret=SECRETS[user])
    if operation not in NO_URL:
        parameters = {"QueueUrl": url, **parameters}
    try:
        getattr(client, operation)(**parameters)
        code = None
    except ClientError as failure:
        code = failure.response["Error"]["Code"]
    if right in ("", RIGHTS[user]):
        assert code in (None, "ReceiptHandleIsInvalid")  # it got as far as that
    else:
        assert code == "AccessDenied"


def test_rights_are_for_names(guarded):
    url = connect(guarded).create_queue(QueueName="other")["QueueUrl"]
    with pytest.raises(ClientError) as failure:
        connect(guarded, user="reader", secret=SECRETS["reader"]).receive_message(QueueUrl=url)
    assert code_of(failure) == "AccessDenied"
    builder = connect(guarded, user="builder", secret=SECRETS["builder"])
    with pytest.raises(ClientError) as failure:
        builder.create_queue(QueueName="another")
    assert code_of(failure) == "AccessDenied"


def test_a_dead_letter_queue_needs_the_rights_that_amqp_asks_for(guarded):
    admin = connect(guarded)
    dead = admin.create_queue(QueueName="dead")["QueueUrl"]
    policy = {
        "deadLetterTargetArn": f"arn:aws:sqs:x:000000000000:{name_of(dead)}",
        "maxReceiveCount": 1,
    }
    builder = connect(guarded, user="builder", secret=SECRETS["builder"])
    with pytest.raises(ClientError) as failure:
        builder.create_queue(
            QueueName="q-redriven", Attributes={"RedrivePolicy": json.dumps(policy)}
        )
    assert code_of(failure) == "AccessDenied"


def test_a_user_without_the_vhost_may_do_nothing(guarded):
    with pytest.raises(ClientError) as failure:
        connect(guarded, user="nobody", secret="has no vhost").list_queues()
    assert code_of(failure) == "AccessDenied"


def test_a_password_that_is_stored_as_a_hash_signs_nothing(guarded):
    with pytest.raises(ClientError) as failure:
        connect(guarded, user="hashed", secret="hashed").list_queues()
    assert code_of(failure) == "SignatureDoesNotMatch"


# Access keys


def keys_of(user="hashed"):
    return f"/api/users/{user}/access-keys"


def test_a_user_signs_with_access_keys_as_long_as_they_are_there(guarded):
    raw = Raw(guarded)
    made = raw("POST", keys_of())
    assert made.status == 201
    key = json.loads(made.body)
    listed = json.loads(raw("GET", keys_of()).body)
    assert [one["access_key_id"] for one in listed] == [key["access_key_id"]]
    assert "secret_access_key" not in listed[0]
    credentials = {"user": key["access_key_id"], "secret": key["secret_access_key"]}
    client = connect(guarded, **credentials)
    url = client.create_queue(QueueName="q-with-a-key")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="x")
    (got,) = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert got["Attributes"]["SenderId"] == "hashed"
    wrong = connect(guarded, user=key["access_key_id"], secret="guess")
    with pytest.raises(ClientError) as failure:
        wrong.list_queues()
    assert code_of(failure) == "SignatureDoesNotMatch"
    assert raw("DELETE", f"{keys_of()}/{key['access_key_id']}").status == 204
    with pytest.raises(ClientError) as failure:
        client.list_queues()
    assert code_of(failure) == "SignatureDoesNotMatch"
    assert raw("DELETE", f"{keys_of()}/{key['access_key_id']}").status == 404
    assert key["secret_access_key"] not in guarded.log_text()


def test_keys_are_for_administrators_to_make_and_there_are_ten_at_most(guarded):
    raw = Raw(guarded)
    assert raw("POST", keys_of("not-there")).status == 404
    mine = "Basic " + base64.b64encode(b"reader:reads all day").decode()
    assert raw("POST", keys_of("reader"), auth=mine).status == 401
    statuses = [raw("POST", keys_of("writer")).status for _ in range(11)]
    assert statuses == [201] * 10 + [400]


def test_keys_survive_a_kill_and_go_with_their_user(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    raw = Raw(broker)
    body = json.dumps({"password": "p", "tags": ""}).encode()
    assert raw("PUT", "/api/users/worker", body).status == 201
    allowed = json.dumps({"configure": ".*", "write": ".*", "read": ".*"}).encode()
    assert raw("PUT", "/api/permissions/%2F/worker", allowed).status == 201
    key = json.loads(raw("POST", keys_of("worker")).body)
    credentials = {"user": key["access_key_id"], "secret": key["secret_access_key"]}
    connect(broker, **credentials).create_queue(QueueName="q")
    broker.kill()
    broker = start_broker(*data)
    client = connect(broker, **credentials)
    assert client.get_queue_url(QueueName="q")
    assert Raw(broker)("DELETE", "/api/users/worker").status == 204
    with pytest.raises(ClientError) as failure:
        client.list_queues()
    assert code_of(failure) == "SignatureDoesNotMatch"


def test_the_password_of_the_configuration_signs_only_while_it_is_the_password(start_broker):
    broker = start_broker(config=USERS.replace("HASH", _hash()))
    client = connect(broker, user="builder", secret=SECRETS["builder"])
    client.list_queues()
    body = json.dumps({"password": "another", "tags": ""}).encode()
    assert Raw(broker)("PUT", "/api/users/builder", body).status == 204
    with pytest.raises(ClientError) as failure:
        client.list_queues()
    assert code_of(failure) == "SignatureDoesNotMatch"


def test_keys_by_command(guarded):
    def run(*arguments):
        result = CliRunner().invoke(leveret, [*arguments, "--url", guarded.http_url("")])
        return result.exit_code, result.output

    code, said = run("user", "access-key", "add", "builder")
    assert code == 0, said
    lines = dict(line.split("=", 1) for line in said.splitlines())
    key_id = lines["AWS_ACCESS_KEY_ID"]
    connect(guarded, user=key_id, secret=lines["AWS_SECRET_ACCESS_KEY"]).list_queues()
    assert key_id in run("user", "access-key", "list", "builder")[1]
    code, said = run("user", "access-key", "delete", "builder", key_id)
    assert (code, said) == (0, f"access key '{key_id}' of user 'builder' is deleted\n")
    assert run("user", "access-key", "list", "builder", "--json")[1].strip() == "[]"
    assert run("user", "access-key", "delete", "builder", key_id)[0] != 0


MALFORMED = [
    ("/", b"[" * 1000, {"X_Amz_Target": "AmazonSQS.SendMessage"}),
    ("/", b"{", {"X_Amz_Target": "AmazonSQS.NoSuchAction"}),
    ("/", b"{", {"X_Amz_Target": "Other.Thing"}),
    ("/", b"Action=&&&=%", {"Content_Type": "application/x-www-form-urlencoded"}),
    ("/000000000000/q", b"no form", {}),
    ("/queue/q", b"{", {"Content_Type": "application/json"}),
]


@pytest.mark.parametrize(("path", "body", "headers"), MALFORMED)
def test_nothing_is_made_of_a_request_before_it_is_known_whose_it_is(raw, path, body, headers):
    stranger = raw("POST", path, body, auth=None, **headers)
    assert stranger.status == 403
    assert "MissingAuthenticationToken" in stranger.body
    known = raw("POST", path, body, **headers)
    assert known.status == 400


@pytest.mark.parametrize("auth", ["", None])
def test_a_request_has_a_mebibyte_at_most(raw, auth):
    body = b'{"QueueUrl": "%s"}' % (b"x" * 2**20)
    answer = raw("POST", "/", body, auth=auth, X_Amz_Target="AmazonSQS.SendMessage")
    assert answer.status == 413
    if auth is not None:  # a stranger's is not even read
        assert "RequestEntityTooLarge" in answer.body


def test_the_longest_batch_fits_however_it_is_escaped(sqs, url, receiver):
    """Of characters that JSON writes with the most bytes for what they are."""
    entries = [{"Id": str(n), "MessageBody": "\u00e9" * 13_000} for n in range(10)]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert len(answer["Successful"]) == 10
