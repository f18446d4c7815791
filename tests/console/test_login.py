"""Logging in and out, by hand and by keyboard; sessions that end; users who may do less."""

import json
import re
from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.conftest import OpenConsole
from tests.support.admin import Api
from tests.support.process import BrokerProcess

Fresh = Callable[[str], str]


def token_of(console: Console) -> str:
    kept = console.page.evaluate("sessionStorage.getItem('leveret.session')")
    token = json.loads(kept)["token"]
    assert isinstance(token, str)
    return token


def holds(node: BrokerProcess, token: str) -> bool:
    api = Api(node.host, node.http_port)
    api.headers = {"Authorization": f"Bearer {token}"}
    status = api.call("GET", "whoami").status
    api.close()
    return status == 200


def test_a_wrong_password_is_told_in_plain_words(open_console: OpenConsole):
    console = open_console()
    console.failures_expected = True
    console.page.goto(console.url)
    console.fill_in_login("guest", "wrong")
    console.says("This name and password do not fit")
    expect(console.page.get_by_role("button", name="Log in")).to_be_enabled()
    assert console.page.evaluate("sessionStorage.getItem('leveret.session')") is None
    console.fill_in_login("guest", "guest")
    expect(console.heading).to_have_text("Overview")


def test_a_user_without_a_tag_is_told_why(open_console: OpenConsole, api: Api, fresh: Fresh):
    user = fresh("plain")
    api.call("PUT", "users", user, body={"password": "p", "tags": ""})
    console = open_console()
    console.failures_expected = True
    console.page.goto(console.url)
    console.fill_in_login(user, "p")
    console.says("no tag that allows to use the console")


def test_all_of_it_by_keyboard(open_console: OpenConsole):
    console = open_console()
    page = console.page
    page.goto(console.url)
    expect(page.get_by_label("User")).to_be_focused()
    page.keyboard.type("guest")
    page.keyboard.press("Tab")
    page.keyboard.type("guest")
    page.keyboard.press("Enter")
    expect(console.heading).to_have_text("Overview")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert "#/overview" in page.url, "skipping is no navigation"
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Queues":
            break
    page.keyboard.press("Enter")
    expect(console.heading).to_have_text("Queues")
    expect(console.heading).to_be_focused()
    console.loaded()
    page.keyboard.press("/")
    expect(page.get_by_label("Search queues")).to_be_focused()
    page.keyboard.type("nothing/like this")
    expect(page.locator("#content")).to_contain_text("No queue's name fits.")
    expect(page.get_by_label("Search queues")).to_be_focused()


def test_focus_can_be_seen(console: Console):
    console.page.keyboard.press("Tab")
    console.page.keyboard.press("Tab")
    outline = console.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_logging_out_ends_the_token(console: Console, node: BrokerProcess):
    token = token_of(console)
    assert holds(node, token)
    console.page.get_by_role("button", name="Log out").click()
    expect(console.page.get_by_text("You are logged out.")).to_be_visible()
    assert not holds(node, token)
    assert console.page.evaluate("sessionStorage.getItem('leveret.session')") is None
    console.page.reload()
    expect(console.page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_reload_stays_logged_in(console: Console):
    console.open("queues")
    console.page.reload()
    expect(console.heading).to_have_text("Queues")


def test_a_session_that_the_broker_ended_asks_to_log_in_and_goes_on_where_it_was(
    console: Console, node: BrokerProcess
):
    console.open("exchanges", "/", "amq.topic")
    console.failures_expected = True
    api = Api(node.host, node.http_port)
    api.headers = {"Authorization": f"Bearer {token_of(console)}"}
    assert api.call("DELETE", "login").status == 204
    api.close()
    expect(console.page.get_by_text("Please log in again")).to_be_visible()
    console.fill_in_login("guest", "guest")
    expect(console.heading).to_have_text("Exchange amq.topic")


def test_a_session_whose_time_is_over_ends_without_asking_the_broker(console: Console):
    console.page.evaluate(
        """() => {
            const kept = JSON.parse(sessionStorage.getItem('leveret.session'));
            const expiresMs = Date.now() - 1;
            sessionStorage.setItem('leveret.session', JSON.stringify({...kept, expiresMs}));
        }"""
    )
    console.page.reload()
    expect(console.page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_session_in_use_is_renewed_and_the_old_token_is_given_back(
    console: Console, node: BrokerProcess
):
    old = token_of(console)
    console.page.evaluate(
        """() => {
            const kept = JSON.parse(sessionStorage.getItem('leveret.session'));
            const expiresMs = Date.now() + kept.lifeMs / 3;
            sessionStorage.setItem('leveret.session', JSON.stringify({...kept, expiresMs}));
        }"""
    )
    console.page.reload()
    expect(console.heading).to_have_text("Overview")
    with console.page.expect_response(
        lambda response: response.request.method == "DELETE" and "/api/login" in response.url
    ):
        console.page.keyboard.press("Shift")  # somebody is there
    new = token_of(console)
    assert new != old
    assert holds(node, new)
    assert not holds(node, old)
    console.open("queues")
    expect(console.heading).to_have_text("Queues")


NAVIGATION = [
    *("Overview", "Connections", "Channels", "Consumers", "Queues", "Streams", "Stream groups"),
    *("Exchanges", "Dead letters", "Scheduled", "ETL jobs", "Policies"),
]
FOR_ADMINISTRATORS = ["Users", "Permissions", "Virtual hosts", "Limits"]


def test_an_administrator_finds_everything(console: Console):
    links = console.page.get_by_role("navigation").get_by_role("link")
    expect(links).to_have_text([*NAVIGATION, *FOR_ADMINISTRATORS])


@pytest.mark.parametrize("tag", ["monitoring", "management", "policymaker"])
def test_others_see_what_they_may_and_no_broken_pages(
    open_console: OpenConsole, api: Api, channel: BlockingChannel, fresh: Fresh, tag: str
):
    user, queue = fresh(tag), fresh("seen")
    channel.queue_declare(queue, durable=True)
    channel.basic_publish("", queue, b"one")
    api.call("PUT", "users", user, body={"password": "p", "tags": tag})
    if tag != "monitoring":  # who sees all vhosts without being let in
        everything = {"configure": "^mine", "write": "", "read": ".*"}
        api.call("PUT", "permissions", "/", user, body=everything)
    console = open_console()
    console.log_in(user, "p")
    links = console.page.get_by_role("navigation").get_by_role("link")
    expect(links).to_have_text(NAVIGATION)
    for text in NAVIGATION:
        links.get_by_text(text, exact=True).click()
        expect(console.page.locator("nav [aria-current]")).to_have_text(text)
        console.loaded()
        expect(console.page.locator("#content [role=alert]")).to_have_count(0)
    expect(console.page.get_by_text("Set a policy")).to_have_count(1 if tag == "policymaker" else 0)
    console.open("overview")
    expect(console.table("Nodes")).to_have_count(1 if tag == "monitoring" else 0)
    console.open("queues", "/", queue)
    expect(console.page.get_by_text("Ready").first).to_be_visible()
    console.failures_expected = True
    console.page.get_by_role("button", name="Delete", exact=True).click()
    console.confirm("Delete")
    expect(console.page.locator("#notices")).to_contain_text(re.compile("refused|not authorised"))
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
    console.open("users")
    expect(console.page.locator("#content [role=alert]")).to_contain_text("You may not see this")
