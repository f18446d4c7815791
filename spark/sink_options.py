"""The options of a write: where rows go, and how often each of them may arrive."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark.addressing import BROKER_OPTIONS, Broker, broker_of
from spark.errors import OptionError
from spark.option_values import Options

TOPIC_BYTES_MAX: Final = 255  # of the name of a queue
TXN_APP_ID_BYTES_MAX: Final = 128  # the broker keeps it for each topic
TXN_VERSION_MAX: Final = 2**63 - 2

# These come with every write of a streaming query, and are for Spark.
_OF_QUERIES: Final = ("checkpointLocation", "queryName", "asyncProgressTrackingEnabled")
_BOTH: Final = (*BROKER_OPTIONS, "topic", "deliveryGuarantee")
_OF_BATCHES: Final = ("txnAppId", "txnVersion")


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True)
class Version:
    """Of what an application writes: what has a version that was written before is dropped."""

    app: str
    number: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    broker: Broker
    topic: str | None  # None: the column topic says it
    guarantee: Guarantee
    version: Version | None = None


def batch_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises OptionError."""
    options = Options(given, (*_BOTH, *_OF_BATCHES), "a batch write to leveret")
    guarantee = _guarantee(options)
    version = _version(options)
    if version is not None and guarantee is Guarantee.AT_LEAST_ONCE:
        raise OptionError("txnAppId and txnVersion are for deliveryGuarantee=exactly_once")
    return SinkOptions(broker_of(options), _topic(options), guarantee, version)


def stream_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises OptionError."""
    options = Options(given, (*_BOTH, *_OF_QUERIES), "a streaming write to leveret")
    guarantee = _guarantee(options)
    # A query that writes its progress late may run a batch again after the next was committed.
    if options.flag("asyncProgressTrackingEnabled") and guarantee is Guarantee.EXACTLY_ONCE:
        raise OptionError(
            "asyncProgressTrackingEnabled makes Spark run several batches again after a failure: "
            "leave it out, or set deliveryGuarantee=at_least_once"
        )
    return SinkOptions(broker_of(options), _topic(options), guarantee)


def _topic(options: Options) -> str | None:
    topic = options.text("topic")
    if topic is not None and not 0 < len(topic.encode()) <= TOPIC_BYTES_MAX:
        raise OptionError(f"topic={topic!r}: the name of a stream has 1 to {TOPIC_BYTES_MAX} bytes")
    return topic


def _guarantee(options: Options) -> Guarantee:
    text = options.text("deliveryGuarantee")
    if text is None:
        return Guarantee.EXACTLY_ONCE
    try:
        return Guarantee(text.strip().lower().replace("-", "_"))
    except ValueError:
        known = " or ".join(each.value for each in Guarantee)
        raise OptionError(f"deliveryGuarantee={text!r}: {known}") from None


def _version(options: Options) -> Version | None:
    app = options.text("txnAppId")
    number = options.number("txnVersion", maximum=TXN_VERSION_MAX)
    if app is None and number is None:
        return None
    if app is None or number is None:
        raise OptionError("txnAppId and txnVersion go together: one of them is missing")
    if not 0 < len(app.encode()) <= TXN_APP_ID_BYTES_MAX or "\0" in app:
        raise OptionError(
            f"txnAppId={app!r}: 1 to {TXN_APP_ID_BYTES_MAX} bytes, none of which is zero"
        )
    return Version(app, number)
