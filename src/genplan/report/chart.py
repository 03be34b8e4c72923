"""Shares against a number, with intervals, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from genplan.metrics import Summary

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # distinguishable to color-blind readers too


def interval_chart(title: str, series: Mapping[str, Sequence[tuple[int, Summary]]]) -> str:
    """Curves of shares in per cent, with their intervals, against a logarithmic axis."""
    width, height, left, below = 320, 200, 34, 26
    ticks = sorted({x for points in series.values() for x, _ in points})
    span = max(math.log(ticks[-1] / ticks[0]), 1e-9)

    def position(x: float, y: float) -> tuple[float, float]:
        return left + 8 + math.log(x / ticks[0]) / span * (width - left - 86), 8 + (1 - y) * (height - below - 8)

    parts = []
    for y in (0, 50, 100):
        _, up = position(ticks[0], y / 100)
        parts.append(f'<text x="{left - 4}" y="{up + 4:.1f}" text-anchor="end">{y}</text>')
        parts.append(f'<line x1="{left}" y1="{up:.1f}" x2="{width - 66}" y2="{up:.1f}"/>')
    for x in ticks:
        across, base = position(x, 0)
        parts.append(f'<text x="{across:.1f}" y="{base + 14:.1f}" text-anchor="middle">{x:g}</text>')
    for number, (name, points) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        for x, summary in points:
            (across, bottom), (_, top) = position(x, summary.low), position(x, summary.high)
            across += 4 * number - 2  # side by side, so that all are visible
            parts.append(f'<path d="M{across:.1f},{bottom:.1f} V{top:.1f}" style="stroke:{color};stroke-width:1"/>')
        if points:
            centers = [position(x, summary.value) for x, summary in points]
            line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in centers)
            parts.append(f'<path d="{line}" style="stroke:{color}"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in centers]
            parts.append(f'<text x="{width - 62}" y="{20 + 14 * number}" style="fill:{color}">{escape(name)}</text>')
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
        f"<figcaption>{escape(title)}</figcaption></figure>"
    )
