"""`genplan train`: flags for all settings of the chosen method, each left out unless it is named.

What a setting is by default depends on task, method and preset together, so settings are resolved after parsing: only
those that were named override the presets.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from rich.console import Console

from genplan.cli.data import collect_demos
from genplan.errors import UserError

if TYPE_CHECKING:  # imported by the commands that need them, so that the command line answers at once
    from genplan.training import Trainer

METHOD = "GenPlan-M"
HIDDEN = ("preset",)  # chosen by --preset, with all that belongs to it
CHOSEN_BY_METHOD = ("source", "privileged_goals")  # what makes GenPlan-M and GenPlan-U, DT and DT-noGC, … different
TYPE_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", bool: "{True,False}"}


def train_arguments(arguments: Sequence[str]) -> tuple[type[Any], list[str]]:
    """The dataclass of all arguments for the method, task and preset that are named; and the arguments to be parsed."""
    from genplan import presets, tasks

    # Groups may be left out: the names of settings are unique.
    arguments = [re.sub(r"^--planner\.\w+\.", "--planner.", one) for one in arguments]
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--method", default=METHOD)
    first.add_argument("--preset", default="default")
    named, others = first.parse_known_args(arguments)
    task = next((one for one in others if one in (*tasks.TASKS, "all")), None)
    preset = named.preset if named.preset in presets.PRESETS else "default"
    planner, training = presets.default_config(task, named.method, preset)
    hidden = HIDDEN if ".py:" in named.method else (*HIDDEN, *CHOSEN_BY_METHOD)
    return _arguments(flags(planner, hidden), flags(training)), arguments


def _arguments(planner: type[Any], training: type[Any]) -> type[Any]:
    def told(annotation: Any, text: str, **options: Any) -> Any:
        return Annotated[annotation, tyro.conf.arg(help=text, help_behavior_hint="", **options)]

    text = "A task of `genplan tasks`, several joined by +, or file.py:task for your own."
    task = Annotated[str, tyro.conf.Positional, tyro.conf.arg(help=text, metavar="TASK", help_behavior_hint="")]
    fields: list[Any] = [
        ("task", task, dataclasses.field(default="")),
        ("method", told(str, f"What to train; flags are its settings (by default {METHOD}).",
                        metavar="NAME|FILE.PY:CLASS"), METHOD),
        ("preset", told(Literal["default", "paper"], "Where settings that are not named come from."), "default"),
        ("data", told(str | None, "The Minari dataset to learn from (by default 1,000 demonstrations of the expert, "
                      "collected if absent).", metavar="DATASET"), None),
        ("out", told(Path | None, "The run folder (by default runs/TASK-METHOD).", metavar="DIR"), None),
        ("resume", told(Path | None, "Continue the run in this folder, exactly as if it had not been stopped.",
                        metavar="DIR"), None),
        ("transforms", told(str | None, "Which of the task's data transforms to use, by name (by default all).",
                            metavar="NAME,NAME|none"), None),
        ("planner", planner, dataclasses.field(default_factory=planner)),
        ("training", training, dataclasses.field(default_factory=training)),
    ]  # fmt: skip
    made = dataclasses.make_dataclass("Train", fields, frozen=True)
    made.__doc__ = (
        "Train a planner; stop with Ctrl-C and continue with --resume.\n\n"
        "Settings that are not named depend on the task, the method and the preset: name them to see theirs here."
    )
    return made


def flags(config: Any, hidden: Sequence[str] = ()) -> type[Any]:
    """A dataclass like that of a configuration, with all settings optional; help tells what they are by default."""
    cls, fields = type(config), []
    annotations, comments = get_type_hints(cls), _comments(cls)
    for one in dataclasses.fields(cls):
        value = getattr(config, one.name)
        if one.name in hidden:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            group = flags(value, hidden)
            annotation: Any = Annotated[group, tyro.conf.arg(prefix_name=False)]
            fields.append((one.name, annotation, dataclasses.field(default_factory=group)))
            continue
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        help_ = tyro.conf.arg(
            help=comments.get(one.name, ""),
            help_behavior_hint=f"(default: {shown})",
            metavar=_metavar(annotations[one.name]),
        )
        fields.append((one.name, Annotated[annotations[one.name] | None, help_], dataclasses.field(default=None)))
    made = dataclasses.make_dataclass(f"{cls.__name__}Flags", fields, frozen=True)
    made.__doc__ = cls.__doc__
    return made


def named_settings(given: Any) -> dict[str, Any]:
    """The settings that were named, by leaf name."""
    named: dict[str, Any] = {}
    for one in dataclasses.fields(given):
        value = getattr(given, one.name)
        if dataclasses.is_dataclass(value):
            named |= named_settings(value)
        elif value is not None:
            named[one.name] = value
    return named


def choose_transforms(recipe: Sequence[Mapping[str, Any]], names: str) -> list[Mapping[str, Any]]:
    """Of a task's recipe, the transforms that are named; `none` for none."""
    wanted = [] if names in ("", "none") else names.split(",")
    known = [str(one["name"]) for one in recipe]
    if unknown := [name for name in wanted if name not in known]:
        raise UserError(f"the task has no transform '{unknown[0]}'; known are {', '.join(known) or 'none'}")
    return [one for one in recipe if one["name"] in wanted]


def _metavar(annotation: Any) -> str | None:
    inner = [one for one in get_args(annotation) if one is not type(None)]
    if get_origin(annotation) is Literal:
        return "{" + ",".join(map(str, inner)) + "}"
    if get_origin(annotation) is tuple:
        return f"[{TYPE_NAMES.get(inner[0], 'VALUE')} ...]"
    return TYPE_NAMES.get(inner[0] if inner else annotation)


def _comments(cls: type[Any]) -> dict[str, str]:
    """What the comments beside the fields of a dataclass say."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if dataclasses.is_dataclass(one):
            try:
                lines = inspect.getsource(one).splitlines()
            except (OSError, TypeError):  # made without a file
                continue
            matches = (re.match(r"\s+(\w+): [^#]*#\s*(.*)", line) for line in lines)
            found |= {match[1]: match[2] for match in matches if match}
    return found


def train(arguments: Sequence[str]) -> int:
    """Train a planner; stop with Ctrl-C and continue with --resume."""
    from genplan import config, presets, runs
    from genplan import tasks as known
    from genplan.collect import CollectConfig

    cls, named = train_arguments(arguments)
    given: Any = tyro.cli(cls, args=named, prog="genplan train")
    console, task, method = Console(), given.task, given.method
    of_planner, of_training = named_settings(given.planner), named_settings(given.training)
    if (given.resume is None) == (not task):
        raise UserError("name a task to train, or a run to continue (--resume RUN); expected one of the two")
    if given.resume is not None:
        if of_planner or of_training or given.data or given.transforms or given.out:
            raise UserError("a run is continued with the settings it began with; leave all flags but --resume out")
        folder, trainer = given.resume, runs.resume_run(given.resume)
    else:
        planner, training = presets.default_config(task, method, given.preset)
        planner, training = config.override(planner, **of_planner), config.override(training, **of_training)
        recipe: Any = presets.default_transforms(task, given.preset)
        if given.transforms is not None:
            recipe = choose_transforms(recipe, given.transforms)
        short = [name.rpartition(":")[2] if ".py:" in name else name for name in (task, method)]
        folder = given.out or Path("runs") / "-".join(short)
        if given.data is None:
            for name in known.task_names(task):
                collect_demos(console, CollectConfig(name))
        trainer = runs.create_run(folder, task, method, planner, training, given.data, recipe)
    fit(console, trainer, f"training in {folder}")
    console.print(f"trained in {trainer.cpu_seconds / 60:.1f} CPU-minutes; evaluate: genplan eval {folder}")
    return 0


def fit(console: Console, trainer: Trainer, label: str) -> None:
    """Train to the end under a progress bar."""
    from genplan.console import training_progress

    console.print(f"{label}, from step {trainer.step} to {trainer.config.steps}")
    with training_progress(console, trainer.step, trainer.config.steps) as on_progress:
        trainer.fit(on_progress)
