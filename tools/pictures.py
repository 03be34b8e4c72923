"""The pictures of chains in docs/planner.md: `python tools/pictures.py` writes docs/pictures/chain-*.svg."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
CELL = 30
INK, SOFT, PATH, GREY, PINK, STAR = "#1b1b20", "#55555c", "#005a8f", "#a5a5ad", "#c2187a", "#a34700"
FILLS = {"#": "#6d6d74", "R": "#e8743b", "B": "#4a9fe0"}
Points = list[tuple[float, float]]


def rect(x: float, y: float, width: float, height: float, fill: str, stroke: str = "none", extra: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{stroke}" {extra}/>'


def text(x: float, y: float, words: str, color: str = INK, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}" {extra}>{words}</text>'


def line(points: Points, color: str, extra: str = "") -> str:
    joined = " ".join(f"{x:g},{y:g}" for x, y in points)
    return (
        f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="3" stroke-linejoin="round" {extra}/>'
    )


def arrow(x: float, y: float, to_x: float, to_y: float, color: str = SOFT) -> str:
    return line([(x, y), (to_x, to_y)], color, f'marker-end="url(#head-{color[1:]})"')


def center(x: float, y: float, i: float, j: float) -> tuple[float, float]:
    return x + (i + 0.5) * CELL, y + (j + 0.5) * CELL


def way(x: float, y: float, cells: Points, color: str = PATH) -> str:
    """Through cells (column, row) of a map at x, y."""
    points = [center(x, y, i, j) for i, j in cells]
    dots = "".join(f'<circle cx="{a:g}" cy="{b:g}" r="4" fill="{color}"/>' for a, b in points[1:])
    return line(points, color) + dots


def grid(x: float, y: float, rows: str, *ways: str) -> str:
    """A map: `#` wall, `.` floor, `R` `B` closed doors, `r` an open one, `o` ball, `>` agent; ways are under it."""
    parts, agent = [], ""
    for j, row in enumerate(rows.split()):
        for i, code in enumerate(row):
            left, top = x + i * CELL, y + j * CELL
            parts.append(rect(left, top, CELL, CELL, FILLS.get(code, "#ffffff"), "#c9c9cf"))
            if code in "RB":
                parts.append(f'<circle cx="{left + 23:g}" cy="{top + 15:g}" r="2.5" fill="{INK}"/>')
            elif code == "r":
                parts.append(rect(left, top, 7, CELL, FILLS["R"]))
            elif code == "o":
                parts.append(f'<circle cx="{left + 15:g}" cy="{top + 15:g}" r="9" fill="#22b98f"/>')
            elif code == ">":
                place = f'transform="translate({left + 15:g} {top + 15:g})"'
                agent = f'<path d="M-10 -10L11 0L-10 10L-5 0z" fill="#a11212" stroke="#fcfcfa" {place}/>'
    return "".join([*parts, *ways, agent])


def tokens(x: float, y: float, names: str, committed: str = PATH) -> str:
    """A row of tokens; `-` is a mask, and what is behind a `|` is grey."""
    parts, color = [], committed
    for name in names.split():
        if name == "|":
            color = GREY
            continue
        masked = name == "-"
        parts.append(rect(x, y, 38, 24, "#dcdce2" if masked else "#ffffff", GREY if masked else color, 'rx="4"'))
        parts.append(
            text(x + 19, y + 17, "mask" if masked else name, GREY if masked else color, "middle", 'font-size="13"')
        )
        x += 42
    return "".join(parts)


def ring(x: float, y: float, i: float, j: float, color: str) -> str:
    cx, cy = center(x, y, i, j)
    return f'<circle cx="{cx:g}" cy="{cy:g}" r="13" fill="none" stroke="{color}" stroke-width="3"/>'


def step_table() -> list[str]:
    """The numbers are those of a planner for MazeS4G2: log p(action | look) / p(action)."""
    looks = {
        "floor": (-0.4, -0.6, 0.2),
        "wall": (1.1, 1.1, -8.2),
        "open door": (-0.9, -1.1, 0.3),
        "ball": (1.0, 1.1, -7.5),
    }
    parts = [text(20, 34, "the look ahead: a wall"), grid(20, 50, "##### #...# #.>## #...# #####")]
    parts += [ring(20, 50, 3, 2, STAR), arrow(180, 125, 246, 125)]
    for column, (name, outcome) in enumerate({"left": "turns", "right": "turns", "forward": "goes ahead"}.items()):
        x = 400 + 90 * column
        parts += [text(x, 34, name, anchor="middle", extra='font-weight="bold"'), text(x, 51, outcome, SOFT, "middle")]
    for row, (look, prices) in enumerate(looks.items()):
        y, ahead = 62 + 32 * row, look == "wall"
        parts.append(rect(255, y, 370, 28, "#fff3e6" if ahead else "#f1f1ec", STAR if ahead else "none"))
        parts.append(text(266, y + 19, look))
        for column, price in enumerate(prices):
            color = PINK if price < -3 else PATH if price > 0 else INK
            parts.append(text(400 + 90 * column, y + 19, f"{price:+.1f}".replace("-", "−"), color, "middle"))
    return [*parts, text(255, 213, "in nats; an action below −3 is left out", SOFT)]


def beam() -> list[str]:
    below = " #.###.# #.....# #######"
    opened = way(300, 10, [(1, 1), (2, 1), (3, 1), (4, 1)])
    closed = way(300, 180, [(1, 1), (1, 2), (1, 3), (2, 3)])
    parts = [text(20, 82, "the last known state"), grid(20, 95, "####### #>.R.o#" + below)]
    parts += [arrow(236, 140, 290, 110), arrow(236, 200, 290, 230)]
    parts += [grid(300, 10, "####### #..r>o#" + below, opened), ring(300, 10, 3, 1, STAR)]
    parts += [grid(300, 180, "####### #..R.o# #.###.# #.>...# #######", closed)]
    parts += [text(525, 60, "forward, toggle, forward, forward"), text(525, 82, "in this map the door is open", STAR)]
    parts += [text(525, 104, "needs 4 steps in all", PATH)]
    parts += [
        text(525, 230, "right, forward, forward, left, forward"),
        text(525, 252, "in this map it is closed", SOFT),
    ]
    return [*parts, text(525, 274, "needs 10 steps in all", SOFT)]


def prefixes() -> list[str]:
    rows = (
        (30, "half of the windows: masks anywhere", "s0 - s2 - - s5 -", "a0 - - a3 - a5 -"),
        (145, "the other half: known up to some step, as a chain asks", "s0 s1 s2 s3 - - -", "a0 a1 a2 - - - -"),
    )
    parts = []
    for y, title, states, actions in rows:
        parts += [text(20, y, title), text(20, y + 32, "states", SOFT), text(20, y + 62, "actions", SOFT)]
        parts += [tokens(90, y + 15, states), tokens(90, y + 45, actions)]
    return parts


def adaptation() -> list[str]:
    panels = (
        (
            "##### #>R.# #####",
            "a door was never seen:",
            "forward does nothing",
            "counted: before a door,",
            "forward idles",
        ),
        (
            "##### #>r.# #####",
            "what was never tried is",
            "tried: toggle opens it",
            "counted: before a door,",
            "toggle opens",
        ),
        ("##### #>B.# #####", "the next door, of any", "color, is no obstacle", "planned: toggle,", "forward, forward"),
    )
    marks = (ring(20, 55, 2, 1, PINK), ring(235, 55, 2, 1, STAR), way(450, 55, [(1, 1), (2, 1), (3, 1)]))
    parts = []
    for index, ((rows, *words), mark) in enumerate(zip(panels, marks, strict=True)):
        x = 20 + 215 * index
        parts += [grid(x, 55, rows, mark), *(text(x, y, one) for y, one in zip((25, 43), words, strict=False))]
        parts += [text(x, y, one, SOFT) for y, one in zip((168, 186), words[2:], strict=True)]
        parts += [arrow(x + 160, 100, x + 205, 100)] * (index < 2)
    return parts


def cutting() -> list[str]:
    done = way(20, 20, [(1, 1), (2, 1), (3, 1)])
    dropped = way(20, 20, [(3, 1), (4, 1), (5, 1), (6, 1), (6, 2), (6, 3)], GREY)
    parts = [grid(20, 20, "######## #..>...# #.####.# #......# ########", dropped, done), ring(20, 20, 3, 1, PINK)]
    parts += [text(285, 38, "the plan"), tokens(285, 46, "↑ ↑ ↑ | ↑ ↑ ↱ ↑ ↑"), arrow(388, 98, 388, 78, PINK)]
    parts += [text(285, 118, "after this action the agent is still where it was", PINK)]
    return [*parts, text(285, 142, "the rest is dropped, and another plan is made", SOFT)]


PICTURES = {
    "table": (645, 230, step_table),
    "beam": (790, 345, beam),
    "prefixes": (450, 225, prefixes),
    "adaptation": (645, 205, adaptation),
    "cutting": (645, 190, cutting),
}


def main() -> None:
    heads = "".join(
        f'<marker id="head-{color[1:]}" viewBox="0 0 10 10" refX="6" refY="5" markerWidth="5" markerHeight="5" '
        f'orient="auto"><path d="M0 0L10 5L0 10z" fill="{color}"/></marker>'
        for color in (SOFT, PINK)
    )
    for name, (width, height, draw) in PICTURES.items():
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" font-size="14">'
        parts = [head, f"<defs>{heads}</defs>", rect(0, 0, width, height, "#fcfcfa", extra='rx="8"'), *draw(), "</svg>"]
        (FOLDER / f"chain-{name}.svg").write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
