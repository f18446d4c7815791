"""A picture of the results: bars of throughput, Leveret beside RabbitMQ, as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from benchmarks.measure import LoadResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.report import Result

COLOURS = {"leveret": "#2f7d4f", "rabbitmq": "#b9b3a7"}
LABEL_PX = 210
BAR_PX = 460
ROW_PX = 46
BAR_HEIGHT_PX = 15


def draw(results: Sequence[Result]) -> str:
    """One pair of bars per scenario that both brokers ran, longest rate in each pair full width."""
    rates: dict[str, dict[str, float]] = {}
    for one in results:
        if isinstance(one, LoadResult):
            rates.setdefault(one.scenario, {})[one.broker] = one.received_per_s
    pairs = {name: pair for name, pair in rates.items() if set(pair) == set(COLOURS)}
    height = 40 + ROW_PX * len(pairs)
    width = LABEL_PX + BAR_PX + 170
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for place, (broker, colour) in enumerate(COLOURS.items()):
        x = LABEL_PX + 110 * place
        parts += [
            f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>',
            f'<text x="{x + 18}" y="21">{broker}</text>',
        ]
    most = max((rate for pair in pairs.values() for rate in pair.values()), default=1.0)
    for row, (name, pair) in enumerate(pairs.items()):
        parts += _row(name, pair, 40 + ROW_PX * row, most)
    return "\n".join([*parts, "</svg>", ""])


def _row(name: str, pair: dict[str, float], top: int, most: float) -> list[str]:
    parts = [f'<text x="8" y="{top + 20}">{escape(name)}</text>']
    for place, (broker, colour) in enumerate(COLOURS.items()):
        y = top + place * (BAR_HEIGHT_PX + 3)
        length = max(1, round(BAR_PX * pair[broker] / most))
        label = f"{pair[broker]:,.0f}/s"
        if broker == "leveret" and pair["rabbitmq"]:
            label += f"  ({pair['leveret'] / pair['rabbitmq']:.1f}x)"
        parts += [
            (
                f'<rect x="{LABEL_PX}" y="{y}" width="{length}" height="{BAR_HEIGHT_PX}" '
                f'fill="{colour}"/>'
            ),
            f'<text x="{LABEL_PX + length + 6}" y="{y + 12}">{label}</text>',
        ]
    return parts
