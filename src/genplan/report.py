"""One self-contained page of all benchmark results: what there is, beside the paper's numbers; and what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from genplan.bench import Results, suites
from genplan.bench.board import Board, Pair
from genplan.bench.cell import UNTRAINED
from genplan.bench.comparison import Difference, chance, paired
from genplan.checkpoint import write_atomically
from genplan.errors import UserError
from genplan.evaluate import Score
from genplan.page import films, page, table
from genplan.tasks.table import ROWS, TEST_SEEDS, WALKS, Row

SHOWN = {"DT-noGC": "DT⊖GC", "LEAP-noGC": "LEAP⊖GC", "LEAP-H": "LEAP⊕H", "pretrained": "shipped"}
TOLD = ("DT", "LEAP")  # the simulator tells them where the goals are
COLOURS = ("#0072b2", "#d55e00")  # told apart by colour-blind readers too
CHAPTERS = {
    "Trained and tested in the same world": ("TP", "IC"),
    "Adaptive: demonstrated in one room, tested in other worlds": ("AP",),
}
EPISODES = len(TEST_SEEDS)
ABOUT = """<p>Every method learns from the same 1,000 demonstrations of the stock bot within the same budget
(15 CPU-minutes, 40 on S7, BlockUnlock and KeyCorridor), sees maps through the same encoder, remembers its last step,
where it has been and what it tried, plans anew after every action, draws at temperature 0.5, and is judged on the same
250 seeds (1234–1483) within the paper's step limits; the paper executes whole plans. Each had the same trials on
MazeS4G1; what differs from world to world (haste, clutter, stitching) was chosen on validation seeds with GenPlan-M,
and holds for all.
<b>shipped</b> is the planner that comes with genplan; but for LocS10N1's, in the adaptive rows, its training has a
budget of its own.</p>
<p>In the adaptive rows all demonstrations are of one object in one room. All methods learn there in maps with
clutter: other objects, walls with gaps, and, also on the way, looks that no demonstration has, of doors and lava too,
through which the demonstrator seems to pass. They learn as well from demonstrations stitched of several, half of which
lead to two things, with their missions joined by “and”. And all are curious: where nothing new comes of what they do,
they try something else. GenPlan, which alone predicts states, learns within an episode from what came otherwise
(surprise). The paper's numbers were reached without any of this.</p>
<p class="soft">Per cent of episodes solved, with Wilson's 95 % interval; below, SPL (success weighted by
path length, against the bot's); <i>in italics, the paper's number</i>. ◆: the simulator tells this method where the
goals are. Walk: the best of three blind walks; untrained: GenPlan-M with a network that has learnt nothing.</p>"""


def benchmark_page(results: Path, out: Path) -> Path:
    if not results.exists():
        raise UserError(f"there is no {results}; fill it with: genplan bench run main")
    board = Board(Results(results))
    if not board.lines:
        raise UserError(f"{results} has no cells; fill it with: genplan bench run main")
    parts = ["<h1>Planners from demonstrations, under one protocol</h1>", _extent(board), ABOUT]
    for title, families in CHAPTERS.items():
        rows = [row for row in ROWS.values() if row.family in families]
        parts += [f"<h2>{title}</h2>", _success(board, rows), _means(board, rows), _differences(board, rows)]
    if board.old:
        parts.append(
            '<p class="soft">†: measured with other settings than this version of genplan has; shown, but neither '
            "counted in means nor compared.</p>"
        )
    for part in (_times, _seeds, _presets, _demonstrations, _episodes, _missing, _history):
        parts.append(part(board))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page("genplan: results", "".join(parts)).encode())
    return out


def _extent(board: Board) -> str:
    trained = {line["training"]["hash"]: line["training"]["cpu_minutes"] for line in board.lines if line["training"]}
    days = sorted(line["when"][:10] for line in board.lines)
    hours = sum(trained.values()) / 60
    return f"<p>{len(board.newest)} cells, measured {days[0]} to {days[-1]}; {hours:.1f} CPU-hours of training.</p>"


def _name(method: str) -> str:
    return escape(SHOWN.get(method, method)) + (" ◆" if method in TOLD else "")


def _success(board: Board, rows: Sequence[Row]) -> str:
    methods = board.methods(rows)
    if not methods:
        return "<p>No cell of these rows has been run yet.</p>"
    lines = []
    for row in rows:
        found = {method: line for method in methods if (line := board.line(method, row.name))}
        best = max((board.score(line).success for line in found.values() if not board.mark(line)), default=0.0)
        cells = [
            _cell(board, found.get(method), best) + _paper(row.paper.get(SHOWN.get(method, method)))
            for method in methods
        ]
        walks = [board.score(line).success for kind in WALKS if (line := board.line(f"walk:{kind}", row.name))]
        cells.append(f"{100 * max(walks):.1f}" if walks else "–")
        for control in (f"{UNTRAINED}GenPlan-M", "bot"):
            line = board.line(control, row.name)
            cells.append("–" if line is None else f"{100 * board.score(line).success:.1f}")
        lines.append((escape(row.name), *cells))
    return table(("", *(_name(method) for method in methods), "walk", "untrained", "bot"), lines)


def _cell(board: Board, line: Mapping[str, Any] | None, best: float = math.inf) -> str:
    if line is None:
        return "–"
    found = board.score(line)
    low, high = found.success_interval
    value = f"{100 * found.success:.1f}"
    shown = f"<b>{value}</b>" if found.success == best and not board.mark(line) else value
    spl = "" if found.spl is None else f"<br>{found.spl:.3f}"
    few = "" if found.episodes == EPISODES else f"<br>{found.episodes} episodes"
    return f'{shown}{board.mark(line)}<br><span class="soft">{100 * low:.0f}–{100 * high:.0f}{spl}{few}</span>'


def _paper(value: float | None) -> str:
    return "" if value is None else f"<br><i>{value:g}</i>"


def _means(board: Board, rows: Sequence[Row]) -> str:
    """Over the rows that a method shares with GenPlan-M, so that nobody gains by what was not run."""
    lines = []
    standing: dict[str, dict[str, list[str]]] = {"success": {}, "SPL": {}}
    for method in board.methods(rows):
        pairs = board.pairs(method, rows)
        if not pairs:
            continue
        scores = [board.score(other) for _, other in pairs]
        ahead, further = _success_ahead(pairs), _efficiency_ahead(board, pairs)
        lines.append((
            _name(method),
            str(len(pairs)),
            f"{100 * fmean(found.success for found in scores):.1f}",
            "" if method == "GenPlan-M" else _points(ahead, chance(*pairs) <= 0.05),
            "–" if further is None else f"{fmean(found.spl or 0.0 for found in scores):.3f}",
            "" if method == "GenPlan-M" or further is None else _parts(further),
        ))  # fmt: skip
        if method not in ("GenPlan-M", "pretrained"):  # the latter has a budget of its own
            standing["success"].setdefault(_standing(ahead, chance(*pairs) <= 0.05), []).append(_name(method))
            if further is not None:
                standing["SPL"].setdefault(_standing(further, further.is_clear), []).append(_name(method))
    if not lines:
        return ""
    head = ("", "rows", "mean success", "GenPlan-M ahead by", "mean SPL", "GenPlan-M ahead by")
    told = [
        f"In mean {what} GenPlan-M is {', '.join(f'{how} {_and(who)}' for how, who in sorted(found.items()))}."
        for what, found in standing.items()
        if found
    ]
    return f"<h3>Means over rows that both have</h3>{table(head, lines)}<p>{' '.join(told)}</p>"


def _success_ahead(pairs: Sequence[Pair]) -> Difference:
    return paired(*((own["success"], other["success"]) for own, other in pairs))


def _efficiency_ahead(board: Board, pairs: Sequence[Pair]) -> Difference | None:
    found = [(board.efficiencies(own), board.efficiencies(other)) for own, other in pairs]
    return paired(*found) if all(one and other for one, other in found) else None


def _standing(found: Difference, clear: bool) -> str:
    if not clear:
        return "level with"
    return "ahead of" if found.mean > 0 else "behind"


def _and(names: Sequence[str]) -> str:
    return " and ".join(", ".join(names).rsplit(", ", 1))


def _differences(board: Board, rows: Sequence[Row]) -> str:
    methods = [method for method in board.methods(rows) if method != "GenPlan-M"]
    lines = []
    for row in rows:
        if board.line("GenPlan-M", row.name):
            lines.append((escape(row.name), *(_difference(board, board.pairs(method, [row])) for method in methods)))
    if not lines or not methods:
        return ""
    return (
        "<h3>GenPlan-M ahead by, on equal seeds</h3>"
        f"{table(('', *(_name(method) for method in methods)), lines)}"
        '<p class="soft">Points of success, and SPL, with 95 % intervals of the paired differences; ▲ GenPlan-M is '
        "ahead, ▼ it is behind, where chance in the drawing of seeds would do so less than once in twenty times "
        "(success: McNemar’s exact test; SPL: by the interval), and “level” otherwise. Each method was trained once: "
        "what another training would change is not in it.</p>"
    )


def _difference(board: Board, pairs: Sequence[Pair]) -> str:
    if not pairs:
        return "–"
    further = _efficiency_ahead(board, pairs)
    success = _points(_success_ahead(pairs), chance(*pairs) <= 0.05)
    return success + ("" if further is None else f"<br>{_parts(further)}")


def _points(found: Difference, clear: bool) -> str:
    shown = f"{100 * found.mean:+.1f}{_mark(found, clear)}{_soft(f'{100 * found.low:+.1f} … {100 * found.high:+.1f}')}"
    return shown.replace("-", "−").replace("+0.0", "0.0").replace("−0.0", "0.0")


def _parts(found: Difference) -> str:
    shown = f"{found.mean:+.3f}{_mark(found, found.is_clear)}{_soft(f'{found.low:+.3f} … {found.high:+.3f}')}"
    return shown.replace("-", "−")


def _mark(found: Difference, clear: bool) -> str:
    return "" if not clear else " ▲" if found.mean > 0 else " ▼"


def _soft(text: str) -> str:
    return f'<br><span class="soft">{text}</span>'


def _times(board: Board) -> str:
    lines = []
    for name in ("MazeS4G1", "KeyCorridorS3R3"):
        for method in board.methods([ROWS[name]]):
            if (line := board.line(method, name)) and line["training"]:
                cells = (
                    f"{line['training']['cpu_minutes']:.1f}", str(line["training"]["steps"]), f"{line['seconds']:.0f}",
                    f"{1000 * line['planner_seconds'] / max(line['plans'], 1):.1f}",
                    f"{sum(line['steps']) / len(line['steps']):.0f}",
                )  # fmt: skip
                lines.append((f"{name}, {_name(method)}{board.mark(line)}", *cells))
    head = ("", "training, CPU-min", "steps", "all episodes, s", "ms per plan", "steps per episode")
    note = (
        '<p class="soft">Seconds by the clock, on one thread beside another cell; plans are made for all episodes that '
        "still run at once, 250 at first, so that a single one takes longer than is told here.</p>"
    )
    return f"<h2>Times</h2>{table(head, lines)}{note}" if lines else ""


def _seeds(board: Board) -> str:
    lines = [line for seed in range(10) if (line := board.line("GenPlan-M", "MazeS4G1", seed))]
    if len(lines) < 2:
        return ""
    told = []
    for what, digits, values in (
        ("per cent solved", 1, [100 * board.score(line).success for line in lines]),
        ("SPL", 3, [found for line in lines if (found := board.score(line).spl) is not None]),
    ):
        if len(values) == len(lines):
            each = ", ".join(f"{value:.{digits}f}" for value in values)
            told.append(f"{what} {each} (mean {fmean(values):.{digits}f}, deviation {stdev(values):.{digits}f})")
    return f"<h2>Training seeds</h2><p>GenPlan-M on MazeS4G1, {len(lines)} trainings: {'; '.join(told)}.</p>"


def _presets(board: Board) -> str:
    """The paper's architecture and algorithm to the letter, beside ours."""
    lines = []
    for method in ("GenPlan-M", "GenPlan-U"):
        for row in ROWS.values():
            kinds = {preset: board.line(method, row.name, preset=preset) for preset in ("paper", "default")}
            if kinds["paper"] is not None:
                shown = [_cell(board, line) for line in kinds.values()]
                lines.append((f"{method}, {escape(row.name)}", *shown, f"<i>{row.paper[method]:g}</i>"))
    head = ("", "preset <code>paper</code>", "preset <code>default</code>", "the paper")
    return f"<h2>The paper to the letter</h2>{table(head, lines)}" if lines else ""


def _demonstrations(board: Board) -> str:
    charts = []
    for row in ("MazeS4G1", "KeyCorridorS3R3"):
        series: dict[str, list[tuple[int, Score]]] = {}
        for method in ("GenPlan-M", "BC"):
            found = [(number, board.line(method, row, demonstrations=number)) for number in (30, 100, 300, 1000)]
            series[method] = [(number, board.score(line)) for number, line in found if line]
        if any(len(points) > 1 for points in series.values()):
            charts.append(_chart(f"{row}: per cent solved against demonstrations", series))
    return f'<h2>Fewer demonstrations</h2><div class="grid">{"".join(charts)}</div>' if charts else ""


def _chart(title: str, series: Mapping[str, Sequence[tuple[int, Score]]]) -> str:
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


def _episodes(board: Board, number: int = 3, limit: int = 120) -> str:
    """Test episodes of shipped planners, played again: the first of some rows, and the first that was not solved."""
    from genplan import film, pilot

    moving: list[tuple[str, bytes]] = []
    shipped = [line for key, line in board.newest.items() if key[0] == "pretrained" and not board.mark(line)]
    shown = [(line, 0) for line in shipped[:number]]
    shown += [(line, line["success"].index(0)) for line in shipped if 0 in line["success"]][:1]
    for line, place in shown:
        seed, row = line["first_seed"] + place, line["row"]
        frames, outcome = film.episode(pilot.load(line["method"], ROWS[row].world), seed, limit=limit)
        moving.append((f"{row}, seed {seed}: {outcome}", film.gif(frames)))
    return f"<h2>Episodes of shipped planners</h2>{films(moving)}" if moving else ""


def _missing(board: Board) -> str:
    parts = []
    for name, cells in suites().items():
        lacking = [cell for cell in cells if name != "tiny" and not board.has(cell)]
        if lacking:
            shown = ", ".join(cell.name for cell in lacking[:40]) + (" …" if len(lacking) > 40 else "")
            parts.append(f"<p><b>{name}</b>, {len(lacking)} of {len(cells)} cells: {escape(shown)}</p>")
    return f"<h2>Not run yet</h2>{''.join(parts) or '<p>Nothing: all suites are filled.</p>'}"


def _history(board: Board) -> str:
    names = ("method", "row", "seed", "demonstrations", "preset", "CPU-min", "when", "commit", "settings")
    keys = ("row", "seed", "demonstrations", "preset")
    rows = [
        (
            _name(line["method"]), *("" if line[key] is None else escape(str(line[key])) for key in keys),
            str(line["training"].get("cpu_minutes", "")), line["when"], line["commit"], line["config_hash"],
        )
        for line in board.lines
    ]  # fmt: skip
    return f"<h2>What was run when</h2><details><summary>all cells</summary>{table(names, rows)}</details>"
