"""Parts of self-contained HTML pages: tables, line charts and images, in one file, light and dark, also for print."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c22; --paper: #fdfdfb; --line: #d6d6d0; --soft: #6a6a72; --mark: #0b6fb8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --paper: #16161a; --line: #3a3a42; --soft: #a0a0aa; --mark: #56b4e9; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
td, th { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
td, th[scope=row] { vertical-align: top; }
td:first-child, th:first-child { text-align: left; }
th[scope=row] { position: sticky; left: 0; background: var(--paper); font-weight: 500; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.2rem; }
figure { margin: 0; }
figcaption, .soft { color: var(--soft); font-size: .9rem; }
img { max-width: 100%; border-radius: 4px; }
svg { width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg path { fill: none; stroke: var(--mark); stroke-width: 2; }
svg line { stroke: var(--line); }
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


def line_chart(title: str, points: Sequence[tuple[float, float]]) -> str:
    """A small chart of one curve as SVG."""
    width, height, left, below = 320, 180, 44, 22
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_min, x_max = min(xs), max(max(xs), min(xs) + 1e-9)
    y_min, y_max = min(0.0, min(ys)), max(max(ys), min(ys) + 1e-9)
    base = height - below
    positions = [
        (left + (x - x_min) / (x_max - x_min) * (width - left - 6), 8 + (y_max - y) / (y_max - y_min) * (base - 8))
        for x, y in points
    ]
    line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in positions)
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f'<line x1="{left}" y1="{base}" x2="{width}" y2="{base}"/><line x1="{left}" y1="8" x2="{left}" y2="{base}"/>'
        f'<text x="{left - 4}" y="16" text-anchor="end">{y_max:.3g}</text>'
        f'<text x="{left - 4}" y="{base}" text-anchor="end">{y_min:.3g}</text>'
        f'<text x="{left}" y="{height - 6}">{x_min:g}</text>'
        f'<text x="{width}" y="{height - 6}" text-anchor="end">{x_max:g} steps</text>'
        f'<path d="{line}"/></svg><figcaption>{escape(title)}</figcaption></figure>'
    )


def images(items: Sequence[tuple[str, bytes]]) -> str:
    """GIFs or PNGs with their captions, side by side."""
    figures = (
        f'<figure><img alt="{escape(caption)}" src="data:image/{"gif" if data[:3] == b"GIF" else "png"};base64,'
        f'{base64.b64encode(data).decode()}"><figcaption>{escape(caption)}</figcaption></figure>'
        for caption, data in items
    )
    return f'<div class="grid">{"".join(figures)}</div>'
