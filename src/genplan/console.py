"""What the terminal shows: progress bars, tables of tasks, datasets and results, plans, a picture of all tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as ProgressTask
from rich.table import Table
from rich.text import Text

from genplan.errors import UserError

if TYPE_CHECKING:  # the heavy rooms are imported by the commands that use them
    from genplan.bench import BenchEvent, Cell, CellResult, ResultTable
    from genplan.data.store import Dataset
    from genplan.evaluate import Evaluation, Score
    from genplan.render.terminal import DenoisingTable, Segment
    from genplan.spec import PlanSpec
    from genplan.training import Progress as TrainingProgress
    from genplan.types import Episode, Metric

BLOCKS = "▁▂▃▄▅▆▇█"
TRAINING_COLUMNS = (("loss", "loss", ".2f"), ("acc", "accuracy/actions", ".0%"), ("entropy", "entropy", ".2f"))
ROWS_BESIDE = 3  # columns of a benchmark table that fit in 80 characters
GALLERY_COLUMNS, GALLERY_PIXELS, GALLERY_TITLE = 4, 320, 36


# --- progress --------------------------------------------------------------------------------------------------------


class Rate(ProgressColumn):
    def __init__(self, unit: str = "") -> None:
        super().__init__()
        self.unit = f" {unit}" if unit else ""

    def render(self, task: ProgressTask) -> Text:
        if not task.speed:
            return Text(f"…{self.unit}/s")
        return Text(f"{task.speed:.{0 if task.speed >= 10 else 1}f}{self.unit}/s")


@contextmanager
def progress(console: Console, label: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar with count, rate and remaining time; the function given takes how much was done since."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(escape(label), total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def training_progress(console: Console, step: int, steps: int) -> Iterator[Callable[[TrainingProgress], None]]:
    """A bar with steps per second, remaining time, the loss, the accuracy of corrupted actions, and the entropy."""
    columns = (MofNCompleteColumn(), BarColumn(12), Rate(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("first batches …", total=steps, completed=step)

        def on_progress(now: TrainingProgress) -> None:
            known = [(label, now.metrics[name], form) for label, name, form in TRAINING_COLUMNS if name in now.metrics]
            text = "  ".join(f"{label} {format(value, form)}" for label, value, form in known)
            bar.update(task, completed=now.step, description=text)

        yield on_progress


@contextmanager
def bench_progress(console: Console, minutes: Mapping[Cell, float]) -> Iterator[Callable[[BenchEvent], None]]:
    """One bar for all cells, in minutes of work, and one for each that is running."""
    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=1800) as bar:
        whole = bar.add_task("all", total=max(sum(minutes.values()), 1e-9))
        bars: dict[Cell, TaskID] = {}
        fractions: dict[Cell, float] = {}

        def on_event(event: BenchEvent) -> None:
            cell = event.cell
            if cell not in bars:
                bars[cell] = bar.add_task(escape(cell.name), total=1.0)
            bar.advance(whole, (event.fraction - fractions.get(cell, 0.0)) * minutes[cell])
            fractions[cell] = event.fraction
            bar.update(bars[cell], completed=event.fraction)
            if event.type != "progress":
                bar.update(bars[cell], visible=False)
                console.print(f"{event.type}: {cell.name}, {event.detail}", markup=False)

        yield on_event


# --- tasks -----------------------------------------------------------------------------------------------------------


def tasks_table() -> Table:
    from genplan.envs import ENVS

    table = Table(title="Tasks", box=SIMPLE)
    for column in ("task", "grid", "max steps", "mission"):
        is_text = column in ("task", "mission")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=column == "task")
    for entry in ENVS.values():
        table.add_row(entry.name, f"{entry.size}×{entry.size}", str(entry.max_steps), entry.description)
    return table


def rows_table() -> Table:
    from genplan.tasks.paper import ROWS

    table = Table(title="The paper's rows and settings", box=SIMPLE, padding=(0, 0, 0, 1))
    for column in ("", "row", "trained on", "horizon", "context", "iterations", "entropy"):
        table.add_column(column, justify="left" if column in ("", "row", "trained on") else "right", no_wrap=True)
    last = ""
    for row in ROWS.values():
        if row.split != last and last:
            table.add_section()
        last = row.split
        numbers = (row.horizon, row.context, row.iterations, row.entropy)
        table.add_row(row.split, row.name, row.train_task, *(str(number) for number in numbers))
    return table


def write_gallery(path: Path, seed: int = 1234) -> None:
    """A picture of every task, as PNG or PDF."""
    import io

    from PIL import Image, ImageDraw

    from genplan.envs import ENVS, make_env
    from genplan.files import write_atomically

    if path.suffix not in (".png", ".pdf"):
        raise UserError(f"the gallery is to be written to {path}, expected a name that ends in .png or .pdf")
    side, columns = GALLERY_PIXELS, GALLERY_COLUMNS
    height = side + GALLERY_TITLE
    sheet = Image.new("RGB", (columns * (side + 12) + 12, -(-len(ENVS) // columns) * (height + 12) + 12), "white")
    draw = ImageDraw.Draw(sheet)
    for index, entry in enumerate(ENVS.values()):
        env = make_env(entry.name, render_mode="rgb_array", highlight=False)
        env.reset(seed=seed)
        x, y = 12 + index % columns * (side + 12), 12 + index // columns * (height + 12)
        draw.text((x, y), f"{entry.name}, {entry.size}×{entry.size}", fill="black", font_size=14)
        draw.text((x, y + 18), env.mission[:58], fill=(90, 90, 90), font_size=11)
        picture = Image.fromarray(env.render()).resize((side, side), Image.Resampling.LANCZOS)
        sheet.paste(picture, (x, y + GALLERY_TITLE))
        env.close()
    buffer = io.BytesIO()
    sheet.save(buffer, path.suffix[1:].upper())
    write_atomically(path, buffer.getvalue())


# --- datasets --------------------------------------------------------------------------------------------------------


def histogram(values: Sequence[int], bins: int = 24) -> str:
    """A small histogram in one line of text."""
    counts, edges = np.histogram(values, bins=min(bins, max(max(values) - min(values), 1)))
    bars = "".join(BLOCKS[round((len(BLOCKS) - 1) * count / counts.max())] if count else " " for count in counts)
    return f"{edges[0]:.0f} {bars} {edges[-1]:.0f}"


def dataset_table(dataset: Dataset, fit: Mapping[str, str | None]) -> Table:
    """What a dataset holds; `fit`: for every task, why it does not fit, or None if it does."""
    episodes, spec, metadata = dataset.episodes, dataset.spec, dataset.metadata
    lengths = [len(episode) for episode in episodes]
    table = Table(title=escape(dataset.name), show_header=False)
    table.add_column(style="bold")
    table.add_column()
    seeds = [episode.seed for episode in episodes if episode.seed is not None]
    table.add_row("episodes", f"{len(episodes)}, {sum(e.success for e in episodes)} of them successful")
    table.add_row("seeds", f"{min(seeds)}–{max(seeds)}" if seeds else "not recorded")
    if "expert" in metadata:
        versions = ", ".join(f"{name} {version}" for name, version in metadata.get("versions", {}).items())
        origin = f"{metadata['expert']} on {metadata.get('task')}, collected {metadata.get('collected')}, {versions}"
        table.add_row("expert", escape(origin))
    table.add_row("steps", f"{sum(lengths)}; per episode {np.mean(lengths):.1f}, at most {max(lengths)}")
    table.add_row("lengths", histogram(lengths))
    table.add_row("actions", escape(_actions(spec, episodes)))
    table.add_row("rewards", _rewards(episodes))
    if infos := sorted({name for episode in episodes for name in episode.infos}):
        table.add_row("infos", escape(", ".join(infos)))
    if (words := spec.words_field) is not None:
        missions = Counter(spec.fields[words].decode(episode.observations[words][0]) for episode in episodes)
        examples = ", ".join(f"'{mission}' ×{count}" for mission, count in missions.most_common(3))
        table.add_row("missions", escape(f"{len(missions)} distinct; {examples}"))
    types = Counter(goal.type for episode in episodes for goal in episode.subgoals)
    table.add_row("sub-goals", ", ".join(f"{type_} {count}" for type_, count in types.items()) or "none recorded")
    table.add_row("fields", escape(_fields(spec)))
    streams = [f"{name} {stream.size}{_times(stream.shape)}" for name, stream in spec.streams.items()]
    table.add_row("streams", ", ".join([*streams, "actions"]))
    table.add_row("digest", dataset.digest)
    for task, reason in fit.items():
        table.add_row(escape(f"fits {task}"), "[green]yes[/]" if reason is None else f"[red]no[/]: {escape(reason)}")
    return table


def _fields(spec: PlanSpec) -> str:
    return ", ".join(f"{name} ({one.kind}{' ' if one.shape else ''}{'×'.join(map(str, one.shape))})"
                     for name, one in spec.fields.items())  # fmt: skip


def _times(shape: Sequence[int]) -> str:
    return "".join(f" × {number}" for number in shape)


def _actions(spec: PlanSpec, episodes: Sequence[Episode]) -> str:
    done = np.concatenate([episode.actions for episode in episodes])
    if spec.actions.n is None:
        columns = zip(done.min(0), done.max(0), strict=True)
        return f"{done.shape[1]} numbers, of " + ", ".join(f"{low:.3g} to {high:.3g}" for low, high in columns)
    counts = np.bincount(done, minlength=spec.actions.n)
    return ", ".join(f"{spec.actions.name(action)} {count}" for action, count in enumerate(counts))


def _rewards(episodes: Sequence[Episode]) -> str:
    returns = [float(episode.rewards.sum()) for episode in episodes if not np.isnan(episode.rewards).any()]
    if not returns:
        return "unknown"
    share = "" if len(returns) == len(episodes) else f"known in {len(returns)} episodes; "
    return f"{share}return {np.mean(returns):.3g} on average, {min(returns):.3g} to {max(returns):.3g}"


# --- results ---------------------------------------------------------------------------------------------------------


def evaluation_table(name: str, evaluation: Evaluation) -> Table:
    """One row per planner, one column per metric of the task; 80 characters are enough for grid tasks."""
    from genplan.metrics import resolve

    task, seeds = evaluation.task, [rollout.seed for rollout in evaluation.rollouts]
    title = escape(f"{name} on {task.name}, seeds {seeds[0]}–{seeds[-1]}")
    scores = {name: evaluation.planner, "random policy": evaluation.random, "expert": evaluation.expert}
    known = {label: score for label, score in scores.items() if score is not None}
    metrics = [one for one in resolve(task) if any(score.metrics[one.name] is not None for score in known.values())]
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("", overflow="fold")
    for metric in metrics:
        # Words of a header stand below each other.
        table.add_column(escape((metric.label or metric.name).replace(" ", "\n")), justify="right", no_wrap=True)
    for header in ("planner\ntime", "env\ntime"):
        table.add_column(header, justify="right", no_wrap=True)
    for label, score in known.items():
        entries = [_entry(score, metric, is_headline=metric is metrics[0]) for metric in metrics]
        times = (score.planner_seconds, score.seconds - score.planner_seconds)
        table.add_row(escape(label), *entries, *(f"{seconds:.1f} s" for seconds in times))
    return table


def _entry(score: Score, metric: Metric, is_headline: bool) -> str:
    """A value; of the headline metric, with its 95 % interval below."""
    if (summary := score.metrics[metric.name]) is None:
        return ""
    value = format(summary.value, metric.format)
    if not is_headline:
        return value
    if metric.format.endswith("%"):
        return f"{value}\n[dim]{100 * summary.low:.0f}–{100 * summary.high:.0f}[/]"
    return f"{value}\n[dim]{format(summary.low, metric.format)}–{format(summary.high, metric.format)}[/]"


def records_table(title: str, records: Mapping[str, Mapping[str, Any]]) -> Table:
    """Records of evaluations (`evaluate.to_record`, results of cards) beside each other."""
    from genplan.metrics import METRICS

    table = Table("", title=escape(title))
    for label in records:
        table.add_column(escape(label), justify="right")
    for name in dict.fromkeys(name for record in records.values() for name in record["metrics"]):
        summaries = [record["metrics"].get(name) for record in records.values()]
        form, label = (METRICS[name].format, METRICS[name].label) if name in METRICS else (".3f", "")
        table.add_row(escape(label or name), *("" if one is None else format(one["value"], form) for one in summaries))
    return table


def bench_tables(results: ResultTable, rows: Sequence[str]) -> Iterator[Table]:
    """Success in per cent, and SPL, of everything that has a cell in these rows."""
    from genplan.bench import CONTROLS
    from genplan.tasks.paper import ROWS

    for first in range(0, len(rows), ROWS_BESIDE):
        shown = [ROWS[row] for row in rows[first : first + ROWS_BESIDE]]
        table = Table(box=SIMPLE, padding=(0, 0, 0, 1))
        table.add_column("success in %, SPL", overflow="fold")
        for row in shown:
            table.add_column(row.name, justify="right", no_wrap=True)
        for method in (*results.methods(shown), *CONTROLS):
            found = [results.find(method, row.name) for row in shown]
            if any(found):
                table.add_row(escape(results.label(method)), *(_bench_entry(results, one) for one in found))
        yield table


def _bench_entry(results: ResultTable, result: CellResult | None) -> str:
    if result is None:
        return ""
    success, spl = (results.value(result, metric) for metric in ("success", "spl"))
    parts = ["" if success is None else f"{100 * success:.1f}", "" if spl is None else f"{spl:.3f}"]
    return " ".join(part for part in (*parts, "†" if results.is_stale(result) else "") if part)


# --- plans -----------------------------------------------------------------------------------------------------------


def segments(lines: Sequence[Sequence[Segment]]) -> Text:
    """Lines of texts with their styles, as `genplan.render.terminal` gives them."""
    text = Text()
    for index, line in enumerate(lines):
        text.append("\n" if index else "")
        for part, style in line:
            text.append(part, style)
    return text


def denoising(table: DenoisingTable) -> Table:
    shown = Table(title=table.title, box=SIMPLE, padding=(0, 0, 0, 1))
    for column in table.columns:
        shown.add_column(column, justify="right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*(Text(part, style) for part, style in row))
    return shown
