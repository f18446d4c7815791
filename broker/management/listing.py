"""Lists as RabbitMQ's management API gives them: filtered, sorted, paged, with chosen columns.

A resource is a table of columns: name → function of an item. Only what is asked for is computed:
the sort key for all items, and rows for those of the page.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import trio

from broker.http.admin import bad_request
from broker.http.messages import HttpError, Response
from broker.management.patterns import PlainText, search_pattern

if TYPE_CHECKING:
    from broker.http.messages import Request
    from broker.security.patterns import Pattern

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
Columns: TypeAlias = Mapping[str, Callable[[T], Any]]
Path: TypeAlias = tuple[str, ...]

PAGE_SIZE: Final = 100  # these two as in RabbitMQ
PAGE_SIZE_MAX: Final = 500
PAGE_DIGITS_MAX: Final = 9
COLUMNS_MAX: Final = 200
FEW: Final = 20  # for one in so many, a heap beats sorting
SLICE: Final = 500  # rows made without giving others a turn: a few milliseconds

MISSING: Final = object()  # of a column: this item has no such field
WRONG_PAGE: Final = "Pagination parameters are invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a request asks of a list."""

    page: int | None = None  # None: all of it, without an envelope
    page_size: int = PAGE_SIZE
    name: Pattern | None = None
    sort: Path = ()  # none: by name
    reverse: bool = False
    columns: tuple[Path, ...] = ()  # none: all

    @property
    def first(self) -> int:
        """The place of the first item wanted."""
        return 0 if self.page is None else (self.page - 1) * self.page_size

    @property
    def end(self) -> int | None:
        """Behind the last one; None: to the end."""
        return None if self.page is None else self.page * self.page_size


def wanted(request: Request) -> Wanted:
    """From the query. HttpError 400 for what is malformed."""
    sort = _text(request, "sort")
    page, page_size = _page(request)
    return Wanted(
        page=page,
        page_size=page_size,
        name=_name(request) if page is not None else None,
        sort=tuple(sort.split(".")) if sort else (),
        reverse=_text(request, "sort_reverse") == "true",
        columns=tuple(
            tuple(path.split("."))
            for path in _text(request, "columns").split(",")[:COLUMNS_MAX]
            if path
        ),
    )


def _text(request: Request, name: str) -> str:
    return request.query.get(name, [""])[-1]


def _page(request: Request) -> tuple[int | None, int]:
    texts = _text(request, "page"), _text(request, "page_size")
    if not texts[0]:
        return None, PAGE_SIZE
    if not all(_is_number(text) for text in texts if text):
        raise bad_request(WRONG_PAGE)
    page, page_size = int(texts[0]), int(texts[1] or PAGE_SIZE)
    if page < 1 or not 1 <= page_size <= PAGE_SIZE_MAX:
        shown = texts[1] or "undefined"
        raise HttpError(
            400,
            f"Invalid pagination parameters: page number {page}, page size {shown}",
            error="invalid_pagination_parameters",
        )
    return page, page_size


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= PAGE_DIGITS_MAX


def _name(request: Request) -> Pattern | None:
    text = _text(request, "name")
    if not text:
        return None
    if _text(request, "use_regex") != "true":
        return PlainText(text)
    try:
        return search_pattern(text)
    except ValueError:
        raise bad_request(WRONG_PAGE) from None


# Choosing items


def in_order(items: Collection[T], key: Callable[[T], Any] | None, ask: Wanted) -> list[T]:
    """The items up to the end of the page; only as many of them are put in order as are needed."""
    if ask.end is None or ask.end * FEW > len(items):
        return sorted(items, key=key, reverse=ask.reverse)[: ask.end]  # type: ignore[type-var,arg-type]
    pick = heapq.nlargest if ask.reverse else heapq.nsmallest
    return pick(ask.end, items, key=key)  # type: ignore[arg-type]


def sort_key(value: Any) -> tuple[int, Any]:
    """Values of any kinds in one order: nothing, numbers, texts, the rest by their JSON."""
    if value is None or value is MISSING:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, str):
        return (2, value)
    return (3, json.dumps(value, sort_keys=True))


# Making rows


def make_row(item: T, columns: Columns[T], ask: Wanted) -> Row:
    """All columns, or those that are asked for."""
    if not ask.columns:
        return {name: value for name, f in columns.items() if (value := f(item)) is not MISSING}
    row: Row = {}
    for path in ask.columns:
        column = columns.get(path[0])
        if column is not None:
            pick(row, path, column(item))
    return row


def pick(row: Row, path: Path, value: Any) -> None:
    """Put what stands at the path within a value into the row, at the same path."""
    for name in path[1:]:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    if value is MISSING:
        return
    place: Any = row
    for name in path[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            return
    place[path[-1]] = value


def value_at(item: T, columns: Columns[T], path: Path) -> Any:
    """What an item is sorted by."""
    column = columns.get(path[0])
    value = MISSING if column is None else column(item)
    for name in path[1:]:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return value


def pick_columns(row: Row, ask: Wanted) -> Row:
    """Those that are asked for of a row that has them all."""
    if not ask.columns:
        return row
    picked: Row = {}
    for path in ask.columns:
        if path[0] in row:
            pick(picked, path, row[path[0]])
    return picked


async def make_rows(items: Sequence[T], make: Callable[[T], Row]) -> list[Row]:
    """Rows of many items, letting others go on in between."""
    rows: list[Row] = []
    for start in range(0, len(items), SLICE):
        rows += [make(item) for item in items[start : start + SLICE]]
        await trio.lowlevel.checkpoint()
    return rows


# The answer


def check_page(ask: Wanted, filtered: int) -> None:
    """HttpError 400 where there is no such page."""
    if ask.page is not None and ask.first > filtered:
        raise HttpError(
            400,
            f"Page out of range, page: {ask.page} page size: {ask.page_size}, len: {filtered}",
            error="page_out_of_range",
        )


async def answer(ask: Wanted, rows: list[Row], *, filtered: int, total: int) -> Response:
    """The rows of a page within RabbitMQ's envelope, or all rows as they are."""
    body = await _encode(rows)
    if ask.page is not None:
        envelope = {
            "filtered_count": filtered,
            "item_count": len(rows),
            "page": ask.page,
            "page_count": -(-filtered // ask.page_size),
            "page_size": ask.page_size,
            "total_count": total,
        }
        body = json.dumps(envelope).encode()[:-1] + b', "items": ' + body + b"}"
    headers = {"Content-Type": "application/json", "Cache-Control": "no-cache"}
    return Response(headers=headers, body=body + b"\n")


async def _encode(rows: list[Row]) -> bytes:
    pieces: list[str] = []
    for start in range(0, len(rows), SLICE):
        pieces.append(json.dumps(rows[start : start + SLICE])[1:-1])
        await trio.lowlevel.checkpoint()
    return f"[{', '.join(pieces)}]".encode()


async def answer_rows(
    request: Request,
    rows: list[Row],
    default: Callable[[Row], Any],
    *,
    paged: bool = True,
    named: Callable[[Row], str] = lambda row: str(row.get("name", "")),
) -> Response:
    """The whole way for rows that are made already; `named` is what names are searched in."""
    ask = wanted(request)
    if not paged:
        ask = Wanted(sort=ask.sort, reverse=ask.reverse, columns=ask.columns)
    total = len(rows)
    if ask.name is not None:
        search = ask.name.found_in
        rows = [row for row in rows if search(named(row))]
    check_page(ask, len(rows))

    def key(row: Row) -> Any:
        return (sort_key(_at(row, ask.sort)), default(row)) if ask.sort else default(row)

    chosen = in_order(rows, key, ask)[ask.first :]
    picked = await make_rows(chosen, lambda row: pick_columns(row, ask))
    return await answer(ask, picked, filtered=len(rows), total=total)


def by_place(row: Row) -> tuple[str, str]:
    """The order of what has a name in a vhost."""
    return row["vhost"], row["name"]


def _at(row: Row, path: Path) -> Any:
    value: Any = row
    for name in path:
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return value
