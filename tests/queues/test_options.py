"""Queue arguments: what is understood, what is refused, and what is let pass."""

import pytest

from queues.options import InvalidArgumentError, QueueOptions, parse_options

THIRTY_DAYS_MS = 30 * 24 * 3600 * 1000
TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000

# argument, value, and what it makes of the options
UNDERSTOOD = [
    ("x-message-ttl", 0, {"message_ttl_ms": 0}),
    ("x-message-ttl", 60_000, {"message_ttl_ms": 60_000}),
    ("x-message-ttl", TEN_YEARS_MS, {"message_ttl_ms": TEN_YEARS_MS}),
    ("x-expires", 1, {"expires_ms": 1}),
    ("x-expires", TEN_YEARS_MS, {"expires_ms": TEN_YEARS_MS}),
    ("x-max-length", 0, {"max_length": 0}),
    ("x-max-length", 2**40, {"max_length": 2**40}),
    ("x-max-length-bytes", 5, {"max_length_bytes": 5}),
    ("x-overflow", "drop-head", {"overflow": "drop-head"}),
    ("x-overflow", "reject-publish", {"overflow": "reject-publish"}),
    ("x-overflow", "reject-publish-dlx", {"overflow": "reject-publish-dlx"}),
    ("x-dead-letter-exchange", "dlx", {"dead_letter_exchange": "dlx"}),
    ("x-dead-letter-exchange", "", {"dead_letter_exchange": ""}),
    ("x-max-priority", 0, {"max_priority": 0}),
    ("x-max-priority", 255, {"max_priority": 255}),
    ("x-single-active-consumer", True, {"single_active_consumer": True}),
    ("x-single-active-consumer", False, {"single_active_consumer": False}),
    ("x-queue-type", "classic", {"type": "classic"}),
    ("x-queue-type", "quorum", {"type": "quorum", "delivery_limit": 20}),
    ("x-message-delay", 5000, {"message_delay_ms": 5000}),
    ("x-retry-delay", 100, {"retry_delay_ms": 100}),
    ("x-retry-backoff", 2, {"retry_backoff": 2.0}),
    ("x-retry-backoff", 1.5, {"retry_backoff": 1.5}),
    ("x-retry-backoff", "exponential", {"retry_backoff": 2.0}),
    ("x-retry-backoff", "constant", {"retry_backoff": 1.0}),
    ("x-retry-max-delay", 60_000, {"retry_max_delay_ms": 60_000}),
    ("x-visibility-timeout", 30_000, {"visibility_timeout_ms": 30_000}),
    ("x-consumer-timeout", 30_000, {"consumer_timeout_ms": 30_000}),
    ("x-message-groups", True, {"message_groups": True}),
    ("x-dedup-window", 0, {"dedup_window_ms": 0}),
    ("x-dedup-content", True, {"dedup_content": True}),
    ("x-redelivery-rate", 0, {"redelivery_rate": 0}),
    ("x-queue-mode", "lazy", {}),
    ("x-queue-version", 2, {}),
    ("x-queue-master-locator", "min-masters", {}),
    ("x-unheard-of", object(), {}),
    ("alternate-exchange", 5, {}),
]


@pytest.mark.parametrize(("name", "value", "options"), UNDERSTOOD)
def test_an_argument_is_understood(name, value, options):
    assert parse_options({name: value}) == QueueOptions(**options)


REFUSED = [
    ("x-message-ttl", -1),
    ("x-message-ttl", TEN_YEARS_MS + 1),
    ("x-message-ttl", "60000"),
    ("x-message-ttl", 1.5),
    ("x-message-ttl", True),
    ("x-message-ttl", None),
    ("x-expires", 0),
    ("x-expires", -1),
    ("x-expires", TEN_YEARS_MS + 1),
    ("x-max-length", -1),
    ("x-max-length", "5"),
    ("x-max-length", True),
    ("x-max-length-bytes", -1),
    ("x-overflow", "drop-tail"),
    ("x-overflow", 1),
    ("x-dead-letter-exchange", 5),
    ("x-dead-letter-exchange", None),
    ("x-dead-letter-routing-key", 5),
    ("x-max-priority", -1),
    ("x-max-priority", 256),
    ("x-max-priority", "5"),
    ("x-single-active-consumer", "true"),
    ("x-single-active-consumer", 1),
    ("x-delivery-limit", -2),
    ("x-queue-type", "odd"),
    ("x-queue-type", 5),
    ("x-queue-type", ["classic"]),
    ("x-queue-mode", "odd"),
    ("x-queue-version", 3),
    ("x-queue-leader-locator", 5),
    ("x-dead-letter-strategy", "odd"),
    ("x-dead-letter-exchange", "x" * 256),
    ("x-message-delay", -1),
    ("x-message-delay", THIRTY_DAYS_MS + 1),
    ("x-retry-delay", "100"),
    ("x-retry-backoff", 0.5),
    ("x-retry-backoff", float("nan")),
    ("x-retry-backoff", "odd"),
    ("x-retry-backoff", True),
    ("x-retry-max-delay", 0),
    ("x-visibility-timeout", 0),
    ("x-consumer-timeout", -1),
    ("x-priority-aging-ms", 0),
    ("x-priority-aging-ms", 1000),
    ("x-message-groups", "true"),
    ("x-dedup-window", -1),
    ("x-dedup-content", 1),
    ("x-redelivery-rate", -1),
    ("x-quorum-initial-group-size", 3),
    ("x-max-age", "1D"),
    ("x-stream-max-segment-size-bytes", 100),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_an_argument_is_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError) as refusal:
        parse_options({name: value})
    assert refusal.value.name == name


@pytest.mark.parametrize("name", ["x-queue-mode", "x-queue-version", "x-max-age"])
def test_arguments_of_other_types_are_refused_for_quorum_queues(name):
    values = {"x-queue-mode": "lazy", "x-queue-version": 2, "x-max-age": "1D"}
    with pytest.raises(InvalidArgumentError) as refusal:
        parse_options({"x-queue-type": "quorum", name: values[name]})
    assert refusal.value.name == name


def test_a_quorum_queue_has_a_delivery_limit_unless_another_is_given():
    assert parse_options({"x-queue-type": "quorum"}).delivery_limit == 20
    given = parse_options({"x-queue-type": "quorum", "x-delivery-limit": 3})
    assert given.delivery_limit == 3
    assert parse_options({}).delivery_limit is None


def test_a_dead_letter_key_needs_a_dead_letter_exchange():
    with pytest.raises(InvalidArgumentError) as refusal:
        parse_options({"x-dead-letter-routing-key": "k"})
    assert refusal.value.name == "x-dead-letter-routing-key"
    both = parse_options({"x-dead-letter-routing-key": "k", "x-dead-letter-exchange": "x"})
    assert (both.dead_letter_exchange, both.dead_letter_routing_key) == ("x", "k")


def test_aging_needs_priorities_and_groups_have_none():
    aging = parse_options({"x-max-priority": 5, "x-priority-aging-ms": 1000})
    assert aging.priority_aging_ms == 1000
    with pytest.raises(InvalidArgumentError) as refusal:
        parse_options({"x-max-priority": 5, "x-message-groups": True})
    assert refusal.value.name == "x-message-groups"


def test_the_visibility_timeout_counts_before_the_consumer_timeout():
    assert parse_options({}).lease_ms is None
    assert parse_options({"x-consumer-timeout": 5}).lease_ms == 5
    assert parse_options({"x-consumer-timeout": 5, "x-visibility-timeout": 7}).lease_ms == 7


def test_no_arguments_make_a_plain_classic_queue():
    assert parse_options({}) == QueueOptions()
