"""`genplan train`: flags for all settings of the chosen method.

What a setting is by default depends on task, method and preset together, so settings are resolved after parsing: only
those that were named override the presets.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import tyro
from rich.console import Console

from genplan.cli.data import collect_demos
from genplan.errors import UserError

if TYPE_CHECKING:  # imported by the commands that need them, so that the command line answers at once
    from genplan.training import Trainer

METHOD = "GenPlan-M"
HIDDEN = ("preset",)  # chosen by --preset, with all that belongs to it


def _shown_as(metavar: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass(frozen=True)
class Arguments:
    """Train a planner; stop with Ctrl-C, the same command goes on.

    With more --training.steps a run is extended; what would train something else needs another --out. Settings that
    are not named depend on the task, the method and the preset: name them to see theirs here.

    Args:
        task: A task of `genplan tasks`, several joined by +, or file.py:task for your own.
        method: What to train; flags are its settings.
        preset: Where settings that are not named come from.
        data: The Minari dataset to learn from (by default 1,000 demonstrations of the expert, collected if absent).
        out: The run folder (by default runs/TASK-METHOD).
        resume: Go on in this folder with the settings it has; only a task or method from a file must be named again.
        transforms: Which data transforms to use, by name: of the task's (by default all), and erase_loops.
    """

    task: Annotated[str, tyro.conf.Positional, _shown_as("TASK")] = ""
    method: Annotated[str, tyro.conf.arg(metavar="NAME|FILE.PY:CLASS")] = METHOD
    preset: Literal["default", "paper"] = "default"
    data: Annotated[str | None, _shown_as("DATASET")] = None
    out: Annotated[Path | None, _shown_as("DIR")] = None
    resume: Annotated[Path | None, _shown_as("DIR")] = None
    transforms: Annotated[str | None, _shown_as("NAME,NAME|none")] = None
    planner: Any = None
    training: Any = None


def parse(arguments: Sequence[str]) -> tuple[Arguments, dict[str, Any], dict[str, Any]]:
    """The arguments, with flags for the method, task and preset that are named; and the settings that were named."""
    from genplan import config, planners, presets, tasks

    arguments = [part for one in arguments for part in (one.split("=", 1) if one.startswith("--") else [one])]
    # Groups may be left out: the names of settings are unique.
    arguments = [re.sub(r"^--planner\.\w+\.", "--planner.", one) for one in arguments]
    if "--task" in arguments[:-1]:  # as every other command has it
        place = arguments.index("--task")
        arguments = [arguments[place + 1], *arguments[:place], *arguments[place + 2 :]]
    behind = dict(pairwise(arguments))  # a flag -> its value: which flags there are depends on some of them
    method, preset = behind.get("--method", METHOD), behind.get("--preset", "")
    preset = preset if preset in presets.PRESETS else "default"
    task = next((one for one in arguments if one in (*tasks.TASKS, "all")), None)
    hidden = (*HIDDEN, *(() if ".py:" in method else planners.planner_class(method).variants))
    fields: list[Any] = []
    for name, one in zip(("planner", "training"), presets.default_config(task, method, preset), strict=True):
        group = make_dataclass(name, flags(one, hidden), namespace={"__doc__": type(one).__doc__}, frozen=True)
        fields.append((name, group, dataclasses.field(default_factory=group)))
    made = make_dataclass("Train", fields, bases=(Arguments,), namespace={"__doc__": Arguments.__doc__}, frozen=True)
    given: Arguments = tyro.cli(made, args=arguments, prog="genplan train", config=(tyro.conf.FlagConversionOff,))

    def named(part: str) -> dict[str, Any]:
        flagged = (one.partition(f"--{part}.") for one in arguments)
        names = {name.replace("-", "_") for before, _, name in flagged if not before}
        return {name: value for name, value in config.leaves(getattr(given, part)).items() if name in names}

    return given, named("planner"), named("training")


def flags(config: Any, hidden: Sequence[str]) -> list[Any]:
    """The settings of a configuration, nested ones too, as fields: values are defaults, comments beside them help."""
    fields: list[Any] = []
    annotations, comments = get_type_hints(type(config)), _comments(type(config))
    for one in dataclasses.fields(config):
        value: Any = getattr(config, one.name)
        if dataclasses.is_dataclass(value):
            fields += flags(value, hidden)
        elif one.name not in hidden:
            help_ = tyro.conf.arg(help=comments.get(one.name, ""))
            fields.append((one.name, Annotated[annotations[one.name], help_], dataclasses.field(default=value)))
    return fields


def _comments(cls: type[Any]) -> dict[str, str]:
    """What the comments beside the fields of a dataclass say."""
    found: dict[str, str] = {}
    for one in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        try:
            source = inspect.getsource(one)
        except (OSError, TypeError):  # made without a file
            continue
        found |= dict(re.findall(r"^\s+(\w+): [^#\n]*#\s*(.*)", source, re.MULTILINE))
    return found


def choose_transforms(recipe: Sequence[Mapping[str, Any]], names: str) -> list[Mapping[str, Any]]:
    """Of a task's recipe, and of what needs no settings, the transforms that are named; `none` for none."""
    from genplan.data.transforms import TRANSFORMS

    wanted = [] if names in ("", "none") else names.split(",")
    plain = [name for name, kind in TRANSFORMS.items() if not dataclasses.fields(kind)]
    recipe = [*({"name": name} for name in plain if all(one["name"] != name for one in recipe)), *recipe]
    known = [str(one["name"]) for one in recipe]
    if unknown := [name for name in wanted if name not in known]:
        raise UserError(f"the task has no transform '{unknown[0]}'; known are {', '.join(known) or 'none'}")
    return [one for one in recipe if one["name"] in wanted]


def train(arguments: Sequence[str]) -> int:
    """Train a planner; stop with Ctrl-C, the same command goes on."""
    from genplan import config, runs
    from genplan.tasks.files import short_name

    given, of_planner, of_training = parse(arguments)
    console, task, method = Console(), given.task, given.method
    if given.resume is None and not task:
        raise UserError("name a task to train, or a run to continue (--resume RUN)")
    folder = given.resume or given.out or Path("runs") / "-".join(map(short_name, (task, method)))
    changed = {name: value for name, value in of_training.items() if name in runs.CHANGEABLE}
    if given.resume is not None:
        if of_planner or given.data or given.transforms or given.out or changed != of_training:
            raise UserError("--resume goes on with the settings of the run; leave out all flags but task and method, "
                            f"if they are files, and {', '.join(runs.CHANGEABLE)}")  # fmt: skip
        named = any(one.partition("=")[0] == "--method" for one in arguments)
        trainer = runs.resume_run(folder, task or None, method if named else None, **changed)
    else:
        trainer = _open_run(console, folder, given, of_planner, of_training, changed)
    named_files = {"task": task, "method": method, "codec": config.get(trainer.planner.config, "codec", "")}
    files = [part for key, name in named_files.items() if ".py:" in name for part in (f"--{key}", name)]
    next_step = f"evaluate: {shlex.join(['genplan', 'eval', str(folder), *files])}"
    if trainer.step >= trainer.config.steps:
        console.print(f"{folder} is trained: step {trainer.step} of {trainer.config.steps}; for more, name more "
                      f"--training.steps; {next_step}", markup=False, soft_wrap=True)  # fmt: skip
        return 0
    fit(console, trainer, f"training in {folder}")
    minutes = trainer.cpu_seconds / 60
    console.print(f"trained in {minutes:.1f} CPU-minutes; {next_step}", markup=False, soft_wrap=True)
    return 0


def _open_run(
    console: Console, folder: Path, given: Arguments, of_planner: Mapping[str, Any], of_training: Mapping[str, Any],
    changed: Mapping[str, Any],
) -> Trainer:  # fmt: skip
    """A new run; or the one in the folder, if it is the same but for what may be changed."""
    from genplan import config, planners, presets, runs, tasks
    from genplan.collect import CollectConfig

    task, method = given.task, given.method
    planners.use_codec(of_planner.get("codec"))
    planner, training = presets.default_config(task, method, given.preset)
    planner, training = config.override(planner, **of_planner), config.override(training, **of_training)
    recipe: Any = presets.default_transforms(task, given.preset)
    if given.transforms is not None:
        recipe = choose_transforms(recipe, given.transforms)
    if (folder / "config.json").exists():
        runs.check_same(folder, task, method, planner, training, given.data, recipe)
        return runs.resume_run(folder, task, method, **changed)
    if given.data is None:
        for name in tasks.task_names(task):
            if tasks.get(name).dataset is None:  # else it was recorded, and is imported
                collect_demos(console, CollectConfig(name))
    with console.status("windows, and what is learnt before the training (some seconds)"):
        return runs.create_run(folder, task, method, planner, training, given.data, recipe)


def fit(console: Console, trainer: Trainer, label: str) -> None:
    """Train to the end under a progress bar."""
    from genplan.console import training_progress

    console.print(f"{label}, from step {trainer.step} to {trainer.config.steps}")
    with training_progress(console, trainer.step, trainer.config.steps) as on_progress:
        trainer.fit(on_progress)
