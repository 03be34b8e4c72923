"""Success against a number, with intervals, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from genplan.evaluate import Score

COLOURS = ("#0072b2", "#d55e00")  # told apart by colour-blind readers too


def chart(title: str, series: Mapping[str, Sequence[tuple[int, Score]]]) -> str:
    """Lines of per cent, with intervals, against a logarithmic axis, as SVG."""
    width, height, left, low = 320, 200, 34, 26
    ticks = sorted({x for points in series.values() for x, _ in points})
    span = max(math.log(ticks[-1] / ticks[0]), 1e-9)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + 8 + math.log(x / ticks[0]) / span * (width - left - 86), 8 + (1 - y) * (height - low - 8)

    drawn = []
    for y in (0, 50, 100):
        _, up = place(ticks[0], y / 100)
        drawn.append(f'<text x="{left - 4}" y="{up + 4:.1f}" text-anchor="end">{y}</text>')
        drawn.append(f'<line x1="{left}" y1="{up:.1f}" x2="{width - 66}" y2="{up:.1f}"/>')
    for x in ticks:
        across, base = place(x, 0)
        drawn.append(f'<text x="{across:.1f}" y="{base + 14:.1f}" text-anchor="middle">{x:g}</text>')
    for number, ((name, points), colour) in enumerate(zip(series.items(), COLOURS, strict=True)):
        places = [place(x, found.success) for x, found in points]
        for x, found in points:
            (across, bottom), (_, top) = (place(x, y) for y in found.success_interval)
            across += 4 * number - 2  # beside each other, so that both are seen
            drawn.append(f'<path d="M{across:.1f},{bottom:.1f} V{top:.1f}" style="stroke:{colour};stroke-width:1"/>')
        if places:
            line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in places)
            drawn.append(f'<path d="{line}" style="stroke:{colour}"/>')
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
            drawn.append(f'<text x="{width - 62}" y="{20 + 14 * number}" style="fill:{colour}">{escape(name)}</text>')
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>'
        f"<figcaption>{escape(title)}</figcaption></figure>"
    )
