"""What the registry holds: schemas by id, subjects with their versions, levels and modes.

It is changed by recorded changes only (see broker.journal), on all nodes of a cluster alike:

    ["schema", id, digest, type, text, references, metadata, rules]     a schema has that id
    ["schema-ids", next]                        in checkpoints: ids below are or were taken
    ["subject-version", subject, version, id, deleted]
    ["-subject-version", subject, version]      a schema goes with the last version that has it
    ["subject-config", subject or null, config]     ["-subject-config", subject or null]
    ["subject-mode", subject or null, mode]         ["-subject-mode", subject or null]

Making one of them twice changes nothing. References are [name, subject, version]. In a cluster they
come in a request, which is made or refused as a whole:

    ["schemas", [[subject, token], …], [change, …]]

The token stands for all that the changes were decided by (`token`). If that is not so any more they
are refused, and whoever asked decides anew. A request also knows

    ["register", subject, id or null, version or null, digest, type, text, references, …]

of which `carry_out` makes the changes above: ids are given out in the order of the log.
"""

from __future__ import annotations

import hashlib
import json
from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.protocol.errors import ChannelError, precondition_failed
from broker.registry.levels import DEFAULT_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

REQUEST: Final = "schemas"
REGISTER: Final = "register"
CHANGED: Final = "the subject has changed"  # the answer to a request that came too late
CONFLICT: Final = 409
READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
AVRO: Final = "AVRO"

SUBJECTS_MAX: Final = 50_000
VERSIONS_MAX: Final = 1000  # of a subject: a transitive level compares with them all
STORED_BYTES_MAX: Final = 64 * 1024 * 1024  # of all texts: they are in memory on every node

KINDS: Final = frozenset(
    {
        *("schema", "schema-ids", "subject-version", "-subject-version"),
        *("subject-config", "-subject-config", "subject-mode", "-subject-mode"),
    }
)
# In an order that works.
CHECKPOINT_KINDS: Final = (
    *("schema-ids", "schema", "subject-version", "subject-config", "subject-mode"),
)


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """One with an id."""

    id: int
    digest: bytes  # of all of it: the same schema has the same
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rules: dict[str, Any] | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class Version:
    schema_id: int
    deleted: bool = False


class Schemas:
    """Nothing here awaits."""

    def __init__(self) -> None:
        self._makers: Final[dict[str, Callable[..., None]]] = {
            "schema": self._put_schema,
            "schema-ids": self._reserve,
            "subject-version": self._put_version,
            "-subject-version": self._drop_version,
            "subject-config": self._put_config,
            "-subject-config": self._drop_config,
            "subject-mode": self._put_mode,
            "-subject-mode": self._drop_mode,
        }
        assert self._makers.keys() == KINDS
        self.clear()

    def clear(self) -> None:
        self.by_id: dict[int, Schema] = {}
        self.by_digest: dict[bytes, int] = {}
        self.subjects: dict[str, dict[int, Version]] = {}  # versions in order
        self.configs: dict[str | None, dict[str, Any]] = {}  # None: of all subjects
        self.modes: dict[str | None, str] = {}
        self.next_id = 1
        self.stored_bytes = 0
        self._uses: dict[int, list[tuple[str, int]]] = {}  # subject and version, in order
        self._referrers: dict[tuple[str, int], list[int]] = {}  # ids, in order

    # What it says

    def level(self, subject: str) -> str:
        for where in (subject, None):
            found = self.configs.get(where, {}).get("compatibilityLevel")
            if found is not None:
                return str(found)
        return DEFAULT_LEVEL

    def mode(self, subject: str) -> str:
        everywhere = self.modes.get(None, READWRITE)
        if everywhere == READONLY_OVERRIDE:
            return everywhere
        return self.modes.get(subject, everywhere)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """In order; without those that are deleted, unless they are wanted too."""
        there = self.subjects.get(subject, {})
        return [number for number, version in there.items() if deleted or not version.deleted]

    def uses(self, schema_id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """The subjects and versions that have a schema."""
        return [
            (subject, version)
            for subject, version in self._uses.get(schema_id, ())
            if deleted or not self.subjects[subject][version].deleted
        ]

    def referrers(self, subject: str, version: int) -> list[int]:
        """Ids of schemas that refer to a version and are not deleted."""
        ids = self._referrers.get((subject, version), ())
        return [each for each in ids if self._is_live(each)]

    def find(self, subject: str, digest: bytes, *, deleted: bool = False) -> int | None:
        """The version by which a subject has this schema, the newest if there are several."""
        schema_id = self.by_digest.get(digest)
        numbers = self.versions(subject, deleted=deleted)
        versions = self.subjects.get(subject, {})
        return next((n for n in reversed(numbers) if versions[n].schema_id == schema_id), None)

    def _is_live(self, schema_id: int) -> bool:
        uses = self._uses.get(schema_id, ())
        return any(not self.subjects[subject][number].deleted for subject, number in uses)

    def token(self, subject: str) -> bytes:
        """Stands for all of a subject that a change to it is decided by."""
        state = [
            self.level(subject),
            self.mode(subject),
            [[n, v.schema_id, v.deleted] for n, v in self.subjects.get(subject, {}).items()],
            [self.referrers(subject, number) for number in self.subjects.get(subject, {})],
        ]
        return hashlib.blake2b(json.dumps(state).encode(), digest_size=16).digest()

    # Changes

    def carry_out(
        self, seen: Sequence[tuple[str, bytes]], changes: Iterable[Sequence[Any]]
    ) -> list[list[Any]]:
        """Make changes that were decided by what the tokens stand for; the changes as made.

        Raises ChannelError, and has done nothing then.
        """
        if any(self.token(subject) != token for subject, token in seen):
            raise ChannelError(CONFLICT, CHANGED)
        made: list[list[Any]] = []
        for kind, *details in changes:
            made += self._registered(*details) if kind == REGISTER else [[kind, *details]]
        for change in made:
            self.make(change)
        return made

    def make(self, change: Sequence[Any]) -> None:
        """Make one of the recorded changes."""
        kind, *details = change
        self._makers[kind](*details)

    def changes(self) -> Iterator[list[Any]]:
        """Those that make all of it from nothing."""
        yield ["schema-ids", self.next_id]
        for schema in self.by_id.values():
            yield [
                *("schema", schema.id, schema.digest, schema.type, schema.text),
                *([list(each) for each in schema.references], schema.metadata, schema.rules),
            ]
        for subject, versions in self.subjects.items():
            for number, version in versions.items():
                yield ["subject-version", subject, number, version.schema_id, version.deleted]
        for where, config in self.configs.items():
            yield ["subject-config", where, config]
        for where, mode in self.modes.items():
            yield ["subject-mode", where, mode]

    def _registered(
        self,
        subject: str,
        wanted_id: int | None,
        wanted_version: int | None,
        digest: bytes,
        *content: Any,
    ) -> list[list[Any]]:
        known_id = self.by_digest.get(digest)
        schema_id = wanted_id or known_id or self.next_id
        versions = self.subjects.get(subject, {})
        version = wanted_version or max(versions, default=0) + 1
        taken = schema_id in self.by_id and self.by_id[schema_id].digest != digest
        if taken or known_id not in (None, schema_id) or version in versions:
            raise ChannelError(CONFLICT, CHANGED)
        self._check_room(subject, versions, content[1] if known_id is None else "")
        placed = ["subject-version", subject, version, schema_id, False]
        return [["schema", schema_id, digest, *content], placed] if known_id is None else [placed]

    def _check_room(self, subject: str, versions: dict[int, Version], text: str) -> None:
        if subject not in self.subjects and len(self.subjects) >= SUBJECTS_MAX:
            raise precondition_failed(f"there are {SUBJECTS_MAX} subjects already")
        if len(versions) >= VERSIONS_MAX:
            raise precondition_failed(f"the subject has {VERSIONS_MAX} versions already")
        if self.stored_bytes + len(text) > STORED_BYTES_MAX:
            raise precondition_failed(f"there are {STORED_BYTES_MAX} bytes of schemas already")

    def _reserve(self, next_id: int) -> None:
        self.next_id = max(self.next_id, next_id)

    def _put_schema(
        self,
        schema_id: int,
        digest: bytes,
        kind: str,
        text: str,
        references: list[list[Any]],
        metadata: dict[str, Any] | None,
        rules: dict[str, Any] | None,
    ) -> None:
        self.by_digest[digest] = schema_id
        self._reserve(schema_id + 1)
        if schema_id in self.by_id:
            return
        named = tuple(Reference(*each) for each in references)
        schema = Schema(schema_id, digest, kind, text, named, metadata, rules)
        self.by_id[schema_id] = schema
        self.stored_bytes += schema.size_bytes
        for reference in named:
            ids = self._referrers.setdefault(reference[1:], [])
            if schema_id not in ids:
                insort(ids, schema_id)

    def _drop_schema(self, schema_id: int) -> None:
        schema = self.by_id.pop(schema_id)
        self.stored_bytes -= schema.size_bytes
        if self.by_digest.get(schema.digest) == schema_id:
            del self.by_digest[schema.digest]
        for reference in set(schema.references):
            where = (reference.subject, reference.version)
            ids = self._referrers[where] = [i for i in self._referrers[where] if i != schema_id]
            if not ids:
                del self._referrers[where]

    def _put_version(self, subject: str, number: int, schema_id: int, deleted: bool) -> None:  # noqa: FBT001
        versions = self.subjects.setdefault(subject, {})
        is_last = number > max(versions, default=0)
        is_new = number not in versions
        versions[number] = Version(schema_id, deleted)
        if is_new:
            insort(self._uses.setdefault(schema_id, []), (subject, number))
            if not is_last:
                self.subjects[subject] = dict(sorted(versions.items()))

    def _drop_version(self, subject: str, number: int) -> None:
        version = self.subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        uses = self._uses[version.schema_id]
        uses.remove((subject, number))
        if not uses:
            del self._uses[version.schema_id]
            self._drop_schema(version.schema_id)

    def _put_config(self, where: str | None, config: dict[str, Any]) -> None:
        self.configs[where] = dict(config)

    def _drop_config(self, where: str | None) -> None:
        self.configs.pop(where, None)

    def _put_mode(self, where: str | None, mode: str) -> None:
        self.modes[where] = mode

    def _drop_mode(self, where: str | None) -> None:
        self.modes.pop(where, None)
