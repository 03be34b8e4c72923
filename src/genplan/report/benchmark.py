"""One self-contained page of all benchmark results: what there is, beside the paper's numbers; and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean, stdev

from genplan.bench import Results, suites
from genplan.bench.board import Board
from genplan.bench.suites import SEEDS
from genplan.checkpoint import write_atomically
from genplan.errors import UserError
from genplan.evaluate import Score
from genplan.page import films, page, table
from genplan.report.chart import chart
from genplan.report.tables import differences, means, shown_name, success, success_cell
from genplan.tasks.table import ROWS

CHAPTERS = {
    "Trained and tested in the same world": ("TP", "IC"),
    "Adaptive: demonstrated in one room, tested in other worlds": ("AP",),
}
ABOUT = """<p>Every method learns from the same 1,000 demonstrations of the stock bot within the same budget
(15 CPU-minutes, 40 on S7, BlockUnlock and KeyCorridor), sees maps through the same encoder, remembers its last step,
where it has been and what it tried, plans anew after every action, draws at temperature 0.5, and is judged on the same
250 seeds (1234–1483) within the paper's step limits; the paper executes whole plans. Each had the same trials on
MazeS4G1; what differs from world to world (haste, clutter, stitching) was chosen on validation seeds with GenPlan-M,
and holds for all, but that LEAP does without its last step in the adaptive rows, where it harms LEAP.
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
goals are; in the adaptive rows that is a handicap, for demonstrations there hardly ever lead away from a goal, so that
who is told it learns to follow its bearing, and the map less. Walk: the best of three blind walks; untrained:
GenPlan-M with a network that has learnt nothing.</p>"""


def benchmark_page(results: Path, out: Path) -> Path:
    if not results.exists():
        raise UserError(f"there is no {results}; fill it with: genplan bench run main")
    board = Board(Results(results))
    if not board.lines:
        raise UserError(f"{results} has no cells; fill it with: genplan bench run main")
    parts = ["<h1>Planners from demonstrations, under one protocol</h1>", _extent(board), ABOUT]
    for title, families in CHAPTERS.items():
        rows = [row for row in ROWS.values() if row.family in families]
        parts += [f"<h2>{title}</h2>", success(board, rows), means(board, rows), differences(board, rows)]
    parts += ["<h2>All worlds together</h2>", means(board, list(ROWS.values()))]
    if board.old:
        parts.append(
            '<p class="soft">†: measured with other settings than this version of genplan has; shown, but neither '
            "counted in means nor compared.</p>"
        )
    for part in (_times, _seeds, _presets, _demonstrations, _episodes, _missing, _history):
        parts.append(part(board))
    write_atomically(out, page("genplan: results", "".join(parts)).encode())
    return out


def _extent(board: Board) -> str:
    trained = {line["training"]["hash"]: line["training"]["cpu_minutes"] for line in board.lines if line["training"]}
    days = sorted(line["when"][:10] for line in board.lines)
    hours = sum(trained.values()) / 60
    return f"<p>{len(board.newest)} cells, measured {days[0]} to {days[-1]}; {hours:.1f} CPU-hours of training.</p>"


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
                lines.append((f"{name}, {shown_name(board, method)}{board.mark(line)}", *cells))
    head = ("", "training, CPU-min", "steps", "all episodes, s", "ms per plan", "steps per episode")
    note = (
        '<p class="soft">Seconds by the clock, on one thread beside another cell; plans are made for all episodes that '
        "still run at once, 250 at first, so that a single one takes longer than is told here.</p>"
    )
    return f"<h2>Times</h2>{table(head, lines)}{note}" if lines else ""


def _seeds(board: Board) -> str:
    """What chance does in training: the same cells, or the same rows in the mean, of several training seeds."""
    lines = []
    adaptive = [row.name for row in ROWS.values() if row.family == "AP"]
    for what, rows in (("MazeS4G1", ["MazeS4G1"]), ("adaptive rows", adaptive)):
        for method in ("GenPlan-M", "BC"):
            found = [_mean(board, method, rows, seed) for seed in (0, *SEEDS)]
            solved = [100 * success for success, _ in filter(None, found)]
            spl = [spl for _, spl in filter(None, found) if spl is not None]
            if len(solved) > 1:
                lines.append((f"{method}, {what}", str(len(solved)), _spread(solved, 1), _spread(spl, 3)))
    head = ("", "trainings", "per cent solved, each", "SPL, each")
    return f"<h2>Training seeds</h2>{table(head, lines)}" if lines else ""


def _mean(board: Board, method: str, rows: Sequence[str], seed: int) -> tuple[float, float | None] | None:
    """Success and SPL of one training, in the mean over rows; None if one has not been run."""
    lines = [line for row in rows if (line := board.line(method, row, seed)) and not board.mark(line)]
    if len(lines) < len(rows):
        return None
    scores = [board.score(line) for line in lines]
    spl = [score.spl for score in scores if score.spl is not None]
    return fmean(score.success for score in scores), fmean(spl) if len(spl) == len(rows) else None


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    spread = f'<br><span class="soft">deviation {stdev(values):.{digits}f}</span>' if len(values) > 1 else ""
    return ", ".join(f"{value:.{digits}f}" for value in values) + spread


def _presets(board: Board) -> str:
    """The paper's architecture and algorithm to the letter, beside ours."""
    lines = []
    for method in ("GenPlan-M", "GenPlan-U"):
        for row in ROWS.values():
            kinds = {preset: board.line(method, row.name, preset=preset) for preset in ("paper", "default")}
            if kinds["paper"] is not None:
                shown = [success_cell(board, line) for line in kinds.values()]
                lines.append((f"{method}, {escape(row.name)}", *shown, f"<i>{row.paper[method]:g}</i>"))
    head = ("", "preset <code>paper</code>", "preset <code>default</code>", "the paper")
    return f"<h2>The paper to the letter</h2>{table(head, lines)}" if lines else ""


def _demonstrations(board: Board) -> str:
    charts = []
    for row in ("MazeS4G1", "KeyCorridorS3R3"):
        series: dict[str, list[tuple[int, Score]]] = {}
        for method in ("GenPlan-M", "BC"):
            found = [(number, board.line(method, row, demonstrations=number)) for number in (30, 100, 300, 1000)]
            series[method] = [(number, board.score(line)) for number, line in found if line and not board.mark(line)]
        if any(len(points) > 1 for points in series.values()):
            charts.append(chart(f"{row}: per cent solved against demonstrations", series))
    return f'<h2>Fewer demonstrations</h2><div class="grid">{"".join(charts)}</div>' if charts else ""


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
            by_method: dict[str, list[str]] = {}
            for cell in lacking:
                by_method.setdefault(cell.method, []).append(cell.name.removeprefix(f"{cell.method} · "))
            listed = "".join(
                f"<li>{shown_name(board, method)}: {escape(', '.join(each))}</li>" for method, each in by_method.items()
            )
            parts.append(f"<p><b>{name}</b>, {len(lacking)} of {len(cells)} cells</p><ul>{listed}</ul>")
    return f"<h2>Not run yet</h2>{''.join(parts) or '<p>Nothing: all suites are filled.</p>'}"


def _history(board: Board) -> str:
    names = ("method", "row", "seed", "demonstrations", "preset", "CPU-min", "when", "commit", "settings")
    keys = ("row", "seed", "demonstrations", "preset")
    rows = [
        (
            shown_name(board, line["method"]), *("" if line[key] is None else escape(str(line[key])) for key in keys),
            str(line["training"].get("cpu_minutes", "")), line["when"], line["commit"], line["config_hash"],
        )
        for line in board.lines
    ]  # fmt: skip
    return f"<h2>What was run when</h2><details><summary>all cells</summary>{table(names, rows)}</details>"
