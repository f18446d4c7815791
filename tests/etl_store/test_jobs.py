"""Jobs as the broker shows them: what was reported last, for a while, and never too many."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.etl_jobs import jobs as jobs_module
from broker.etl_jobs.jobs import FORGET_MS, SILENT_MS, Jobs, NewsError, newest

NEWS = {
    "state": "running",
    "processed": 1000,
    "errors": 3,
    "lag_seconds": 1.5,
    "batch_ms": 250,
    "rows_per_second": 4000,
    "dead_letters": 2,
    "error_rate": 0.003,
}


def states(jobs: Jobs, now_ms: int) -> dict[str, str]:
    return {row["name"]: row["state"] for row in jobs.rows(now_ms)}


def test_the_latest_news_of_each_job_count() -> None:
    jobs = Jobs()
    assert jobs.put("b", NEWS, 1000)
    assert not jobs.put("b", NEWS | {"state": "alarm"}, 2000)
    assert jobs.put("a", NEWS, 3000)
    first, second = jobs.rows(4000)
    assert first == {"name": "a", **NEWS, "updated_ms": 3000}
    assert (second["name"], second["state"], second["updated_ms"]) == ("b", "alarm", 2000)


def test_a_job_that_says_nothing_is_silent_and_then_forgotten() -> None:
    jobs = Jobs()
    jobs.put("runs", NEWS, 0)
    jobs.put("ended", NEWS | {"state": "stopped"}, 0)
    assert states(jobs, SILENT_MS) == {"ended": "stopped", "runs": "running"}
    assert states(jobs, SILENT_MS + 1) == {"ended": "stopped", "runs": "silent"}
    assert states(jobs, FORGET_MS + 1) == {}


def test_too_many_jobs_push_out_those_that_are_over(monkeypatch) -> None:
    monkeypatch.setattr(jobs_module, "JOBS_MAX", 2)
    jobs = Jobs()
    jobs.put("over", NEWS | {"state": "failed"}, 0)
    jobs.put("runs", NEWS, 1)
    jobs.put("new", NEWS, 2)
    assert states(jobs, 3) == {"runs": "running", "new": "running"}
    with pytest.raises(NewsError, match="2 jobs"):
        jobs.put("one more", NEWS, 3)
    jobs.put("runs", NEWS, 4)


def test_of_what_nodes_know_the_latest_counts() -> None:
    rows = [{"name": "b", "updated_ms": 5}, {"name": "a", "updated_ms": 1}]
    rows += [{"name": "b", "updated_ms": 7}, {"name": "b", "updated_ms": 6}]
    assert newest(rows) == [{"name": "a", "updated_ms": 1}, {"name": "b", "updated_ms": 7}]


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": None},
        {"state": "Running!"},
        {"state": "silent"},
        {"processed": -1},
        {"processed": 1.5},
        {"errors": True},
        {"batch_ms": 2**63},
        {"lag_seconds": "1"},
        {"lag_seconds": float("nan")},
        {"rows_per_second": float("inf")},
        {"rows_per_second": 10**400},
    ],
)
def test_news_that_make_no_sense_are_refused(wrong) -> None:
    jobs = Jobs()
    with pytest.raises(NewsError):
        jobs.put("job", NEWS | wrong, 0)
    assert jobs.rows(0) == []


@pytest.mark.parametrize("name", ["", "a\n", "x" * 256])
def test_names_that_cannot_be_shown_are_refused(name) -> None:
    with pytest.raises(NewsError):
        Jobs().put(name, NEWS, 0)


def samples(broker) -> dict[str, dict[str, float]]:
    """Of leveret_etl_*, by name and job."""
    with urllib.request.urlopen(broker.http_url("/metrics"), timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("leveret_etl_"):
                found.setdefault(sample.name, {})[sample.labels["job"]] = sample.value
    return found


def test_a_node_lists_shows_and_forgets_jobs_and_tells_prometheus(broker, api) -> None:
    path, job = ("etl", "jobs"), "a job/with %"
    assert api.call("PUT", *path, job, body=NEWS).status == 201
    assert api.call("PUT", *path, job, body=NEWS | {"state": "alarm"}).status == 204
    shown = api.call("GET", *path, job).json
    assert shown.items() >= (NEWS | {"name": job, "state": "alarm"}).items()
    assert shown in api.call("GET", *path).json
    found = samples(broker)
    assert found["leveret_etl_records_total"][job] == 1000
    assert found["leveret_etl_errors_total"][job] == 3
    assert found["leveret_etl_lag_seconds"][job] == 1.5
    assert found["leveret_etl_batch_seconds"][job] == 0.25
    assert found["leveret_etl_dead_letters"][job] == 2
    assert (found["leveret_etl_running"][job], found["leveret_etl_alarm"][job]) == (1, 1)
    assert found["leveret_etl_paused"][job] == 0
    api.call("PUT", *path, job, body=NEWS | {"state": "paused"})
    found = samples(broker)
    assert (found["leveret_etl_running"][job], found["leveret_etl_paused"][job]) == (0, 1)
    assert api.call("DELETE", *path, job).status == 204
    assert api.call("DELETE", *path, job).status == 404
    assert api.call("GET", *path, job).status == 404
    assert job not in samples(broker).get("leveret_etl_running", {})


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"state": "running", "errors": "1"}', b"{}"])
def test_a_node_refuses_what_it_cannot_show(api, body) -> None:
    answer = api.call("PUT", "etl", "jobs", "job", body=body)
    assert answer.status == 400
    assert answer.json["reason"]
