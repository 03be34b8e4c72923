"""The names of planners, the same in every command.

runs/maze                    a run folder
pretrained:MazeS4G1          a planner that comes with genplan (one of the folders in genplan/pretrained)
expert, bot                  the task's expert
bot:full-view, bot:noisy     BabyAI's bot that sees the whole grid; the expert with 25 % random actions
random:uniform, random:demos, random:forward
                             random policies: uniform, by the frequencies of demonstrations, mostly forward
replay, replay:DATASET       the demonstration that began most alike, played open loop
untrained:METHOD             a method with randomly initialized weights, such as untrained:GenPlan-M
file.py:Name                 your own: a class (or function) that is called without arguments, or a planner itself
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from genplan import checkpoint, config, migrations, planners, presets, tasks
from genplan.data import store
from genplan.errors import UserError, error_location
from genplan.planners import reference
from genplan.planners.base import LearnedPlanner
from genplan.planners.exploration import ExploringPlanner
from genplan.tasks.files import import_object
from genplan.types import Planner, Task

UNTRAINED, RANDOM, REPLAY = "untrained:", "random:", "replay:"


def load_planner(name: str, task: Task, train_task: str | None = None) -> Planner:
    """The planner of that name, for that task.

    train_task  whose demonstrations random:demos follows, and whose settings untrained:METHOD has; the task by default
    """
    name = migrations.planner_name(name)
    if name.startswith(RANDOM):
        return reference.random_policy(name.removeprefix(RANDOM), task.spec.actions, train_task or task.name)
    if name == "replay" or name.startswith(REPLAY):
        return _replay(name, task)
    if name == "expert":
        return _expert(task)
    if name == "bot:full-view":
        from genplan.tasks.grid import bot_expert  # not above: it imports MiniGrid, which tasks of one's own do without

        return bot_expert(full_view=True)
    if name == "bot:noisy":
        return reference.NoisyExpert(_expert(task), task.spec.actions)
    if name.startswith(UNTRAINED):
        return _untrained(name, task, train_task)[0]
    if ".py:" in name:
        return _user_planner(name)
    if checkpoint.is_run(name):
        return checkpoint.load_planner(checkpoint.run_dir(name))[0].for_spec(task.spec)
    known = "\n".join((__doc__ or "").strip().splitlines()[2:])  # without the title
    raise UserError(f"there is no planner '{name}'; expected one of:\n{known}")


def load_for_eval(
    name: str, task_name: str | None, options: Mapping[str, Any] | None = None, method: str | None = None
) -> tuple[Planner, dict[str, Any], Task]:
    """A planner by name, its config (empty if it has no network), and its task; `options` by the names of settings.

    Task and `method` are needed if they are files: none is run because a run folder names it. Of a planner without a
    network, only `exploration` can be chosen, and `action_steps`: by whoever plays the episodes.
    """
    options = dict(options or {})
    if checkpoint.is_run(name):
        folder = checkpoint.run_dir(name)
        learned, run_config = checkpoint.load_planner(folder, method)
        run_config["task"] = checkpoint.allowed(run_config, "task", task_name, folder)
        if task_name is None and len(names := tasks.task_names(run_config["task"])) > 1:
            raise UserError(f"'{name}' was trained on several tasks; choose one with --task: {', '.join(names)}")
        task = tasks.get(task_name or run_config["task"])
    else:
        if task_name is None:
            raise UserError(f"'{name}' is not a run folder; name a task with --task, or a run folder made by "
                            "'genplan train'")  # fmt: skip
        task = tasks.get(task_name)
        if not name.startswith(UNTRAINED):
            if of_network := [option for option in options if option not in ("action_steps", "exploration")]:
                raise UserError(f"{', '.join(of_network)} can be set for trained planners, found '{name}'")
            planner = load_planner(name, task)
            if strength := options.get("exploration"):
                planner = ExploringPlanner(planner, task.spec, strength)
            return planner, {}, task
        learned, run_config = _untrained(name, task, None)
    learned = learned.with_options(**options)
    return learned.for_spec(task.spec), {**run_config, "planner": config.to_dict(learned.config)}, task


def untrained_control(planner: Planner, run_config: Mapping[str, Any]) -> Planner:
    """A trained planner with randomly initialized weights; statistics of the data stay: they are not learnt."""
    if not isinstance(planner, LearnedPlanner) or "training" not in run_config:
        raise UserError("there is no trained network that could be left untrained; expected a run")
    control = checkpoint.untrained(run_config).eval().for_spec(planner.spec)
    statistics = dict(control.named_buffers())
    for name, tensor in planner.named_buffers():
        statistics[name].copy_(tensor)
    return control


def default_baseline(task: Task) -> str:
    """The random policy that a planner is compared with, by name."""
    return "random:demos" if task.name in reference.demonstrated_actions() else "random:uniform"


def load_baseline(name: str | None, task: Task, run_config: Mapping[str, Any]) -> Planner:
    """A random policy, by default with the frequencies of the demonstrations that the run was trained on."""
    trained = tasks.task_names(run_config.get("task", task.name))
    return load_planner(name or default_baseline(task), task, task.name if task.name in trained else trained[0])


def _expert(task: Task) -> Planner:
    if task.expert is None:
        raise UserError(f"task {task.name} has no expert; give it one with Task(expert=...)")
    return task.expert()


def _replay(name: str, task: Task) -> Planner:
    dataset = name.removeprefix(REPLAY) if name.startswith(REPLAY) else task.dataset
    if dataset is None:
        raise UserError(f"task {task.name} has no dataset of its own; name one: replay:DATASET")
    return reference.ReplayPlanner(task.spec, store.read(dataset, task).episodes)


def _untrained(name: str, task: Task, train_task: str | None) -> tuple[LearnedPlanner, dict[str, Any]]:
    """A planner with randomly initialized weights, and as much of a run's config as it has."""
    method = name.removeprefix(UNTRAINED)
    spec = task.spec if train_task is None else tasks.get(train_task).spec
    settings, _ = presets.default_config(train_task or task.name, method)
    run_config = {"method": method, "task": train_task or task.name, "planner": config.to_dict(settings)}
    planner = planners.build(method, spec, settings).eval()
    if spec.actions.n is None:  # what is not fitted spans the space
        ends = torch.tensor([spec.actions.low, spec.actions.high])
        planner.codec.fit(ends if spec.actions.origin is None else ends - ends.flip(0))
    return planner.for_spec(task.spec), run_config


def _user_planner(name: str) -> Planner:
    found = import_object(name)
    if isinstance(found, type) and issubclass(found, LearnedPlanner):
        raise UserError(f"'{name}' is a method, which has to be trained: genplan train TASK --method {name}; expected "
                        "a run folder, or a planner that needs no training")  # fmt: skip
    if isinstance(found, type) or not hasattr(found, "plan"):
        try:
            found = found()
        except Exception as error:
            raise UserError(f"'{name}' cannot be called without arguments: {error_location(error)}") from error
    for method in ("reset", "plan", "observe"):
        if not callable(getattr(found, method, None)):
            raise UserError(f"'{name}' has no method {method}(), expected a planner: see genplan.types.Planner")
    if not isinstance(getattr(found, "privileged", None), bool):
        raise UserError(f"'{name}' has no privileged, expected True or False: see genplan.types.Planner")
    steps = getattr(found, "action_steps", "")
    if steps is not None and (not isinstance(steps, int) or isinstance(steps, bool) or steps < 1):
        has = f"action_steps {steps!r}" if steps != "" else "no action_steps"
        raise UserError(f"'{name}' has {has}, expected a number of actions to execute of each plan, or None for all: "
                        "see genplan.types.Planner")  # fmt: skip
    return cast("Planner", found)
