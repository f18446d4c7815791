"""A broker that goes away and comes back, a tab nobody looks at, and how often the page asks."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.browser import Console
from tests.console.conftest import OpenConsole
from tests.support.admin import Api
from tests.support.ports import free_ports
from tests.support.process import BrokerProcess

AWAY = "The broker does not answer."
EXCHANGES = re.compile("/api/exchanges")


def test_a_broker_that_is_away_is_told_of_and_the_page_goes_on_when_it_is_back(
    open_console: OpenConsole, api: Api
):
    console = open_console()
    console.log_in()
    console.open("exchanges")
    console.failures_expected = True
    console.set_offline(offline=True)
    expect(console.page.get_by_role("alert").filter(has_text=AWAY)).to_be_visible()
    expect(console.row("Exchanges", "amq.topic")).to_have_count(1)  # as it was
    assert (
        api.call("PUT", "exchanges", "/", "made-meanwhile", body={"type": "direct"}).status == 201
    )
    console.set_offline(offline=False)
    expect(console.page.get_by_text(AWAY)).to_have_count(0)
    expect(console.row("Exchanges", "made-meanwhile")).to_have_count(1)
    assert api.call("DELETE", "exchanges", "/", "made-meanwhile").status == 204


def test_after_a_restart_one_logs_in_again_and_is_where_one_was(
    open_console: OpenConsole, tmp_path: Path
):
    amqp, http = free_ports(2)
    ports = ("--amqp-port", str(amqp), "--http-port", str(http))
    first = BrokerProcess(tmp_path, *ports)
    try:
        console = open_console(first.http_url())
        console.log_in()
        console.open("exchanges", "/", "amq.topic")
        console.failures_expected = True
        form = console.drawer("Publish a message")
        console.fill(form, Payload="not sent yet")
    finally:
        assert first.stop() == 0
    expect(console.page.get_by_role("alert").filter(has_text=AWAY)).to_be_visible()
    expect(form.get_by_label("Payload", exact=True)).to_have_value("not sent yet")
    with BrokerProcess(tmp_path, *ports):
        expect(console.page.get_by_text("Please log in again")).to_be_visible()
        console.fill_in_login("guest", "guest")
        expect(console.heading).to_have_text("Exchange amq.topic")
        expect(console.page.locator("#content")).to_contain_text("goes nowhere")


def hide(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


def test_a_tab_that_nobody_sees_asks_nothing(open_console: OpenConsole):
    console = open_console()
    console.page.clock.install()
    console.log_in()
    console.open("exchanges")
    hide(console.page, hidden=True)
    console.requests.clear()
    console.page.clock.run_for(60_000)
    assert console.api_requests() == []
    with console.page.expect_request(EXCHANGES):
        hide(console.page, hidden=False)


def test_nothing_is_asked_again_before_it_is_answered(open_console: OpenConsole):
    console = open_console()
    console.page.clock.install()
    console.log_in()
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        waiting.append(route)

    console.page.route(EXCHANGES, hold)
    with console.page.expect_request(EXCHANGES):
        console.page.get_by_role("navigation").get_by_role("link", name="Exchanges").click()
    console.page.clock.run_for(20_000)
    assert len([path for path in console.api_requests() if EXCHANGES.search(path)]) == 1
    waiting[0].continue_()
    console.page.unroute(EXCHANGES)
    expect(console.page.get_by_label("Search exchanges")).to_be_visible()
    with console.page.expect_request(EXCHANGES):
        console.page.clock.run_for(6_000)


def test_only_what_is_shown_is_asked_for(console: Console):
    for kind in ("Channels", "Exchanges", "Queues"):  # faster than it can load
        console.page.get_by_role("navigation").get_by_role("link", name=kind).click()
    console.loaded()
    console.requests.clear()
    console.wait_for_poll(2)
    paths = {path.partition("?")[0] for path in console.api_requests()}
    now_and_then = {"/api/overview", "/api/vhosts"}
    assert paths - now_and_then <= {"/api/queues", "/api/queues/%2F"}
    assert paths - now_and_then


@pytest.mark.parametrize("answer", [500, 503])
def test_an_answer_that_is_an_error_does_not_end_the_polling(console: Console, answer: int):
    console.failures_expected = True
    body = '{"error": "trouble", "reason": "a plain reason"}'
    console.page.route(EXCHANGES, lambda route: route.fulfill(status=answer, body=body))
    console.page.get_by_role("navigation").get_by_role("link", name="Exchanges").click()
    expect(console.page.locator("#content [role=alert]")).to_contain_text("a plain reason")
    console.page.unroute(EXCHANGES)
    expect(console.page.get_by_label("Search exchanges")).to_be_visible()


def test_a_stream_is_shown_while_nobody_can_tell_of_its_groups(console: Console, api: Api):
    body = {"durable": True, "arguments": {"x-queue-type": "stream", "x-partitions": 2}}
    assert api.call("PUT", "queues", "/", "lonely", body=body).status == 201
    console.failures_expected = True
    groups = re.compile("/api/stream-groups")
    refusal = '{"error": "trouble", "reason": "no node can decide that now"}'
    console.page.route(groups, lambda route: route.fulfill(status=503, body=refusal))
    console.open("streams", "/", "lonely")
    expect(console.table("Partitions").locator("tbody tr")).to_have_count(2)
    expect(console.page.locator("#content")).to_contain_text("no node can decide that now")
    console.page.unroute(groups)
    expect(console.page.locator("#content")).to_contain_text("No group has read this stream yet.")
    assert api.call("DELETE", "queues", "/", "lonely").status == 204
