"""How commands for ETL jobs find the store and the broker: by a pipeline's file, or by options."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
from sqlalchemy.exc import SQLAlchemyError

from broker.protocol.stream_errors import StreamError
from clients.amqp_url import Target
from clients.commands.connecting import CommandError, amqp_options
from clients.stream_address import Address
from clients.streams import StreamClient
from spark.etl.database import read_url
from spark.etl.dead_letters import SUFFIX, dlq_of
from spark.etl.errors import PipelineError, SpecError
from spark.etl.follower import DeadLetterFollower
from spark.etl.job_names import jobs_of
from spark.etl.letters_table import Selection
from spark.etl.spec_reading import read_file
from spark.etl.store import DEFAULT_URL, Store
from spark.etl.streams import letter_topics

STORE_VARIABLE: Final = "LEVERET_ETL_STORE"


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and the broker whose dead letters it has."""

    store: Store
    url: str  # of the broker, for the stream protocol
    topics: tuple[str, ...] | None  # None: all streams that have another one for dead letters
    jobs: tuple[str, ...] = ()  # of the pipeline; none: all

    def of_pipeline(self, selection: Selection) -> Selection:
        """What of it is the pipeline's, if one was named."""
        if self.topics is None:
            return selection
        return replace(selection, jobs=self.jobs, strangers_in=tuple(map(dlq_of, self.topics)))

    def follow(self) -> int:
        """Copy dead letters to the store. Raises StreamError."""
        topics = self._all_topics() if self.topics is None else self.topics
        follower = DeadLetterFollower(self.url, self.store, topics)
        try:
            return follower.run_once()
        finally:
            follower.close()

    def _all_topics(self) -> list[str]:
        with StreamClient(Address.of_url(self.url), name="leveret command") as client:
            names = client.streams()
        return [name for name in names if name + SUFFIX in names]


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which store and broker; it is called with a `place`."""

    @click.option(
        "--pipeline",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A pipeline's file: its store, its broker, its letters only.",
    )
    @store_option
    @amqp_options
    @functools.wraps(command)
    def with_place(
        *, pipeline: Path | None, store: str | None, target: Target, **arguments: Any
    ) -> None:
        with told():
            found = _place(pipeline, store, target)
            try:
                command(place=found, **arguments)
            finally:
                found.store.close()

    return with_place


def store_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--store",
        envvar=STORE_VARIABLE,
        show_envvar=True,
        help=f"The ETL store, such as postgresql+psycopg://…  [default: {DEFAULT_URL}]",
    )(command)


class told:  # noqa: N801 - it reads as a word
    """Errors of stores and brokers in one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, StreamError):
            raise CommandError(f"the broker: {error}") from error
        if isinstance(error, SQLAlchemyError):
            raise CommandError(f"the store: {' '.join(str(error).split())}") from error
        if isinstance(error, PipelineError | SpecError):
            raise CommandError(str(error)) from error


def open_store(url: str | None) -> Store:
    """One that is there: a command that only looks makes no file."""
    said = url or DEFAULT_URL
    place = read_url(said)
    if place.get_backend_name() == "sqlite" and not Path(place.database or "").exists():
        raise CommandError(f"there is no ETL store at {said}; --store says where it is")
    return Store.open(said)


def _place(pipeline: Path | None, store: str | None, target: Target) -> Place:
    if pipeline is None:
        return Place(open_store(store), stream_url(target), None)
    spec = read_file(pipeline)
    jobs = (*jobs_of(spec), spec.name)  # letters of version 1 carry the pipeline's name
    topics = tuple(letter_topics(spec))
    return Place(open_store(store or spec.store), spec.broker, topics, jobs)


def stream_url(target: Target) -> str:
    scheme = "amqps" if target.tls is not None else "amqp"
    login = f"{quote(target.user, safe='')}:{quote(target.password, safe='')}"
    nodes = ",".join(map(str, target.endpoints))
    return f"{scheme}://{login}@{nodes}/{quote(target.vhost, safe='')}"
