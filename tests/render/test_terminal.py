"""Text for terminals: grids with plans over them, and the denoising as a table."""

import numpy as np
import pytest
import torch

from genplan import policy, tasks
from genplan.errors import UserError
from genplan.flow import Trace
from genplan.render import terminal
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import OpenLoop


def plain(lines):
    return ["".join(text for text, _ in line) for line in lines]


def test_a_grid_with_a_plan():
    task = tasks.get("MazeS4G1")
    env = task.make_env()
    observation = task.observe(env, env.reset(seed=2000)[0])
    geometry = task.spec.geometry
    free = [(x, y) for y in range(10) for x in range(10) if tuple(observation["grid"][x, y]) == (1, 0, 0)]
    x, y, _ = geometry.pose(int(observation["state"]))
    step, goal = [cell for cell in free if cell != (x, y)][:2]
    lines = terminal.grid_lines(
        task.spec,
        observation,
        [int(observation["state"]), geometry.state(*step, 2)],
        np.array([[geometry.cell(*goal)]]),
    )
    text = plain(lines)
    assert len(text) == 10
    assert all(len(line) == 20 for line in text)
    assert text[y][2 * x] in terminal.AGENTS
    assert text[step[1]][2 * step[0]] == "←"
    assert text[goal[1]][2 * goal[0]] == "★"
    assert text[0] == "█" * 20
    assert sum(line.count("★") for line in text) == 1


def test_what_the_actions_do_is_marked_where_it_differs():
    spec = PlanSpec(
        {"state": Field("category", sizes=(16,)), "grid": Field("grid", (4, 1), (5,))},
        Actions(2),
        {"states": Stream(16, observed="state", points_at="grid", directions=4)},
    )
    observation = {"state": 0, "grid": np.zeros((4, 1, 1), np.uint8)}
    planned = [0, 4, 8, 12]

    def drawn(came, arrival):
        executed = OpenLoop(4, np.array(planned[1 : len(came) + 1]), np.array(came), arrival)
        (line,) = terminal.grid_lines(spec, observation, planned, executed=executed)
        return line[1:], plain(terminal.legend(executed))

    plan, behind = terminal.PLANNED, terminal.BEHIND
    assert drawn([4, 8, 12], None) == ([("→ ", plan)] * 3, [])
    assert drawn([4, 8, 12], 4) == ([("→ ", plan)] * 3, [])  # nothing is behind its end
    line, legend = drawn([4, 8], 2)
    assert line == [("→ ", plan), ("→ ", plan), ("→ ", behind)]
    assert legend == ["→ behind the arrival, which is after 2 actions"]
    line, legend = drawn([4, 5, 5], None)  # turned down, and went no further
    assert line == [("⇓ ", terminal.EXECUTED), ("→ ", plan), ("→ ", plan)]
    assert legend == ["⇒ what the actions do, where that is not what was planned"]


def test_other_grids_show_their_symbols():
    spec = PlanSpec(
        {"state": Field("category", sizes=(24,)), "grid": Field("grid", (3, 2), (5,))},
        Actions(2),
        {"states": Stream(24, observed="state", points_at="grid", directions=4)},
    )
    observation = {"state": 0, "grid": np.arange(6, dtype=np.uint8).reshape(3, 2, 1) % 5}
    assert plain(terminal.grid_lines(spec, observation, [0, 5])) == ["▶ ↓ 4 ", "1 3 0 "]
    with pytest.raises(UserError, match="no grid to draw"):
        terminal.grid_lines(PlanSpec({"state": Field("category", sizes=(4,))}, Actions(2)), {"state": 0})


def test_the_denoising_table():
    loaded = policy.load("pretrained:MazeS4G1")
    env = loaded.task.make_env()
    trace = loaded.plan(env.reset(seed=2000)[0], iterations=3).trace
    rows = terminal.denoising_rows(loaded.task.spec, trace, mask=6)
    assert [row[0][0] for row in rows] == ["0.00", "0.40", "0.70", "1.00"]  # of ten steps
    assert all(len(row) == loaded.planner.config.horizon + 1 for row in rows)
    assert all(cell == ("·", "red") for cell in rows[0][1:])
    assert {text for text, _ in rows[-1][1:]} <= set("lrfpdt")
    for row, grey in zip(terminal.denoising_rows(loaded.task.spec, trace, 6, arrival=4), (0, 0, 0, 6), strict=True):
        assert [style for _, style in row[1:]].count(terminal.BEHIND) == grey


def test_actions_with_equal_initials_keep_their_names():
    spec = PlanSpec({"state": Field("category", sizes=(4,))}, Actions(2, names=("up", "under")))
    tokens = torch.tensor([[[2, 2]], [[0, 1]]])  # [K + 1, rows, H]
    part = {"actions": tokens[:1]}
    trace = Trace(torch.tensor([0.0, 1.0]), {"actions": tokens}, part, part, torch.zeros(1, 1))
    rows = terminal.denoising_rows(spec, trace, mask=2)
    assert rows[1][1:] == [("up", "bold green"), ("under", "bold green")]
