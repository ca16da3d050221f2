"""Panels as SVG: lines over time, one colour a series. Where there was nothing to show, there is no line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import floor, log10

from celery_guard.watch.dashboard import Panel

__all__ = ["picture"]

Series = Sequence[tuple[str, Sequence[tuple[float, float]]]]

COLUMNS, WIDTH, HEIGHT, GAP = 3, 400, 230, 12
LEFT, RIGHT, TOP, BOTTOM = 46, 22, 34, 64
#: Seconds from one time that is written to the next; as many without a point are a gap; and how wide a letter is.
EVERY, GAP_OF, LETTER = 20, 1.5, 6.3
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
    top = _top(max((value for _, points in series for _, value in points), default=0.0), whole=panel.unit == "short")

    def x(at: float) -> float:
        return LEFT + at / seconds * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return bottom - value / top * (bottom - TOP)

    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#d8dbe0"/>'
    yield f'<text x="12" y="20" font-weight="bold" font-size="13">{escape(panel.title)}</text>'
    yield f'<rect x="{x(away[0]):.1f}" y="{TOP}" width="{x(away[1]) - x(away[0]):.1f}" height="{bottom - TOP}" fill="#e4e7eb"/>'
    for value in (0.0, top / 2, top):
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#d8dbe0"/>'
        yield f'<text x="{LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#667">{_short(value, panel.unit)}</text>'
    for at in range(0, int(seconds) + 1, EVERY):
        yield f'<text x="{x(at):.1f}" y="{bottom + 14}" text-anchor="middle" fill="#667">{at} s</text>'
    for number, (_, points) in enumerate(series):
        for line in _unbroken(points):
            path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in line)
            yield (
                f'<polyline points="{path}" fill="none" stroke="{_colour(number)}" stroke-width="1.6" '
                'stroke-linecap="round" stroke-linejoin="round"/>'
            )
    yield from _legend([name for name, _ in series], bottom + 32)


def _legend(names: Sequence[str], down: float) -> Iterator[str]:
    across = float(LEFT)
    for number, name in enumerate(names):
        wide = 26 + LETTER * len(name)
        if across > LEFT and across + wide > WIDTH:
            across, down = LEFT, down + 15
        yield f'<rect x="{across:.1f}" y="{down - 8}" width="9" height="9" fill="{_colour(number)}"/>'
        yield f'<text x="{across + 13:.1f}" y="{down}">{escape(name)}</text>'
        across += wide


def _unbroken(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Lines without the gaps in which there was nothing to show; a point by itself is a short line."""
    lines: list[list[tuple[float, float]]] = []
    for at, value in points:
        if not lines or at - lines[-1][-1][0] > GAP_OF:
            lines.append([(at, value)])
        lines[-1].append((at, value))
    return lines


def _top(largest: float, *, whole: bool) -> float:
    """The end of the scale: a round number that is not below, whose half is round as well."""
    if whole and largest <= 2:
        return 2.0
    scale = 10.0 ** floor(log10(largest)) if largest > 0 else 1.0
    steps = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0) if scale > 1 or not whole else (2.0, 4.0, 6.0, 8.0, 10.0)
    return next(step * scale for step in steps if step * scale >= largest * 0.999)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _short(value: float, unit: str) -> str:
    return f"{value:g}" + {"s": " s", "ops": "/s"}.get(unit, "")
