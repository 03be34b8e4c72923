"""What the terminal shows: progress bars, tables of tasks, datasets and results, plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import progress as bars
from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:  # the heavy rooms are imported by the commands that use them
    from genplan.bench import BenchEvent, Cell, ResultTable
    from genplan.data.store import Dataset
    from genplan.evaluate import Evaluation, Scores
    from genplan.render.terminal import Segment
    from genplan.spec import PlanSpec
    from genplan.training import Progress as TrainingProgress
    from genplan.types import Episode, Metric

BLOCKS = "▁▂▃▄▅▆▇█"
TRAINING_COLUMNS = (("loss", "loss", ".2f"), ("acc", "accuracy/actions", ".0%"), ("entropy", "entropy", ".2f"))
ROWS_BESIDE = 3  # columns of a benchmark table that fit in 80 characters

_number = partial(Column, justify="right", no_wrap=True)


class Rate(bars.ProgressColumn):
    def __init__(self, unit: str = "") -> None:
        super().__init__()
        self.unit = f" {unit}" if unit else ""

    def render(self, task: bars.Task) -> Text:
        speed = f"{task.speed:.{0 if task.speed >= 10 else 1}f}" if task.speed else "…"
        return Text(f"{speed}{self.unit}/s")


@contextmanager
def progress(console: Console, label: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar with count, rate and remaining time; the function given takes how much was done since."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        yield partial(bar.advance, bar.add_task(escape(label), total=total))


@contextmanager
def training_progress(console: Console, step: int, steps: int) -> Iterator[Callable[[TrainingProgress], None]]:
    """A bar with steps per second, remaining time, the loss, the accuracy of corrupted actions, and the entropy."""
    columns = (MofNCompleteColumn(), BarColumn(12), Rate(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("first batches …", total=steps, completed=step)

        def on_progress(now: TrainingProgress) -> None:
            known = (f"{label} {now.metrics[name]:{form}}" for label, name, form in TRAINING_COLUMNS
                     if name in now.metrics)  # fmt: skip
            bar.update(task, completed=now.step, description="  ".join(known))

        yield on_progress


@contextmanager
def bench_progress(console: Console, minutes: Mapping[Cell, float]) -> Iterator[Callable[[BenchEvent], None]]:
    """One bar for all cells, in minutes of work, and one for each that is running."""
    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=1800) as bar:
        whole = bar.add_task("all", total=max(sum(minutes.values()), 1e-9))
        running: dict[Cell, bars.TaskID] = {}
        fractions: dict[Cell, float] = {}

        def on_event(event: BenchEvent) -> None:
            cell = event.cell
            if cell not in running:
                running[cell] = bar.add_task(escape(cell.name), total=1.0)
            bar.advance(whole, (event.fraction - fractions.get(cell, 0.0)) * minutes[cell])
            fractions[cell] = event.fraction
            bar.update(running[cell], completed=event.fraction, visible=event.type == "progress")
            if event.type != "progress":
                console.print(f"{event.type}: {cell.name}, {event.detail}", markup=False)

        yield on_event


def tasks_table() -> Table:
    from genplan.envs import ENVS

    columns = (Column("task", no_wrap=True), _number("grid"), _number("max steps"), "mission")
    table = Table(*columns, title="Tasks", box=SIMPLE)
    for entry in ENVS.values():
        table.add_row(entry.name, f"{entry.size}×{entry.size}", str(entry.max_steps), entry.description)
    return table


def rows_table() -> Table:
    from genplan.tasks.paper import ROWS

    columns = [Column(name, no_wrap=True) for name in ("", "row", "trained on")]
    columns += map(_number, ("horizon", "context", "iterations", "entropy"))
    table = Table(*columns, title="The paper's rows and settings", box=SIMPLE, padding=(0, 0, 0, 1))
    for split, rows in groupby(ROWS.values(), lambda row: row.split):
        for row in rows:
            numbers = (row.horizon, row.context, row.iterations, row.entropy)
            table.add_row(split, row.name, row.train_task, *map(str, numbers))
        table.add_section()
    return table


def histogram(values: Sequence[int], bins: int = 24) -> str:
    """A small histogram in one line of text."""
    counts, edges = np.histogram(values, bins=min(bins, max(max(values) - min(values), 1)))
    bars = "".join(BLOCKS[round((len(BLOCKS) - 1) * count / counts.max())] if count else " " for count in counts)
    return f"{edges[0]:.0f} {bars} {edges[-1]:.0f}"


def dataset_table(dataset: Dataset, fit: Mapping[str, str | None]) -> Table:
    """What a dataset holds; `fit`: for every task, why it does not fit, or None if it does."""
    episodes, spec, metadata = dataset.episodes, dataset.spec, dataset.metadata
    lengths = [len(episode) for episode in episodes]
    seeds = [episode.seed for episode in episodes if episode.seed is not None]
    versions = ", ".join(f"{name} {version}" for name, version in metadata.get("versions", {}).items())
    collected = f"{metadata.get('expert')} on {metadata.get('task')}, collected {metadata.get('collected')}, {versions}"
    streams = [" × ".join(map(str, (f"{name} {one.size}", *one.shape))) for name, one in spec.streams.items()]
    fields = [f"{name} ({' '.join(filter(None, (one.kind, '×'.join(map(str, one.shape)))))})"
              for name, one in spec.fields.items()]  # fmt: skip
    rows = {
        "episodes": f"{len(episodes)}, {sum(episode.success for episode in episodes)} of them successful",
        "seeds": f"{min(seeds)}–{max(seeds)}" if seeds else "not recorded",
        "expert": collected if "expert" in metadata else "",
        "steps": f"{sum(lengths)}; per episode {np.mean(lengths):.1f}, at most {max(lengths)}",
        "lengths": histogram(lengths),
        "actions": _actions(spec, episodes),
        "rewards": _rewards(episodes),
        "infos": ", ".join(sorted({name for episode in episodes for name in episode.infos})),
        "missions": _missions(spec, episodes),
        "sub-goals": _counts(goal.type for episode in episodes for goal in episode.subgoals) or "none recorded",
        "fields": ", ".join(fields),
        "streams": ", ".join([*streams, "actions"]),
        "digest": dataset.digest,
    }
    table = Table(Column(style="bold"), "", title=escape(dataset.name), show_header=False)
    for name, text in rows.items():
        if text:
            table.add_row(name, escape(text))
    for task, reason in fit.items():
        table.add_row(escape(f"fits {task}"), "[green]yes[/]" if reason is None else f"[red]no[/]: {escape(reason)}")
    return table


def import_table(replayed: Sequence[tuple[Episode, Mapping[str, Any]]]) -> Table:
    """What came of recorded actions in the simulator, at the end of every episode and at most, per info."""
    table = Table("episode", "steps", title="replayed in the simulator: at the end (at most)")
    for name in replayed[0][1]:
        table.add_column(escape(name), justify="right")
    for number, (episode, infos) in enumerate(replayed):
        values = [f"{column[-1]:.3g} ({column.max():.3g})" for column in infos.values()]
        table.add_row(str(number), str(len(episode)), *values)
    return table


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(names).items())


def _missions(spec: PlanSpec, episodes: Sequence[Episode]) -> str:
    if (words := spec.words_field) is None:
        return ""
    missions = Counter(spec.fields[words].decode(episode.observations[words][0]) for episode in episodes)
    return f"{len(missions)} distinct; " + ", ".join(f"'{one}' ×{count}" for one, count in missions.most_common(3))


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


def evaluation_table(name: str, evaluation: Evaluation) -> Group:
    """One row per planner, one column per metric of the task; 80 characters are enough for grid tasks."""
    from genplan.metrics import PLAN_METRICS, resolve

    seeds, scores = [rollout.seed for rollout in evaluation.rollouts], evaluation.scores
    times = {label: (one.planner_seconds, one.seconds - one.planner_seconds) for label, one in scores.items()}
    found = {label: score.metrics for label, score in scores.items()}
    title = f"{name} on {evaluation.task.name}, seeds {seeds[0]}–{seeds[-1]}"
    metrics = resolve(evaluation.task)
    parts = [_scores(title, found, [one for one in metrics if one.name not in PLAN_METRICS], times)]
    of_plans = {
        label: summaries for label, summaries in found.items() if any(summaries.get(one) for one in PLAN_METRICS)
    }
    if of_plans:
        plans = [one for one in metrics if one.name in PLAN_METRICS]
        parts.append(_scores("the first plan of every episode, executed by itself", of_plans, plans))
    return Group(*parts)


def _scores(
    title: str, scores: Scores, metrics: Sequence[Metric], times: Mapping[str, tuple[float, float]] | None = None
) -> Table:
    """Planners below each other; beside their times there is room for one interval, that of the headline."""
    from genplan.evaluate import score_rows

    headers, rows = score_rows(scores, metrics, whole_shares=True)
    words = (escape(one).replace(" ", "\n") for one in (*headers, *(("planner time", "env time") if times else ())))
    columns = [Column("", overflow="fold"), *map(_number, words)]  # words below each other
    table = Table(*columns, title=escape(title), box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for label, texts in rows.items():
        entries = [value if not interval or (times and number) else f"{value}\n[dim]{interval}[/]"
                   for number, (value, interval) in enumerate(texts)]  # fmt: skip
        table.add_row(escape(label), *entries, *(f"{seconds:.1f} s" for seconds in (times or {}).get(label, ())))
    return table


def records_table(title: str, records: Mapping[str, Mapping[str, Any]]) -> Table:
    """Records of evaluations (`evaluate.to_record`, results of cards) beside each other."""
    from genplan.metrics import METRICS

    table = Table("", *(_number(escape(label)) for label in records), title=escape(title))
    for name in dict.fromkeys(name for record in records.values() for name in record["metrics"]):
        summaries = [record["metrics"].get(name) for record in records.values()]
        form, label = (METRICS[name].format, METRICS[name].label) if name in METRICS else (".3f", "")
        table.add_row(escape(label or name), *("" if one is None else format(one["value"], form) for one in summaries))
    return table


def bench_tables(results: ResultTable, rows: Sequence[str]) -> Iterator[Table]:
    """Success in per cent, and SPL, of everything that has a cell in these rows; of other tasks, their own metrics."""
    from genplan.bench import CONTROLS
    from genplan.bench.table import COMPARED, label
    from genplan.tasks.paper import ROWS

    paper = [ROWS[row] for row in rows if row in ROWS]
    for shown in (paper[first : first + ROWS_BESIDE] for first in range(0, len(paper), ROWS_BESIDE)):
        columns = [Column("success in %, SPL", overflow="fold"), *(_number(row.name) for row in shown)]
        table = Table(*columns, box=SIMPLE, padding=(0, 0, 0, 1))
        for method in (*results.methods(shown), *CONTROLS):
            found = [results.find(method, row.name) for row in shown]
            if any(found):
                texts = (results.texts(one, COMPARED[:2], "") for one in found)
                table.add_row(escape(label(method)), *(" ".join(filter(None, one)) for one in texts))
        yield table
    for row, metrics in results.own_rows().items():
        if row in rows:
            yield _scores(row, results.scores(row), metrics)


def segments(lines: Sequence[Sequence[Segment]]) -> Text:
    """Lines of texts with their styles, as `genplan.render.terminal` gives them."""
    return Text("\n").join(Text.assemble(*line) for line in lines)


def denoising(rows: Sequence[Sequence[Segment]], title: str = "actions") -> Table:
    """A row per network call: its time, and the plan then."""
    columns = [_number("t"), *(_number(f"k{step}") for step in range(1, len(rows[0])))]
    table = Table(*columns, title=title, box=SIMPLE, padding=(0, 0, 0, 1))
    for row in rows:
        table.add_row(*(Text(*segment) for segment in row))
    return table
