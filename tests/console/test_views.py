"""Every view, with names that are out to break it, in light and dark, wide and narrow."""

import re
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import expect

from tests.console.accessibility import faint_texts, faults
from tests.console.browser import Console
from tests.console.conftest import OpenConsole
from tests.support.admin import Api
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually

HOSTILE = {
    "markup": "</td><img src=x onerror=alert(1)><script>alert(2)</script>/../b?c=d#e%2F&f",
    "unicode": "żółw \u202eדג\u202c 🐇 \u0301" + "é" * 114 + "!",  # 255 bytes
}


def shortened(name: str, size: int) -> str:
    """To so many bytes."""
    return name.encode()[:size].decode(errors="ignore")


class Stage:
    """A vhost in which everything has such a name, with something going on."""

    def __init__(self, node: BrokerProcess, api: Api, kind: str) -> None:
        self.name = HOSTILE[kind]
        self.short = shortened(self.name, 240)  # so that something can be added
        self.api = api
        self.vhost = f"{shortened(self.name, 200)}/v"
        self.put("vhosts", self.vhost, body={"description": self.name})
        self.put("users", self.name, body={"password": "p", "tags": "monitoring"})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        self.put("permissions", self.vhost, self.name, body=rights)
        topics = {"exchange": self.name, "write": self.name.replace("/", "."), "read": ".*"}
        self.put("topic-permissions", self.vhost, self.name, body=topics)
        self.put("vhost-limits", self.vhost, "max-queues", body={"value": 100})
        self.put("user-limits", self.name, "max-channels", body={"value": 100})
        policy = {"pattern": "^never", "definition": {"max-length": 5}, "apply-to": "queues"}
        self.put("policies", self.vhost, self.name, body=policy)
        job = {"state": "running", "processed": 5, "errors": 0, "updated_ms": 1}
        self.job = "".join(letter for letter in self.name[:100] if letter.isprintable())
        self.put("etl", "jobs", self.job, body=job)
        parameters = pika.URLParameters(node.amqp_url(self.vhost))
        parameters.client_properties = {"connection_name": self.name}
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self._fill(self.channel)
        self._consume()

    def put(self, *path: str, body: dict[str, Any]) -> None:
        answer = self.api.call("PUT", *path, body=body)
        assert answer.status in {201, 204}, answer

    def _fill(self, channel: BlockingChannel) -> None:
        name = self.name
        dead = {"x-dead-letter-exchange": name, "x-dead-letter-routing-key": name}
        channel.exchange_declare(name, "topic", durable=True)
        channel.queue_declare(name, durable=True)
        channel.queue_declare(f"{self.short}-source", durable=True, arguments=dead)
        channel.queue_bind(name, name, name)
        channel.exchange_declare(f"{self.short}-next", "headers", durable=True)
        channel.exchange_bind(f"{self.short}-next", name, "#")
        match = {"x-match": "any", shortened(name, 100): name}
        channel.queue_bind(name, f"{self.short}-next", "", match)
        channel.confirm_delivery()
        headers = {shortened(name, 100): name}
        properties = pika.BasicProperties(headers=headers, message_id=name, delivery_mode=2)
        channel.basic_publish("", f"{self.short}-source", name.encode(), properties)
        method, _, _ = channel.basic_get(f"{self.short}-source")
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)  # now a dead letter in `name`
        later = pika.BasicProperties(headers={"x-delay": 3_600_000, **headers}, delivery_mode=2)
        channel.basic_publish("", name, name.encode(), later)
        arguments = {"x-queue-type": "stream", "x-partitions": 2}
        channel.queue_declare(f"{self.short}-stream", durable=True, arguments=arguments)
        channel.basic_publish("", f"{self.short}-stream", name.encode(), properties)

    def _consume(self) -> None:
        got: list[int] = []
        channel = self.connection.channel()
        channel.basic_qos(prefetch_count=10)
        group = {"x-group": self.name, "x-stream-offset": "first"}
        channel.basic_consume(
            f"{self.short}-stream",
            lambda ch, method, *_: (ch.basic_ack(method.delivery_tag), got.append(1)),
            arguments=group,
            consumer_tag=shortened(self.name, 200),
        )

        def came() -> bool:
            self.connection.process_data_events(0.05)
            return bool(got)

        eventually(came, "the record")

        def known() -> bool:
            self.connection.process_data_events(0)
            answer = self.api.call("GET", "stream-groups", self.vhost, self.name)
            return answer.status == 200 and bool(answer.json["offsets"])

        eventually(known, "the group's offsets")

    def views(self) -> dict[tuple[str, ...], str]:
        """Addresses of all views, and a text that each must show."""
        vhost, name = self.vhost, self.name
        stream, following = f"{self.short}-stream", f"{self.short}-next"
        (connection,) = [
            row["name"]
            for row in self.api.call("GET", "vhosts", vhost, "connections").json
            if row["user_provided_name"] == name
        ]
        return {
            ("overview",): "Messages per second",
            ("queues",): name,
            ("queues", vhost, name): name,
            ("queues", vhost, stream): stream,
            ("streams",): stream,
            ("streams", vhost, stream): name,
            ("groups",): name,
            ("groups", vhost, name): stream,
            ("exchanges",): name,
            ("exchanges", vhost, name): following,
            ("exchanges", vhost, ""): "A message goes to the queue whose name is its routing key",
            ("connections",): name,
            ("connections", connection): name,
            ("channels",): connection,
            ("channels", f"{connection} (2)"): shortened(name, 200),
            ("consumers",): stream,
            ("dead-letters",): name,
            ("dead-letters", vhost, name): name,
            ("scheduled",): name,
            ("scheduled", vhost, name): name,
            ("policies",): name,
            ("etl",): self.job,
            ("users",): name,
            ("users", name): vhost,
            ("permissions",): name,
            ("vhosts",): vhost,
            ("limits",): vhost,
        }

    def clean_up(self) -> None:
        self.connection.close()
        for path in (
            ("vhosts", self.vhost),
            ("users", self.name),
            ("etl", "jobs", self.job),
        ):
            assert self.api.call("DELETE", *path).status == 204


@pytest.fixture
def stage(node: BrokerProcess, api: Api, request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(node, api, request.param)
    yield stage
    stage.clean_up()


def text_of(console: Console) -> str:
    text: str = console.page.evaluate("document.body.innerText")
    return text


@pytest.mark.parametrize("stage", list(HOSTILE), indirect=True)
def test_names_are_shown_as_they_are_on_every_view(stage: Stage, console: Console):
    for parts, text in stage.views().items():
        console.open(*parts)
        expect(console.page.locator("#content")).to_contain_text(text, use_inner_text=False)
        expect(console.page.locator("#content [role=alert]")).to_have_count(0)
        assert faults(console.page) == [], parts
        assert console.page.locator("img").count() == 1, "the logo alone: no name became markup"
        wide = console.page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{parts} is wider than the window"
        assert console.page.title().endswith(" Leveret")
    assert not console.page.evaluate("document.querySelector('#content script')")


@pytest.mark.parametrize("stage", ["unicode"], indirect=True)
def test_every_view_can_be_read_on_a_phone_by_day_and_by_night(
    stage: Stage, open_console: OpenConsole
):
    console = open_console(width=390)
    console.log_in()
    for parts in stage.views():
        console.open(*parts)
        wide = console.page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{parts} is wider than a phone"
        for colours in ("light", "dark"):
            console.page.emulate_media(color_scheme=colours)
            assert faint_texts(console.page) == [], (parts, colours)


def test_light_and_dark_can_be_chosen_and_stay(console: Console):
    page = console.page

    def background() -> str:
        colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    light = background()
    page.get_by_label("Colours").select_option("dark")
    dark = background()
    assert dark != light
    page.reload()
    expect(console.heading).to_have_text("Overview")
    assert background() == dark
    page.emulate_media(color_scheme="dark")
    page.get_by_label("Colours").select_option("light")
    assert background() == light
    page.get_by_label("Colours").select_option("auto")
    assert background() == dark


def test_an_address_that_is_nowhere_says_so(console: Console):
    console.open("nothing", "here")
    expect(console.heading).to_have_text("Not found")
    console.failures_expected = True
    console.open("queues", "/", "no such queue")
    expect(console.page.locator("#content")).to_contain_text("not there")


def test_names_that_no_browser_can_send_are_told_of(console: Console, channel: BlockingChannel):
    channel.queue_declare("..", durable=True)
    console.open("queues")
    expect(console.row("Queues", "..")).to_have_count(1)
    console.open("queues", "/", "..")
    expect(console.page.locator("#content")).to_contain_text("Use the leveret command")
    channel.queue_delete("..")


def test_lists_are_of_the_vhost_that_is_chosen(console: Console, api: Api, fresh: Any):
    vhost, queue = fresh("vhost"), fresh("only-here")
    api.call("PUT", "vhosts", vhost, body={})
    api.call("PUT", "queues", vhost, queue, body={"durable": True})
    console.page.reload()
    console.open("queues")
    console.page.get_by_label("Virtual host").first.select_option(vhost)
    expect(console.table("Queues").locator("tbody tr")).to_have_count(1)
    expect(console.row("Queues", queue)).to_have_count(1)
    console.open("exchanges")
    expect(console.page.get_by_role("columnheader", name="Virtual host")).to_have_count(0)
    console.page.get_by_label("Virtual host").first.select_option("")
    expect(console.page.get_by_role("columnheader", name="Virtual host")).to_have_count(1)
    assert api.call("DELETE", "vhosts", vhost).status == 204


def test_graphs_have_the_history_of_the_api(console: Console, channel: BlockingChannel, fresh: Any):
    queue = fresh("busy")
    channel.queue_declare(queue, durable=True)
    for _ in range(20):
        channel.basic_publish("", queue, b"x")
    console.open("queues", "/", queue)
    chart = console.page.locator("figure").filter(has_text="Messages held")
    expect(chart.locator(".legend")).to_contain_text("Ready 20")
    line = chart.locator("path.line.s0")
    expect(line).to_have_count(1)
    # The broker samples every five seconds; then the line leaves the ground.
    expect(console.page.get_by_role("img", name="Messages held, now: Ready 20")).to_have_count(1)
    console.page.wait_for_function(
        """() => [...document.querySelectorAll('figure')].some((each) =>
            each.textContent.includes('Messages held')
            && each.querySelector('path.line.s0').getAttribute('d').endsWith(',0'))"""
    )
    console.page.get_by_label("Last").select_option("60")
    # A minute of samples, five seconds apart.
    expect(line).to_have_attribute("d", re.compile(r"^M[^L]*(L[^L]*){12}$"))
