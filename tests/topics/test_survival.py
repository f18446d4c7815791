"""Commits and records survive kill -9; any node of a cluster serves topics and finds sessions."""

import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.proxy import HOST
from tests.support.waiting import eventually
from tests.topics.conftest import Member, Web, record, values

pytestmark = [pytest.mark.leveret_only, pytest.mark.timeout(300)]


def test_commits_and_records_survive_a_kill_and_sessions_begin_anew(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    with Web(broker.host, broker.http_port) as web:
        web.ask("POST", "admin/topics", {"name": "t", "partitions": 2})
        sent = [record(b"%d" % n, partition=n % 2) for n in range(20)]
        web.produce_all("t", *sent)
        member = Member(web, "t", "g")
        member.take(20)
        member.commit(offsets=[{"partition": 0, "offset": 7}, {"partition": 1, "offset": 9}])
        broker.kill()
    broker = start_broker(*data)
    with Web(broker.host, broker.http_port) as web:
        late = web.call("GET", "topics/t/consume", group="g", session=member.session)
        assert (late.status, late.json["code"]) == (404, "session_unknown")
        got = Member(web, "t", "g").take(4)
        places = [(each["partition"], each["offset"]) for each in got]
        assert sorted(places) == [(0, 7), (0, 8), (0, 9), (1, 9)]
        every = Member(web, "t", "h").take(20)
        assert sorted(each["value"] for each in every) == sorted(each["value"] for each in sent)


def test_while_an_alarm_lasts_nothing_is_produced_and_all_else_goes_on(start_broker, tmp_path):
    data = ("--data-dir", str(tmp_path / "data"))
    broker = start_broker(*data)
    with Web(broker.host, broker.http_port) as web:
        web.ask("POST", "admin/topics", {"name": "t"})
        web.produce("t", b"before")
    broker.stop()
    broker = start_broker(*data, "--disk-free-bytes-min", str(2**50))
    with Web(broker.host, broker.http_port) as web:

        def is_refused():
            answer = web.call("POST", "topics/t/produce", record(b"not now"))
            return (answer.status, answer.json.get("code")) == (503, "blocked")

        eventually(is_refused, "the alarm")
        member = Member(web, "t", "g")
        assert values(member.take(1)) == [b"before"]
        member.commit(offsets=[{"partition": 0, "offset": 1}])


def test_any_node_makes_produces_consumes_and_finds_the_session(tmp_path):
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        # Nodes that are slow to answer each other are taken for lost, and come back.
        again = frozenset({404, 409, 503})
        webs = {
            name: Web(HOST, node.ports["http"], again=again) for name, node in cluster.nodes.items()
        }
        made = {"name": "t", "partitions": 3, "replicationFactor": 3}
        assert webs["a"].insist("POST", "admin/topics", made)["replicationFactor"] == 3
        for number, web in enumerate(webs.values()):
            assert web.produce("t", b"%d" % number, partition=number)["partition"] == number
        first = Member(webs["c"], "t", "g")
        assert {b"0", b"1", b"2"} >= set(values(first.take(3)))
        moved = Member(webs["a"], "t", "g")
        moved.session = first.session  # as behind a load balancer
        webs["b"].produce("t", b"3", partition=0)

        def gets(member, value):
            return value in values(member.poll(timeoutMs=5000))

        eventually(lambda: gets(moved, b"3"), "the record", within_s=120)

        def has_committed():
            moved.poll()
            webs["b"].commit("t", "g", session=first.session)
            return webs["a"].lag("t", "g")["lag"] == 0

        eventually(has_committed, "all is committed", within_s=120)
        webs["b"].call("DELETE", "topics/t/consume", group="g", session=first.session)
        webs["c"].produce("t", b"4", partition=2)
        kept = Member(webs["c"], "t", "g")
        assert values(kept.take(1)) == [b"4"]

        cluster.nodes["c"].kill()
        webs.pop("c").close()

        def is_told():
            answer = webs["a"].call("GET", "topics/t/consume", group="g", session=kept.session)
            assert answer.status in (404, 503), answer
            return answer.status == 404

        eventually(is_told, "the session is given up", within_s=120)
        for web in webs.values():
            web.close()
        assert not cluster.tracebacks()
    cluster.wipe()
