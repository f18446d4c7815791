"""The types of exchanges, as the management API lists them."""

from __future__ import annotations

from typing import Final

_DESCRIBED: Final = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange",
}
EXCHANGE_TYPES: Final = [
    {"name": name, "description": text, "enabled": True} for name, text in _DESCRIBED.items()
]
