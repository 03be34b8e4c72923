"""Small specs and demonstrations made by hand: rooms with one object, found by the shortest way."""

from collections import deque

import numpy as np

from genplan.data.transforms import ColorPermutation, Symmetry
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Episode, SubGoal

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
OBJECTS = {5: "key", 6: "ball", 7: "box"}
WORDS = ("<pad>", ",", "and", "door", "get", "go", "left", "open", "right", "the", "to", *OBJECTS.values(), *COLORS)
FLOOR, WALL, DOOR, KEY = 1, 2, 4, 5
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, down, left, up
SYMMETRY = Symmetry((1, 0, 2, 3, 4, 5), {"left": "right", "right": "left"})
COLOR_PERMUTATION = ColorPermutation(COLORS, 1, ("carrying", 1), (4, 5, 6, 7))


def grid_spec(width, height, num_goals=1, max_words=12):
    cells = width * height
    return PlanSpec(
        {
            "state": Field("category", (), (cells * 4,)),
            "grid": Field("grid", (width, height), (11, 6, 3)),
            "mission": Field("words", (max_words,), vocabulary=WORDS),
            "carrying": Field("category", (2,), (11, 6)),
        },
        Actions(6, names=("left", "right", "forward", "pickup", "drop", "toggle")),
        {
            "states": Stream(cells * 4, observed="state", points_at="grid", directions=4),
            "goals": Stream(cells, (num_goals,), points_at="grid"),
        },
    )


def number_spec(num_states=9, num_actions=3):
    """States that stand for nothing, as in FrozenLake."""
    return PlanSpec(
        {"state": Field("category", (), (num_states,))},
        Actions(num_actions),
        {"states": Stream(num_states, observed="state")},
    )


def vector_spec(size=3, actions=2):
    """A robot: vectors and nothing else."""
    return PlanSpec({"position": Field("vector", (size,))}, Actions(low=(-1.0,) * actions, high=(1.0,) * actions))


def episode(observations, actions, subgoals=(), **more):
    """With whatever nobody asks for here."""
    actions = np.asarray(actions)
    nothing = np.zeros(len(actions), bool)
    observations = {name: np.asarray(column) for name, column in observations.items()}
    return Episode(observations, actions, np.full(len(actions), np.nan), nothing, nothing, subgoals=subgoals, **more)


def numbers(states, actions, subgoals=()):
    return episode({"state": np.asarray(states)}, np.asarray(actions, np.int64), subgoals)


def ahead(pose):
    x, y, direction = pose
    return x + MOVES[direction][0], y + MOVES[direction][1]


def step(grid, carrying, pose, action):
    """What an action does, as in MiniGrid: the grid and what is carried are changed in place; the new pose."""
    x, y, direction = pose
    front = ahead(pose)
    kind = grid[front][0]
    if action in (LEFT, RIGHT):
        return x, y, (direction + (1 if action == RIGHT else -1)) % 4
    if action == FORWARD and (kind == FLOOR or (kind == DOOR and grid[front][2] == 0)):
        return *front, direction
    if action == PICKUP and kind == KEY and carrying[0] == FLOOR:
        carrying[:] = grid[front][:2]
        grid[front] = (FLOOR, 0, 0)
    if action == TOGGLE and kind == DOOR:
        grid[front][2] = 1 - grid[front][2]
    return pose


def empty_room(width, height):
    grid = np.zeros((width, height, 3), np.uint8)
    grid[...] = (WALL, 5, 0)
    grid[1:-1, 1:-1] = (FLOOR, 0, 0)
    return grid


def shortest_actions(grid, pose, target, last=()):
    """The fewest turns and moves after which the agent faces the target, and `last`."""
    queue, seen = deque([(pose, ())]), {pose}
    while queue:
        now, actions = queue.popleft()
        if ahead(now) == target:
            return [*actions, *last]
        for action in (LEFT, RIGHT, FORWARD):
            then = step(grid, [FLOOR, 0], now, action)
            if then not in seen:
                seen.add(then)
                queue.append((then, (*actions, action)))
    return None


def play(spec, grid, pose, actions, mission, subgoals):
    """The demonstration of these actions."""
    grid, carrying = grid.copy(), np.array([FLOOR, 0])
    rows = []
    for action in (*actions, None):
        rows.append((spec.geometry.state(*pose), grid.copy(), spec.fields["mission"].encode(mission), carrying.copy()))
        if action is not None:
            pose = step(grid, carrying, pose, action)
    columns = dict(zip(spec.fields, map(np.stack, zip(*rows, strict=True)), strict=True))
    return episode(columns, np.array(actions, np.int64), subgoals)


def go_to(spec, number, seed=0, walls=0):
    """Demonstrations in a room: go to the only object there is. With walls, every room is another."""
    rng = np.random.default_rng(seed)
    width, height = spec.fields["grid"].shape
    found = []
    while len(found) < number:
        grid = empty_room(width, height)
        cells = [(x, y) for x in range(1, width - 1) for y in range(1, height - 1)]
        target, start, *others = (cells[k] for k in rng.permutation(len(cells)))
        for cell in others[:walls]:
            grid[cell] = (WALL, 5, 0)
        kind, color = int(rng.choice(list(OBJECTS))), int(rng.integers(len(COLORS)))
        grid[target] = (kind, color, 0)
        pose = (*start, int(rng.integers(4)))
        actions = shortest_actions(grid, pose, target)
        if actions:
            goal = SubGoal(len(actions) - 1, spec.geometry.cell(*target), "target")
            found.append(play(spec, grid, pose, actions, f"go to the {COLORS[color]} {OBJECTS[kind]}", (goal,)))
    return found


def get_key(spec, number, seed=0):
    """Demonstrations in which the grid and what is carried change: get the key, then open the door."""
    rng = np.random.default_rng(seed)
    width, height = spec.fields["grid"].shape
    found = []
    while len(found) < number:
        grid = empty_room(width, height)
        key, start = (tuple(cell) for cell in rng.integers(1, (width - 1, height - 1), (2, 2)).tolist())
        door = (width - 1, int(rng.integers(1, height - 1)))
        color, pose = int(rng.integers(len(COLORS))), (*start, int(rng.integers(4)))
        grid[door] = (DOOR, color, 1)
        if key == start:
            continue
        grid[key] = (KEY, color, 0)
        first = shortest_actions(grid, pose, key, (PICKUP,))
        reached = play(spec, grid, pose, first, "", ()).observations
        then = spec.geometry.pose(int(reached["state"][-1]))
        second = shortest_actions(reached["grid"][-1], then, door, (TOGGLE,))
        goals = (
            SubGoal(len(first) - 1, spec.geometry.cell(*key), "key"),
            SubGoal(len(first) + len(second) - 1, spec.geometry.cell(*door), "target"),
        )
        found.append(play(spec, grid, pose, first + second, f"get the key , open the {COLORS[color]} door", goals))
    return found
