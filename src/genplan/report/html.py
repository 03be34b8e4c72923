"""Parts of self-contained HTML pages: tables, line charts and GIFs, in one file, light and dark, also for print."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape

from genplan.evaluate import Scores, score_rows
from genplan.types import Metric

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # distinguishable to color-blind readers too
Point = tuple[float, float] | tuple[float, float, float, float]  # x, y; and the interval of y

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c22; --paper: #fdfdfb; --line: #d6d6d0; --soft: #6a6a72; --mark: #0b6fb8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --paper: #16161a; --line: #3a3a42; --soft: #a0a0aa; --mark: #56b4e9; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
td, th[scope=row] { vertical-align: top; } td:first-child, th:first-child { text-align: left; }
th[scope=row] { position: sticky; left: 0; background: var(--paper); font-weight: 500; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.2rem; }
figure { margin: 0; } figcaption, .soft { color: var(--soft); font-size: .9rem; }
img { max-width: 100%; border-radius: 4px; } svg { width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg path { fill: none; stroke: var(--mark); stroke-width: 2; } svg line { stroke: var(--line); }
pre { white-space: pre-wrap; font-size: .85rem; }
@media print { body { max-width: none; } }
"""


def page(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls where it is too wide; entries are HTML, the first of each row is its heading."""
    first = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join(
        f"<tr><th scope='row'>{name}</th>{''.join(f'<td>{entry}</td>' for entry in entries)}</tr>"
        for name, *entries in rows
    )
    return f'<div class="scroll"><table><tr>{first}</tr>{lines}</table></div>'


def muted(text: str) -> str:
    """A second, smaller line of a table's entry."""
    return f'<br><span class="soft">{text}</span>'


def score_table(scores: Scores, metrics: Sequence[Metric], extra: Mapping[str, Sequence[str]] | None = None) -> str:
    """A row per planner, a column per metric that any of them has; `extra` columns are HTML."""
    headers, rows = score_rows(scores, metrics)
    lines = [
        [escape(name), *(value + muted(interval) if value else "–" for value, interval in entries), *others]
        for (name, entries), *others in zip(rows.items(), *(extra or {}).values(), strict=True)
    ]
    return table(("", *map(escape, headers), *(extra or {})), lines)


def line_chart(
    title: str,
    series: Mapping[str, Sequence[Point]],
    y_ticks: Sequence[float],
    x_ticks: Sequence[float],
    log: bool = False,
) -> str:
    """Curves as SVG, as far as the ticks reach; points with an interval are marked."""
    width, height, left, right, below = 320, 190, 44, 66 if len(series) > 1 else 8, 26
    scale = math.log if log else float

    def position(x: float, y: float) -> tuple[float, float]:
        across, up = scale(x) - scale(x_ticks[0]), (y_ticks[-1] - y) / max(y_ticks[-1] - y_ticks[0], 1e-9)
        across /= max(scale(x_ticks[-1]) - scale(x_ticks[0]), 1e-9)
        return left + 8 + across * (width - left - right - 16), 8 + up * (height - below - 8)

    parts = []
    for x in x_ticks:
        across, base = position(x, y_ticks[0])
        parts.append(f'<text x="{across:.1f}" y="{base + 14:.1f}" text-anchor="middle">{x:g}</text>')
    for y in y_ticks:
        _, up = position(x_ticks[0], y)
        parts.append(f'<text x="{left - 4}" y="{up + 4:.1f}" text-anchor="end">{y:.3g}</text>')
        parts.append(f'<line x1="{left}" y1="{up:.1f}" x2="{width - right}" y2="{up:.1f}"/>')
    for number, (name, points) in enumerate((name, points) for name, points in series.items() if points):
        color, line = COLORS[number % len(COLORS)], []
        for x, y, *interval in points:
            across, up = position(x, y)
            line.append(f"{across:.1f},{up:.1f}")
            if interval:
                beside = across + 4 * number - 2  # so that intervals of all curves are visible
                low, high = (position(x, one)[1] for one in interval)
                parts.append(f'<path d="M{beside:.1f},{low:.1f} V{high:.1f}" style="stroke:{color};stroke-width:1"/>')
                parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{color}"/>')
        parts.append(f'<path d="M{" L".join(line)}" style="stroke:{color}"/>')
        parts.append(f'<text x="{width - right + 4}" y="{20 + 14 * number}" style="fill:{color}">{escape(name)}</text>')
    svg = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f"<figure>{svg}<figcaption>{escape(title)}</figcaption></figure>"


def gifs(items: Sequence[tuple[str, bytes]]) -> str:
    """Animations with their captions, side by side."""
    figures = (
        f'<figure><img alt="{escape(caption)}" src="data:image/gif;base64,{base64.b64encode(data).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, data in items
    )
    return f'<div class="grid">{"".join(figures)}</div>'
