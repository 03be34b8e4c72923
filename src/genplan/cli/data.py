"""Commands on tasks and demonstrations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from tyro.conf import Positional

from genplan.errors import UserError

if TYPE_CHECKING:  # imported by the commands that need them, so that the command line answers at once
    from genplan.collect import CollectConfig
    from genplan.data.store import Dataset


def tasks(gallery: Path | None = None) -> int:
    """List the paper's tasks and settings.

    Args:
        gallery: Write a picture of all tasks to this file (png or pdf) as well.
    """
    from genplan.console import rows_table, tasks_table

    console = Console()
    console.print(tasks_table(), rows_table())
    if gallery is not None:
        from genplan.files import write_atomically
        from genplan.render import frames

        if gallery.suffix not in (".png", ".pdf"):
            raise UserError(f"the gallery is to be written to {gallery}, expected a name that ends in .png or .pdf")
        write_atomically(gallery, frames.gallery(gallery.suffix[1:]))
        console.print(f"gallery written to {gallery}")
    return 0


def demos(
    task: Positional[str], episodes: int = 1000, expert: str = "bot", seed: int = 10_000, workers: int = 2
) -> int:
    """Collect demonstrations of a task as a Minari dataset; stop at any time, the same command continues.

    Args:
        task: A task of `genplan tasks`, or file.py:task for your own.
        episodes: How many successful episodes to keep.
        expert: expert or bot (the task's), bot:full-view (open doors), bot:noisy (25 % random), or another planner.
        seed: The first seed; training seeds are 10000 to 99999.
        workers: Processes that collect; the content does not depend on it.
    """
    from genplan import names, tasks
    from genplan.collect import CollectConfig
    from genplan.data import store

    console, config = Console(), CollectConfig(task, episodes, expert, seed)
    if workers < 1:
        raise UserError(f"workers is {workers}, expected at least 1")
    names.load_planner(expert, tasks.get(task))  # a wrong name is reported before anything starts
    if (found := collect_demos(console, config, workers)) is None:
        console.print(f"{config.name} exists already; see: genplan data show {config.name}")
    else:
        what = f"{len(found.episodes)} episodes, digest {found.digest}"
        console.print(f"{config.name} written to {store.datasets_root()}: {what}")
    return 0


def data_import(
    format: Positional[str], source: Positional[Path], task: str | None = None, name: str | None = None, check: int = 5
) -> int:
    """Turn recorded demonstrations into a Minari dataset, and replay some of them in the simulator.

    Args:
        format: pusht (npz, or the published zarr folder), kitchen (npz, or a folder of raw .mjl logs), lerobot (a
            folder of format v3).
        source: The file or folder.
        task: What it is a recording of: a task, or file.py:task; needed for lerobot.
        name: Of the dataset (by default the one that the task learns from).
        check: How many episodes are replayed.
    """
    from genplan.console import import_table, progress
    from genplan.data import store
    from genplan.data.importers import IMPORTERS, replay
    from genplan.tasks import get
    from genplan.tasks.files import short_name

    if format not in IMPORTERS:
        raise UserError(f"there is no format '{format}'; known are {', '.join(IMPORTERS)}")
    of_task, read = IMPORTERS[format]
    if (task_name := task or of_task) is None:
        raise UserError(f"recordings in the format {format} are of any task; name it with --task")
    if not source.exists():
        raise UserError(f"there is no file or folder '{source}', expected recordings in the format {format}")
    chosen, console = get(task_name), Console(soft_wrap=True)
    target = name or chosen.dataset or f"genplan/{short_name(task_name)}/recorded-v0"
    if store.exists(target):
        console.print(f"{target} exists already; see: genplan data show {target}")
        return 0
    recorded, episodes, replayed = read(source, chosen), [], []
    with progress(console, f"reading {chosen.name}", len(recorded), "episodes") as on_progress:
        for episode in recorded:
            episodes.append(episode)
            on_progress(1)
    checked = episodes[: max(check, 0)] if chosen.infos else []
    if checked:
        with progress(console, f"replaying {chosen.name}", sum(map(len, checked)), "steps") as on_progress:
            for episode in checked:
                replayed.append((episode, replay(chosen, episode)))
                on_progress(len(episode))
    store.write(target, chosen, episodes, {"expert": "recorded", "source": format, "versions": store.versions()})
    number, steps = len(episodes), sum(map(len, episodes))
    console.print(f"{target} written to {store.datasets_root()}: {number} episodes, {steps} steps")
    if replayed:
        console.print(import_table(replayed))
    return 0


def data_show(dataset: Positional[str], task: str | None = None) -> int:
    """Describe a Minari dataset: episodes, lengths, actions, rewards, missions, goals, and which tasks it fits.

    Args:
        dataset: Its name in Minari, or its folder.
        task: Check whether it fits this task (by default: all of the table with grids of its size).
    """
    from genplan import tasks
    from genplan.console import dataset_table
    from genplan.data.store import incompatibility, read

    chosen = None if task is None else tasks.get(task)
    found = read(dataset, chosen)
    geometry = found.spec.geometry
    known = [one for one in map(tasks.get, tasks.TASKS) if one.spec.geometry == geometry]
    fit = {one.name: incompatibility(found, one) for one in ([chosen] if chosen else known)}
    if geometry is not None and not fit:
        fit["a task"] = f"none of the table has grids of {geometry.width}×{geometry.height}"
    Console().print(dataset_table(found, fit))
    return 0


def collect_demos(console: Console, config: CollectConfig, workers: int = 2, label: str = "") -> Dataset | None:
    """Collect under a progress bar; None if the dataset exists already."""
    from genplan.collect import collect
    from genplan.console import progress
    from genplan.data import store

    if store.exists(config.name):
        return None
    with progress(console, label or f"demonstrations of {config.task}", config.episodes, "episodes") as on_progress:
        return collect(config, workers, on_progress)
