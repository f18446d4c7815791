"""The demo's pipeline: windows, a join of two streams, a table, checks and dead letters."""

from pathlib import Path
from typing import Any

EVERY = "1s"


def demo_values(url: str, directory: Path, prefix: str, **head: Any) -> dict[str, Any]:
    """As a file would have it; examples/etl/shop.toml is the same in words."""
    return {
        "pipeline": {
            "name": "demo",
            "broker": url,
            "checkpoint": str(directory / "checkpoint"),
            "store": f"sqlite:///{directory / 'etl.db'}",
            "trigger": EVERY,
            **head,
        },
        "sources": {
            "impressions": {
                "topic": f"{prefix}impressions",
                "schema": "ad string, user string, page string, shown timestamp",
                "event_time": "shown",
                "watermark": "5s",
                "headers": False,
            },
            "clicks": {
                "topic": f"{prefix}clicks",
                "schema": "ad string, clicked timestamp",
                "event_time": "clicked",
                "watermark": "5s",
                "headers": False,
            },
            "orders": {
                "topic": f"{prefix}orders",
                "schema": "id bigint, user string, cents bigint, at timestamp",
                "event_time": "at",
                "watermark": "5s",
                "required": ["id", "user", "at"],
                "check": {"price": "cents > 0"},
                "headers": False,
            },
            "users": {
                "kind": "table",
                "topic": f"{prefix}users",
                "schema": "user string, name string, country string",
                "headers": False,
            },
        },
        "steps": [
            {
                "name": "seen",
                "kind": "join",
                "left": "impressions",
                "right": "clicks",
                "on": ["ad"],
                "within": "5s",
            },
            {
                "name": "clicks_by_page",
                "kind": "window",
                "input": "seen",
                "size": "5s",
                "time": "shown",
                "by": ["page"],
                "aggregates": {"clicks": "count(*)"},
            },
            {
                "name": "placed",
                "kind": "lookup",
                "input": "orders",
                "table": "users",
                "key": "user",
                "columns": {"country": "country"},
            },
            {
                "name": "revenue",
                "kind": "window",
                "input": "placed",
                "size": "5s",
                "by": ["country"],
                "aggregates": {"orders": "count(*)", "euros": "sum(cents) / 100"},
            },
        ],
        "sinks": [
            {
                "kind": "stream",
                "name": "clicks-by-page",
                "input": "clicks_by_page",
                "topic": f"{prefix}clicks-by-page",
                "key": "page",
                "partitions": 1,
            },
            {
                "kind": "stream",
                "name": "revenue",
                "input": "revenue",
                "topic": f"{prefix}revenue",
                "key": "country",
                "partitions": 1,
            },
        ],
    }
