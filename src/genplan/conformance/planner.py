"""Rules for planners, learned or not: shapes, bounds, chance, memory and privilege, on episodes of a task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from genplan.conformance.rules import Rule, Skipped, expect
from genplan.flow import Rng
from genplan.rollout import EnvBatch, validated
from genplan.types import VALIDATION_SEEDS, Observations, Oracle, Planner, Task

STEPS = 3  # after which a planner has a past
SEEDS = VALIDATION_SEEDS[:3]
Followed = list[list[dict[str, Tensor]]]  # per episode and plan, the parts of the plan


@dataclass(frozen=True)
class PlannerCase:
    """A planner on a task."""

    planner: Planner
    task: Task

    @cached_property
    def followed(self) -> Followed:
        """What others are compared with."""
        return follow(self.planner, self.task, SEEDS)


@torch.no_grad()
def follow(
    planner: Planner, task: Task, seeds: Sequence[int], lengths: Sequence[int] | None = None,
    oracle: Oracle | None = None, handed: list[tuple[Observations, Observations]] | None = None,
) -> Followed:  # fmt: skip
    """Play some steps of an episode per seed, planning anew at each; the first action of every plan is executed.

    lengths  after how many steps each episode is left, STEPS by default
    oracle   for planners that are not privileged, and should not look at it
    handed   is given all observations that the planner gets, with copies made before
    """
    batch, episodes = EnvBatch(task, seeds), torch.tensor(list(seeds))
    oracle = batch.oracle if planner.privileged else oracle
    followed: Followed = [[] for _ in seeds]
    left = list(lengths or [STEPS] * len(batch))

    def given(ids: Tensor | None = None) -> Observations:
        observations = batch.observations(ids)
        if handed is not None:
            handed.append((observations, copy.deepcopy(observations)))
        return observations

    memory = planner.reset(given(), oracle)
    for step in range(STEPS):
        ids = torch.tensor([row for row, number in enumerate(left) if number > step])
        if not len(ids):
            break
        found = planner.plan(given(ids), memory, Rng.of(0, episodes[ids], step), ids, oracle)
        plan, memory, _ = validated(found, len(ids), task.spec.actions)
        parts = {"actions": plan.actions, **plan.tokens, "energy": plan.energy, "confidence": plan.confidence}
        for index, row in enumerate(ids.tolist()):
            followed[row].append({name: x[index].cpu().clone() for name, x in parts.items() if x is not None})
        actions = plan.actions[:, 0].cpu()
        done = batch.step(ids, actions).done
        memory = planner.observe(memory, actions, given(ids), ids)
        for row in ids[torch.tensor(done)].tolist():
            left[row] = 0
    batch.close()
    return followed


def expect_same(found: Followed, expected: Followed, advice: str, tolerance: float = 0.0, about: str = "") -> None:
    """That no number of any plan differs."""
    for row, (mine, others) in enumerate(zip(found, expected, strict=True)):
        for step, (a, b) in enumerate(zip(mine, others, strict=False)):
            where = f"in plan {step} of episode {row}{about}"
            for name in b:
                same_shape = name in a and a[name].shape == b[name].shape
                expect(same_shape, f"other {name} {where}", "the same plan", advice)
                # Rounding depends on the size of a batch, but what is chosen does not.
                slack = tolerance if a[name].is_floating_point() else 0.0
                same = torch.allclose(a[name].double(), b[name].double(), slack, slack, equal_nan=True)
                expect(same, f"the {name} {a[name].tolist()} {where}", f"{b[name].tolist()}, the same plan", advice)


def plans_inside_the_action_space(case: PlannerCase) -> None:
    """Plans are [rows, H, …] of the dtype and within the bounds of the task's actions."""
    _ = case.followed


def scores_are_finite(case: PlannerCase) -> None:
    """Energies are finite numbers, confidences lie within 0 and 1."""
    bounds = (("energy", -1e30, 1e30, "finite numbers"), ("confidence", 0, 1.00001, "0 to 1"))
    for parts in (parts for plans in case.followed for parts in plans):
        for name, low, high, expected in bounds:
            inside = name not in parts or bool(((parts[name] >= low) & (parts[name] <= high)).all())
            expect(inside, f"the {name} {parts.get(name)}", expected, "look for a logarithm of 0, or an empty mean")


def same_seed_same_plan(case: PlannerCase) -> None:
    """The same observations and the same rng give the same plan."""
    again = follow(case.planner, case.task, SEEDS)
    expect_same(again, case.followed, "draw all random numbers from `rng`, keep all state in the memory")


def a_row_alone_equals_a_row_in_a_batch(case: PlannerCase) -> None:
    """An episode gets the same plans alone and beside others."""
    alone = [follow(case.planner, case.task, [seed])[0] for seed in SEEDS]
    expect_same(alone, case.followed, "let no row depend on others, nor on how many there are", 1e-4)


def memory_follows_the_rows(case: PlannerCase) -> None:
    """When episodes end, `ids` says which are left: the others go on as before."""
    ending = follow(case.planner, case.task, SEEDS, range(1, len(SEEDS) + 1))
    expect_same(ending, case.followed, "index the memory by `ids`; rows of observations are those of `ids`", 1e-4)


def rows_do_not_touch_each_other(case: PlannerCase) -> None:
    """What is remembered of an episode does not depend on what happens in another."""
    others = follow(case.planner, case.task, [SEEDS[0], *(seed + len(SEEDS) for seed in SEEDS[1:])])
    expect_same(others[:1], case.followed[:1], "keep what is remembered of each of the other episodes apart", 1e-4)


def observations_stay_as_they_are(case: PlannerCase) -> None:
    """The arrays that it is handed are not written to."""
    handed: list[tuple[Observations, Observations]] = []
    follow(case.planner, case.task, SEEDS, handed=handed)
    for mine, kept in handed:
        for name in kept:
            expect(torch.equal(mine[name], kept[name]), f"other values in '{name}' than it was given", "the same",
                   "clone() before writing")  # fmt: skip


def looks_into_the_simulator_only_if_it_says_so(case: PlannerCase) -> None:
    """Without `privileged = True`, plans are the same without the simulator and whatever goals it would give."""
    if case.planner.privileged:
        raise Skipped("it says privileged = True")
    envs = EnvBatch(case.task, [seed + 100 for seed in SEEDS]).envs
    for goals in ([0], [1]):
        looking = follow(case.planner, case.task, SEEDS, oracle=Oracle(envs, lambda env, goals=goals: goals))  # type: ignore[misc]
        expect_same(looking, case.followed, "set privileged = True, or do not use the simulator")


RULES: tuple[Rule, ...] = (
    plans_inside_the_action_space, scores_are_finite, same_seed_same_plan,
    a_row_alone_equals_a_row_in_a_batch, memory_follows_the_rows, rows_do_not_touch_each_other,
    observations_stay_as_they_are, looks_into_the_simulator_only_if_it_says_so,
)  # fmt: skip
