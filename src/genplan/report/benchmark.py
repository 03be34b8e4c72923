"""One self-contained page of all benchmark results, with the paper's numbers; and what is still missing."""

from __future__ import annotations

from html import escape
from pathlib import Path
from statistics import fmean, stdev

from genplan import names
from genplan.bench.cell import DEMONSTRATIONS
from genplan.bench.store import ResultStore
from genplan.bench.suites import EFFICIENCY_ROWS, FEWER_DEMONSTRATIONS, TRAIN_SEEDS, suites
from genplan.bench.table import COMPARED, PRETRAINED, ResultTable, column_title
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.render.frames import episode_frames, gif
from genplan.render.numbers import format_number
from genplan.report import tables
from genplan.report.html import gifs, line_chart, muted, page, score_table, table
from genplan.report.protocol import protocol
from genplan.report.tables import method_label
from genplan.tasks.paper import ROWS, Row

SECTIONS = {
    "Trained and tested on the same task": ("TP", "IC"),
    "Adaptive: trained on one task, tested on others": ("AP",),
}
STALE_NOTE = (
    '<p class="soft">†: measured with other settings than this version of genplan has; shown, but neither '
    "included in means nor compared.</p>"
)
TIMES_NOTE = (
    '<p class="soft">Wall-clock times on one thread while another cell ran. Plans are made in one batch for all '
    "episodes that are not finished, so a single plan takes longer than its share shown here.</p>"
)


def benchmark_page(path: Path, out: Path) -> Path:
    """Write the page of a file of results."""
    store = ResultStore(path)
    if not store.results:
        raise UserError(f"{path} has no results; fill it with: genplan bench run main")
    results = ResultTable(store)
    parts = ["<h1>Planners from demonstrations, under one protocol</h1>", _scope(results), protocol()]
    for title, splits in SECTIONS.items():
        rows = [row for row in ROWS.values() if row.split in splits]
        parts += [f"<h2>{title}</h2>", tables.result_table(results, rows), tables.mean_table(results, rows)]
        parts.append(tables.difference_table(results, rows))
    parts += ["<h2>All rows</h2>", tables.mean_table(results, list(ROWS.values())), STALE_NOTE if results.stale else ""]
    sections = (_own_tasks, _other_metrics, _times, _train_seeds, _presets, _data_efficiency, _animations, _todo, _log)
    parts += [section(results) for section in sections]
    write_atomically(out, page("genplan: results", "".join(parts)).encode())
    return out


def _scope(results: ResultTable) -> str:
    trainings = {one.training["hash"]: one.training["cpu_minutes"] for one in results.results if one.training}
    days = sorted(one.when[:10] for one in results.results)
    hours = sum(trainings.values()) / 60
    return f"<p>{len(results.by_key)} cells, measured {days[0]} to {days[-1]}; {hours:.1f} CPU-hours of training.</p>"


def _own_tasks(results: ResultTable) -> str:
    """Tasks by themselves, each with its own metrics; means over those that have the same ones."""
    parts, found = ["<h2>Other tasks, each by itself</h2>"], results.own_rows()
    for row, metrics in found.items():
        parts.append(f"<h3>{escape(row)}</h3>{score_table(results.scores(row), metrics)}")
    for shown, metrics in {tuple(map(column_title, one)): one for one in found.values()}.items():
        rows = [Row("own", row, row) for row, of in found.items() if tuple(map(column_title, of)) == shown]
        parts.append(tables.mean_table(results, rows, metrics))
    return "".join(parts) if found else ""


def _other_metrics(results: ResultTable) -> str:
    """Whatever else the tasks measure, own metrics included: means over episodes, a row per cell."""
    cells = [one for one in results.by_key.values() if one.cell.row in ROWS]
    names = dict.fromkeys(name for one in cells for name in one.episodes)
    others = [name for name in names if name not in {metric.name for metric in COMPARED}]
    lines = [
        (
            f"{escape(one.cell.row)}, {method_label(results, one.cell.method)}",
            *(f"{results.value(one, name):.3g}" if name in one.episodes else "–" for name in others),
        )
        for one in cells
        if one.training and not results.is_stale(one)
    ]
    found = f"<details><summary>{len(lines)} cells</summary>{table(('', *map(escape, others)), lines)}</details>"
    return f"<h2>Other metrics</h2>{found}" if lines and others else ""


def _times(results: ResultTable) -> str:
    lines = [
        (
            f"{row}, {method_label(results, method)}{' †' * results.is_stale(one)}",
            f"{one.training['cpu_minutes']:.1f}", str(one.training["steps"]), f"{one.seconds:.0f}",
            f"{1000 * one.planner_seconds / max(one.num_plans, 1):.1f}", f"{fmean(one.episodes['steps']):.0f}",
        )
        for row in EFFICIENCY_ROWS
        for method in results.methods([ROWS[row]])
        if (one := results.find(method, row)) and one.training
    ]  # fmt: skip
    head = ("", "training (CPU-min)", "training steps", "eval time (s)", "ms per plan", "steps per episode")
    return f"<h2>Times</h2>{table(head, lines)}{TIMES_NOTE}" if lines else ""


def _train_seeds(results: ResultTable) -> str:
    """The variance between trainings: the same rows, or their mean, for several training seeds."""
    lines = []
    adaptive = [row.name for row in ROWS.values() if row.split == "AP"]
    for label, rows in (("MazeS4G1", ["MazeS4G1"]), ("adaptive rows", adaptive)):
        for method in ("GenPlan-M", "BC"):
            found = [[results.find_current(method, row, seed=seed) for row in rows] for seed in TRAIN_SEEDS]
            complete = [one for one in found if None not in one]
            if len(complete) > 1:
                entries = []
                for metric in COMPARED:
                    values = [value for one in complete if (value := results.mean(one, metric.name)) is not None]
                    text = ", ".join(format_number(value, metric.format) for value in values) or "–"
                    spread = format_number(stdev(values), metric.format) if len(values) > 1 else ""
                    entries.append(text + muted(f"standard deviation {spread}" if spread else ""))
                lines.append((f"{method}, {label}", str(len(complete)), *entries))
    return f"<h2>Training seeds</h2>{table(('', 'seeds', *map(column_title, COMPARED)), lines)}" if lines else ""


def _presets(results: ResultTable) -> str:
    """The paper's architecture and algorithm exactly, and ours."""
    lines = []
    for method in ("GenPlan-M", "GenPlan-U"):
        for row in ROWS.values():
            found = [results.find(method, row.name, preset=preset) for preset in ("paper", "default")]
            if found[0] is not None:
                entries = [tables.result_entry(results, one) for one in found]
                lines.append((f"{method}, {escape(row.name)}", *entries, f"<i>{row.paper[method]:g}</i>"))
    head = ("", "preset <code>paper</code>", "preset <code>default</code>", "the paper's number")
    return f"<h2>The paper's own settings</h2>{table(head, lines)}" if lines else ""


def _data_efficiency(results: ResultTable) -> str:
    charts, numbers = [], (*FEWER_DEMONSTRATIONS, DEMONSTRATIONS)
    for row in EFFICIENCY_ROWS:
        series = {}
        for method in ("GenPlan-M", "BC"):
            found = {number: results.find_current(method, row, demonstrations=number) for number in numbers}
            summaries = {number: results.summary(one, "success") for number, one in found.items() if one is not None}
            series[method] = [(number, 100 * one.value, 100 * one.low, 100 * one.high)
                              for number, one in summaries.items() if one is not None]  # fmt: skip
        if any(len(points) > 1 for points in series.values()):
            title = f"{row}: success (%) against demonstrations"
            charts.append(line_chart(title, series, (0, 50, 100), numbers, log=True))
    return f'<h2>Fewer demonstrations</h2><div class="grid">{"".join(charts)}</div>' if charts else ""


def _animations(results: ResultTable, number: int = 3, limit: int = 120) -> str:
    """Test episodes of pretrained planners: the first of some rows, and the first failure."""
    pretrained = [one for key, one in results.by_key.items() if key[0] == PRETRAINED and not results.is_stale(one)]
    failures = [(one, one.seeds[list(one.episodes["success"]).index(0)]) for one in pretrained
                if 0 in one.episodes["success"]]  # fmt: skip
    animations = []
    for one, seed in [(one, one.first_seed) for one in pretrained[:number]] + failures[:1]:
        planner = names.load_planner(one.cell.method, one.cell.task)
        frames, outcome = episode_frames(planner, one.cell.task, seed, limit=limit)
        animations.append((f"{one.cell.row}, seed {seed}: {outcome}", gif(frames)))
    return f"<h2>Episodes of pretrained planners</h2>{gifs(animations)}" if animations else ""


def _todo(results: ResultTable) -> str:
    parts = []
    for name, cells in suites().items():
        missing: dict[str, list[str]] = {}  # by method
        for cell in cells:
            if name != "tiny" and not results.has(cell):
                missing.setdefault(cell.method, []).append(escape(cell.name.removeprefix(f"{cell.method} · ")))
        if missing:
            number = sum(map(len, missing.values()))
            listed = (f"<li>{method_label(results, one)}: {', '.join(rows)}</li>" for one, rows in missing.items())
            parts.append(f"<p><b>{name}</b>, {number} of {len(cells)} cells</p><ul>{''.join(listed)}</ul>")
    return f"<h2>Not measured yet</h2>{''.join(parts) or '<p>Nothing: all suites are complete.</p>'}"


def _log(results: ResultTable) -> str:
    head = ("method", "row", "seed", "demonstrations", "preset", "CPU-min", "when", "commit")
    lines = [
        (
            method_label(results, one.cell.method), escape(one.cell.row), str(one.cell.seed),
            *((str(one.cell.demonstrations), escape(one.cell.preset)) if one.training else ("", "")),
            str(one.training.get("cpu_minutes", "")), escape(one.when), escape(one.commit),
        )
        for one in results.results
    ]  # fmt: skip
    listed = f"<details><summary>{len(lines)} results</summary>{table(head, lines)}</details>"
    return f"<h2>All results in the order of their measurement</h2>{listed}"
