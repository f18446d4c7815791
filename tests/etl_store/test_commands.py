"""`leveret etl dlq` and `leveret etl status` as people run them, against a live broker."""

import json
import subprocess
import sys
import time

import pytest

from clients.stream_errors import ConnectionLostError
from clients.streams import connect
from spark.etl import dead_letters, herald, letters_table, replaying
from spark.etl.dead_letters import dlq_of
from spark.etl.follower import DeadLetterFollower
from spark.etl.lag import Lag
from spark.etl.letters_table import Selection
from spark.etl.replaying import Replayer
from spark.etl.reporting import Reporter
from tests.etl_store.letters import bury
from tests.support.frames import Queue
from tests.support.process import ROOT, clean_environment
from tests.support.streams import STREAM, declare_stream
from tests.support.waiting import eventually


@pytest.fixture
def client(amqp_url):
    with connect(amqp_url) as client:
        yield client


@pytest.fixture
def topic(scene, channel):
    name = declare_stream(scene, channel, partitions=2)
    channel.declare_queue(dlq_of(name), durable=True, arguments={**STREAM, "x-partitions": 2})
    yield name
    channel.rpc(Queue.Delete(queue=dlq_of(name)))


@pytest.fixture
def etl(broker, store, store_url, monkeypatch, capsys):
    """Runs a command in this process: exit code, what it printed, and its complaints."""
    monkeypatch.setenv("LEVERET_ETL_STORE", store_url)
    monkeypatch.setenv("LEVERET_AMQP_URL", broker.amqp_url())
    monkeypatch.setenv("LEVERET_URL", broker.http_url(""))

    from clients.cli import run

    def call(*arguments):
        capsys.readouterr()
        code = run(["etl", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def letters_of(store, **selection):
    with store.reading() as connection:
        return letters_table.find(connection, Selection(**selection), limit=1000)


def records(client, topic):
    return [
        (partition, record.key, record.value, record.headers)
        for partition in range(2)
        for record in client.reader(topic, partition, 0)
    ]


def test_letters_are_listed_newest_first_and_shown(etl, client, topic):
    bury(client, topic, [41, 42], own={"trace": "abc"})
    bury(client, topic, [43], error_type="ValidationError", error="amount [b]<0[/b]")
    code, out, _ = etl("dlq", "list", "--json", "--topic", topic)
    assert code == 0
    rows = json.loads(out)
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    assert {row["offset"] for row in rows} == {41, 42, 43}
    number = next(row["id"] for row in rows if row["offset"] == 43)
    code, out, _ = etl("dlq", "list", "--topic", topic)
    assert f"{topic}/0:41" in out
    assert "amount [b]<0[/b]" in out
    assert "raw 41" in out
    code, out, _ = etl("dlq", "show", str(number), "--json")
    shown = json.loads(out)
    assert (shown["error_type"], shown["value"], shown["key"]) == (
        "ValidationError",
        "raw 43",
        "key 43",
    )
    code, out, _ = etl("dlq", "show", str(number))
    assert code == 0
    assert "raw 43" in out
    code, _, err = etl("dlq", "show", "99999")
    assert (code, "no dead letter 99999" in err) == (1, True)
    code, out, _ = etl("dlq", "list", "--error-type", "ValidationError", "--json", "--topic", topic)
    assert [row["offset"] for row in json.loads(out)] == [43]


def test_a_replay_is_the_record_again_and_is_counted(etl, client, store, topic):
    bury(client, topic, [41, 42], own={"trace": "abc"}, partition="1")
    code, out, _ = etl("dlq", "replay", "--all")
    assert (code, out) == (0, "replayed 2, left 0\n")
    assert records(client, topic) == [
        (1, b"key 41", b"raw 41", {"trace": "abc", dead_letters.REPLAYS: "1"}),
        (1, b"key 42", b"raw 42", {"trace": "abc", dead_letters.REPLAYS: "1"}),
    ]
    assert [each.replay_count for each in letters_of(store)] == [1, 1]
    assert etl("dlq", "replay", "--all")[1] == "replayed 0, left 0\n"
    number = letters_of(store)[0].id
    code, out, _ = etl("dlq", "replay", str(number), "--json")
    assert json.loads(out) == {"replayed": [number], "settled": [], "left": []}
    assert records(client, topic)[2][3][dead_letters.REPLAYS] == "2"
    assert [each.replay_count for each in letters_of(store)] == [2, 1]


def test_a_replay_has_the_headers_of_the_record_as_long_as_it_is_there(etl, client, topic):
    own = {"n": 5, "table": {"a": [1, None]}, "x-etl-foo": "mine", "raw": b"\xff"}
    with client.producer(topic) as producer:
        for number in range(3):
            producer.send(b"raw %d" % number, key=b"key %d" % number, headers=own, partition=1)
    times = [str(record.timestamp_ms) for record in client.reader(topic, 1, 0)]
    bury(client, topic, [0], own=own, partition="1", timestamp=times[0])
    bury(client, topic, [1], own=own, partition="1", timestamp="12345")  # of an earlier stream
    bury(client, topic, [2], partition="1", timestamp=times[2])  # its source was read without any
    bury(client, topic, [3], own=own, partition="1")  # not there
    assert etl("dlq", "replay", "--all")[1] == "replayed 4, left 0\n"
    sent = {value: headers for _, _, value, headers in records(client, topic)[3:]}
    counted = {dead_letters.REPLAYS: "1"}
    as_text = {**own, "n": "5", "table": '{"a": [1, null]}', **counted}
    assert sent[b"raw 0"] == sent[b"raw 2"] == {**own, **counted}
    assert sent[b"raw 1"] == sent[b"raw 3"] == as_text


def test_a_dead_letter_that_is_gone_is_not_replayed_without_its_headers(etl, client, topic, scene):
    bury(client, topic, [41], topic=dlq_of(topic))
    code, out, _ = etl("dlq", "replay", "--all")
    assert (code, out.partition("\n")[0]) == (0, "replayed 0, left 1")
    assert f"{dlq_of(topic)!r} has the dead letter no more" in out


def test_a_replay_chooses_by_job_topic_and_error(etl, client, store, topic):
    bury(client, topic, [1])
    bury(client, topic, [2], error_type="ValidationError")
    bury(client, topic, [3], job="another")
    assert etl("dlq", "replay", "--error-type", "ValidationError", "--job", "orders")[0] == 0
    assert etl("dlq", "replay", "--job", "another", "--topic", topic)[0] == 0
    assert sorted(value for _, _, value, _ in records(client, topic)) == [b"raw 2", b"raw 3"]
    assert etl("dlq", "replay", "--all", "--again")[1] == "replayed 3, left 0\n"
    code, _, err = etl("dlq", "replay")
    assert (code, "--all" in err) == (2, True)
    assert etl("dlq", "replay", "1", "--all")[0] == 2


def test_what_cannot_be_replayed_is_left_with_a_reason(etl, client, store, topic):
    bury(client, topic, [1], topic="gone")
    bury(client, topic, [2], job=None)
    bury(client, topic, [3])
    code, out, _ = etl("dlq", "replay", "--all")
    assert code == 0
    assert out.startswith("replayed 1, left 2\n")
    assert "there is no stream 'gone'" in out
    assert "no job has read it" in out
    assert "no such letter" in etl("dlq", "replay", "99999")[1]


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_a_replay_that_dies_around_its_commit_sends_and_counts_once(
    amqp_url, client, store, topic, monkeypatch, moment
):
    bury(client, topic, range(5))
    follower = DeadLetterFollower(amqp_url, store, [topic])
    follower.run_once()
    follower.close()
    commit = replaying.TransactionalProducer.commit

    def die(self, key, parts):
        if moment == "behind":
            commit(self, key, parts)
        raise ConnectionLostError("killed")

    ids = [each.id for each in letters_of(store)]
    first = Replayer(amqp_url, store)
    with monkeypatch.context() as patched:
        patched.setattr(replaying.TransactionalProducer, "commit", die)
        with pytest.raises(ConnectionLostError):
            first.replay(ids)
    first.close()
    assert [each.replay_count for each in letters_of(store)] == [0] * 5
    second = Replayer(amqp_url, store)
    result = second.replay(ids)
    second.close()
    was_sent = ids if moment == "behind" else []
    assert result.settled == was_sent
    assert result.replayed == [each for each in ids if each not in was_sent]
    assert [each.replay_count for each in letters_of(store)] == [1] * 5
    assert sorted(value for _, _, value, _ in records(client, topic)) == [
        b"raw %d" % number for number in range(5)
    ]


def test_a_large_replay_is_several_transactions(amqp_url, client, store, topic, monkeypatch):
    monkeypatch.setattr(replaying, "LETTERS_AT_ONCE", 7)
    bury(client, topic, range(30))
    follower = DeadLetterFollower(amqp_url, store, [topic])
    follower.run_once()
    follower.close()
    replayer = Replayer(amqp_url, store)
    result = replayer.replay([each.id for each in letters_of(store)])
    replayer.close()
    assert len(result.replayed) == len(set(result.replayed)) == 30
    assert len(records(client, topic)) == 30


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_without_a_broker_the_store_is_listed_as_it_is(etl, client, topic, monkeypatch):
    bury(client, topic, [41])
    etl("dlq", "list")
    monkeypatch.setenv("LEVERET_AMQP_URL", "amqp://127.0.0.1:1")
    code, out, err = etl("dlq", "list", "--json")
    assert code == 0
    assert [row["offset"] for row in json.loads(out)] == [41]
    assert "as the store has them" in err
    assert etl("dlq", "replay", "--all")[0] == 1


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_store_that_is_not_there_is_not_made(etl, tmp_path):
    code, _, err = etl("dlq", "list", "--store", f"sqlite:///{tmp_path / 'none.db'}")
    assert (code, "no ETL store" in err) == (1, True)
    assert not (tmp_path / "none.db").exists()


def test_a_checkpoint_is_forgotten_by_name(etl, store):
    store.save_checkpoint(None, "orders/table", 4, {"a": {0: 5}})
    assert etl("forget", "orders/table")[0] == 0
    assert store.checkpoint("orders/table") is None
    assert etl("forget", "orders/table")[0] == 1


PROGRESS = {
    "batchId": 7,
    "numInputRows": 2000,
    "durationMs": {"triggerExecution": 500},
    "sources": [],
}


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_status_shows_jobs_and_the_broker_their_state(etl, broker, api, client, store, topic):
    with client.producer(topic) as producer:
        for number in range(10):
            producer.send(b"%d" % number, partition=0)
    source = {
        "startOffset": {topic: {"0": 0, "1": 0}},
        "endOffset": {topic: {"0": 4, "1": 0}},
        "latestOffset": {topic: {"0": 10, "1": 0}},
        "numInputRows": 8,
    }
    job = f"job of {topic}"
    reporter = Reporter(job, store, broker.http_url(""), stream_url=broker.amqp_url())
    bury(client, topic, [1], job=job)
    reporter.progress(PROGRESS | {"sources": [source]}, errors=1)
    eventually(lambda: api.call("GET", "etl", "jobs", job).json.get("batch_ms") == 500, "news")
    assert etl("dlq", "list")[0] == 0
    (row,) = json.loads(etl("status", "--json")[1])
    assert (
        row.items()
        >= {
            "name": job,
            "state": "running",
            "processed": 4,
            "errors": 1,
            "dead_letters": 1,
            "batch_ms": 500,
            "batch_id": 7,
            "rows_per_second": 8.0,
        }.items()
    )
    assert 0 < row["lag_seconds"] < 3600
    reporter.stop("failed")
    assert api.call("GET", "etl", "jobs", job).json["state"] == "failed"
    out = etl("status")[1]
    assert job in out
    assert "failed" in out
    api.call("DELETE", "etl", "jobs", job)


def test_a_job_that_is_held_up_falls_behind_while_its_batch_takes_long(amqp_url, client, topic):
    ahead_s = 100.0
    lag = Lag(amqp_url, now_s=lambda: time.time() + ahead_s)
    ends = {topic: {"0": 2, "1": 0}}
    with client.producer(topic) as producer:
        for _ in range(2):
            producer.send(b"read", partition=0)
    source = {"startOffset": {topic: {}}, "endOffset": ends, "latestOffset": ends}
    assert lag.seconds({"sources": [source]}) == 0
    assert lag.seconds_now() == 0
    with client.producer(topic) as producer:
        producer.send(b"not read", partition=1)
    assert lag.seconds_now() >= ahead_s
    lag.close()


def test_an_alarm_is_told_when_too_many_records_fail(broker, api, local_store, caplog):
    now = [1000.0]
    reporter = Reporter(
        "alarming",
        local_store,
        broker.http_url(""),
        alarm_rate=0.1,
        alarm_window_s=60,
        now_s=lambda: now[0],
    )
    source = {"numInputRows": 100}
    for errors, alarm in ((10, False), (11, True), (0, False)):
        now[0] += 1
        reporter.progress(PROGRESS | {"batchId": int(now[0]), "sources": [source]}, errors=errors)
        assert reporter.alarm == alarm
    now[0] += 1
    reporter.progress(PROGRESS | {"batchId": 2000, "sources": [source]}, errors=90)
    assert reporter.alarm
    eventually(
        lambda: (api.call("GET", "etl", "jobs", "alarming").json or {}).get("state") == "alarm",
        "an alarm",
    )
    now[0] += 61
    reporter.progress(PROGRESS | {"batchId": 2001, "sources": [source]}, errors=0)
    assert not reporter.alarm
    reporter.stop()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("more than 10.0 %" in line for line in warnings) == 2
    assert sum("low again" in line for line in warnings) == 2
    api.call("DELETE", "etl", "jobs", "alarming")


def test_an_alarm_ends_while_there_is_nothing_to_read(
    broker, api, local_store, caplog, monkeypatch
):
    monkeypatch.setattr(herald, "EVERY_S", 0.05)
    now = [1000.0]
    reporter = Reporter(
        "idle", local_store, broker.http_url(""), alarm_rate=0.1, now_s=lambda: now[0]
    )
    source = {"numInputRows": 100}
    reporter.progress(PROGRESS | {"sources": [source]}, errors=50)

    def is_told(**wanted):
        row = api.call("GET", "etl", "jobs", "idle").json
        return wanted.items() <= row.items()

    eventually(lambda: is_told(state="alarm", error_rate=0.5), "an alarm")
    now[0] += 61
    eventually(lambda: is_told(state="running", error_rate=0.0), "the end of the alarm")
    assert not reporter.alarm
    assert sum("low again" in record.getMessage() for record in caplog.records) == 1
    reporter.stop()
    api.call("DELETE", "etl", "jobs", "idle")


def test_without_a_broker_to_tell_an_alarm_ends_as_well(local_store, caplog):
    now = [1000.0]
    reporter = Reporter("alone", local_store, None, alarm_rate=0.1, now_s=lambda: now[0])
    reporter.progress(PROGRESS | {"sources": [{"numInputRows": 100}]}, errors=50)
    assert reporter.alarm
    now[0] += 61
    reporter.watch()
    reporter.watch()
    assert not reporter.alarm
    assert sum("low again" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_job_is_there_before_its_first_batch_and_may_be_paused(etl, broker, api, store):
    reporter = Reporter("waiting", store, broker.http_url(""))

    def states():
        return {row["name"]: (row["state"], row["batches"]) for row in json.loads(status()[1])}

    def status():
        return etl("status", "--json")

    eventually(lambda: states() == {"waiting": ("running", 0)}, "the job")
    reporter.pause()
    eventually(lambda: states() == {"waiting": ("paused", 0)}, "a pause")
    reporter.resume()
    eventually(lambda: states() == {"waiting": ("running", 0)}, "its end")
    reporter.pause()
    reporter.progress(PROGRESS)
    eventually(lambda: states() == {"waiting": ("running", 1)}, "a batch")
    reporter.stop("failed")
    assert states() == {"waiting": ("failed", 1)}
    api.call("DELETE", "etl", "jobs", "waiting")


def test_a_broker_that_is_away_holds_up_no_job(local_store, caplog):
    reporter = Reporter(
        "lonely", local_store, "http://127.0.0.1:1", stream_url="amqp://127.0.0.1:1"
    )
    source = {"endOffset": {"a": {"0": 4}}, "latestOffset": {"a": {"0": 9}}, "numInputRows": 5}
    reporter.progress(PROGRESS | {"sources": [source]})
    reporter.stop()
    assert local_store.totals()[0].processed == 5
    assert any("the broker is not told" in record.getMessage() for record in caplog.records)


def test_the_command_works_in_a_process_of_its_own(broker, local_store, client, topic):
    bury(client, topic, [41])
    url = local_store.engine.url.render_as_string()
    environment = {"LEVERET_ETL_STORE": url, "LEVERET_AMQP_URL": broker.amqp_url()}
    done = subprocess.run(
        [sys.executable, "-m", "clients.cli", "etl", "dlq", "list", "--json"],
        cwd=ROOT,
        env=clean_environment(environment),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [row["offset"] for row in json.loads(done.stdout)] == [41]
