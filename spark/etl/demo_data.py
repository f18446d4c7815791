"""Events of a shop that is made up: impressions of ads, clicks on them, orders, and users.

Names, pages and countries come from Faker; which of them an event has, from a seeded random. So
some hundred thousand events can be made in a second, the same ones for the same seed.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

USERS: Final = 2000
PAGES: Final = 200
CLICKED: Final = 0.5  # of the impressions
CLICK_AFTER_MS: Final = 4000  # at most
BAD: Final = 0.002  # of the orders: broken, or without a price that makes sense
# What of a hundred events is what: clicks follow from impressions.
SHARES: Final = {"impressions": 0.5, "clicks": 0.25, "orders": 0.25}


class Event(NamedTuple):
    key: bytes
    value: bytes


Events = dict[str, list[Event]]  # by kind


@dataclass
class Shop:
    """Makes the events of one stretch of time after the other."""

    seed: int = 17
    users: list[tuple[str, str]] = field(default_factory=list)  # name and country
    pages: list[str] = field(default_factory=list)
    bad: int = 0  # orders so far
    made: int = 0  # events so far

    def __post_init__(self) -> None:
        from faker import Faker  # noqa: PLC0415 - only who makes events needs it

        fake = Faker()
        fake.seed_instance(self.seed)
        self.users = [(fake.name(), fake.country_code()) for _ in range(USERS)]
        self.pages = [fake.uri_path() for _ in range(PAGES)]
        self._random = random.Random(self.seed)  # noqa: S311 - no secret
        self._number = 0
        self._clicks: list[tuple[int, Event]] = []  # to come, with their time

    def all_users(self) -> list[Event]:
        return [self._user(number) for number in range(USERS)]

    def _user(self, number: int) -> Event:
        name, country = self.users[number]
        value = f'{{"user":"u{number}","name":"{name}","country":"{country}"}}'
        return Event(b"u%d" % number, value.encode())

    def moved_user(self) -> Event:
        """Somebody who now lives elsewhere."""
        number = self._random.randrange(USERS)
        name, _ = self.users[number]
        self.users[number] = (name, self._random.choice(self.users)[1])
        return self._user(number)

    def stretch(self, start_ms: int, span_ms: int, count: int) -> Events:
        """So many events, of the time from `start_ms` on; clicks on what was shown before, too."""
        shown = [*self._impressions(start_ms, span_ms, int(count * SHARES["impressions"]))]
        end_ms = start_ms + span_ms
        due = [click for at_ms, click in self._clicks if at_ms < end_ms]
        self._clicks = [each for each in self._clicks if each[0] >= end_ms]
        orders = [*self._orders(start_ms, span_ms, int(count * SHARES["orders"]))]
        self.made += len(shown) + len(due) + len(orders)
        return {"impressions": shown, "clicks": due, "orders": orders}

    def _impressions(self, start_ms: int, span_ms: int, count: int) -> Iterator[Event]:
        chance = self._random.random
        for place in range(count):
            at_ms = start_ms + span_ms * place // count
            self._number += 1
            ad = f"ad{self._number}"
            user, page = int(chance() * USERS), self.pages[int(chance() * PAGES)]
            value = f'{{"ad":"{ad}","user":"u{user}","page":"{page}","shown":"{iso(at_ms)}"}}'
            key = ad.encode()
            yield Event(key, value.encode())
            if chance() < CLICKED:
                click_ms = at_ms + int(chance() * CLICK_AFTER_MS)
                click = f'{{"ad":"{ad}","clicked":"{iso(click_ms)}"}}'
                self._clicks.append((click_ms, Event(key, click.encode())))

    def _orders(self, start_ms: int, span_ms: int, count: int) -> Iterator[Event]:
        chance = self._random.random
        for place in range(count):
            at_ms = start_ms + span_ms * place // count
            self._number += 1
            user, cents = int(chance() * USERS), 100 + int(chance() * 20_000)
            key = b"u%d" % user
            if chance() < BAD:
                self.bad += 1
                if chance() < 0.5:
                    yield Event(key, b'{"id": broken')
                    continue
                cents = -cents
            value = f'{{"id":{self._number},"user":"u{user}","cents":{cents},"at":"{iso(at_ms)}"}}'
            yield Event(key, value.encode())


def iso(ms: int) -> str:
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
