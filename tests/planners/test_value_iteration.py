"""Value iteration in the learnt step model: its steps are those of a search, doors and orders included."""

from dataclasses import replace

import pytest
import torch

from genplan.data.windows import Drawn, Windows
from genplan.envs.babyai import babyai_spec
from genplan.flow import Rng
from genplan.models.step import GridFrame, GridStepModel
from genplan.planners.step_training import goals_are_faced, has_any_order
from genplan.planners.value_iteration import FAR, fewest_steps, step_graph, value_targets
from genplan.types import Observations, WindowNeeds

from ..data.worlds import get_key, go_to, grid_spec
from .test_adaptation import CLOSED, FLOOR, TOGGLE, WALL, key_of, make, number

SPEC = babyai_spec(6, 1)
CUTOFF = 3.0


def maps(*cells):
    corridor = [*cells, *[FLOOR] * (6 - len(cells))]
    return number(torch.tensor(corridor).unbind(1), (11, 6, 3))[None]


def knowing_doors():
    """A model that knows of corridors, and that a toggle opens what is closed."""
    model = make()
    table = model.table()
    closed = [key_of(model, (CLOSED[0], color, CLOSED[2])) for color in range(6)]
    opened = [key_of(model, (CLOSED[0], color, 0)) // 66 for color in range(6)]
    ratio, look = table.log_ratio.clone(), table.look.clone()
    ratio[closed] = -9.0
    ratio[torch.tensor(closed), TOGGLE] = 1.0
    look[torch.tensor(closed), TOGGLE] = torch.tensor(opened)
    made = table._replace(log_ratio=ratio, look=look)
    model.table = lambda: made
    return model


def left(model, corridor, goal):
    """Steps left in all states of the corridor until the cell `goal` is faced."""
    frame, carried = GridFrame.of(SPEC.geometry, torch.device("cpu")), torch.tensor([key_of(model, (0, 0, 0))])
    graph = step_graph(model, frame, maps(*corridor), carried, CUTOFF)
    ends = torch.where((frame.ahead == goal) & graph.standable[0], 0.0, FAR)
    return fewest_steps(graph, ends[None, None])[0, 0].view(6, 4)


def test_steps_are_counted_through_a_corridor():
    found = left(make(), [], 5)
    assert found[:5, 0].tolist() == [4, 3, 2, 1, 0]  # facing right
    assert found[:5, 2].tolist() == [6, 5, 4, 3, 2]  # two turns more
    assert found[0, 1] == found[0, 3] == 5


def test_there_is_no_way_through_walls_and_one_step_more_through_doors():
    assert (left(make(), [FLOOR, FLOOR, WALL], 5)[:2] == FAR).all()
    doors = left(knowing_doors(), [FLOOR, FLOOR, CLOSED], 5)
    assert doors[:5, 0].tolist() == [5, 4, 2, 1, 0]


@pytest.mark.parametrize("any_order", [False, True])
def test_targets_are_steps_left_of_the_demonstrated_way(any_order):
    """In rooms where everything is as the model says, nobody is faster than the shortest way that was demonstrated."""
    spec = grid_spec(6, 6)
    episodes = go_to(spec, 24, walls=3)
    windows = Windows(spec, episodes, WindowNeeds(4))
    assert goals_are_faced(windows)
    assert not has_any_order(windows)
    model = make_for(spec)
    starts = windows.first.unique()
    batch = windows.batch(Drawn(starts, windows.scene_of_step[starts]))
    values = value_targets(model, batch, CUTOFF, any_order, Rng.of(0))
    assert values.valid.any(1).all()
    assert (values.reached == -1).all()  # there is one sub-goal
    now = batch.current["state"][:, None]
    here = (values.states == now) & values.valid
    expected = torch.tensor([float(len(one)) for one in episodes])[:, None].expand_as(here)
    assert here.any()
    assert torch.equal(values.steps_left[here], expected[here])


def make_for(spec):
    model = GridStepModel(spec)
    known = make()
    model.load_state_dict(known.state_dict())
    made = known.table()
    model.table = lambda: made
    return model


def test_two_goals_in_either_order():
    spec = grid_spec(6, 6, num_goals=2)
    (episode,) = go_to(spec, 1)
    windows = Windows(spec, [episode], WindowNeeds(4))
    batch = windows.batch(Drawn(windows.starts[:1], windows.scene_of_step[windows.starts[:1]]))
    grid = torch.zeros_like(batch.scene["grid"])
    grid[..., 0] = 1
    near, far, state = 7 + 2, 7 + 3 * 6 + 3, (7) * 4
    goals = torch.tensor([[far, near]]).expand(1, 4, 2)
    batch = replace(
        batch,
        scene=Observations({**batch.scene.fields, "grid": grid}),
        current=Observations({**batch.current.fields, "state": torch.tensor([state])}),
        tokens={**batch.tokens, "goals": goals},
    )
    ordered, free = (value_targets(make_for(spec), batch, CUTOFF, one, Rng.of(0)) for one in (False, True))
    same = ordered.reached.flatten() == -1
    assert same.any()
    assert (free.steps_left[free.reached == -1].mean() < ordered.steps_left[ordered.reached == -1].mean()).all()


def test_keys_that_must_be_taken_are_not_merely_faced():
    spec = grid_spec(8, 8)
    assert not goals_are_faced(Windows(spec, get_key(spec, 12), WindowNeeds(4, subgoal_types=("key", "door"))))
