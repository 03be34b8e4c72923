"""Results as self-contained pages: tables, curves and films in one file; light and dark, on a phone and in print."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from genplan.checkpoint import write_atomically
from genplan.evaluate import Evaluation, Score

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


def curve(title: str, points: Sequence[tuple[float, float]]) -> str:
    """A small line chart as SVG."""
    width, height, left, low = 320, 180, 44, 22
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_0, x_1 = min(xs), max(max(xs), min(xs) + 1e-9)
    y_0, y_1 = min(0.0, min(ys)), max(max(ys), min(ys) + 1e-9)
    place = [
        (left + (x - x_0) / (x_1 - x_0) * (width - left - 6), 8 + (1 - (y - y_0) / (y_1 - y_0)) * (height - low - 8))
        for x, y in points
    ]
    line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in place)
    base = height - low
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f'<line x1="{left}" y1="{base}" x2="{width}" y2="{base}"/><line x1="{left}" y1="8" x2="{left}" y2="{base}"/>'
        f'<text x="{left - 4}" y="16" text-anchor="end">{y_1:.3g}</text>'
        f'<text x="{left - 4}" y="{base}" text-anchor="end">{y_0:.3g}</text>'
        f'<text x="{left}" y="{height - 6}">{x_0:g}</text>'
        f'<text x="{width}" y="{height - 6}" text-anchor="end">{x_1:g} steps</text>'
        f'<path d="{line}"/></svg><figcaption>{escape(title)}</figcaption></figure>'
    )


def scores(rows: Sequence[tuple[str, Score | None]]) -> str:
    lines = []
    for name, score in rows:
        if score is not None:
            low, high = score.success_interval
            cells = (
                f"{score.success:.1%}", f"{low:.1%}–{high:.1%}", "" if score.spl is None else f"{score.spl:.3f}",
                f"{score.mean_steps:.1f}", f"{score.stall:.0%}", f"{score.seconds:.1f}",
            )  # fmt: skip
            lines.append((escape(name), *cells))
    return table(("", "success", "95 %", "SPL", "steps", "stalling", "seconds"), lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is too wide; cells are HTML, the first of each row is its heading."""
    first = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join(
        f"<tr><th scope='row'>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, *cells in rows
    )
    return f'<div class="scroll"><table><tr>{first}</tr>{lines}</table></div>'


def films(items: Sequence[tuple[str, bytes]]) -> str:
    figures = (
        f'<figure><img alt="{escape(title)}" src="data:image/gif;base64,{base64.b64encode(data).decode()}">'
        f"<figcaption>{escape(title)}</figcaption></figure>"
        for title, data in items
    )
    return f'<div class="grid">{"".join(figures)}</div>'


def run_page(
    path: Path,
    title: str,
    config: Mapping[str, Any],
    found: Evaluation,
    log: Sequence[Mapping[str, Any]],
    moving: Sequence[tuple[str, bytes]],
    seconds: float,
) -> Path:
    """The page of one run: what it scores, how it learnt, how it plays."""
    wanted = (
        ("loss/actions", "loss of actions, nats per token"),
        ("loss/states", "loss of states"),
        ("right/actions", "correct actions among the corrupted"),
        ("held out/loss", "loss on held-out demonstrations"),
    )
    curves = [
        curve(label, points)
        for name, label in wanted
        if len(points := [(line["step"], line[name]) for line in log if name in line]) > 1
    ]
    data = config["dataset"]
    seeds = [result.seed for result in found.results]
    words = (
        f"{escape(config['method'])} trained on {data['episodes']} demonstrations ({escape(data['name'])}, content "
        f"{data['digest']}) in {seconds / 60:.1f} CPU-minutes; judged on {len(seeds)} mazes that it has never seen, "
        f"seeds {seeds[0]}–{seeds[-1]}, beside a walk that sees nothing and the bot that gave the demonstrations."
    )
    rows = [("this planner", found.planner), ("blind walk", found.walk), ("bot", found.bot)]
    body = (
        f"<h1>{escape(title)}</h1><p>{words}</p>{scores(rows)}"
        '<p class="soft">SPL: success weighted by path length, against the bot\'s steps. Stalling: share of steps that '
        "change nothing.</p>"
        f"<h2>How it plays</h2>{films(moving)}"
        f'<h2>How it learnt</h2><div class="grid">{"".join(curves)}</div>'
        f"<h2>Settings</h2><pre>{escape(str(dict(config['planner'])))}\n{escape(str(dict(config['training'])))}</pre>"
    )
    write_atomically(path, page(title, body).encode())
    return path
