"""A report of a run as one HTML file: facts, tables, and plots in SVG. It needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final, TypeAlias

Points: TypeAlias = list[tuple[float, float]]  # seconds, value

WIDTH_PX: Final = 720
HEIGHT_PX: Final = 200
LEFT_PX: Final = 70
BOTTOM_PX: Final = 26
COLOURS: Final = ("#2f7d4f", "#b3572b", "#2b5fb3", "#8a2bb3")
STYLE: Final = """
body { font-family: sans-serif; max-width: 780px; margin: 2em auto; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; }
"""


@dataclass
class Chart:
    title: str
    unit: str
    lines: dict[str, Points] = field(default_factory=dict)

    def add(self, line: str, second: float, value: float) -> None:
        self.lines.setdefault(line, []).append((second, value))


def html(
    title: str,
    facts: Mapping[str, object],
    charts: Sequence[Chart],
    tables: Mapping[str, Sequence[Sequence[object]]],
) -> str:
    """The first row of a table has its columns' names."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        _table([(name, value) for name, value in facts.items()], head=False),
    ]
    for chart in charts:
        parts += [f"<h2>{escape(chart.title)}</h2>", svg(chart)]
    for name, rows in tables.items():
        parts += [f"<h2>{escape(name)}</h2>", _table(rows, head=True)]
    return "\n".join([*parts, "</body></html>", ""])


def _table(rows: Sequence[Sequence[object]], *, head: bool) -> str:
    lines = ["<table>"]
    for place, row in enumerate(rows):
        tag = "th" if head and not place else "td"
        cells = "".join(f"<{tag}>{escape(str(each))}</{tag}>" for each in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def svg(chart: Chart) -> str:
    """Lines over seconds, with the largest value and the last second written at the axes."""
    points = [point for line in chart.lines.values() for point in line]
    end_s = max((second for second, _ in points), default=1.0) or 1.0
    most = max((value for _, value in points), default=1.0) or 1.0
    height = HEIGHT_PX + BOTTOM_PX + 24
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT_PX + WIDTH_PX}" '
            f'height="{height}" font-family="sans-serif" font-size="12">'
        ),
        (
            f'<rect x="{LEFT_PX}" y="0" width="{WIDTH_PX - LEFT_PX}" height="{HEIGHT_PX}" '
            'fill="#f7f7f5"/>'
        ),
        f'<text x="{LEFT_PX - 6}" y="12" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{LEFT_PX - 6}" y="{HEIGHT_PX}" text-anchor="end">0</text>',
        f'<text x="{WIDTH_PX}" y="{HEIGHT_PX + 16}" text-anchor="end">{end_s:,.0f} s</text>',
        f'<text x="{LEFT_PX}" y="{HEIGHT_PX + 16}">{escape(chart.unit)}</text>',
    ]
    for place, (name, line) in enumerate(chart.lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        parts.append(_line(line, end_s, most, colour))
        x = LEFT_PX + 170 * place
        parts += [
            f'<rect x="{x}" y="{HEIGHT_PX + 26}" width="10" height="10" fill="{colour}"/>',
            f'<text x="{x + 15}" y="{HEIGHT_PX + 36}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>"])


def _line(line: Points, end_s: float, most: float, colour: str) -> str:
    width = WIDTH_PX - LEFT_PX
    places = [
        (LEFT_PX + width * second / end_s, HEIGHT_PX * (1 - value / most)) for second, value in line
    ]
    if len(places) == 1:
        x, y = places[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def rates(totals: Points) -> Points:
    """Of totals over time, what is added in a second."""
    return [
        (later, (after - before) / (later - earlier))
        for (earlier, before), (later, after) in pairwise(totals)
        if later > earlier
    ]
