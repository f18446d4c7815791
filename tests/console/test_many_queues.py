"""Some thousands of queues: the page asks for a page of them, and the broker does the rest."""

import re
from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import expect

from tests.console.conftest import OpenConsole
from tests.support.admin import Api
from tests.support.process import BrokerProcess

QUEUES = 4000
ROWS = 50  # shown of them
DEPTHS = {"q-0007": 3, "q-1234": 5, "q-3999": 4}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("crowded")) as process:
        api = Api(process.host, process.http_port)
        names = [f"q-{number:04}" for number in range(QUEUES)]
        queues = [
            {"name": name, "vhost": "/", "durable": False, "auto_delete": False, "arguments": {}}
            for name in names
        ]
        bindings = [
            {"routing_key": "", "source": "amq.fanout", "vhost": "/", "destination": name}
            | {"destination_type": "queue", "arguments": {}}
            for name in names
        ]
        body = {"queues": queues, "bindings": bindings}
        assert api.call("POST", "definitions", body=body).status == 204
        api.close()
        connection = pika.BlockingConnection(pika.URLParameters(process.amqp_url()))
        channel = connection.channel()
        channel.confirm_delivery()
        for name, depth in DEPTHS.items():
            for _ in range(depth):
                channel.basic_publish("", name, b"x")
        connection.close()
        yield process


def test_a_page_of_them_is_asked_for_sorted_and_searched(
    crowded: BrokerProcess, open_console: OpenConsole
):
    console = open_console(crowded.http_url())
    console.log_in()
    console.requests.clear()
    console.open("queues")
    rows = console.table("Queues").locator("tbody tr")
    expect(rows).to_have_count(ROWS)
    asked = [path for path in console.api_requests() if path.startswith("/api/queues")]
    assert all(re.search(r"[?&]page_size=(8|50)&", path) for path in asked), "never all of them"
    expect(console.page.get_by_role("group", name="Pages")).to_contain_text("50 of 4,000")
    console.page.get_by_role("button", name="Last page").click()
    expect(rows.last).to_contain_text("q-3999")
    header = console.page.get_by_role("columnheader", name="Ready")
    expect(header).to_have_attribute("aria-sort", "none")
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(rows.nth(0)).to_contain_text("q-1234")
    expect(rows.nth(1)).to_contain_text("q-3999")
    expect(rows.nth(2)).to_contain_text("q-0007")
    header.get_by_role("button").press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    expect(rows.first).to_contain_text("q-0000")
    expect(header.get_by_role("button")).to_be_focused()
    console.page.get_by_label("Search queues").fill("q-12")
    expect(console.page.get_by_role("group", name="Pages")).to_contain_text("of 100 (4,000 in all)")
    console.page.get_by_label("Pattern").check()
    console.page.get_by_label("Search queues").fill("^q-12(3|5)4$")
    expect(rows).to_have_count(2)
    console.page.get_by_label("Search queues").fill("")
    console.page.get_by_label("Rows").select_option("250")
    expect(rows).to_have_count(250)
    assert "size=250" in console.page.url, "an address that can be passed on"
    assert all(
        int(size) <= 250
        for path in console.api_requests()
        for size in re.findall(r"page_size=(\d+)", path)
    )
    biggest = max(
        len(request.response().body())
        for request in console.requests
        if "/api/queues" in request.url and request.response()
    )
    assert biggest < 500_000


def test_an_exchange_with_thousands_of_bindings_can_be_looked_at(
    crowded: BrokerProcess, open_console: OpenConsole
):
    console = open_console(crowded.http_url())
    console.log_in()
    console.open("exchanges", "/", "amq.fanout")
    expect(console.table("Bindings from this exchange").locator("tbody tr")).to_have_count(100)
    expect(console.page.locator("#content")).to_contain_text("and 3,900 more")
    expect(console.page.locator("figcaption")).to_contain_text(["4,000 bindings from here"])
    assert 10 < console.page.locator("a.box").count() <= 60


@pytest.mark.parametrize("view", ["overview", "streams", "consumers", "dead-letters", "scheduled"])
def test_other_views_do_not_load_them(crowded: BrokerProcess, open_console: OpenConsole, view: str):
    console = open_console(crowded.http_url())
    console.log_in()
    console.requests.clear()
    console.open(view)
    assert len(set(console.api_requests())) <= 6
    for request in console.requests:
        response = request.response()
        if response is not None:  # what was under way when the page went on to the next
            assert len(response.body()) < 100_000, request.url
