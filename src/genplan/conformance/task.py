"""Rules for tasks: what an environment shows, how its episodes go, and what its expert and labels say."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from genplan.collect import collect_episode
from genplan.conformance.rules import Rule, Skipped, expect
from genplan.data.episodes import episode_from_arrays
from genplan.data.transforms import extend_episodes, transform_from_json
from genplan.data.windows import Windows
from genplan.flow import Rng
from genplan.metrics import resolve
from genplan.planners.reference import RandomPolicy
from genplan.presets import recipe_to_json
from genplan.rollout import EnvBatch, play, rollout
from genplan.spec import Observation
from genplan.types import TRAIN_SEEDS, VALIDATION_SEEDS, Env, Episode, Task, WindowNeeds

SEEDS, EXPERT_SEEDS = VALIDATION_SEEDS[:3], TRAIN_SEEDS[:5]


class RandomEpisode(NamedTuple):
    """The episode of one seed under random actions."""

    observed: list[tuple[Observation, Observation]]  # with copies, made at once
    results: list[dict[str, Any]]  # of steps
    goals: list[Any]  # privileged goals at each step


@dataclass(frozen=True)
class TaskCase:
    """A task, and random episodes of it."""

    task: Task

    @cached_property
    def bare(self) -> Task:
        """Without what has rules of its own."""
        return replace(self.task, success=None, infos=(), label_subgoals=None, privileged_goals=None)

    @cached_property
    def episodes(self) -> list[RandomEpisode]:
        return self.played()

    def played(self, **changes: Any) -> list[RandomEpisode]:
        return [random_episode(replace(self.bare, **changes), [seed]) for seed in SEEDS]

    def demonstrations(self, **changes: Any) -> list[Episode]:
        """Of the expert, where it succeeds."""
        task = replace(self.task, **changes)
        if task.expert is None:
            raise Skipped("the task has no expert")
        expert = task.expert()
        with closing(task.make_env()) as env:
            return [one for seed in EXPERT_SEEDS if (one := collect_episode(expert, task, env, seed)) is not None]


def random_episode(task: Task, seeds: Sequence[int], env: Env | None = None) -> RandomEpisode:
    """Of the first seed; others are played at the same time. `env` is used again if it is given."""
    batch, found = EnvBatch(task, seeds, envs=None if env is None else [env]), RandomEpisode([], [], [])

    def note() -> None:
        found.observed.append((batch.current[0], copy.deepcopy(batch.current[0])))
        if task.privileged_goals is not None:
            found.goals.append(task.privileged_goals(batch.envs[0]))

    note()
    for steps in rollout(RandomPolicy(task.spec.actions), batch):
        if steps.ids[0] != 0:  # it is over; others go on
            break
        note()
        found.results.append({name: part[0] for name, part in vars(steps.result).items()})
    if env is None:
        batch.close()
    return found


def _expect_same(again: RandomEpisode, first: RandomEpisode, expected: str, advice: str) -> None:
    for step, ((_, mine), (_, other)) in enumerate(zip(first.observed, again.observed, strict=False)):
        for name in mine:
            if not np.array_equal(mine[name], other[name], equal_nan=True):
                values = " in place of ".join(str(np.ravel(one[name])[:8]) for one in (other, mine))
                expect(False, f"another '{name}' after {step} steps: {values}", expected, advice)
    for step, (before, after) in enumerate(zip(first.results, again.results, strict=False)):
        expect(before == after, f"another outcome of step {step}: {after} in place of {before}", expected, advice)
    lengths = [len(one.results) for one in (again, first)]
    expect(lengths[0] == lengths[1], f"{lengths[0]} steps in place of {lengths[1]}", expected, advice)


def observations_fit_their_fields(case: TaskCase) -> None:
    """At every step, observe() gives an array of the right shape, dtype and range for every field."""
    for episode in case.episodes:
        for step, (_, observation) in enumerate(episode.observed):
            for name, one in case.task.spec.fields.items():
                one.check(observation[name], f"'{name}', as observe() gives it after {step} steps,")


def observations_do_not_change_later(case: TaskCase) -> None:
    """An array that was given stays as it is when the environment goes on."""
    for episode in case.episodes:
        for step, (now, then) in enumerate(episode.observed):
            for name, kept in then.items():
                expect(np.array_equal(now[name], kept, equal_nan=True),
                       f"other values in '{name}' of step {step} once the episode went on", "the same",
                       "copy the environment's arrays in observe()")  # fmt: skip


def same_seed_same_episode(case: TaskCase) -> None:
    """With the same seed and actions, an episode comes out the same, in a new environment and in a used one."""
    with closing(case.bare.make_env()) as env:
        random_episode(case.bare, SEEDS[1:2], env)
        for again in (random_episode(case.bare, SEEDS[:1]), random_episode(case.bare, SEEDS[:1], env)):
            advice = "draw from self.np_random after super().reset(seed=seed), and reset everything in reset()"
            _expect_same(again, case.episodes[0], "the same episode", advice)


def instances_do_not_touch_each_other(case: TaskCase) -> None:
    """An episode is the same whether or not another instance is played at the same time."""
    _expect_same(random_episode(case.bare, SEEDS), case.episodes[0], "the same episode beside other instances",
                 "keep the state in the instance, not in the class, the module or a global generator")  # fmt: skip


def max_steps_is_the_limit(case: TaskCase) -> None:
    """No episode is cut short at another number of steps than max_steps."""
    lengths = {len(one.results) for one in case.episodes if one.results[-1]["truncations"]}
    expect(len(lengths) != 1 or lengths == {case.task.max_steps}, f"episodes cut short after {lengths} steps",
           f"max_steps, {case.task.max_steps}", "give the task the environment's own limit")  # fmt: skip


def actions_are_known_to_the_environment(case: TaskCase) -> None:
    """The actions of the spec lie within the environment's own action space."""
    actions = case.task.spec.actions
    with closing(case.task.make_env()) as env:
        if (space := getattr(env, "action_space", None)) is None:
            raise Skipped("the environment has no action_space")
        bounds = (actions.low, actions.high) if actions.n is None else (0, actions.n - 1)
        for bound in bounds:
            action = np.asarray(bound, getattr(space, "dtype", None) or actions.dtype)
            expect(space.contains(action if actions.n is None else action.item()), f"the action {bound}", str(space),
                   "declare the environment's actions in PlanSpec(actions=...)")  # fmt: skip


def success_is_a_bool(case: TaskCase) -> None:
    """success(reward, terminated, info) answers True or False at every step."""
    if (success := case.task.success) is None:
        raise Skipped("the task has no success")

    def checked(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        answer = success(reward, terminated, info)
        expect(isinstance(answer, bool | np.bool_), f"{answer!r} from success()", "True or False", "return bool(…)")
        return bool(answer)

    case.played(success=checked)


def infos_are_numbers(case: TaskCase) -> None:
    """Every key of `infos` is in the info of every step, as a number."""
    if not case.task.infos:
        raise Skipped("the task names no infos")
    case.played(infos=case.task.infos)


def the_expert_succeeds(case: TaskCase) -> None:
    """The expert, if there is one, acts inside the space and succeeds on some of the first training seeds."""
    seeds = f"the seeds {EXPERT_SEEDS[0]} to {EXPERT_SEEDS[-1]}"
    expect(case.demonstrations(label_subgoals=None), f"success on 0 of {seeds}", "some",
           "see that success() is what the expert strives for, and max_steps enough")  # fmt: skip


def subgoal_labels_are_goal_tokens(case: TaskCase) -> None:
    """Whatever is labelled in the expert's episodes is a token of the stream of goals."""
    if case.task.label_subgoals is None or case.task.spec.goals is None:
        raise Skipped("it needs label_subgoals and a stream of goals")
    expect(any(one.subgoals for one in case.demonstrations()), "0 sub-goals in all episodes", "some",
           "label what a step reached: [(token, type), …]")  # fmt: skip


def privileged_goals_are_goal_tokens(case: TaskCase) -> None:
    """At every step, privileged_goals(env) names at least one token of the stream of goals."""
    goals = case.task.spec.goals
    if case.task.privileged_goals is None or goals is None:
        raise Skipped("it needs privileged_goals and a stream of goals")
    for found in case.played(privileged_goals=case.task.privileged_goals):
        for step, tokens in enumerate(found.goals[: len(found.results)]):  # after the last step nothing is left
            expect(tokens and all(one in range(goals.size) for one in tokens), f"the goals {tokens} after {step} steps",
                   f"at least one of 0 to {goals.size - 1}", "give tokens of the stream, the next first")  # fmt: skip


def metrics_are_defined(case: TaskCase) -> None:
    """Every metric is known, and gives a finite number or None."""
    rollouts = play(RandomPolicy(case.task.spec.actions), case.task, SEEDS)
    for metric in resolve(case.task):
        values = [metric.of(one) for one in rollouts]
        finite = all(one is None or np.isfinite(one) for one in values)
        expect(finite, f"{metric.name} {values}", "finite numbers or None", "return None where it is not defined")


def transforms_keep_batches_valid(case: TaskCase) -> None:
    """What the recipe of transforms makes of demonstrations fits the spec, and follows from the rng alone."""
    if not case.task.transforms:
        raise Skipped("the task has no transforms")
    spec, shown = case.task.spec, case.demonstrations()
    transforms = [transform_from_json(one) for one in recipe_to_json(case.task.transforms)]
    made = extend_episodes(transforms, spec, shown, np.random.default_rng(0))
    for number, episode in enumerate(made[len(shown) :]):
        parts = {name: part for name, part in vars(episode).items() if name != "last_repeated"}
        episode_from_arrays(spec, **parts, where=f"episode {number} that a transform made")
    windows = Windows(spec, made, WindowNeeds(4, 2), 0.0, transforms)
    batch, again = (windows.sample(32, Rng.of(0)) for _ in range(2))
    spec.actions.check(batch.actions.numpy(), "the actions of a transformed batch")
    for name, tensor in (*batch.scene.fields.items(), *batch.current.fields.items()):
        spec.fields[name].check(tensor.numpy(), f"'{name}' of a transformed batch", (len(tensor),))
    for name, tokens in batch.tokens.items():
        expect(0 <= int(tokens.min()) <= int(tokens.max()) < spec.streams[name].size, f"{name} up to {tokens.max()}",
               f"0 to {spec.streams[name].size - 1}", "map tokens to tokens")  # fmt: skip
        expect(torch.equal(tokens, again.tokens[name]), f"other {name} with the same rng", "the same",
               "draw from the `rng` of the batch, folded with a label")  # fmt: skip


RULES: tuple[Rule, ...] = (
    observations_fit_their_fields, observations_do_not_change_later, same_seed_same_episode,
    instances_do_not_touch_each_other, max_steps_is_the_limit, actions_are_known_to_the_environment, success_is_a_bool,
    infos_are_numbers, the_expert_succeeds, subgoal_labels_are_goal_tokens, privileged_goals_are_goal_tokens,
    metrics_are_defined, transforms_keep_batches_valid,
)  # fmt: skip
