"""The exact length of the shortest successful episode of a grid environment, for measurement only.

A* over everything that the simulator can do: the agent's pose, the state of every door, where every object is, what is
carried, and which parts of the instruction are done. Its lower bound is the same episode with all movable objects gone,
every closed door costing one `toggle`. Moving an object never brings the agent nearer in this bound, so each pickup,
drop or removal of a box counts in full and scenes with many objects moved are hardly ever looked at.

Objects stay where they are if there is such a way: it is the shortest among those that move nothing. To clear a
shortcut by carrying off a ball or breaking a box is no way that anybody demonstrates. Where a key must be fetched or a
passage cleared, everything is allowed.

No planner may use this. Lengths of the test and validation seeds are stored in `shortest.json`, which
`benchmarks/shortest.py` writes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from minigrid.envs.babyai.core.verifier import AfterInstr, AndInstr, GoToInstr, OpenInstr, SeqInstr

from genplan.envs import make_env
from genplan.errors import UserError

TIME_LIMIT = 10.0  # CPU-seconds of one search
STORED = Path(__file__).with_name("shortest.json")

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
OPEN, CLOSED, LOCKED = range(3)
UNREACHABLE = 1 << 30


def shortest_steps(env_name: str, seed: int) -> int | None:
    """The least number of steps after which the episode of this seed can end in success.

    None if the search does not end within `TIME_LIMIT`, or if no sequence of actions succeeds within the step limit.
    """
    for first, lengths in _stored().get(env_name, {}).items():
        if 0 <= seed - int(first) < len(lengths):
            return lengths[seed - int(first)]
    return search_steps(env_name, seed)


def search_steps(env_name: str, seed: int, time_limit: float = TIME_LIMIT) -> int | None:
    """As `shortest_steps`, always by search."""
    with contextlib.closing(make_env(env_name)) as env:
        env.reset(seed=seed)
        actions = shortest_actions(env, time_limit)
    return None if actions is None else len(actions)


def shortest_actions(env: Any, time_limit: float = TIME_LIMIT) -> list[int] | None:
    """One of the shortest sequences of actions to success from the present state; `env` is not changed.

    What was moved before counts where it lies now (parts that are done stay done).
    """
    deadline = time.thread_time() + time_limit
    found = _Search(env.unwrapped, moves_objects=False).run(deadline)
    return _Search(env.unwrapped, moves_objects=True).run(deadline) if found is None else found


@functools.cache
def _stored() -> dict[str, dict[str, list[int | None]]]:
    lengths: dict[str, dict[str, list[int | None]]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return lengths


class _Object(NamedTuple):
    """A door or a movable object, without its identity: objects that act alike are equal, so scenes coincide."""

    type: str
    color: str = ""  # where it matters: of doors that were locked, and of their keys
    state: int = OPEN  # of a door
    content: _Object | None = None  # of a box


class _Part(NamedTuple):
    """`go to` or `open` one of some objects.

    Cells suffice to say which objects: doors do not move, and no object can move before a `go to` that names it is
    done. Whoever moves it faces it, and facing it where it was at reset is what `go to` asks for. (The verifier updates
    the positions it compares with at every `drop` only; that is why an object just picked up or a box just removed
    still counts.)
    """

    cells: frozenset[int]
    is_open: bool


@dataclass(eq=False, slots=True)
class _Scene:
    """What lies on the grid and what is carried; shared by all states that differ in pose and done parts only."""

    objects: dict[int, _Object]
    carried: _Object | None
    bound: list[int]  # per node: no episode ends sooner
    steps: dict[int, int] = field(default_factory=dict)  # per node: the fewest steps known to it
    came_from: dict[int, tuple[_Scene, int, int]] = field(default_factory=dict)  # scene, node and action before


class _Search:
    """A node is `mask · num_poses + pose`: the done parts as bits, and the pose `4 · cell + direction`."""

    def __init__(self, level: Any, moves_objects: bool) -> None:
        width, self.moves_objects = level.width, moves_objects
        self.offsets = (1, width, -1, -width)  # of the cell ahead, per direction
        self.num_poses = 4 * width * level.height
        self.max_steps: int = level.max_steps
        self.parts, self.in_order, self.done = _read_instruction(level.instrs, width)
        self.all_done = (1 << len(self.parts)) - 1
        self.to_open = frozenset[int]().union(*(part.cells for part in self.parts if part.is_open))
        self.enterable, objects = _read_grid(level.grid.grid)
        self.start_pose = 4 * (width * int(level.agent_pos[1]) + int(level.agent_pos[0])) + int(level.agent_dir)
        self.poses = [4 * cell + direction for cell in sorted(self.enterable) for direction in range(4)]
        self.ahead = {pose: (pose >> 2) + self.offsets[pose & 3] for pose in self.poses}
        self._index_nodes()
        self.free_bounds = self._free_bounds()
        self.bounds: dict[frozenset[int], list[int]] = {}
        self.scenes: dict[tuple[frozenset[tuple[int, _Object]], _Object | None], _Scene] = {}
        self.start = self._scene(objects, None)

    def done_after(self, mask: int, cell: int, opened: bool = False) -> int:
        """Which parts are done when the agent faces `cell` after a step, `opened` if the step opened a door there."""
        for bit, part in enumerate(self.parts):
            earlier = (1 << bit) - 1 if self.in_order else 0
            if cell in part.cells and (opened or not part.is_open) and mask & earlier == earlier:
                mask |= 1 << bit
        return mask

    def _index_nodes(self) -> None:
        """Where turning, standing still and walking lead to, if nothing is in the way."""
        size = self.num_poses
        self.stay, self.turns, self.forward = [0] * (4 * size), [(0, 0)] * (4 * size), [0] * (4 * size)
        for mask in range(self.all_done):
            base = mask * size
            stay = {pose: self.done_after(mask, self.ahead[pose]) * size + pose for pose in self.poses}
            for pose in self.poses:
                self.stay[base + pose] = stay[pose]
                self.turns[base + pose] = stay[pose & ~3 | pose - 1 & 3], stay[pose & ~3 | pose + 1 & 3]
                if self.ahead[pose] in self.enterable:
                    self.forward[base + pose] = stay[4 * self.ahead[pose] + (pose & 3)]

    def _distances(self, sources: Iterable[tuple[int, int]], closed: frozenset[int]) -> list[int]:
        """Steps from every pose to the nearest source (pose, steps from there on); closed doors cost one step more."""
        distances = [UNREACHABLE] * self.num_poses
        queue: dict[int, list[int]] = {}
        for pose, distance in sources:
            queue.setdefault(distance, []).append(pose)
        while queue:
            distance = min(queue)
            for pose in queue.pop(distance):
                if distances[pose] <= distance:
                    continue
                distances[pose] = distance
                near = queue.setdefault(distance + 1, [])
                near += pose & ~3 | pose - 1 & 3, pose & ~3 | pose + 1 & 3
                cell = pose >> 2
                behind = cell - self.offsets[pose & 3]
                if behind in self.enterable:
                    target = queue.setdefault(distance + 2, []) if cell in closed else near
                    target.append(4 * behind + (pose & 3))
        return distances

    def _sources(self, mask: int, later: list[list[int]]) -> Iterable[tuple[int, int]]:
        """Poses at which further parts become done, with the steps needed from there on."""
        for pose in self.poses:
            for opened in (False, True):
                done = self.done_after(mask, self.ahead[pose], opened)
                if done != mask and later[done][pose] < UNREACHABLE:
                    yield pose, opened + later[done][pose]

    def _free_bounds(self) -> list[list[int]]:
        """Lower bounds per mask and pose without objects and with all doors open."""
        bounds = [[0] * self.num_poses for _ in range(self.all_done + 1)]
        for mask in reversed(range(self.all_done)):
            bounds[mask] = self._distances(self._sources(mask, bounds), frozenset())
        return bounds

    def _bound(self, closed: frozenset[int]) -> list[int]:
        """Lower bounds per node without objects and with these doors closed.

        Doors cost a step on the way to the next part only: a door that is passed on the way to two parts is opened
        once.
        """
        if closed not in self.bounds:
            bound: list[int] = []
            for mask in range(self.all_done):
                bound += self._distances(self._sources(mask, self.free_bounds), closed)
            self.bounds[closed] = bound + [0] * self.num_poses
        return self.bounds[closed]

    def _scene(self, objects: dict[int, _Object], carried: _Object | None) -> _Scene:
        key = frozenset(objects.items()), carried
        if key not in self.scenes:
            closed = frozenset(cell for cell, item in objects.items() if item.type == "door" and item.state != OPEN)
            self.scenes[key] = _Scene(objects, carried, self._bound(closed))
        return self.scenes[key]

    def _successors(self, scene: _Scene, node: int) -> Iterable[tuple[_Scene, int, int]]:
        """Where each action leads to.

        Two kinds are left out, as something at least as good takes no more steps. An open door is closed only if it
        must be opened again for the instruction. An empty box is not picked up: `toggle` removes it and leaves the
        hands free.
        """
        left, right = self.turns[node]
        yield scene, left, LEFT
        yield scene, right, RIGHT
        mask, pose = divmod(node, self.num_poses)
        cell, after, objects, carried = self.ahead[pose], self.stay[node], scene.objects, scene.carried
        item = objects.get(cell)
        if cell in self.enterable and (item is None or (item.type == "door" and item.state == OPEN)):
            yield scene, self.forward[node], FORWARD
        if item is None:
            if carried is not None and cell in self.enterable:
                yield self._scene({**objects, cell: carried}, None), after, DROP
        elif item.type == "door":
            if item.state == CLOSED or (item.state == LOCKED and carried == _Object("key", item.color)):
                opened = self._scene({**objects, cell: item._replace(state=OPEN)}, carried)
                yield opened, self.done_after(mask, cell, opened=True) * self.num_poses + pose, TOGGLE
            elif item.state == OPEN and cell in self.to_open:
                yield self._scene({**objects, cell: item._replace(state=CLOSED)}, carried), after, TOGGLE
        elif self.moves_objects:
            others = {key: value for key, value in objects.items() if key != cell}
            if item.type == "box":
                content = {} if item.content is None else {cell: item.content}
                yield self._scene(others | content, carried), after, TOGGLE
            if carried is None and (item.type != "box" or item.content is not None):
                yield self._scene(others, item), after, PICKUP
        if after != node:  # before the first step nothing was verified; dropping nothing waits for one step
            yield scene, after, DROP

    def run(self, deadline: float) -> list[int] | None:
        """The actions of a shortest episode; None if there is none, or not by `deadline`, in the thread's CPU time."""
        goal, first = self.all_done * self.num_poses, self.done * self.num_poses + self.start_pose
        self.start.steps[first] = 0
        # By least total length; the last of equals first.
        queue = {self.start.bound[first]: [(self.start, first)]}
        num_expanded = 0
        while queue and (total := min(queue)) <= self.max_steps:
            if not queue[total]:
                del queue[total]
                continue
            scene, node = queue[total].pop()
            steps = scene.steps[node]
            if steps + scene.bound[node] != total:  # reached in fewer steps since
                continue
            if node >= goal:
                return self._actions(scene, node, first)
            num_expanded += 1
            if num_expanded % 512 == 0 and time.thread_time() > deadline:
                return None
            steps += 1
            for after, target, action in self._successors(scene, node):
                if steps < after.steps.get(target, UNREACHABLE) and after.bound[target] < UNREACHABLE:
                    after.steps[target] = steps
                    after.came_from[target] = scene, node, action
                    queue.setdefault(steps + after.bound[target], []).append((after, target))
        return None

    def _actions(self, scene: _Scene, node: int, first: int) -> list[int]:
        actions: list[int] = []
        while (scene, node) != (self.start, first):
            scene, node, action = scene.came_from[node]
            actions.append(action)
        return actions[::-1]


def _read_instruction(instruction: Any, width: int) -> tuple[list[_Part], bool, int]:
    """The parts of an instruction, whether they count in this order only, and which are done already, as bits."""
    is_sequence = isinstance(instruction, SeqInstr)
    parts, done = [instruction], [False]
    if is_sequence:
        parts = [instruction.instr_a, instruction.instr_b]
        done = [getattr(instruction, f"{half}_done", False) == "success" for half in "ab"]
    if isinstance(instruction, AfterInstr):
        parts, done = parts[::-1], done[::-1]
    strict = any(getattr(part, "strict", False) for part in (instruction, *parts))
    if strict or not all(isinstance(part, GoToInstr | OpenInstr) for part in parts):
        found = " and ".join(type(part).__name__ for part in parts) + (" (strict)" if strict else "")
        raise UserError(f"the instruction is {found}, expected GoToInstr or OpenInstr, not strict: use such an env")
    cells = [frozenset(width * y + x for x, y in part.desc.obj_poss) for part in parts]
    in_order = is_sequence and not isinstance(instruction, AndInstr)
    read = [_Part(c, isinstance(part, OpenInstr)) for c, part in zip(cells, parts, strict=True)]
    return read, in_order, sum(is_done << bit for bit, is_done in enumerate(done))


def _read_grid(grid: list[Any]) -> tuple[frozenset[int], dict[int, _Object]]:
    """The cells without walls, and what lies on them."""
    locked = {item.color for item in grid if item is not None and item.type == "door" and item.is_locked}

    def read(item: Any) -> _Object | None:
        if item is None:
            return None
        if item.type == "door":
            state = OPEN if item.is_open else LOCKED if item.is_locked else CLOSED
            return _Object("door", item.color if state == LOCKED else "", state)
        if item.type == "box":
            return _Object("box", content=read(item.contains))
        if item.type == "key" and item.color in locked:
            return _Object("key", item.color)
        if item.type not in ("key", "ball"):
            raise UserError(
                f"the grid holds a {item.type}, expected doors, boxes, keys and balls only: use such an env"
            )
        return _Object("ball")  # also keys that fit no door

    enterable = frozenset(cell for cell, item in enumerate(grid) if item is None or item.type != "wall")
    items = ((cell, read(grid[cell])) for cell in enterable)
    return enterable, {cell: item for cell, item in items if item is not None}
