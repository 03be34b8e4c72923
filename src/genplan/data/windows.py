"""Episode -> Batch: training windows straight from contiguous tensors, with no Python per item.

A window is `horizon` steps of one episode, from any of its time steps on, with the `context_length` − 1 steps before.
Positions behind the end are padding: `valid` is False there, and no token stands for it. Windows are sampled from all
time steps of all episodes, uniformly, or the more often the sooner the demonstrator got from there to the next goal:
where two ways were demonstrated, the shorter one then counts more. Several windows can share one scene, so that an
encoder runs once for all: a step is sampled, and its companions in the same way among the steps that see the very same
scene, which leaves every window's own probability as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genplan.errors import DataError
from genplan.flow import Rng
from genplan.spec import PlanSpec
from genplan.types import Batch, Episode, History, Observations, WindowNeeds

TARGET = ("target",)
# Labels of random draws are part of the results of every trained planner: never change them.
STARTS, COMPANIONS, TASK = "windows", "companions", "world"


class Drawn(NamedTuple):
    """Which windows a batch is made of, as numbers of the steps and scenes of its `Windows`."""

    steps: Tensor  # [B]: where each window starts
    scenes: Tensor  # [M]: what it sees there


BoundTransform = Callable[[Batch, Drawn, Rng], Batch]
"""Changes a batch at random; the `Rng` is that of the batch, so every transform folds a label of its own."""


@runtime_checkable
class BatchTransform(Protocol):
    """Changes every training batch. With an attribute `on_recorded_scenes = True` it is applied before all others
    that have none: it looks up things of the recorded scenes, and would not find them in a turned or painted one."""

    def bind(self, windows: Windows) -> BoundTransform: ...


@runtime_checkable
class EpisodeTransform(Protocol):
    """Makes more episodes of those that there are, once, before windows are made. With an attribute `replaces = True`
    they stand in the place of the others."""

    def episodes(self, spec: PlanSpec, episodes: Sequence[Episode], rng: np.random.Generator) -> list[Episode]: ...


class Windows:
    """All windows of a set of episodes, ready to be sampled.

    Steps of all episodes are numbered in turn, 0 … N − 1, T + 1 per episode: `steps`, `actions`, `goals`, `first`,
    `last` and `scene_of_step` are columns over them. `scenes` holds the distinct scenes of every episode.
    """

    def __init__(
        self,
        spec: PlanSpec,
        episodes: Sequence[Episode],
        needs: WindowNeeds,
        goal_proximity_exponent: float = 0.0,
        transforms: Sequence[BatchTransform | EpisodeTransform] = (),
    ) -> None:
        """goal_proximity_exponent  windows n steps before the next goal are sampled in proportion to n ** −exponent

        Of the transforms, those that make episodes are left out: they have had their turn.
        """
        _check(spec, episodes, needs)
        self.spec = spec
        lengths = np.array([len(episode) + 1 for episode in episodes])
        ends = np.cumsum(lengths)
        self.first = torch.from_numpy(np.repeat(ends - lengths, lengths))  # [N] first and last step of its episode
        self.last = torch.from_numpy(np.repeat(ends - 1, lengths))
        columns = {name: [episode.observations[name] for episode in episodes] for name in spec.step_fields}
        self.steps = {name: _joined(parts, spec.fields[name].dtype) for name, parts in columns.items()}  # [N, …]
        padding = np.zeros((1, *spec.actions.shape), spec.actions.dtype)  # stands where an episode has ended
        actions = [part for episode in episodes for part in (episode.actions, padding)]
        self.actions = _joined(actions, spec.actions.dtype)  # [N, *A]
        self.goals: Tensor | None = None
        if spec.goals is not None:  # both [N, *shape of the stream]
            pairs = [goal_tokens(episode, spec.num_goals, needs.subgoal_types) for episode in episodes]
            self.goals = _joined([tokens for tokens, _ in pairs], np.int64).reshape(-1, *spec.goals.shape)
            self.goals_known = _joined([known for _, known in pairs], np.bool_).reshape(-1, *spec.goals.shape)
        self.scenes, self.scene_of_step = _index_scenes(spec, episodes)  # [K, …], [N]
        self.starts = torch.nonzero(torch.arange(len(self.last)) < self.last).squeeze(-1)  # steps with an action
        weights = steps_to_subgoal(episodes, needs.subgoal_types)[self.starts].double() ** -goal_proximity_exponent
        self._sort_starts(weights)
        self._ahead, self._behind = torch.arange(needs.horizon), torch.arange(1 - needs.context_length, 0)
        self.visits: VisitedStates | None = None
        if needs.visit_memory and spec.state_field is not None and spec.actions.n is not None:
            self.visits = VisitedStates(self, spec.state_field, spec.actions.n)
        batch_transforms = [one for one in transforms if isinstance(one, BatchTransform)]
        batch_transforms.sort(key=lambda one: not getattr(one, "on_recorded_scenes", False))  # stable
        self.transforms = [one.bind(self) for one in batch_transforms]

    def __len__(self) -> int:
        return len(self.starts)

    def _sort_starts(self, weights: Tensor) -> None:
        """By the scene that they see, so that windows of one scene can be sampled together; with their weights."""
        scenes = self.scene_of_step[self.starts]
        order = torch.argsort(scenes, stable=True)
        self._by_scene = self.starts[order]
        size = torch.bincount(scenes, minlength=int(self.scene_of_step.max()) + 1)
        self._scene_end = size.cumsum(0)
        self._scene_start = self._scene_end - size
        self._cdf = torch.cat([weights.new_zeros(1), weights[order].cumsum(0)])  # [starts + 1]
        self._all = size.new_zeros(1), size.new_full((1,), len(self.starts))

    # --- sampling ----------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, rng: Rng, windows_per_scene: int = 1, augment: bool = True) -> Batch:
        """A batch of windows, so many of them in each scene, with the transforms applied if `augment`.

        `rng` has no batch axes. Where nothing that is observed belongs to a scene, every window is one of its own.
        """
        per_scene = windows_per_scene if self.scenes else 1
        if batch_size < 1 or per_scene < 1 or batch_size % per_scene:
            raise ValueError(
                f"a batch of {batch_size} with {per_scene} windows per scene, expected a positive multiple of both"
            )
        steps = self.sample_starts(batch_size // per_scene, per_scene, rng)
        drawn = Drawn(steps.reshape(-1), self.scene_of_step[steps[:, 0]])
        batch = self.batch(drawn)
        for transform in self.transforms if augment else ():
            batch = transform(batch, drawn, rng)
        return batch

    def sample_starts(self, num_scenes: int, per_scene: int, rng: Rng) -> Tensor:
        """Steps at which windows start, [num_scenes, per_scene]: by their weights, those of a row in one scene."""
        u = rng.fold(STARTS).uniform((num_scenes, 1), torch.float64)
        steps = self._sample_among(u, *self._all)
        if per_scene == 1:
            return steps
        scenes = self.scene_of_step[steps]
        u = rng.fold(COMPANIONS).uniform((num_scenes, per_scene - 1), torch.float64)
        return torch.cat([steps, self._sample_among(u, self._scene_start[scenes], self._scene_end[scenes])], 1)

    def _sample_among(self, u: Tensor, first: Tensor, end: Tensor) -> Tensor:
        """For each uniform number one step, by weight, of those from `first` to before `end` in `_by_scene`."""
        low, high = self._cdf[first], self._cdf[end]
        index = torch.searchsorted(self._cdf, low + u * (high - low), right=True) - 1
        return self._by_scene[torch.minimum(index, end - 1)]  # rounding may reach the end

    def batch(self, drawn: Drawn) -> Batch:
        """These windows, as they were recorded."""
        last = self.last[drawn.steps, None]
        ahead = drawn.steps[:, None] + self._ahead
        inside, acting = ahead <= last, ahead < last
        ahead = torch.minimum(ahead, last)
        tokens, valid = {}, {}
        if self.spec.state_field is not None:
            tokens["states"], valid["states"] = self.steps[self.spec.state_field][ahead], inside
        if self.goals is not None:
            known = self.goals_known[ahead]
            tokens["goals"] = self.goals[ahead]
            valid["goals"] = inside.reshape(*inside.shape, *[1] * (known.ndim - 2)) & known
        return Batch(
            scene=Observations({name: scenes[drawn.scenes] for name, scenes in self.scenes.items()}),
            current=Observations({name: column[drawn.steps] for name, column in self.steps.items()}),
            history=self._history(drawn),
            tokens=tokens,
            actions=self.actions[ahead],
            valid={**valid, "actions": acting},
            num_scenes=len(drawn.scenes),
            spec=self.spec,
            steps_left=self.last[drawn.steps] - drawn.steps,
        )

    def _history(self, drawn: Drawn) -> History:
        steps, scene_of_step = drawn.steps, self.scene_of_step
        first = self.first[steps, None]
        behind = steps[:, None] + self._behind
        valid = behind >= first
        behind = torch.maximum(behind, first)
        same_goals = None
        if self.goals is not None:
            same_goals = self.goals[behind] == self.goals[steps, None]
            same_goals = same_goals.flatten(2).all(-1) if same_goals.ndim > 2 else same_goals
        return History(
            Observations({name: column[behind] for name, column in self.steps.items()}),
            self.actions[behind],
            valid,
            scene_of_step[behind] == scene_of_step[steps, None],
            same_goals,
            *(() if self.visits is None else self.visits.before(steps, len(drawn.scenes))),
        )


class VisitedStates:
    """The distinct states of every episode in the order of first visits: what lies behind a window is a prefix."""

    def __init__(self, windows: Windows, state: str, num_actions: int) -> None:
        self.states, self.first = windows.steps[state], windows.first  # [N]
        seen: dict[tuple[int, int], int] = {}
        for step, visit in enumerate(zip(self.first.tolist(), self.states.tolist(), strict=True)):
            seen.setdefault(visit, step)
        self.first_visits = torch.tensor(sorted(seen.values()))  # steps at which a state is first visited, in turn
        self.num_before = torch.searchsorted(self.first_visits, torch.arange(len(self.states)))  # [N]: before a step
        # [N]: where anything but the state differs from the step before, or another episode begins.
        changed = torch.ones(len(self.states), dtype=torch.bool)
        others = [column for name, column in windows.steps.items() if name != state]
        differs = [(one[1:] != one[:-1]).flatten(1).any(1) for one in others if one.ndim > 1]
        differs += [one[1:] != one[:-1] for one in (*others, self.first, windows.scene_of_step) if one.ndim == 1]
        changed[1:] = torch.stack(differs).any(0)
        # [N, actions]: how often each action had been done before in a step's state, since anything else changed.
        counts = np.zeros((len(self.states), num_actions), np.int64)
        done: dict[int, NDArray[np.int64]] = {}
        visits = zip(self.states.tolist(), windows.actions.tolist(), changed.tolist(), strict=True)
        for step, (visited, action, anew) in enumerate(visits):
            done = {} if anew else done
            counts[step] = done.setdefault(visited, np.zeros(num_actions, np.int64))
            done[visited][action] += 1
        self.action_counts = torch.from_numpy(counts)

    def before(self, steps: Tensor, num_scenes: int) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Of windows that start at `steps` [B], equally many in each scene, in turn; a scene is of one episode:
        `visited_states`, `visited_mask` and `action_counts` of a `History`."""
        counts = self.action_counts[steps]
        per_scene = len(steps) // num_scenes
        begin = self.num_before[self.first[steps[::per_scene]]]  # [M]
        passed = self.num_before[steps] - begin.repeat_interleave(per_scene)  # [B]
        length = int(passed.max())
        if not length:
            return None, None, counts
        index = torch.arange(length, device=steps.device)
        visits = (begin[:, None] + index).clamp_(max=len(self.first_visits) - 1)
        visited = self.states[self.first_visits[visits]]
        mask = index < passed[:, None]
        mask &= visited.repeat_interleave(per_scene, 0) != self.states[steps, None]
        return visited, mask, counts


class TaskMixture:
    """Windows of several tasks: every batch is of one of them, each as often as any other."""

    def __init__(self, parts: Sequence[Windows]) -> None:
        self.parts = parts

    def sample(self, batch_size: int, rng: Rng, windows_per_scene: int = 1, augment: bool = True) -> Batch:
        """As by `Windows.sample`, of one of the tasks."""
        number = int(rng.fold(TASK).integers(len(self.parts)))
        return self.parts[number].sample(batch_size, rng, windows_per_scene, augment)


# --- columns over the steps of all episodes --------------------------------------------------------------------------


def _check(spec: PlanSpec, episodes: Sequence[Episode], needs: WindowNeeds) -> None:
    if needs.horizon < 1:
        raise ValueError(f"horizon is {needs.horizon}, expected at least 1")
    if needs.context_length < 1:
        raise ValueError(f"context_length is {needs.context_length}, expected at least 1: the current observation")
    if not any(map(len, episodes)):
        raise DataError(f"windows of {len(episodes)} episodes with 0 actions, expected at least 1 of each")
    if spec.states is not None and spec.states.observed is None:
        raise DataError("the stream 'states' is not observed, expected the category field that shows its tokens")
    for number, episode in enumerate(episodes):
        if missing := [name for name in spec.fields if name not in episode.observations]:
            found = ", ".join(episode.observations)
            raise DataError(f"episode {number} has no field '{missing[0]}', expected one beside {found}")


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(dtype, copy=False))


def _index_scenes(spec: PlanSpec, episodes: Sequence[Episode]) -> tuple[Mapping[str, Tensor], Tensor]:
    """The distinct scenes of each episode by field [K, …], and which of them each step sees [N].

    Without scene fields an episode is one scene: there is nothing to see that could change.
    """
    first_seen: list[tuple[Episode, int]] = []  # where each scene is
    scene_of_step: list[int] = []
    for episode in episodes:
        columns = [episode.observations[name] for name in spec.scene_fields]
        seen: dict[tuple[bytes, ...], int] = {}
        for step in range(len(episode) + 1):
            content = tuple(column[step].tobytes() for column in columns)
            if content not in seen:
                seen[content] = len(first_seen)
                first_seen.append((episode, step))
            scene_of_step.append(seen[content])
    scenes = {
        name: _joined([episode.observations[name][step, None] for episode, step in first_seen], spec.fields[name].dtype)
        for name in spec.scene_fields
    }
    return scenes, torch.tensor(scene_of_step)


def goal_tokens(
    episode: Episode, num_goals: int, subgoal_types: Sequence[str] = TARGET
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Per state, the next `num_goals` sub-goals still to be reached, in order: tokens and whether known, [T + 1, G].

    Where fewer are left, the last one stands again: it is where the rest of the plan leads.
    """
    tokens = np.zeros((len(episode) + 1, num_goals), np.int64)
    goals = [goal for goal in episode.subgoals if goal.type in subgoal_types]
    for step in range(len(tokens) if goals else 0):
        left = [goal.token for goal in goals if goal.step >= step] or [goals[-1].token]
        tokens[step] = (left + left[-1:] * num_goals)[:num_goals]
    return tokens, np.full(tokens.shape, bool(goals))


def steps_to_subgoal(episodes: Sequence[Episode], subgoal_types: Sequence[str] = TARGET) -> Tensor:
    """Per step of all episodes, the steps to the next sub-goal, or to the end; at least 1, [N]."""
    parts = []
    for episode in episodes:
        reached = np.array(sorted(goal.step + 1 for goal in episode.subgoals if goal.type in subgoal_types), np.int64)
        ends = np.r_[reached, len(episode)]
        steps = np.arange(len(episode) + 1)
        next_end = np.minimum(np.searchsorted(ends, steps, side="right"), len(ends) - 1)
        parts.append(np.maximum(ends[next_end] - steps, 1))
    return torch.from_numpy(np.concatenate(parts))


def split_episodes(episodes: Sequence[Episode], share: float = 0.05) -> tuple[list[Episode], list[Episode]]:
    """Training and validation episodes, split by their order: the same for the same dataset."""
    every = max(round(1 / share), 2)
    train = [episode for number, episode in enumerate(episodes) if number % every]
    return (train or list(episodes)), list(episodes[::every])
