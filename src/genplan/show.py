"""What the terminal is shown: tables of tasks, descriptions of datasets, progress bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE
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

if TYPE_CHECKING:
    from genplan.bench import Cell, Event
    from genplan.bench.board import Board
    from genplan.data.episodes import Dataset
    from genplan.train import Progress as TrainingProgress

BLOCKS = "▁▂▃▄▅▆▇█"
GRID_ACTIONS = ("left", "right", "forward", "pick up", "drop", "toggle")


class Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = f" {unit}" if unit else ""

    def render(self, task: ProgressTask) -> Text:
        if not task.speed:
            return Text(f"…{self.unit}/s")
        return Text(f"{task.speed:.{0 if task.speed >= 10 else 1}f}{self.unit}/s")


@contextmanager
def progress(console: Console, what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar with count, rate and remaining time; the function given takes how much was done since."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def training_progress(console: Console, begun: int, steps: int) -> Iterator[Callable[[TrainingProgress], None]]:
    """A bar with steps per second, remaining time, the losses of states, actions and goals (s, a, g), the share of
    corrupted actions that is guessed right, the entropy H and its multiplier λ."""
    columns = (MofNCompleteColumn(), BarColumn(8), Rate(""), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("first batches …", total=steps, completed=begun)

        def tell(now: TrainingProgress) -> None:
            m = now.metrics
            losses = " ".join(f"{name[5]} {value:.2f}" for name, value in m.items() if name.startswith("loss/"))
            rest = f"right {m['right/actions']:.0%}"
            rest += "".join(
                f" {sign} {m[name]:.2f}" for sign, name in (("H", "entropy"), ("λ", "multiplier")) if name in m
            )
            bar.update(task, completed=now.step, description=f"{losses} {rest}")

        yield tell


@contextmanager
def bench_progress(console: Console, minutes: Mapping[Cell, float]) -> Iterator[Callable[[Event], None]]:
    """One bar for all cells, in minutes of work, and one for each that is running."""
    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, speed_estimate_period=1800) as bar:
        whole = bar.add_task("all", total=max(sum(minutes.values()), 1e-9))
        single: dict[Cell, TaskID] = {}
        shares: dict[Cell, float] = {}

        def tell(event: Event) -> None:
            cell = event.cell
            if cell not in single:
                single[cell] = bar.add_task(cell.name, total=1.0)
            bar.advance(whole, (event.share - shares.get(cell, 0.0)) * minutes[cell])
            shares[cell] = event.share
            bar.update(single[cell], completed=event.share)
            if event.kind != "share":
                bar.update(single[cell], visible=False)
                console.print(f"{event.kind}: {cell.name}, {event.about}", markup=False)

        yield tell


def bench_tables(board: Board, rows: Sequence[str]) -> Iterator[Table]:
    """Success in per cent, and SPL, of all that have a cell in these rows, three of which fit beside each other."""
    from genplan.bench.suites import CONTROLS
    from genplan.tasks.table import ROWS

    for first in range(0, len(rows), 3):
        shown = [ROWS[row] for row in rows[first : first + 3]]
        table = Table(box=SIMPLE, padding=(0, 0, 0, 1))
        table.add_column("success in %, SPL", overflow="fold")
        for row in shown:
            table.add_column(row.name, justify="right", no_wrap=True)
        for method in (*board.methods(shown), *CONTROLS):
            lines = [board.line(method, row.name) for row in shown]
            if any(lines):
                table.add_row(escape(board.name(method)), *(_result(board, line) for line in lines))
        yield table


def _result(board: Board, line: Mapping[str, Any] | None) -> str:
    if line is None:
        return ""
    score = board.score(line)
    spl = "" if score.spl is None else f" {score.spl:.3f}"
    return f"{100 * score.success:.1f}{spl}{board.mark(line)}"


def worlds_table() -> Table:
    from genplan.tasks.table import WORLDS

    table = Table(title="Worlds", box=SIMPLE)
    for column in ("world", "grid", "max steps", "mission"):
        table.add_column(
            column, justify="left" if column in ("world", "mission") else "right", no_wrap=column == "world"
        )
    for world in WORLDS.values():
        table.add_row(world.name, f"{world.size}×{world.size}", str(world.max_steps), world.solved)
    return table


def rows_table() -> Table:
    from genplan.tasks.table import ROWS

    table = Table(title="The paper's rows and settings", box=SIMPLE, padding=(0, 0, 0, 1))
    for column in ("", "row", "trained on", "horizon", "context", "iterations", "entropy"):
        table.add_column(column, justify="left" if column in ("", "row", "trained on") else "right", no_wrap=True)
    last = ""
    for row in ROWS.values():
        if row.family != last and last:
            table.add_section()
        last = row.family
        numbers = (row.horizon, row.context, row.iterations, row.entropy)
        table.add_row(row.family, row.name, row.trained_on, *(str(number) for number in numbers))
    return table


def gallery(path: Path, seed: int = 1234) -> None:
    """A picture of every world."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from genplan.tasks import make_world
    from genplan.tasks.table import WORLDS

    figure, axes = pyplot.subplots(3, 4, figsize=(14, 11.5), layout="constrained")
    for world, axis in zip(WORLDS.values(), axes.flat, strict=True):
        env = make_world(world.name, render_mode="rgb_array", highlight=False)
        env.reset(seed=seed)
        axis.imshow(env.render())
        axis.set_title(f"{world.name}, {world.size}×{world.size}", fontsize=12, fontweight="bold")
        axis.set_xlabel(env.mission, fontsize=9, wrap=True)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.get_layout_engine().set(hspace=0.04)
    partial = path.with_name(f".{path.stem}.partial{path.suffix or '.png'}")
    figure.savefig(partial, dpi=100)
    partial.replace(path)
    pyplot.close(figure)


def histogram(values: list[int], bins: int = 24) -> str:
    """A small histogram in one line of text."""
    counts, edges = np.histogram(values, bins=min(bins, max(max(values) - min(values), 1)))
    bars = "".join(BLOCKS[round((len(BLOCKS) - 1) * count / counts.max())] if count else " " for count in counts)
    return f"{edges[0]:.0f} {bars} {edges[-1]:.0f}"


def dataset_table(dataset: Dataset, fit: dict[str, str | None]) -> Table:
    episodes = dataset.episodes
    lengths = [len(episode) for episode in episodes]
    table = Table(title=dataset.name, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    about = dataset.about
    seeds = [episode.seed for episode in episodes if episode.seed is not None]
    table.add_row("episodes", f"{len(episodes)}, {sum(e.success for e in episodes)} of them successful")
    table.add_row("seeds", f"{min(seeds)}–{max(seeds)}" if seeds else "not recorded")
    if "expert" in about:
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        table.add_row("expert", f"{about['expert']} on {about['task']}, collected {about['collected']}, {versions}")
    table.add_row("steps", f"{sum(lengths)}; per episode {np.mean(lengths):.1f}, at most {max(lengths)}")
    table.add_row("lengths", histogram(lengths))
    counts = np.bincount(np.concatenate([e.actions for e in episodes]), minlength=dataset.spec.num_actions)
    names = GRID_ACTIONS if dataset.spec.map_shape and len(counts) == len(GRID_ACTIONS) else range(len(counts))
    table.add_row("actions", ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True)))
    missions = Counter(episode.mission for episode in episodes)
    if dataset.spec.words:
        examples = ", ".join(f"'{mission}' ×{count}" for mission, count in missions.most_common(3))
        table.add_row("missions", f"{len(missions)} distinct; {examples}")
    kinds = Counter(goal.kind for episode in episodes for goal in episode.subgoals)
    table.add_row("sub-goals", ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "none recorded")
    spec = dataset.spec
    shape = f"map {spec.map_shape[0]}×{spec.map_shape[1]}, " if spec.map_shape else ""
    table.add_row(
        "tokens", f"{shape}{spec.num_states} states, {spec.num_actions} actions, {spec.num_goals} goals a step"
    )
    table.add_row("content", dataset.digest)
    for task, reason in fit.items():
        table.add_row(f"fits {task}", "[green]yes[/]" if reason is None else f"[red]no[/]: {reason}")
    return table
