"""What is done to exchanges, streams, connections, policies and accounts by clicking."""

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.support.admin import Api
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually

Fresh = Callable[[str], str]


def test_an_exchange_is_declared_bound_drawn_published_to_and_deleted(
    console: Console, api: Api, channel: BlockingChannel, fresh: Fresh
):
    exchange, queue, other = fresh("topics"), fresh("bound"), fresh("fans")
    channel.queue_declare(queue, durable=True)
    channel.exchange_declare(other, "fanout", durable=True)
    channel.queue_bind(queue, other)
    console.open("exchanges")
    form = console.drawer("Declare an exchange")
    console.fill(form, Name=exchange, Arguments=f"alternate-exchange={other}")
    form.get_by_label("Type").select_option("topic")
    form.get_by_role("button", name="Declare exchange").click()
    console.says("is declared.")
    console.page.get_by_label("Search exchanges").fill(exchange)
    console.row("Exchanges", exchange).get_by_role("link").click()
    form = console.drawer("Bind a queue or an exchange")
    console.fill(form, Its_name=queue, Routing_key="orders.*")
    form.get_by_role("button", name="Bind", exact=True).click()
    console.says("is bound.")
    form.get_by_label("To", exact=True).select_option("e")
    console.fill(form, Its_name=other, Routing_key="#")
    form.get_by_role("button", name="Bind", exact=True).click()
    console.says("is bound.")
    bindings = console.table("Bindings from this exchange").locator("tbody tr")
    expect(bindings).to_have_count(2)
    graph = console.page.get_by_role("img", name=f"Routing of exchange {exchange}")
    expect(graph).to_have_count(1)
    said = graph.get_attribute("aria-label") or ""
    assert f"exchange {exchange} to queue {queue} by orders.*" in said
    assert f"exchange {exchange} to exchange {other} by #" in said
    assert f"exchange {other} to queue {queue}" in said, "what is further on is drawn, too"
    assert f"exchange {exchange} to exchange {other} by otherwise" in said
    expect(graph.locator("a.box")).to_have_count(3)
    form = console.drawer("Publish a message")
    console.fill(form, Routing_key="orders.new", Payload="routed")
    form.get_by_role("button", name="Publish", exact=True).click()
    console.says("1 message published.")
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None
    assert (method.exchange, method.routing_key, body) == (exchange, "orders.new", b"routed")
    bindings.filter(has_text="orders.*").get_by_role("button", name="Unbind").click()
    console.confirm("Unbind")
    console.says("Unbound.")
    expect(bindings).to_have_count(1)
    left = api.call("GET", "exchanges", "/", exchange, "bindings", "source").json
    assert [binding["destination"] for binding in left] == [other]
    console.page.get_by_role("button", name="Delete", exact=True).click()
    console.confirm("Delete")
    console.says("is deleted.")
    assert api.call("GET", "exchanges", "/", exchange).status == 404


def test_a_message_that_goes_nowhere_is_told_of(console: Console, api: Api, fresh: Fresh):
    exchange = fresh("nowhere")
    api.call("PUT", "exchanges", "/", exchange, body={"type": "direct"})
    console.open("exchanges", "/", exchange)
    expect(console.page.locator("#content")).to_contain_text("goes nowhere")
    form = console.drawer("Publish a message")
    form.get_by_role("button", name="Publish", exact=True).click()
    console.says("went nowhere")


def test_a_queue_is_bound_and_unbound_from_its_own_page(
    console: Console, api: Api, channel: BlockingChannel, fresh: Fresh
):
    queue = fresh("to-bind")
    channel.queue_declare(queue, durable=True)
    console.open("queues", "/", queue)
    form = console.drawer("Bind to an exchange")
    console.fill(form, Exchange="amq.headers", Arguments='x-match=all\nkind=order\nsize="7"')
    form.get_by_role("button", name="Bind", exact=True).click()
    console.says("Bound to")
    rows = console.table("Bindings").locator("tbody tr")
    expect(rows).to_have_count(2)
    found = api.call("GET", "bindings", "/", "e", "amq.headers", "q", queue).json
    assert [each["arguments"] for each in found] == [
        {"x-match": "all", "kind": "order", "size": "7"}
    ]
    rows.filter(has_text="amq.headers").get_by_role("button", name="Unbind").click()
    console.confirm("Unbind")
    expect(rows).to_have_count(1)
    assert api.call("GET", "bindings", "/", "e", "amq.headers", "q", queue).json == []


@pytest.fixture
def read_stream(channel: BlockingChannel, fresh: Fresh) -> tuple[str, str]:
    """A stream of three partitions and ten records, and a group that has read four of them."""
    stream, group = fresh("stream"), fresh("group")
    arguments = {"x-queue-type": "stream", "x-partitions": 3}
    channel.queue_declare(stream, durable=True, arguments=arguments)
    for number in range(10):
        properties = pika.BasicProperties(headers={"x-partition-key": "same"})
        channel.basic_publish("", stream, f"record {number}".encode(), properties)
    channel.basic_qos(prefetch_count=4)
    tags: list[int] = []
    tag = channel.basic_consume(
        stream,
        lambda _ch, method, *_: tags.append(method.delivery_tag),
        arguments={"x-group": group, "x-stream-offset": "first"},
    )

    def four_came() -> bool:
        channel.connection.process_data_events(0.05)
        return len(tags) == 4

    eventually(four_came, "four records")
    channel.basic_ack(tags[-1], multiple=True)
    channel.basic_cancel(tag)
    return stream, group


def test_a_stream_shows_partitions_and_lag_and_a_group_is_reset(
    console: Console, api: Api, read_stream: tuple[str, str]
):
    stream, group = read_stream

    def committed() -> dict[int, int]:
        found = api.call("GET", "stream-groups", "/", group).json["offsets"]
        return {each["number"]: each["offset"] for each in found}

    eventually(lambda: 4 in committed().values(), "the commit")
    (partition,) = [number for number, offset in committed().items() if offset == 4]
    console.open("streams")
    console.page.get_by_label("Search streams").fill(stream)
    row = console.row("Streams", stream)
    expect(row).to_contain_text("10")
    row.get_by_role("link").click()
    expect(console.table("Partitions").locator("tbody tr")).to_have_count(3)
    row = console.table("Partitions").locator("tbody tr").nth(partition)
    expect(row.locator("td").nth(1)).to_have_text("10")
    lag = console.table(f"Offsets and lag of group {group}").locator("tbody tr")
    expect(lag.filter(has_text="10").first).to_contain_text("6")
    form = console.drawer("Read records")
    console.fill(form, From=f"{partition}:8")
    form.get_by_role("button", name="Read", exact=True).click()
    records = console.table("Records").locator("tbody tr")
    expect(records).to_have_count(2)
    expect(records.last).to_contain_text("record 9")
    console.page.get_by_role("link", name=group).click()
    expect(console.heading).to_have_text(f"Group {group}")
    form = console.drawer("Reset offsets")
    form.get_by_label("Stream").select_option(stream)
    form.get_by_label("To", exact=True).select_option("offset")
    console.fill(form, Time_or_offset="2", Partitions=str(partition))
    form.get_by_role("button", name="Reset offsets").click()
    console.confirm("Reset")
    console.says("are reset.")
    eventually(lambda: committed()[partition] == 2, "the reset")
    expect(console.page.locator(".facts")).to_contain_text("8")  # the lag now


def test_a_connection_is_closed(console: Console, node: BrokerProcess, api: Api, fresh: Fresh):
    name = fresh("client")
    parameters = pika.URLParameters(node.amqp_url())
    parameters.client_properties = {"connection_name": name}
    connection = pika.BlockingConnection(parameters)
    connection.channel()
    console.open("connections")
    row = console.row("Connections", name)
    expect(row).to_have_count(1)
    row.get_by_role("link").click()
    expect(console.table("Channels").locator("tbody tr")).to_have_count(1)
    console.page.get_by_role("button", name="Close connection").click()
    console.confirm("Close it")
    console.says("The connection is closed.")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.sleep(30)
    expect(console.heading).to_have_text("Connections")
    expect(row).to_have_count(0)


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_is_set_and_deleted(
    console: Console, api: Api, channel: BlockingChannel, fresh: Fresh, kind: str
):
    queue, policy = fresh("governed"), fresh("policy")
    channel.queue_declare(queue, durable=True)
    console.open("policies")
    title = "Set a policy" if kind == "policies" else "Set an operator policy"
    form = console.drawer(title)
    console.fill(form, Name=policy, Pattern=f"^{queue}$", Definition='{"max-length": 3}')
    form.get_by_role("button", name="Set policy").click()
    console.says("is set.")
    found = api.call("GET", kind, "/", policy).json
    assert found["definition"] == {"max-length": 3}
    assert api.call("GET", "queues", "/", queue).json["effective_policy_definition"] == {
        "max-length": 3
    }
    row = console.page.get_by_role("row").filter(has_text=policy)
    row.get_by_role("button", name=f"Delete policy {policy}").click()
    console.confirm("Delete")
    console.says("is deleted.")
    assert api.call("GET", kind, "/", policy).status == 404
    console.fill(form, Name=policy, Definition="[1]")
    form.get_by_role("button", name="Set policy").click()
    console.says("is not a JSON object")


def test_a_user_is_added_permitted_changed_and_deleted(
    console: Console, node: BrokerProcess, api: Api, fresh: Fresh
):
    user = fresh("ada")
    console.open("users")
    form = console.drawer("Add a user")
    console.fill(form, Name=user, Password="first", Tags="monitoring, impersonator")
    form.get_by_role("button", name="Add user").click()
    console.says("is added")
    row = console.row("Users", user)
    expect(row).to_contain_text("no permissions")
    row.get_by_role("link").click()
    form = console.drawer("Set permissions")
    console.fill(form, Configure="^ada", Write=".*", Read="")
    form.get_by_role("button", name="Set permissions").click()
    console.says("are set.")
    assert api.call("GET", "permissions", "/", user).json["configure"] == "^ada"
    form = console.drawer("Set topic permissions")
    console.fill(form, Write="^a", Read="^b")
    form.get_by_role("button", name="Set topic permissions").click()
    console.says("are set.")
    (topic,) = api.call("GET", "topic-permissions", "/", user).json
    assert (topic["exchange"], topic["write"], topic["read"]) == ("amq.topic", "^a", "^b")
    form = console.drawer("Change tags")
    console.fill(form, Tags="management")
    form.get_by_role("button", name="Set tags").click()
    console.says("are set.")
    assert api.call("GET", "users", user).json["tags"] == ["management"]
    pika.BlockingConnection(pika.URLParameters(node.amqp_url(user=user, password="first"))).close()
    form = console.drawer("Change password")
    console.fill(form, New_password="second")
    form.get_by_role("button", name="Change password").click()
    console.says("is changed.")
    pika.BlockingConnection(pika.URLParameters(node.amqp_url(user=user, password="second"))).close()
    assert api.call("GET", "users", user).json["tags"] == ["management"]
    for caption, what in (("Topic permissions", "topic"), ("Permissions", "all permissions")):
        button = console.table(caption).get_by_role("button", name=what)
        button.click()
        console.confirm("Clear")
        console.says("Cleared.")
    assert api.call("GET", "permissions", "/", user).status == 404
    console.page.get_by_role("button", name="Delete user").click()
    console.confirm("Delete")
    console.says("is deleted.")
    assert api.call("GET", "users", user).status == 404


def test_a_vhost_is_added_limited_and_deleted(console: Console, api: Api, fresh: Fresh):
    vhost = fresh("shop")
    console.open("vhosts")
    form = console.drawer("Add a virtual host")
    console.fill(form, Name=vhost, Description="orders and stock", Tags="eu")
    form.get_by_role("button", name="Add virtual host").click()
    console.says("is added.")
    found = api.call("GET", "vhosts", vhost).json
    assert (found["description"], found["tags"]) == ("orders and stock", ["eu"])
    console.open("limits")
    form = console.drawer("Set a limit of a virtual host")
    form.get_by_label("Virtual host").select_option(vhost)
    form.get_by_label("Limit", exact=True).select_option("max-queues")
    console.fill(form, Value="1")
    form.get_by_role("button", name="Set limit").click()
    console.says("is 1.")
    assert api.call("GET", "vhost-limits", vhost).json[0]["value"] == {"max-queues": 1}
    console.row("Limits of virtual hosts", vhost).get_by_role("button", name="Lift").click()
    console.confirm("Lift")
    console.says("is lifted.")
    form = console.drawer("Set a limit of a user")
    form.get_by_label("User").select_option("guest")
    form.get_by_label("Limit", exact=True).select_option("max-channels")
    console.fill(form, Value="1000")
    form.get_by_role("button", name="Set limit").click()
    console.says("is 1000.")
    console.row("Limits of users", "guest").get_by_role("button", name="Lift").click()
    console.confirm("Lift")
    console.says("is lifted.")
    console.open("vhosts")
    console.page.get_by_role("button", name=f"Delete virtual host {vhost}").click()
    console.confirm("Delete it all")
    console.says("is deleted.")
    assert api.call("GET", "vhosts", vhost).status == 404


def test_permissions_are_set_for_any_user(console: Console, api: Api, fresh: Fresh):
    user = fresh("grace")
    api.call("PUT", "users", user, body={"password": "p", "tags": ""})
    console.open("permissions")
    form = console.drawer("Set permissions")
    form.get_by_label("User").select_option(user)
    form.get_by_role("button", name="Set permissions").click()
    console.says("are set.")
    expect(console.row("Permissions", user)).to_have_count(1)
    assert api.call("GET", "permissions", "/", user).json["read"] == ".*"


def test_jobs_that_report_themselves_are_shown(console: Console, api: Api, fresh: Fresh):
    job = fresh("job")
    news = {"state": "running", "processed": 12_345, "errors": 2, "rows_per_second": 17.5}
    assert api.call("PUT", "etl", "jobs", job, body=news).status == 201
    console.open("etl")
    row = console.row("ETL jobs", job)
    for text in ("running", "12,345", "17.5"):
        expect(row).to_contain_text(text)
