"""Users, vhosts, permissions and limits after restarts, in good order and by kill -9."""

import signal

import pika
import pytest
from pika.exceptions import AMQPConnectionError

from tests.support.admin import Api
from tests.support.process import BrokerProcess

QUICK = ("--auth-failure-delay-s", "0")


class Place:
    """One data directory, and the brokers that are started on it one after another."""

    def __init__(self, directory):
        self._directory = directory
        self.broker = None

    def start(self, *flags, config=None):
        self.broker = BrokerProcess(self._directory, *QUICK, *flags, config=config)
        return Api(self.broker.host, self.broker.http_port)

    def connect(self, user, password, vhost="/"):
        url = self.broker.amqp_url(vhost, user=user, password=password)
        return pika.BlockingConnection(pika.URLParameters(url))


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "broker")
    yield place
    if place.broker is not None and place.broker.alive:
        place.broker.stop()


def put(api, *path, body):
    assert api.call("PUT", *path, body=body).status in (201, 204)


def make_everything(api):
    put(api, "vhosts", "shop", body={"description": "d"})
    put(api, "users", "ada", body={"password": "one", "tags": "management"})
    put(api, "users", "ada", body={"password": "two", "tags": "monitoring"})
    put(api, "users", "bob", body={"password": "x", "tags": ""})
    put(api, "permissions", "shop", "ada", body={"configure": ".*", "write": ".*", "read": "^q"})
    topics = {"exchange": "amq.topic", "write": "^a", "read": ""}
    put(api, "topic-permissions", "shop", "ada", body=topics)
    put(api, "user-limits", "ada", "max-connections", body={"value": 1})
    put(api, "vhost-limits", "shop", "max-queues", body={"value": 7})
    assert api.call("DELETE", "users", "bob").status == 204
    put(api, "vhosts", "gone", body={})
    assert api.call("DELETE", "vhosts", "gone").status == 204


def everything(api):
    """As it was defined, without what vhosts say of the messages in them."""
    kinds = ("users", "permissions", "topic-permissions", "user-limits", "vhost-limits")
    found = {kind: api.call("GET", kind).json for kind in kinds}
    defined = ("name", "description", "tags", "default_queue_type", "metadata", "tracing")
    vhosts = api.call("GET", "vhosts").json
    found["vhosts"] = [{field: vhost[field] for field in defined} for vhost in vhosts]
    return found


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_was_answered_is_there_after_a_restart(place, end):
    api = place.start()
    make_everything(api)
    before = everything(api)
    assert {user["name"] for user in before["users"]} == {"ada", "guest"}
    with place.connect("ada", "two", "shop") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"kept")
    getattr(place.broker, end)()
    api = place.start()
    assert everything(api) == before
    with pytest.raises(AMQPConnectionError):
        place.connect("ada", "one", "shop")
    with place.connect("ada", "two", "shop") as connection:
        assert connection.channel().basic_get("q", auto_ack=True)[2] == b"kept"
        with pytest.raises(AMQPConnectionError, match="user connection limit"):
            place.connect("ada", "two", "shop")
    # And once more, from what the restart made of it.
    place.broker.kill()
    assert everything(place.start()) == before


def test_a_vhost_that_was_made_since_has_streams_and_groups_after_a_restart(place):
    api = place.start()
    put(api, "vhosts", "shop", body={})
    arguments = {"x-queue-type": "stream"}
    with place.connect("guest", "guest", "shop") as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("s", durable=True, arguments=arguments)
        for number in range(3):
            channel.basic_publish("", "s", str(number).encode())
    place.broker.kill()
    place.start()
    with place.connect("guest", "guest", "shop") as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        found = []
        first = {"x-stream-offset": "first", "x-group": "g"}
        for _, _, body in channel.consume("s", arguments=first):
            found.append(body)
            if len(found) == 3:
                break
        assert found == [b"0", b"1", b"2"]


def test_guest_stays_deleted_and_the_default_vhost_too(place):
    api = place.start()
    put(api, "users", "root", body={"password": "pw", "tags": "administrator"})
    root = Api(place.broker.host, place.broker.http_port, user="root", password="pw")
    assert root.call("DELETE", "vhosts", "/").status == 204
    assert root.call("DELETE", "users", "guest").status == 204
    assert api.call("GET", "whoami").status == 401
    place.broker.kill()
    api = place.start()
    assert api.call("GET", "whoami").status == 401
    root = Api(place.broker.host, place.broker.http_port, user="root", password="pw")
    assert root.call("GET", "vhosts").json == []
    with pytest.raises(AMQPConnectionError):
        place.connect("guest", "guest")


CONFIG = """
vhosts = {vhosts}
[[users]]
name = "ada"
password = "{password}"
tags = ["administrator"]
permissions = [{{vhost = "/", configure = ".*", write = ".*", read = ".*"}}]
"""


def test_a_new_name_in_the_configuration_is_made_and_a_changed_one_is_not(place):
    place.start(config=CONFIG.format(vhosts='["/"]', password="first"))
    place.broker.stop()
    place.start(config=CONFIG.format(vhosts='["/", "new"]', password="second"))
    api = Api(place.broker.host, place.broker.http_port, user="ada", password="first")
    assert [vhost["name"] for vhost in api.call("GET", "vhosts").json] == ["/", "new"]
    assert [user["name"] for user in api.call("GET", "users").json] == ["ada"]
    place.connect("ada", "first").close()


def test_secrets_are_not_in_logs_nor_passwords_on_disk(place):
    secrets = ["hunter2-plain", "hunter2-wrong", "hunter2-token", "hunter2-config", "hunter2-new"]
    plain, wrong, token, configured, new = secrets
    place.start("--log-level", "debug", config=CONFIG.format(vhosts='["/"]', password=configured))
    host, port = place.broker.host, place.broker.http_port
    api = Api(host, port, user="ada", password=configured)
    put(api, "users", "bob", body={"password": plain, "tags": "management"})
    put(api, "permissions", "/", "bob", body={"configure": "", "write": "", "read": ""})
    put(api, "users", "bob", body={"password": new, "tags": "management"})
    assert api.call("PUT", "users", "eve", body={"password": plain}).status == 400
    assert api.call("PUT", "users", "eve", body={"password_hash": plain, "tags": ""}).status == 400
    issued = api.call("POST", "login", body={"username": "bob", "password": new}).json["token"]
    api.headers = {"Authorization": f"Bearer {token}"}
    assert api.call("GET", "whoami").status == 401
    api.headers = {"Authorization": f"Bearer {issued}"}
    assert api.call("GET", "whoami").status == 200
    place.connect("bob", new).close()
    with pytest.raises(AMQPConnectionError):
        place.connect("bob", wrong)
    place.broker.stop()
    log = place.broker.log_text()
    assert "login.refused" in log, "the log does say what happened"
    files = [path for path in place.broker.data_dir.rglob("*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in files)
    assert b"bob" in kept
    for secret in (*secrets, issued):
        assert secret not in log
        assert secret.encode() not in kept


def test_a_hangup_does_not_end_a_node_that_has_nothing_to_reload(place):
    api = place.start()
    place.broker._process.send_signal(signal.SIGHUP)
    assert api.call("GET", "whoami").status == 200
    assert place.broker.stop() == 0
    assert "nothing_to_reload" in place.broker.log_text()
