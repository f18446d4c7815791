"""Metrics for Prometheus: RabbitMQ's names, numbers that are true, and nothing of single queues."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.management.conftest import Stage
from tests.support.admin import Api, basic
from tests.support.process import BrokerProcess

# What the panels of Grafana's dashboard 10991 ask for.
DASHBOARD = [
    "rabbitmq_build_info",
    "rabbitmq_identity_info",
    "rabbitmq_queue_messages_ready",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_queues",
    "rabbitmq_connections",
    "rabbitmq_channels",
    "rabbitmq_consumers",
    "rabbitmq_channel_consumers",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_resident_memory_limit_bytes",
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
    "rabbitmq_process_open_fds",
    "rabbitmq_process_max_fds",
    "rabbitmq_process_open_tcp_sockets",
    "rabbitmq_process_max_tcp_sockets",
    "rabbitmq_channel_messages_published_total",
    "rabbitmq_channel_messages_confirmed_total",
    "rabbitmq_channel_messages_unconfirmed",
    "rabbitmq_queue_messages_published_total",
    "rabbitmq_channel_messages_unroutable_dropped_total",
    "rabbitmq_channel_messages_unroutable_returned_total",
    "rabbitmq_channel_messages_delivered_total",
    "rabbitmq_channel_messages_delivered_ack_total",
    "rabbitmq_channel_messages_redelivered_total",
    "rabbitmq_channel_messages_acked_total",
    "rabbitmq_channel_get_total",
    "rabbitmq_channel_get_ack_total",
    "rabbitmq_channel_get_empty_total",
    "rabbitmq_queues_declared_total",
    "rabbitmq_queues_created_total",
    "rabbitmq_queues_deleted_total",
    "rabbitmq_channels_opened_total",
    "rabbitmq_channels_closed_total",
    "rabbitmq_connections_opened_total",
    "rabbitmq_connections_closed_total",
    "process_start_time_seconds",
]
# Labels that its queries and tables name.
LABELS = {
    "rabbitmq_identity_info": {
        *("rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id"),
        "rabbitmq_endpoint",
    },
    "rabbitmq_build_info": {
        *("rabbitmq_version", "prometheus_plugin_version", "prometheus_client_version"),
        "erlang_version",
    },
}
# What its newer versions ask for, by protocol.
GLOBAL = [
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_received_confirm_total",
    "rabbitmq_global_messages_routed_total",
    "rabbitmq_global_messages_confirmed_total",
    "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_global_messages_unroutable_returned_total",
    "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_global_messages_get_empty_total",
    "rabbitmq_global_publishers",
    "rabbitmq_global_consumers",
]


def scrape(node: BrokerProcess, path: str = "/metrics", **headers: str):
    """Samples by name: (labels, value)."""
    request = urllib.request.Request(node.http_url(path), headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, list] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.usefixtures("stage")
def test_all_panels_of_the_dashboard_have_something_to_show(node: BrokerProcess) -> None:
    found = scrape(node)
    assert [name for name in (*DASHBOARD, *GLOBAL) if name not in found] == []
    for name, labels in LABELS.items():
        assert labels <= found[name][0][0].keys(), name
    for name in GLOBAL:
        assert [labels for labels, _ in found[name]] == [{"protocol": "amqp091"}], name


def test_numbers_are_what_happened(node: BrokerProcess, stage: Stage) -> None:
    found = {name: samples[0][1] for name, samples in scrape(node).items()}
    assert found["rabbitmq_channel_messages_published_total"] == 40
    assert found["rabbitmq_channel_messages_confirmed_total"] == 40
    assert found["rabbitmq_channel_messages_delivered_ack_total"] == 6
    assert found["rabbitmq_channel_messages_acked_total"] == 1
    assert found["rabbitmq_channel_get_total"] == 1
    assert found["rabbitmq_queue_messages_unacked"] == 5
    assert found["rabbitmq_queue_messages_ready"] == 14 + 19
    assert found["rabbitmq_queues"] == 3
    assert (found["rabbitmq_channels"], found["rabbitmq_consumers"]) == (2, 1)
    assert found["rabbitmq_global_messages_received_confirm_total"] == 40
    assert found["rabbitmq_global_publishers"] == 1


def test_counters_never_go_back(node: BrokerProcess, stage: Stage) -> None:
    before = scrape(node)
    extra = stage.connection.channel()
    extra.basic_publish("", "classic", b"x")
    extra.close()
    after = scrape(node)
    for name, samples in before.items():
        if name.endswith("_total"):
            assert after[name][0][1] >= samples[0][1], name
    name = "rabbitmq_channel_messages_published_total"
    assert after[name][0][1] == before[name][0][1] + 1


def test_single_queues_need_a_login(node: BrokerProcess, stage: Stage) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        scrape(node, "/metrics/per-object")
    found = scrape(node, "/metrics/per-object", Authorization=basic("guest", "guest"))
    ready = {labels["queue"]: value for labels, value in found["rabbitmq_queue_messages_ready"]}
    assert ready.keys() == {"classic", "quorum", "stream"}
    assert ready["quorum"] == 14
    assert len(found["rabbitmq_channel_messages_published_total"]) == 2


def test_names_are_quoted(node: BrokerProcess, web: Api) -> None:
    strange = 'a"b\\c\nd'
    assert web.call("PUT", "queues", "/", strange, body={}).status == 201
    found = scrape(node, "/metrics/per-object", Authorization=basic("guest", "guest"))
    names = {labels["queue"] for labels, _ in found["rabbitmq_queue_messages_ready"]}
    assert strange in names
