"""Episodes being played: many environments at once, and the only loop that steps them.

A step of a grid takes 20 to 50 µs: too little to be worth sending to another process, so environments are stepped one
after the other, and the planner is asked once for all of them that need a plan.
"""

from __future__ import annotations

import copy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import Actions, Observation
from genplan.types import Env, Observations, OpenLoop, Oracle, Plan, Planner, Rollout, Task

Wrapper = Callable[[Env], Env]
CPU = torch.device("cpu")  # where environments are; planners move what they are handed to their own device


@dataclass(frozen=True)
class StepResult:
    """What a batched step led to, one entry per row stepped."""

    rewards: list[float]
    terminations: list[bool]
    truncations: list[bool]  # by the environment, or by the task's own limit of steps
    success: list[bool]
    done: list[bool]
    changed: list[bool]  # whether anything observed changed
    infos: list[dict[str, float]]  # the keys that the task names


class EnvBatch:
    """One episode per seed. Rows that are done are simply not stepped any more."""

    def __init__(
        self, task: Task, seeds: Sequence[int], wrapper: Wrapper | None = None, envs: Sequence[Env] | None = None
    ) -> None:
        """`envs`, one per seed, can be given where they are not all the task's own, but alike."""
        self.task = task
        self.seeds = list(seeds)
        if not self.seeds:
            raise UserError(f"there are 0 seeds of task {task.name} to play, expected at least 1")
        if min(self.seeds) < 0:
            raise UserError(f"the seed is {min(self.seeds)}, expected at least 0")
        made = [task.make_env() for _ in self.seeds] if envs is None else envs
        self.envs = [env if wrapper is None else wrapper(env) for env in made]
        self.num_steps = [0] * len(self.envs)
        starts = zip(self.envs, self.seeds, strict=True)
        self.current: list[Observation] = [task.observe(env, env.reset(seed=seed)[0]) for env, seed in starts]
        self._check(self.current[0])
        # What changes most often is compared first; a scene is compared only if nothing else changed.
        self._compared = (*task.spec.step_fields, *task.spec.scene_fields)
        self._dtypes = {name: torch.from_numpy(np.empty(0, one.dtype)).dtype for name, one in task.spec.fields.items()}

    def __len__(self) -> int:
        return len(self.envs)

    @property
    def oracle(self) -> Oracle:
        return Oracle(self.envs, self.task.privileged_goals)

    def observations(self, ids: Tensor | None = None) -> Observations:
        rows = range(len(self)) if ids is None else ids.tolist()
        stacked = Observations.stack([self.current[row] for row in rows])
        return Observations({name: stacked[name].to(dtype) for name, dtype in self._dtypes.items()})

    def step(self, ids: Tensor, actions: Tensor) -> StepResult:
        """Step the rows `ids` with one action each; the task's own limit of steps ends an episode too."""
        task, results = self.task, []
        chosen = actions.tolist() if actions.ndim == 1 else actions.numpy()
        for row, action in zip(ids.tolist(), chosen, strict=True):
            raw, reward, terminated, truncated, info = self.envs[row].step(action)
            self.num_steps[row] += 1
            before, after = self.current[row], task.observe(self.envs[row], raw)
            self.current[row] = after
            reward, terminated = float(reward), bool(terminated)
            truncated = bool(truncated or (self.num_steps[row] >= task.max_steps and not terminated))
            success = task.success is not None and bool(task.success(reward, terminated, info))
            changed = not observations_equal(before, after, self._compared)
            results.append((reward, terminated, truncated, success, terminated or truncated, changed, self._kept(info)))
        return StepResult(*map(list, zip(*results, strict=True)))

    def copy(self, ids: Tensor) -> EnvBatch:
        """The situations of the rows `ids`, which may repeat, to be played on apart."""
        twin = copy.copy(self)
        for name in ("seeds", "num_steps", "current"):
            setattr(twin, name, [getattr(self, name)[row] for row in ids.tolist()])
        twin.envs = [copy.deepcopy(self.envs[row]) for row in ids.tolist()]
        return twin

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _kept(self, info: dict[str, Any]) -> dict[str, float]:
        if missing := [key for key in self.task.infos if key not in info]:
            raise UserError(
                f"task {self.task.name} keeps '{missing[0]}' of info, which has {', '.join(info) or 'no keys'}; "
                "expected it after every step"
            )
        return {key: float(info[key]) for key in self.task.infos}

    def _check(self, observation: Observation) -> None:
        """Observations of one's own tasks go wrong in shape or range; the first one shows it."""
        task = self.task
        if not isinstance(observation, Mapping) or set(observation) != set(task.spec.fields):
            found = ", ".join(map(str, observation)) if isinstance(observation, Mapping) else type(observation).__name__
            raise UserError(f"observe() of task {task.name} gives {found or 'nothing'}, expected a dict with an array "
                            f"for each of its fields: {', '.join(task.spec.fields)}")  # fmt: skip
        for name, one in task.spec.fields.items():
            one.check(observation[name], f"'{name}', as observe() of task {task.name} gives it,")


def observations_equal(a: Observation, b: Observation, names: Sequence[str]) -> bool:
    for name in names:
        differs = a[name] != b[name]
        if differs if isinstance(differs, bool) else differs.any():
            return False
    return True


@dataclass(frozen=True)
class Steps:
    """One step of the episodes that are still running."""

    ids: Tensor  # [n]: rows of the batch
    actions: Tensor  # [n, *A]
    before: list[Observation]
    observations: Observations  # after the step, [n, …]
    result: StepResult
    plan: Plan | None  # made just before this step, for the rows `planned_ids`
    planned_ids: Tensor
    plan_index: list[int]  # which plan of its episode each row follows, counted from 0
    plan_step: list[int]  # which action of that plan was executed
    executed: list[OpenLoop] | None  # what the actions of `plan` do, if it was asked for and states are planned


@dataclass(frozen=True)
class FixedPlan:
    """A plan that is there already, as a planner."""

    found: Plan
    privileged, action_steps = False, None

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> None: ...

    def plan(
        self, observations: Observations, memory: None, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, None]:
        return self.found, None

    def observe(self, memory: None, actions: Tensor, observations: Observations, ids: Tensor) -> None: ...


@torch.no_grad()
def rollout(
    planner: Planner, batch: EnvBatch, *, seed: int = 0, action_steps: int | Sequence[int] | None = None,
    cut: bool = True, execute: bool = False,
) -> Iterator[Steps]:  # fmt: skip
    """Play the episodes of a batch to their ends, step by step; whoever has seen enough stops iterating.

    seed          of the planner's own draws; a row's key is (seed, episode seed, plan number), whatever the batch
    action_steps  actions of a plan that are executed before the next plan: for all rows, or for each; by default the
                  planner's own number, or whole plans
    cut           drop the rest of a plan, where it says so, as soon as a planned state does not come
    execute       execute every plan beforehand in copies of the environments: to draw it, never to plan
    """
    size, actions_space = len(batch), batch.task.spec.actions
    each = planner.action_steps if action_steps is None else action_steps
    limits = each if isinstance(each, Sequence) else [each] * size
    if wrong := [limit for limit in limits if limit is not None and limit < 1]:
        raise ValueError(f"action_steps is {wrong[0]}, expected at least 1 action per plan")
    oracle = batch.oracle if planner.privileged else None
    observations = batch.observations()
    memory = planner.reset(observations, oracle)
    episodes = torch.tensor(batch.seeds, device=CPU)
    queues: list[list[Any]] = [[] for _ in range(size)]  # actions that are planned and not executed yet
    expected: list[list[int]] = [[] for _ in range(size)]  # states that these should lead to, where plans are cut
    plan_steps = [0] * size
    num_plans = torch.zeros(size, dtype=torch.int64, device=CPU)
    active = torch.arange(size, device=CPU)
    while len(active):
        rows = active.tolist()
        waiting = torch.tensor([not queues[row] for row in rows], device=CPU).nonzero().squeeze(-1)
        planned_ids, plan, executed = active[waiting], None, None
        if len(waiting):
            rng = Rng.of(seed, episodes[planned_ids], num_plans[planned_ids])
            found = planner.plan(observations[waiting], memory, rng, planned_ids, oracle)
            plan, memory, planned = validated(found, len(waiting), actions_space)
            if execute and plan.states is not None:
                executed = open_loop(FixedPlan(plan), batch.copy(planned_ids))
            num_plans[planned_ids] += 1
            sure = [None] * len(planned) if plan.sure_steps is None or not cut else plan.sure_steps.tolist()
            for row, actions, most in zip(planned_ids.tolist(), planned, sure, strict=True):
                queues[row] = list(actions[: limits[row]])[:most]
                plan_steps[row] = 0
            if cut and plan.cut and plan.states is not None:
                for row, states in zip(planned_ids.tolist(), plan.states[:, 1:].tolist(), strict=True):
                    expected[row] = states
        actions = torch.from_numpy(np.array([queues[row].pop(0) for row in rows], actions_space.dtype))
        before = [batch.current[row] for row in rows]
        result = batch.step(active, actions)
        observations = batch.observations(active)
        memory = planner.observe(memory, actions, observations, active)
        plan_index, plan_step = (num_plans[active] - 1).tolist(), [plan_steps[row] for row in rows]
        yield Steps(active, actions, before, observations, result, plan, planned_ids, plan_index, plan_step, executed)
        came = [] if not any(expected) else observations[batch.task.spec.state_field or ""].tolist()
        for row, state in zip(rows, came, strict=False):
            if expected[row] and expected[row].pop(0) != state:
                queues[row].clear()
        for row in rows:
            plan_steps[row] += 1
        if any(result.done):
            running = ~torch.tensor(result.done, device=CPU)
            active, observations = active[running], observations[running]


def validated(found: Any, num_rows: int, space: Actions) -> tuple[Plan, Any, list[Any]]:
    """The plan, the memory, and the actions [num_rows][H]; planners of one's own make mistakes."""
    if not isinstance(found, tuple) or len(found) != 2:
        raise UserError(f"plan() returned {type(found).__name__}, expected a pair: a Plan, and the memory")
    plan, memory = found
    actions = getattr(plan, "actions", None)
    whole = space.n is not None
    if not isinstance(actions, Tensor) or actions.is_floating_point() == whole or actions.dtype == torch.bool:
        found_type = actions.dtype if isinstance(actions, Tensor) else type(actions).__name__
        raise UserError(
            f"plan() returned actions of {found_type}, expected a tensor of {'whole' if whole else 'floating point'} "
            "numbers"
        )
    shape = tuple(actions.shape)
    if len(shape) < 2 or shape[0] != num_rows or not shape[1] or shape[2:] != space.shape:
        expected = ", ".join(map(str, (num_rows, "H", *space.shape)))
        raise UserError(
            f"plan() returned actions of shape {shape}, expected ({expected}): one line per row that was asked for, "
            "of at least one action"
        )
    checked: NDArray[Any] = space.check(actions.cpu().numpy(), "the actions that plan() returned")
    return plan, memory, checked.tolist() if whole else list(checked)


def play(
    planner: Planner,
    task: Task,
    seeds: Sequence[int],
    *,
    seed: int = 0,
    action_steps: int | None = None,
    wrapper: Wrapper | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[Rollout]:
    """One finished episode per seed, in this order. `on_progress` gets the number of episodes that just ended."""
    batch = EnvBatch(task, seeds, wrapper)
    size, first = len(batch), batch.observations()
    ids, num_plans = [np.arange(size)], [0] * size
    observed = {name: [first[name].numpy()] for name in task.spec.step_fields}
    columns: dict[str, list[NDArray[Any]]] = defaultdict(list)
    try:
        for steps in rollout(planner, batch, seed=seed, action_steps=action_steps):
            result = steps.result
            ids.append(steps.ids.numpy())
            for name in observed:
                observed[name].append(steps.observations[name].numpy().copy())  # planners may keep the tensor
            columns["actions"].append(steps.actions.numpy())
            for name in ("rewards", "changed", "terminations", "truncations", "success"):
                columns[name].append(np.array(getattr(result, name)))
            for key in task.infos:
                columns[f"info/{key}"].append(np.array([info[key] for info in result.infos]))
            for row, index in zip(steps.ids.tolist(), steps.plan_index, strict=True):
                num_plans[row] = index + 1
            if on_progress is not None and any(result.done):
                on_progress(sum(result.done))
    finally:
        batch.close()
    seen, stepped = _split(observed, np.concatenate(ids), size), _split(columns, np.concatenate(ids[1:]), size)
    return [
        Rollout(
            seed=batch.seeds[row],
            spec=task.spec,
            observations=seen[row],
            actions=one["actions"],
            rewards=one["rewards"],
            terminated=bool(one["terminations"][-1]),
            truncated=bool(one["truncations"][-1]),
            success=bool(one["success"].any()),
            changed=one["changed"],
            num_plans=num_plans[row],
            infos={key: one[f"info/{key}"] for key in task.infos},
        )
        for row, one in enumerate(stepped)
    ]


def open_loop(planner: Planner, batch: EnvBatch, *, seed: int = 0) -> list[OpenLoop] | None:
    """The next plan of every episode, executed to its end, and the batch closed; None of a planner that predicts no
    states.

    At the start it is the plan that `play` begins with: how plans hold is measured on what is done.
    """
    planned: NDArray[np.int64] | None = None
    came: list[list[int]] = [[] for _ in batch.seeds]
    arrival: list[int | None] = [None] * len(batch)
    horizon, state = sys.maxsize, batch.task.spec.state_field or ""
    try:
        for number, steps in enumerate(rollout(planner, batch, seed=seed, action_steps=sys.maxsize, cut=False)):
            if planned is None:
                if steps.plan is None or steps.plan.states is None or not state:
                    return None
                planned, horizon = steps.plan.states.cpu().numpy(), steps.plan.actions.shape[1]
            states = steps.observations[state].tolist()
            for row, after, success in zip(steps.ids.tolist(), states, steps.result.success, strict=True):
                came[row].append(after)
                if success and arrival[row] is None:
                    arrival[row] = number + 1
            if number + 1 == horizon:
                break
    finally:
        batch.close()
    assert planned is not None
    compared = [np.array(states[: horizon - 1], np.int64) for states in came]
    return [OpenLoop(horizon, planned[row, 1 : len(states) + 1], states, arrival[row])
            for row, states in enumerate(compared)]  # fmt: skip


def _split(columns: dict[str, list[NDArray[Any]]], ids: NDArray[np.int64], size: int) -> list[dict[str, NDArray[Any]]]:
    """Columns of steps in the order of time -> one dict of columns per row."""
    order = np.argsort(ids, kind="stable")
    ends = np.cumsum(np.bincount(ids, minlength=size))[:-1]
    parts = {name: np.split(np.concatenate(values)[order], ends) for name, values in columns.items()}
    return [{name: part[row] for name, part in parts.items()} for row in range(size)]
