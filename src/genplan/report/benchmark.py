"""One self-contained page of all benchmark results, with the paper's numbers; and what is still missing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean, stdev

from genplan import names
from genplan.bench.cell import DEMONSTRATIONS
from genplan.bench.store import ResultStore
from genplan.bench.suites import EFFICIENCY_ROWS, FEWER_DEMONSTRATIONS, TRAIN_SEEDS, suites
from genplan.bench.table import PRETRAINED, ResultTable
from genplan.errors import UserError
from genplan.files import write_atomically
from genplan.metrics import Summary
from genplan.render.frames import episode_frames, gif
from genplan.report.chart import interval_chart
from genplan.report.html import images, muted, page, table
from genplan.report.protocol import protocol
from genplan.report.tables import (
    LABELS,
    difference_table,
    format_value,
    mean_table,
    method_label,
    result_entry,
    result_table,
    stale_mark,
)
from genplan.tasks.paper import ROWS

SECTIONS = {
    "Trained and tested on the same task": ("TP", "IC"),
    "Adaptive: trained on one task, tested on others": ("AP",),
}


def benchmark_page(path: Path, out: Path) -> Path:
    """Write the page of a file of results."""
    store = ResultStore(path) if path.exists() else None
    if store is None or not store.results:
        raise UserError(f"{path} has no results; fill it with: genplan bench run main")
    results = ResultTable(store)
    parts = ["<h1>Planners from demonstrations, under one protocol</h1>", _scope(results), protocol()]
    for title, splits in SECTIONS.items():
        rows = [row for row in ROWS.values() if row.split in splits]
        parts += [f"<h2>{title}</h2>", result_table(results, rows), mean_table(results, rows)]
        parts.append(difference_table(results, rows))
    parts += ["<h2>All rows</h2>", mean_table(results, list(ROWS.values()))]
    if results.stale:
        parts.append(
            '<p class="soft">†: measured with other settings than this version of genplan has; shown, but neither '
            "included in means nor compared.</p>"
        )
    for part in (_times, _train_seeds, _presets, _data_efficiency, _animations, _todo, _log):
        parts.append(part(results))
    write_atomically(out, page("genplan: results", "".join(parts)).encode())
    return out


def _scope(results: ResultTable) -> str:
    trainings = {one.training["hash"]: one.training["cpu_minutes"] for one in results.results if one.training}
    days = sorted(one.when[:10] for one in results.results)
    hours = sum(trainings.values()) / 60
    return f"<p>{len(results.by_key)} cells, measured {days[0]} to {days[-1]}; {hours:.1f} CPU-hours of training.</p>"


def _times(results: ResultTable) -> str:
    lines = []
    for row in EFFICIENCY_ROWS:
        for method in results.methods([ROWS[row]]):
            if (one := results.find(method, row)) and one.training:
                entries = (
                    f"{one.training['cpu_minutes']:.1f}", str(one.training["steps"]), f"{one.seconds:.0f}",
                    f"{1000 * one.planner_seconds / max(one.num_plans, 1):.1f}",
                    f"{fmean(one.episodes['steps']):.0f}",
                )  # fmt: skip
                lines.append((f"{row}, {method_label(results, method)}{stale_mark(results, one)}", *entries))
    head = ("", "training (CPU-min)", "training steps", "eval time (s)", "ms per plan", "steps per episode")
    note = (
        '<p class="soft">Wall-clock times on one thread while another cell ran. Plans are made in one batch for all '
        "episodes that are not finished, so a single plan takes longer than its share shown here.</p>"
    )
    return f"<h2>Times</h2>{table(head, lines)}{note}" if lines else ""


def _train_seeds(results: ResultTable) -> str:
    """The variance between trainings: the same rows, or their mean, for several training seeds."""
    lines = []
    adaptive = [row.name for row in ROWS.values() if row.split == "AP"]
    for label, rows in (("MazeS4G1", ["MazeS4G1"]), ("adaptive rows", adaptive)):
        for method in ("GenPlan-M", "BC"):
            by_metric = {metric: _means(results, method, rows, metric) for metric in LABELS}
            number = len(by_metric["success"])
            if number > 1:
                spread = [_spread(metric, values) for metric, values in by_metric.items()]
                lines.append((f"{method}, {label}", str(number), *spread))
    return f"<h2>Training seeds</h2>{table(('', 'seeds', *LABELS.values()), lines)}" if lines else ""


def _means(results: ResultTable, method: str, rows: Sequence[str], metric: str) -> list[float]:
    """The mean over rows for every training seed of which all rows were measured."""
    means = []
    for seed in TRAIN_SEEDS:
        values = [results.value(results.find_current(method, row, seed=seed), metric) for row in rows]
        known = [value for value in values if value is not None]
        if len(known) == len(rows):
            means.append(fmean(known))
    return means


def _spread(metric: str, values: Sequence[float]) -> str:
    deviation = muted(f"standard deviation {format_value(metric, stdev(values))}") if len(values) > 1 else ""
    return (", ".join(format_value(metric, value) for value in values) or "–") + deviation


def _presets(results: ResultTable) -> str:
    """The paper's architecture and algorithm exactly, and ours."""
    lines = []
    for method in ("GenPlan-M", "GenPlan-U"):
        for row in ROWS.values():
            found = [results.find(method, row.name, preset=preset) for preset in ("paper", "default")]
            if found[0] is not None:
                entries = [result_entry(results, one) for one in found]
                lines.append((f"{method}, {escape(row.name)}", *entries, f"<i>{row.paper[method]:g}</i>"))
    head = ("", "preset <code>paper</code>", "preset <code>default</code>", "the paper's number")
    return f"<h2>The paper's own settings</h2>{table(head, lines)}" if lines else ""


def _data_efficiency(results: ResultTable) -> str:
    charts = []
    for row in EFFICIENCY_ROWS:
        series: dict[str, list[tuple[int, Summary]]] = {}
        for method in ("GenPlan-M", "BC"):
            series[method] = []
            for number in (*FEWER_DEMONSTRATIONS, DEMONSTRATIONS):
                one = results.find_current(method, row, demonstrations=number)
                if one is not None and (summary := results.summary(one, "success")) is not None:
                    series[method].append((number, summary))
        if any(len(points) > 1 for points in series.values()):
            charts.append(interval_chart(f"{row}: success (%) against demonstrations", series))
    return f'<h2>Fewer demonstrations</h2><div class="grid">{"".join(charts)}</div>' if charts else ""


def _animations(results: ResultTable, number: int = 3, limit: int = 120) -> str:
    """Test episodes of pretrained planners: the first of some rows, and the first failure."""
    pretrained = [one for key, one in results.by_key.items() if key[0] == PRETRAINED and not results.is_stale(one)]
    chosen = [(one, one.first_seed) for one in pretrained[:number]]
    failures = [(one, one.seeds[list(one.episodes["success"]).index(0)]) for one in pretrained
                if 0 in one.episodes["success"]]  # fmt: skip
    animations = []
    for one, seed in chosen + failures[:1]:
        planner = names.load_planner(one.cell.method, one.cell.task)
        frames, outcome = episode_frames(planner, one.cell.task, seed, limit=limit)
        animations.append((f"{one.cell.row}, seed {seed}: {outcome}", gif(frames)))
    return f"<h2>Episodes of pretrained planners</h2>{images(animations)}" if animations else ""


def _todo(results: ResultTable) -> str:
    parts = []
    for name, cells in suites().items():
        missing = [cell for cell in cells if name != "tiny" and not results.has(cell)]
        if missing:
            by_method: dict[str, list[str]] = {}
            for cell in missing:
                by_method.setdefault(cell.method, []).append(cell.name.removeprefix(f"{cell.method} · "))
            listed = "".join(
                f"<li>{method_label(results, method)}: {escape(', '.join(rows))}</li>"
                for method, rows in by_method.items()
            )
            parts.append(f"<p><b>{name}</b>, {len(missing)} of {len(cells)} cells</p><ul>{listed}</ul>")
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
    return f"<h2>All results in the order of their measurement</h2><details><summary>{len(lines)} results</summary>" \
           f"{table(head, lines)}</details>"  # fmt: skip
