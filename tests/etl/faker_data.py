"""A shop's events, made up by Faker, the same ones each time."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from faker import Faker

Row = dict[str, Any]
OPENING = datetime(2026, 11, 20, 9, tzinfo=UTC)
END = timedelta(days=1)  # after everything, and after every watermark


def text_of(moment: datetime) -> str:
    """As Spark writes times in JSON."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


@dataclass
class Shop:
    seed: int = 17

    def __post_init__(self) -> None:
        self._fake = Faker()
        self._fake.seed_instance(self.seed)

    def _moment(self, minutes: int) -> datetime:
        return OPENING + timedelta(seconds=self._fake.random_int(0, minutes * 60))

    def users(self, count: int) -> list[Row]:
        return [
            {"user": f"u{n}", "name": self._fake.name(), "country": self._fake.country_code()}
            for n in range(count)
        ]

    def orders(self, count: int, minutes: int = 60) -> list[Row]:
        """In any order."""
        return [
            {
                "id": number,
                "user": f"u{self._fake.random_int(0, 30)}",
                "cents": self._fake.random_int(100, 20_000),
                "at": text_of(self._moment(minutes)),
            }
            for number in range(count)
        ]

    def impressions(self, count: int, minutes: int = 60) -> list[Row]:
        return [
            {
                "ad": f"ad{number}",
                "page": self._fake.uri_path(),
                "shown": text_of(self._moment(minutes)),
            }
            for number in range(count)
        ]

    def clicks(self, impressions: list[Row]) -> list[Row]:
        """Of some; some of them late, or twice, or of an ad that nobody saw."""
        found = []
        for each in impressions:
            for _ in range(self._fake.random_element([0, 0, 1, 1, 2])):
                later = timedelta(seconds=self._fake.random_int(0, 900))
                clicked = moment_of(each["shown"]) + later
                found.append({"ad": each["ad"], "clicked": text_of(clicked)})
        return [*found, {"ad": "nobody", "clicked": text_of(OPENING)}]
