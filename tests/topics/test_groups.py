"""Consumers of a group: sessions are members, commits are kept, partitions are shared."""

import pika
import pytest

from broker.topics.sessions import UNRETURNED_MAX
from clients.streams import connect
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.topics.conftest import MakeTopic, Member, Web, record, values

pytestmark = pytest.mark.leveret_only


def fill(web: Web, topic: str, count: int, start: int = 0) -> None:
    web.produce_all(topic, *(record(b"%d" % n) for n in range(start, start + count)))


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % n for n in range(start, stop)]


def test_a_session_goes_on_behind_what_it_got_and_reading_commits_nothing(
    web: Web, topic: str, group: str
):
    fill(web, topic, 10)
    member = Member(web, topic, group)
    assert values(member.take(4)) == numbers(0, 4)
    assert values(member.take(4)) == numbers(4, 8)
    assert member.next == [{"partition": 0, "offset": 8}]
    assert web.lag(topic, group)["partitions"][0]["committed"] is None
    member.leave()
    assert values(Member(web, topic, group).take(10)) == numbers(0, 10)


def test_what_was_committed_is_not_consumed_again_after_the_member_left(
    web: Web, topic: str, group: str
):
    fill(web, topic, 10)
    member = Member(web, topic, group)
    member.take(6)
    told = member.commit(offsets=[{"partition": 0, "offset": 4}])
    assert told == {"topic": topic, "group": group, "offsets": [{"partition": 0, "offset": 4}]}
    member.leave()
    assert values(Member(web, topic, group).take(6)) == numbers(4, 10)


def test_a_commit_without_offsets_is_of_all_that_the_session_got(web: Web, topic: str, group: str):
    fill(web, topic, 10)
    member = Member(web, topic, group)
    member.take(7)
    assert member.commit()["offsets"] == [{"partition": 0, "offset": 7}]
    member.leave()
    assert values(Member(web, topic, group).take(3)) == numbers(7, 10)


def test_what_a_consume_answers_as_next_can_be_committed_as_it_is(
    web: Web, make_topic: MakeTopic, group: str
):
    topic = make_topic(2)
    fill(web, topic, 10)
    member = Member(web, topic, group)
    member.take(10)
    member.commit(offsets=member.next)
    assert web.lag(topic, group)["lag"] == 0


def test_a_member_that_is_silent_too_long_is_replaced(
    web: Web, other_web: Web, topic: str, group: str
):
    fill(web, topic, 10)
    silent = Member(web, topic, group)
    silent.take(5)
    silent.commit(offsets=[{"partition": 0, "offset": 3}])
    silent.poll(sessionTimeoutMs=1000)
    assert values(Member(other_web, topic, group).take(7)) == numbers(3, 10)
    late = web.call("GET", f"topics/{topic}/consume", group=group, session=silent.session)
    assert (late.status, late.json["code"]) == (404, "session_unknown")


def test_two_members_share_the_partitions(
    web: Web, other_web: Web, make_topic: MakeTopic, group: str
):
    topic = make_topic(4)
    one, two = Member(web, topic, group), Member(other_web, topic, group)
    one.poll()
    assert one.partitions == [0, 1, 2, 3]

    def shared() -> bool:
        assert one.poll() == two.poll() == []
        assert not set(one.partitions) & set(two.partitions)
        return len(one.partitions) == len(two.partitions) == 2

    eventually(shared, "two partitions for each", within_s=90)
    web.produce_all(topic, *(record(b"%d" % n, partition=n) for n in range(4)))
    for member in (one, two):
        got = {each["partition"]: each["value"] for each in member.take(2)}
        assert sorted(got) == member.partitions
    kept = two.partitions
    one.leave()
    eventually(lambda: two.poll() is not None and len(two.partitions) == 4, "all", within_s=90)
    assert kept == [n for n in two.partitions if n in kept]


def test_groups_do_not_know_of_each_other(web: Web, topic: str, group: str):
    fill(web, topic, 3)
    for name in (group, f"{group} too"):
        member = Member(web, topic, name)
        assert values(member.take(3)) == numbers(0, 3)
        member.commit()


def test_a_new_group_can_begin_at_the_end(web: Web, topic: str, group: str):
    fill(web, topic, 3)
    member = Member(web, topic, group, **{"from": "next"})
    assert member.poll() == []
    fill(web, topic, 2, start=3)
    assert values(member.take(2)) == numbers(3, 5)


def test_a_group_goes_on_where_an_amqp_consumer_left_it(
    broker: BrokerProcess, web: Web, topic: str, group: str
):
    fill(web, topic, 10)
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url())) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=4)
        arguments = {"x-group": group, "x-stream-offset": "first"}
        for method, _, _body in channel.consume(topic, arguments=arguments, inactivity_timeout=60):
            assert method is not None
            if method.delivery_tag == 4:
                channel.basic_ack(4, multiple=True)
                break
        eventually(lambda: web.lag(topic, group)["partitions"][0]["committed"] == 4, "the commit")
    assert values(Member(web, topic, group).take(6)) == numbers(4, 10)


def test_a_stream_client_goes_on_where_an_http_consumer_left_it(
    broker: BrokerProcess, web: Web, topic: str, group: str
):
    fill(web, topic, 10)
    member = Member(web, topic, group)
    member.take(4)
    member.commit()
    with connect(broker.amqp_url(), name="a test") as client:
        assert client.committed(group)[topic, 0].offset == 4


def test_a_commit_of_what_is_not_the_members_is_refused(
    web: Web, other_web: Web, make_topic: MakeTopic, group: str
):
    topic = make_topic(2)
    one, two = Member(web, topic, group), Member(other_web, topic, group)

    def shared() -> bool:
        one.poll()
        two.poll()
        return len(one.partitions) == len(two.partitions) == 1

    eventually(shared, "a partition for each", within_s=90)
    body = {"group": group, "session": one.session}
    body["offsets"] = [{"partition": two.partitions[0], "offset": 0}]
    for path in ("commit", "seek"):
        answer = web.call("POST", f"topics/{topic}/{path}", body)
        assert (answer.status, answer.json["code"]) == (409, "not_assigned")


def test_without_a_session_only_groups_without_members_are_moved(web: Web, topic: str, group: str):
    fill(web, topic, 10)
    web.commit(topic, group, offsets=[{"partition": 0, "offset": 2}])
    member = Member(web, topic, group)
    assert values(member.take(8)) == numbers(2, 10)
    body = {"group": group, "offsets": [{"partition": 0, "offset": 5}]}
    for path in ("commit", "seek"):
        answer = web.call("POST", f"topics/{topic}/{path}", body)
        assert (answer.status, answer.json["code"]) == (409, "group_not_empty")
    member.leave()
    moved = web.ask("POST", f"topics/{topic}/seek", {"group": group, "to": "last"})
    assert moved["offsets"] == [{"partition": 0, "offset": 9}]
    assert values(Member(web, topic, group).take(1)) == [b"9"]


def test_a_session_seeks_to_places_times_and_offsets(web: Web, topic: str, group: str):
    rows = [web.produce(topic, b"%d" % n) for n in range(6)]
    member = Member(web, topic, group)
    member.take(3)
    member.commit(offsets=[{"partition": 0, "offset": 2}])
    time_ms = rows[4]["timestamp"]
    at_time = next(n for n, row in enumerate(rows) if row["timestamp"] >= time_ms)
    for wish, offset in (
        ({"to": "first"}, 0),
        ({"to": "last"}, 5),
        ({"to": "next"}, 6),
        ({"to": "committed"}, 2),
        ({"to": time_ms}, at_time),
        ({"offsets": [{"partition": 0, "offset": 3}]}, 3),
    ):
        body = {"group": group, "session": member.session, **wish}
        moved = web.ask("POST", f"topics/{topic}/seek", body)
        assert moved["offsets"] == [{"partition": 0, "offset": offset}], wish
        got = member.take(6 - offset) if offset < 6 else member.poll()
        assert values(got) == numbers(offset, 6)
    assert web.lag(topic, group)["partitions"][0]["committed"] == 2


def test_lag_counts_what_is_not_committed(web: Web, make_topic: MakeTopic, group: str):
    topic = make_topic(2)
    web.produce_all(topic, *(record(b"x", partition=n % 2) for n in range(10)))
    assert web.lag(topic, "nobody") == {
        "topic": topic,
        "group": "nobody",
        "lag": 10,
        "partitions": [
            {"partition": n, "committed": None, "next": 5, "lag": 5, "member": None} for n in (0, 1)
        ],
    }
    member = Member(web, topic, group)
    member.take(10)
    member.commit(offsets=[{"partition": 1, "offset": 3}])
    found = web.lag(topic, group)
    assert found["lag"] == 7
    assert [each["committed"] for each in found["partitions"]] == [None, 3]
    assert len({each["member"] for each in found["partitions"]} - {None}) == 1


def test_a_session_is_of_one_user_topic_and_group(web: Web, make_topic: MakeTopic, group: str):
    topic, other = make_topic(), make_topic()
    member = Member(web, topic, group)
    member.poll()
    for path, name, session in (
        (topic, "another", member.session),
        (other, group, member.session),
        (topic, group, member.session + "x"),
        (topic, group, "0-nothing"),
        (topic, group, "77-nothing"),
        (topic, group, "nonsense"),
    ):
        answer = web.call("GET", f"topics/{path}/consume", group=name, session=session)
        assert (answer.status, answer.json["code"]) == (404, "session_unknown")
    assert member.poll() == []


def test_consumers_of_a_topic_that_is_deleted_are_told(web: Web, topic: str, group: str):
    member = Member(web, topic, group)
    member.poll()
    assert web.call("DELETE", f"admin/topics/{topic}").status == 204
    answer = web.call("GET", f"topics/{topic}/consume", group=group, session=member.session)
    assert (answer.status, answer.json["code"]) == (404, "stream_not_found")


def test_a_client_that_never_sends_its_session_back_does_not_fill_the_group(
    web: Web, broker: BrokerProcess, make_topic: MakeTopic, group: str
):
    topic = make_topic(4)
    steady = Member(web, topic, group)
    steady.poll()
    steady.poll()
    for _ in range(30):
        web.consume(topic, group)

    def members() -> int:
        with connect(broker.amqp_url(), name="a test") as client:
            return len(client.describe_group(group).members)

    eventually(lambda: members() <= UNRETURNED_MAX + 1, "those without a session to leave")
    steady.poll()  # it is still one of them
