"""The options of a read, from Spark's text to values, with all that can be wrong about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark.addressing import BROKER_OPTIONS, Broker, broker_of
from spark.errors import OptionError
from spark.intake import Bounds
from spark.option_values import Options
from spark.places import EARLIEST, LATEST, Edge, Given, Place, read_place, read_times
from spark.subscriptions import Subscription, subscription_of

_START: Final = ("startingOffsets", "startingOffsetsByTimestamp")
_END: Final = ("endingOffsets", "endingOffsetsByTimestamp")
_TRIGGER: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "adaptiveTargetMs",
    "adaptiveMinOffsets",
)
SOURCE_OPTIONS: Final = (
    *BROKER_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    *_START,
    *_END,
    *_TRIGGER,
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "consumerGroup",
)
ADAPTIVE_MS_MAX: Final = 3_600_000
ADAPTIVE_ROWS_MIN: Final = 1000  # a micro-batch has a price of its own
ADAPTIVE_ROWS_MAX: Final = 10_000_000  # where maxOffsetsPerTrigger does not say
TRIGGER_DELAY_MS: Final = 15 * 60_000  # Kafka's
GROUP_CHARS_MAX: Final = 255
SPLITS_MAX: Final = 100_000  # each is a task


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch may hold, and how little it is worth starting one for."""

    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_ms: int  # that min_rows may hold a batch back for
    adaptive: Bounds | None = None  # max_rows follows the time that batches take

    @property
    def any(self) -> bool:
        return (self.max_rows, self.max_bytes, self.min_rows) != (None, None, None)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    broker: Broker
    subscription: Subscription
    starting: Place
    ending: Place
    limits: Limits
    min_partitions: int
    fail_on_data_loss: bool
    headers: bool | None  # None: as the schema has it
    group: str | None


def wants_headers(given: Mapping[str, str]) -> bool:
    """What the schema depends on. Raises OptionError for anything that is wrong in any read."""
    return _options(_known(given), default_start=EARLIEST).headers or False


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises OptionError."""
    options = _known(given)
    for name in options.given(*_TRIGGER, "consumerGroup"):
        raise OptionError(f"{name} is for streaming reads: a batch reads everything, once")
    found = _options(options, default_start=EARLIEST)
    if _has(found.starting, LATEST):
        raise OptionError("startingOffsets: a batch that starts at the latest offset reads nothing")
    if _has(found.ending, EARLIEST):
        raise OptionError("endingOffsets: a batch that ends at the earliest offset reads nothing")
    return found


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises OptionError."""
    options = _known(given)
    for name in options.given(*_END):
        raise OptionError(f"{name} is for batch reads: a streaming read has no end")
    return _options(options, default_start=LATEST)


def _known(given: Mapping[str, str]) -> Options:
    return Options(given, SOURCE_OPTIONS, "a read of format leveret")


def _options(options: Options, *, default_start: int) -> SourceOptions:
    loss = options.flag("failOnDataLoss")
    return SourceOptions(
        broker_of(options),
        subscription_of(options),
        _place(options, _START) or Edge(default_start),
        _place(options, _END) or Edge(LATEST),
        _limits(options),
        options.number("minPartitions", minimum=1, maximum=SPLITS_MAX) or 1,
        True if loss is None else loss,
        options.flag("includeHeaders"),
        _group(options),
    )


def _place(options: Options, names: tuple[str, str]) -> Place | None:
    given = options.given(*names)
    if len(given) == 2:
        raise OptionError(f"{names[0]} and {names[1]} say the same: give one of them")
    if not given:
        return None
    text = options.text(given[0]) or ""
    read = read_place if given[0] == names[0] else read_times
    return read(given[0], text)


def _has(place: Place, which: int) -> bool:
    if isinstance(place, Given):
        return any(offset == which for _, offset in place.offsets)
    return place == Edge(which)


def _limits(options: Options) -> Limits:
    max_rows = options.number("maxOffsetsPerTrigger", minimum=1)
    min_rows = options.number("minOffsetsPerTrigger", minimum=1)
    delay_ms = options.span_ms("maxTriggerDelay")
    if max_rows is not None and min_rows is not None and min_rows > max_rows:
        raise OptionError(
            f"minOffsetsPerTrigger={min_rows} is more than maxOffsetsPerTrigger={max_rows}"
        )
    if delay_ms is not None and min_rows is None:
        raise OptionError("maxTriggerDelay is for minOffsetsPerTrigger, which is not given")
    return Limits(
        max_rows,
        options.number("maxBytesPerTrigger", minimum=1),
        min_rows,
        TRIGGER_DELAY_MS if delay_ms is None else delay_ms,
        _adaptive(options, max_rows),
    )


def _adaptive(options: Options, max_rows: int | None) -> Bounds | None:
    target_ms = options.number("adaptiveTargetMs", minimum=1, maximum=ADAPTIVE_MS_MAX)
    least = options.number("adaptiveMinOffsets", minimum=1)
    if target_ms is None:
        if least is not None:
            raise OptionError("adaptiveMinOffsets is for adaptiveTargetMs, which is not given")
        return None
    most = ADAPTIVE_ROWS_MAX if max_rows is None else max_rows
    if least is not None and least > most:
        raise OptionError(f"adaptiveMinOffsets={least} is more than maxOffsetsPerTrigger={most}")
    return Bounds(target_ms, min(ADAPTIVE_ROWS_MIN, most) if least is None else least, most)


def _group(options: Options) -> str | None:
    group = options.text("consumerGroup")
    if group is not None and not 0 < len(group) <= GROUP_CHARS_MAX:
        raise OptionError(f"consumerGroup: a name of 1 to {GROUP_CHARS_MAX} characters")
    return group
