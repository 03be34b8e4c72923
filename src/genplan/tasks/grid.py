"""Grid tasks: BabyAI's levels as planners see them, labels of sub-goals, and goals for privileged planners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from genplan.envs import ENVS, babyai, make_env
from genplan.envs.babyai import DIRECTIONS, NOTHING_CARRIED, babyai_spec, cell_in_front
from genplan.envs.bot import bot_policy
from genplan.envs.grid import completed_parts, pending_instructions
from genplan.envs.shortest import shortest_steps
from genplan.spec import Geometry, Observation
from genplan.tasks.experts import ExpertPlanner
from genplan.types import Planner, Task

METRICS = (
    "success", "spl", "spl_shortest", "steps", "cells_visited", "stalling", "step_agreement", "plan_agreement",
    "arrival",
)  # fmt: skip

# Left and right turns swap when a grid is reflected, in actions and in words.
SYMMETRY = {
    "name": "symmetry", "reflected_actions": [1, 0, 2, 3, 4, 5], "reflected_words": {"left": "right", "right": "left"},
}  # fmt: skip
# Walls are always grey and floors have no color: doors, keys, balls and boxes do.
COLOR_PERMUTATION = {
    "name": "color_permutation", "words": list(babyai.COLOR_NAMES), "channel": 1, "feature": ["carrying", 1],
    "types": [babyai.DOOR, babyai.KEY, babyai.BALL, babyai.BOX],
}  # fmt: skip
EITHER_ORDER = {"name": "either_order", "conjunction": "and"}
ERASE_LOOPS = {"name": "erase_loops"}
MAZE = (ERASE_LOOPS, SYMMETRY, COLOR_PERMUTATION)
TRANSFORMS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    **dict.fromkeys(("MazeS4G1", "MazeS7G1", "MazeClose"), MAZE),
    **dict.fromkeys(("MazeS4G2", "MazeS7G2"), (*MAZE, EITHER_ORDER)),
    "LocS10N1": (
        {"name": "stitch", "num_episodes": 4000, "conjunction": "and"},
        {"name": "map_randomization", "max_objects": 10}, SYMMETRY, COLOR_PERMUTATION, EITHER_ORDER,
    ),
}  # fmt: skip
BUDGET_MINUTES = {"MazeS7G1": 40.0, "MazeS7G2": 40.0, "BlockUnlock": 30.0, "KeyCorridorS3R3": 30.0}
COST_CLASSES = {
    **dict.fromkeys(("MazeS4G1", "MazeS4G2", "MazeClose", "LocS10N1"), "MazeS4G1"),
    **dict.fromkeys(("MazeS7G1", "MazeS7G2"), "MazeS7G2"),
}
ORACLE_VERSIONS = {"BlockUnlock": 2, "KeyCorridorS3R3": 2}  # `privileged_goals` was corrected there (docs/log.md)


def observe(env: Any, observation: Mapping[str, Any]) -> Observation:
    """A FullyObserved observation as planners see it; the environment itself is not looked at."""
    image = observation["image"]
    x, y, direction = observation["pose"].tolist()
    return {
        "state": (x + image.shape[0] * y) * DIRECTIONS + direction,
        "grid": image,
        "mission": observation["mission_tokens"],
        "carrying": observation["carrying"],
    }


class SubgoalLabeller:
    """Labels what an episode reaches: facts of what happened, not of what was meant.

    A target is where the agent faced when a part of its instruction came true; with several matching objects, that is
    the one really reached. Objects picked up are keys or blockers; a door counts when it was locked and no longer is.
    """

    def __init__(self, env: Any) -> None:
        self.level = env.unwrapped
        self.geometry = Geometry(self.level.width, self.level.height, DIRECTIONS)
        self.completed: set[str] = set()

    def __call__(self, before: Observation, after: Observation, success: bool) -> list[tuple[int, str]]:
        front = cell_in_front(*self.geometry.pose(int(before["state"])))
        facing = self.geometry.cell(*front)
        reached = []
        if tuple(before["carrying"]) == NOTHING_CARRIED and tuple(after["carrying"]) != NOTHING_CARRIED:
            reached.append((facing, "key" if after["carrying"][0] == babyai.KEY else "blocker"))
        was, now = before["grid"][front], after["grid"][front]
        if was[0] == babyai.DOOR and was[2] == babyai.LOCKED != now[2]:
            reached.append((facing, "door"))
        if hasattr(self.level, "instrs"):
            completed = completed_parts(self.level.instrs, success)
            reached += [(self.geometry.cell(*self.level.front_pos), "target")] * len(completed - self.completed)
            self.completed = completed
        elif success:  # stock MiniGrid: its goals are squares to stand on
            reached.append((self.geometry.cell(*self.level.agent_pos), "target"))
        return reached


def privileged_goals(env: Any) -> list[int]:
    """Cells of the next goals, for privileged planners: keys, what blocks doors, doors, then what is still missing.

    In the order in which the bot goes for them: of two parts to do in any order, the one that is said first.
    """
    level = env.unwrapped
    geometry = Geometry(level.width, level.height, DIRECTIONS)
    agent = np.array(level.agent_pos)

    def nearest(positions: Iterable[tuple[int, int]]) -> list[int]:
        ordered = sorted(positions, key=lambda position: int(np.abs(np.array(position) - agent).sum()))
        return [geometry.cell(*ordered[0])] if ordered else []

    targets: list[int] = []
    for part in pending_instructions(level.instrs):
        part.desc.find_matching_objs(level)
        # What is nowhere on the map is carried by the agent.
        targets += nearest(tuple(position) for position in part.desc.obj_poss) or [geometry.cell(*level.agent_pos)]
    on_the_way: list[int] = []
    objects = {at: item for at in np.ndindex(level.width, level.height) if (item := level.grid.get(*at))}
    for (x, y), door in objects.items():
        if door.type == "door" and door.is_locked:
            keys = {at: item for at, item in objects.items() if (item.type, item.color) == ("key", door.color)}
            carried = level.carrying
            has_key = carried is not None and (carried.type, carried.color) == ("key", door.color)
            key = [] if has_key else nearest(keys)
            blocker = nearest(
                (i, j) for (i, j), item in objects.items()
                if abs(i - x) + abs(j - y) == 1 and item.can_pickup() and geometry.cell(i, j) not in (*targets, *key)
            )  # fmt: skip
            # A key that was put down before a blocked door leaves the agent free to remove what is in the way.
            put_down = any(item in level.ever_carried for item in keys.values())
            on_the_way += blocker + key if put_down else key + blocker
            on_the_way.append(geometry.cell(x, y))
    return on_the_way + targets


def bot_expert(full_view: bool = False) -> Planner:
    """BabyAI's bot as a planner."""
    return ExpertPlanner(partial(bot_policy, full_view=full_view))


def grid_task(name: str) -> Task:
    """A task of the table of environments."""
    entry = ENVS[name]
    return Task(
        name=name,
        make=partial(make_env, name),
        spec=babyai_spec(entry.size, entry.size, entry.num_goals),
        observe=observe,
        max_steps=entry.max_steps,
        metrics=METRICS,
        expert=bot_expert,
        label_subgoals=SubgoalLabeller,
        privileged_goals=privileged_goals,
        oracle_version=ORACLE_VERSIONS.get(name, 1),
        references={"shortest": partial(shortest_steps, name)},
        transforms=TRANSFORMS.get(name, (ERASE_LOOPS, SYMMETRY)),
        budget_minutes=BUDGET_MINUTES.get(name, 15.0),
        cost_class=COST_CLASSES.get(name, name),
    )
