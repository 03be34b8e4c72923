"""The glossary: every type that is handed from room to room.

B is the size of a batch, H the horizon of a plan, T the steps of an episode, M the scenes of a batch, C the past steps
that are remembered, and A the shape of one action: () if actions are discrete, (dimensions,) otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, overload

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from genplan.errors import UserError, error_location
from genplan.flow import Rng, Trace
from genplan.spec import Observation, PlanSpec

TRAIN_SEEDS = range(10_000, 100_000)
VALIDATION_SEEDS = range(2_000, 3_000)
TEST_SEEDS = range(1_234, 1_484)

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class Observations:
    """A batch of observations: one tensor per field, [B, …]."""

    fields: Mapping[str, Tensor]

    @staticmethod
    def stack(observations: Sequence[Observation]) -> Observations:
        names = observations[0]
        return Observations({name: torch.from_numpy(np.stack([one[name] for one in observations])) for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.fields.values()))) if self.fields else 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    @overload
    def __getitem__(self, key: str) -> Tensor: ...
    @overload
    def __getitem__(self, key: Tensor) -> Observations: ...
    def __getitem__(self, key: str | Tensor) -> Tensor | Observations:
        """A field by name, or the rows of a batch by their ids [n]."""
        if isinstance(key, str):
            return self.fields[key]
        return Observations({name: tensor[key] for name, tensor in self.fields.items()})

    def to(self, device: torch.device | str) -> Observations:
        return Observations({name: tensor.to(device) for name, tensor in self.fields.items()})

    def only(self, names: Sequence[str]) -> Observations:
        return Observations({name: self.fields[name] for name in names if name in self.fields})

    def changed(self, other: Observations, names: Sequence[str]) -> Tensor:
        """Which rows differ from `other` in any of the fields `names`: bool [B]."""
        found = torch.zeros(len(self), dtype=torch.bool, device=next(iter(self.fields.values())).device)
        for name in names:
            found |= (self.fields[name] != other.fields[name])[..., None].flatten(1).any(1)
        return found


class SubGoal(NamedTuple):
    """Something that was reached on the way: a fact of a demonstration."""

    step: int  # the action that reached it, counted from 0
    token: int  # the goal token: a cell, or a state
    type: str  # target, blocker, key or door


@dataclass(frozen=True)
class Episode:
    """One demonstration: T actions of the environment, T + 1 observations. Nothing in it is invented."""

    observations: Mapping[str, NDArray[Any]]  # [T + 1, …] per field
    actions: NDArray[Any]  # [T, *A]
    rewards: NDArray[np.float64]  # [T]; NaN: unknown
    terminations: NDArray[np.bool_]  # [T]
    truncations: NDArray[np.bool_]  # [T]
    infos: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # [T] per key that the task names
    subgoals: tuple[SubGoal, ...] = ()
    success: bool = True
    seed: int | None = None
    last_repeated: bool = False  # the observation after the last action was not recorded; the one before stands there

    def __len__(self) -> int:
        return len(self.actions)


class WindowNeeds(NamedTuple):
    """What a method needs of the data."""

    horizon: int
    context_length: int = 1  # observations that are shown, the current one counted
    subgoal_types: tuple[str, ...] = ("target",)
    visit_memory: bool = False


class History(NamedTuple):
    """What lies behind B windows: their last C steps; and the set of states visited before, with what was tried there.

    A set and not a sequence: repeating an action merely because it was done before cannot be learnt from it, and
    standing still or going to and fro adds nothing to it.
    """

    steps: Observations  # [B, C, …] per category and vector field, the nearest last
    actions: Tensor  # [B, C, *A]
    valid: Tensor  # bool [B, C]: False before the episode's first step
    same_scene: Tensor | None = None  # bool [B, C]: whether the scene was then as it is now; known in training
    same_goals: Tensor | None = None  # bool [B, C]: whether the same goals were ahead as are now; known in training
    visited_states: Tensor | None = None  # [M, L]: states visited by the episode of a scene; None if L = 0
    visited_mask: Tensor | None = None  # bool [B, L]: which of them lie behind a window (its own first state does not)
    action_counts: Tensor | None = None  # [B, actions]: how often done in this state since anything else changed

    def to(self, device: torch.device | str) -> History:
        return self._replace(**{name: one.to(device) for name, one in self._asdict().items() if one is not None})


@dataclass(frozen=True)
class Batch:
    """B windows over M scenes. Windows stand in the order of their scenes, equally many in each."""

    scene: Observations  # [M, …] per grid and words field
    current: Observations  # [B, …] per category and vector field
    history: History
    tokens: Mapping[str, Tensor]  # states [B, H], goals [B, H, G]: the streams beside actions
    actions: Tensor  # [B, H, *A], of the environment
    valid: Mapping[str, Tensor]  # bool per stream, as tokens; `actions` [B, H]
    num_scenes: int  # M
    spec: PlanSpec  # of the task: of several that are trained together, grids may differ in size
    steps_left: Tensor | None = None  # [B]: to the end of the episode

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def windows_per_scene(self) -> int:
        return len(self) // self.num_scenes

    def to(self, device: torch.device | str) -> Batch:
        tokens, valid = ({name: one.to(device) for name, one in part.items()} for part in (self.tokens, self.valid))
        scene, current, history = self.scene.to(device), self.current.to(device), self.history.to(device)
        left = None if self.steps_left is None else self.steps_left.to(device)
        return Batch(scene, current, history, tokens, self.actions.to(device), valid, self.num_scenes, self.spec, left)


# --- planners --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What to do next, for a batch of episodes, and how it came about. All parts describe the same actions."""

    actions: Tensor  # [B, H, *A], of the environment
    tokens: Mapping[str, Tensor] = field(default_factory=dict)  # states [B, H], goals [B, H, G], actions as codes
    energy: Tensor | None = None  # [B]
    candidate_energies: Tensor | None = None  # [B, candidates]: of all plans among which these were chosen
    confidence: Tensor | None = None  # [B, H], of the actions
    trace: Trace | None = None  # rows are candidates: B · candidates of them
    selected: Tensor | None = None  # [B]: the row of the trace that each plan is
    cut: bool = False  # whether the rest is dropped as soon as a planned state does not come
    sure_steps: Tensor | None = None  # [B]: actions that are sure enough to be executed before the next plan

    @property
    def states(self) -> Tensor | None:
        return self.tokens.get("states")

    @property
    def goals(self) -> Tensor | None:
        return self.tokens.get("goals")


class Losses(NamedTuple):
    total: Tensor
    metrics: dict[str, Tensor]


Memory = Any
"""Whatever a planner keeps of its episodes; the evaluator owns it and hands it back."""


@dataclass(frozen=True)
class Oracle:
    """The simulator itself, for planners that may look inside (experts, and baselines given goals). Never a default."""

    envs: Sequence[Env]
    privileged_goals: Callable[[Env], list[int]] | None = None  # what is to be reached next, as goal tokens


class Planner(Protocol):
    """Anything that can plan."""

    privileged: bool  # needs the simulator

    @property
    def action_steps(self) -> int | None:
        """Actions of each plan that are executed; None: all of them."""

    def reset(self, observations: Observations, oracle: Oracle | None = None) -> Memory:
        """At the start of a batch of episodes."""

    def plan(
        self, observations: Observations, memory: Memory, rng: Rng, ids: Tensor, oracle: Oracle | None = None
    ) -> tuple[Plan, Memory]:
        """Plans for the rows `ids` [n] of the batch; `observations` and `rng` hold just those rows."""

    def observe(self, memory: Memory, actions: Tensor, observations: Observations, ids: Tensor) -> Memory:
        """After every executed step: what was done in the rows `ids`, and what was observed then."""


@dataclass(frozen=True)
class Method:
    """An entry of METHODS: where a learned planner is found, and the settings that make it this method."""

    planner: str  # "module:Class"; the class has its `Config`
    settings: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""  # the paper's name, where it is another
    trained_as: str = ""  # the method whose trained planner it uses, by its own settings; by default its own
    continuous: bool = False  # plans chunks of continuous actions, and nothing else
    adapts: bool = False  # learns within an episode what its actions do, and needs no random exploration
    # Settings that follow the row of a table: setting -> attribute of tasks.paper.Row. In training, and at test time.
    trained_by_row: Mapping[str, str] = field(default_factory=dict)
    played_by_row: Mapping[str, str] = field(default_factory=dict)
    step_seconds: Mapping[str, float] = field(default_factory=dict)  # CPU-seconds of a training step, per cost class


# --- episodes that were played ---------------------------------------------------------------------------------------


class OpenLoop(NamedTuple):
    """A plan, executed to its end whatever comes; of planners that predict states."""

    horizon: int
    planned: NDArray[np.int64]  # the states that its actions should lead to, up to the end of the plan or the episode
    came: NDArray[np.int64]  # and those that they led to, as many
    arrival: int | None  # after how many actions there was success


@dataclass(frozen=True)
class Rollout:
    """One finished episode, with its references: what metrics are functions of."""

    seed: int
    spec: PlanSpec
    observations: Mapping[str, NDArray[Any]]  # [T + 1, …] per category and vector field
    actions: NDArray[Any]  # [T, *A]
    rewards: NDArray[np.float64]  # [T]
    terminated: bool
    truncated: bool
    success: bool  # at any step
    changed: NDArray[np.bool_]  # [T]: whether a step changed anything that is observed
    num_plans: int
    infos: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # [T] per key that the task names
    references: Mapping[str, int | None] = field(default_factory=dict)  # steps of the `expert`, of the `shortest` way
    first_plan: OpenLoop | None = None

    @property
    def num_steps(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Metric:
    """A function of a finished rollout, reduced over episodes: the sum of `of` divided by the sum of `weight`, or the
    number of distinct values."""

    name: str
    of: Callable[[Rollout], float | None]  # None: not defined for this episode, and so for none
    weight: Callable[[Rollout], float] | None = None  # None: every episode counts alike
    reduction: Literal["mean", "distinct"] = "mean"  # over episodes; distinct: how many values occur
    higher_is_better: bool = True
    format: str = ".3f"
    interval: Literal["wilson", "bootstrap"] = "bootstrap"
    label: str = ""  # of a column; the name by default


SubgoalLabeller = Callable[[Observation, Observation, bool], list[tuple[int, str]]]
"""(before, after, success) -> [(goal token, type), …] of what a step reached."""


def terminated_with_reward(reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    """Success, in most Gymnasium environments: the episode ended with a reward."""
    return bool(terminated and reward > 0)


@dataclass(frozen=True)
class Task:
    """An environment, and how a planner sees it. This is all that a user's own environment needs."""

    name: str
    make: Callable[[], Env]
    spec: PlanSpec
    # What a planner observes, from the environment and its own observation: an array per field of the spec.
    observe: Callable[[Env, Any], Observation]
    max_steps: int
    # (reward, terminated, info) -> success of a step; None: there is no such thing, every episode counts.
    success: Callable[[float, bool, Mapping[str, Any]], bool] | None = terminated_with_reward
    infos: tuple[str, ...] = ()  # keys of `info` that are kept: numbers, one per step
    metrics: tuple[str | Metric, ...] = ()  # the first is the headline; by default those of genplan.metrics.DEFAULTS
    expert: Callable[[], Planner] | None = None
    label_subgoals: Callable[[Env], SubgoalLabeller] | None = None  # makes a labeller for an episode
    privileged_goals: Callable[[Env], list[int]] | None = None  # for privileged planners, never in an observation
    oracle_version: int = 1  # of what `privileged_goals` says; results of privileged planners depend on it
    # Where actions [H, *A] lie on what the environment renders, [H, 2] from 0 to 1: planned ones are drawn there.
    action_points: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    references: Mapping[str, Callable[[int], int | None]] = field(default_factory=dict)  # seed -> steps; `shortest`
    dataset: str | None = None  # what is learnt from by default; None: demonstrations of the expert, collected
    transforms: tuple[Any, ...] = ()  # recipe of data transforms for training (genplan.data.transforms)
    budget_minutes: float = 15.0  # CPU-minutes of training in the benchmark
    cost_class: str = ""  # tasks of one shape, whose training steps cost the same; the name by default

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError(f"task {self.name}: max_steps is {self.max_steps}, expected at least 1")

    def make_env(self) -> Env:
        try:
            env = self.make()
        except UserError:  # says already what to do
            raise
        except Exception as error:
            reason = error_location(error)
            raise UserError(f"the environment of task {self.name} cannot be made ({reason}); see its make()") from error
        if not hasattr(env, "reset"):
            raise UserError(f"make() of task {self.name} returned {type(env).__name__}, expected a gymnasium.Env")
        return env
