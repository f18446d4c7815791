"""What is done to queues and messages by clicking, and what AMQP and HTTP find of it."""

from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.support.admin import Api
from tests.support.waiting import eventually

Fresh = Callable[[str], str]


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is in a queue, taken out."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


def filled(channel: BlockingChannel, queue: str, count: int = 3) -> None:
    channel.queue_declare(queue, durable=True)
    for number in range(count):
        headers = pika.BasicProperties(headers={"number": number})
        channel.basic_publish("", queue, f"message {number}".encode(), headers)


def test_a_queue_is_declared_with_arguments(console: Console, api: Api, fresh: Fresh):
    queue = fresh("declared")
    console.open("queues")
    form = console.drawer("Declare a queue")
    console.fill(form, Name=queue, Arguments="x-max-length=7\nx-overflow=reject-publish")
    form.get_by_label("Type").select_option("classic")
    form.get_by_role("button", name="Declare queue").click()
    console.says(f"Queue “{queue}” is declared.")
    console.page.get_by_label("Search queues").fill(queue)
    expect(console.row("Queues", queue)).to_have_count(1)
    found = api.call("GET", "queues", "/", queue).json
    assert found["durable"]
    assert found["type"] == "classic"
    assert found["arguments"]["x-max-length"] == 7
    assert found["arguments"]["x-overflow"] == "reject-publish"


def test_what_the_broker_refuses_is_told_in_its_words(console: Console, api: Api, fresh: Fresh):
    queue = fresh("refused")
    console.failures_expected = True
    console.open("queues")
    form = console.drawer("Declare a queue")
    console.fill(form, Name=queue, Arguments="x-max-length=-1")
    form.get_by_role("button", name="Declare queue").click()
    expect(console.page.locator("#notices [role=alert]")).to_contain_text("x-max-length")
    expect(form.get_by_label("Name", exact=True)).to_have_value(queue)
    assert api.call("GET", "queues", "/", queue).status == 404
    console.fill(form, Arguments="no equals sign")
    form.get_by_role("button", name="Declare queue").click()
    console.says("is not name=value")


def test_a_published_message_can_be_consumed(
    console: Console, channel: BlockingChannel, fresh: Fresh
):
    queue = fresh("published")
    channel.queue_declare(queue, durable=True)
    console.open("queues", "/", queue)
    form = console.drawer("Publish a message")
    console.fill(
        form,
        Payload='{"größe": "<b>1</b>"}',
        Headers="tries=3\nwho=ada",
        Properties="content_type=application/json\npriority=4\nmessage_id=17",
    )
    form.get_by_role("button", name="Publish", exact=True).click()
    console.says("1 message published.")
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert method is not None
    assert body.decode() == '{"größe": "<b>1</b>"}'
    assert properties.headers == {"tries": 3, "who": "ada"}
    assert (properties.content_type, properties.message_id) == ("application/json", "17")
    assert (properties.delivery_mode, properties.priority) == (2, 4)
    form.get_by_label("Copies").fill("3")
    form.get_by_label("Payload is").select_option("base64")
    console.fill(form, Payload="AAEC")
    form.get_by_role("button", name="Publish", exact=True).click()
    console.says("3 messages published.")
    assert bodies(channel, queue) == [b"\x00\x01\x02"] * 3


def test_messages_are_got_and_put_back_or_taken(
    console: Console, channel: BlockingChannel, fresh: Fresh
):
    queue = fresh("got")
    filled(channel, queue)
    console.open("queues", "/", queue)
    form = console.drawer("Get messages")
    form.get_by_label("How many").fill("2")
    form.get_by_role("button", name="Get messages").click()
    expect(form.locator("article")).to_have_count(2)
    expect(form.locator("pre").first).to_have_text("message 0")
    form.get_by_label("What happens to them").select_option("ack_requeue_false")
    form.get_by_role("button", name="Get messages").click()
    console.confirm("Cancel")
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    form.get_by_role("button", name="Get messages").click()
    console.confirm("Take them")
    eventually(
        lambda: channel.queue_declare(queue, passive=True).method.message_count == 1, "the get"
    )
    assert bodies(channel, queue) == [b"message 2"]


def test_messages_are_found_moved_and_deleted_where_they_are(
    console: Console, channel: BlockingChannel, fresh: Fresh
):
    queue, other = fresh("browsed"), fresh("moved-to")
    filled(channel, queue, 30)
    channel.queue_declare(other, durable=True)
    console.open("queues", "/", queue)
    form = console.drawer("Browse without consuming")
    form.get_by_role("button", name="Browse", exact=True).click()
    rows = console.table("Messages found").locator("tbody tr")
    expect(rows).to_have_count(25)
    form.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(5)
    form.get_by_label("Header", exact=True).fill("number:7")
    form.get_by_role("button", name="Browse", exact=True).click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("message 7")
    form.get_by_role("button", name="Show message").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text("message 7")
    dialog.get_by_role("button", name="Close").click()
    form.get_by_role("button", name="Move message").click()
    dialog.get_by_label("To queue").fill(other)
    dialog.get_by_role("button", name="Move", exact=True).click()
    console.says(f"is in “{other}”.")
    form.get_by_label("Header", exact=True).fill("")
    form.get_by_label("Text in the payload").fill("message 1$")
    form.get_by_label("These are patterns").check()
    form.get_by_role("button", name="Browse", exact=True).click()
    expect(rows).to_have_count(1)
    form.get_by_role("button", name="Delete message").click()
    console.confirm("Delete")
    console.says("is deleted.")
    assert bodies(channel, other) == [b"message 7"]
    expected = [f"message {n}".encode() for n in range(30) if n not in {1, 7}]
    assert bodies(channel, queue) == expected


def test_arguments_are_changed_while_the_queue_is_used(
    console: Console, api: Api, channel: BlockingChannel, fresh: Fresh
):
    queue = fresh("altered")
    filled(channel, queue, 10)
    console.open("queues", "/", queue)
    form = console.drawer("Change arguments")
    console.fill(form, Arguments="x-max-length=4")
    form.get_by_role("button", name="Change", exact=True).click()
    console.says("are changed.")
    expect(console.page.locator(".settings")).to_contain_text("x-max-length")
    eventually(
        lambda: channel.queue_declare(queue, passive=True).method.message_count == 4, "the limit"
    )
    console.fill(form, Arguments="x-max-length=null")
    form.get_by_role("button", name="Change", exact=True).click()
    expect(console.page.locator(".settings")).not_to_contain_text("x-max-length")
    assert "x-max-length" not in api.call("GET", "queues", "/", queue).json["arguments"]


def test_a_queue_is_purged_and_deleted_only_after_a_yes(
    console: Console, api: Api, channel: BlockingChannel, fresh: Fresh
):
    queue = fresh("purged")
    filled(channel, queue)
    console.open("queues", "/", queue)
    console.page.get_by_role("button", name="Purge").click()
    console.page.keyboard.press("Escape")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    expect(console.page.get_by_role("button", name="Purge")).to_be_focused()
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    console.page.get_by_role("button", name="Purge").click()
    expect(console.page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    console.confirm("Purge")
    console.says("is purged.")
    assert channel.queue_declare(queue, passive=True).method.message_count == 0
    console.page.get_by_role("button", name="Delete", exact=True).click()
    console.confirm("Delete")
    console.says("is deleted.")
    expect(console.heading).to_have_text("Queues")
    assert api.call("GET", "queues", "/", queue).status == 404


def dead(channel: BlockingChannel, queue: str, target: str, count: int) -> None:
    """So many dead letters of one queue in the other."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    channel.queue_declare(target, durable=True)
    channel.queue_declare(queue, durable=True, arguments=arguments)
    for number in range(count):
        channel.basic_publish("", queue, f"letter {number}".encode())
        method, _, _ = channel.basic_get(queue)
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
    eventually(
        lambda: channel.queue_declare(target, passive=True).method.message_count == count,
        "the dead letters",
    )


def test_dead_letters_are_replayed_and_dropped(
    console: Console, channel: BlockingChannel, fresh: Fresh
):
    queue, target = fresh("alive"), fresh("dead")
    dead(channel, queue, target, 5)
    console.open("dead-letters")
    console.page.get_by_label("Search dead-letter queues").fill(target)
    row = console.row("Queues with dead letters", target)
    expect(row).to_contain_text(queue)
    row.get_by_role("link").click()
    expect(console.heading).to_have_text(f"Dead letters in {target}")
    rows = console.table("Dead letters").locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("rejected")
    console.page.get_by_role("button", name="Replay selected").click()
    console.says("Select messages first.")
    rows.filter(has_text="letter 1").get_by_role("checkbox").check()
    rows.filter(has_text="letter 3").get_by_role("checkbox").check()
    console.page.get_by_role("button", name="Replay selected").click()
    console.says("2 messages sent back.")
    expect(rows).to_have_count(3)
    assert bodies(channel, queue) == [b"letter 1", b"letter 3"]
    rows.filter(has_text="letter 0").get_by_role("checkbox").check()
    console.page.get_by_role("button", name="Drop selected").click()
    console.confirm("Drop")
    console.says("1 message dropped.")
    expect(rows).to_have_count(2)
    console.page.get_by_role("button", name="Replay all").click()
    console.confirm("Replay")
    console.says("2 messages sent back.")
    expect(console.page.locator("#content")).to_contain_text("There are no messages here.")
    assert bodies(channel, queue) == [b"letter 2", b"letter 4"]
    dead(channel, fresh("alive"), target, 2)
    console.page.get_by_role("button", name="Drop all").click()
    console.confirm("Drop")
    console.says("2 messages dropped.")
    assert bodies(channel, target) == []


def test_scheduled_messages_are_cancelled_and_given_another_time(
    console: Console, api: Api, channel: BlockingChannel, fresh: Fresh
):
    queue = fresh("later")
    channel.queue_declare(queue, durable=True)
    for number in range(3):
        wait = pika.BasicProperties(headers={"x-delay": 3_600_000 * (number + 1)}, delivery_mode=2)
        channel.basic_publish("", queue, f"later {number}".encode(), wait)
    console.open("scheduled")
    console.page.get_by_label("Search queues").fill(queue)
    row = console.row("Queues with scheduled messages", queue)
    expect(row).to_contain_text("3")
    row.get_by_role("link").click()
    rows = console.table("Scheduled messages").locator("tbody tr")
    expect(rows).to_have_count(3)
    rows.filter(has_text="later 0").get_by_role("button", name="Cancel message").click()
    console.confirm("Cancel it")
    console.says("is cancelled.")
    expect(rows).to_have_count(2)
    rows.filter(has_text="later 2").get_by_role("button", name="Reschedule message").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_label("From now").fill("0")
    dialog.get_by_role("button", name="Reschedule", exact=True).click()
    console.says("has another time.")
    eventually(lambda: bodies(channel, queue) == [b"later 2"], "the message that is due now")
    (left,) = api.call("GET", "scheduled", "/", queue).json
    assert left["payload"] == "later 1"
    expect(rows).to_have_count(1)
