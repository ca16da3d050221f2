"""Panels as SVG: lines over time, one colour a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from celery_guard.watch.dashboard import Panel

__all__ = ["picture"]

Series = Sequence[tuple[str, Sequence[tuple[float, float]]]]

COLUMNS, WIDTH, HEIGHT, GAP = 3, 400, 230, 12
LEFT, TOP, BOTTOM = 44, 34, 62
COLOURS = ("#2a78b8", "#d9730d", "#3c9a5f", "#c23b3b", "#7d5fb5", "#8a6d3b", "#c25fa0", "#6b7280")


def picture(panels: Sequence[tuple[Panel, Series]], seconds: float, away: tuple[float, float]) -> str:
    """The whole board; ``away`` is the time without a worker, in grey."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#f4f5f7"/>',
    ]
    for place, (panel, series) in enumerate(panels):
        row, column = divmod(place, COLUMNS)
        lines.append(f'<g transform="translate({GAP + column * (WIDTH + GAP)} {GAP + row * (HEIGHT + GAP)})">')
        lines += _panel(panel, series, seconds, away)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: Panel, series: Series, seconds: float, away: tuple[float, float]) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    top = max((value for _, points in series for _, value in points), default=0.0) or 1.0

    def x(at: float) -> float:
        return LEFT + at / seconds * (WIDTH - LEFT - 12)

    def y(value: float) -> float:
        return bottom - value / top * (bottom - TOP)

    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#d8dbe0"/>'
    yield f'<text x="12" y="20" font-weight="bold" font-size="13">{escape(panel.title)}</text>'
    yield f'<rect x="{x(away[0]):.1f}" y="{TOP}" width="{x(away[1]) - x(away[0]):.1f}" height="{bottom - TOP}" fill="#eceef1"/>'
    for value in (0.0, top / 2, top):
        yield f'<line x1="{LEFT}" x2="{WIDTH - 12}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e3e5e9"/>'
        yield f'<text x="{LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#667">{_short(value, panel.unit)}</text>'
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        row, column = divmod(number, 3)
        across, down = 14 + column * 128, bottom + 20 + row * 15
        yield f'<rect x="{across}" y="{down - 8}" width="9" height="9" fill="{colour}"/>'
        yield f'<text x="{across + 13}" y="{down}">{escape(name)}</text>'


def _short(value: float, unit: str) -> str:
    number = f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.2f}"
    return number + {"s": " s", "ops": "/s"}.get(unit, "")
