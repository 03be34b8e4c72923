"""Windows and symmetries: padding never counts, nothing crosses episodes, turned demonstrations still succeed."""

import numpy as np
import pytest
import torch

from genplan.data.symmetry import Symmetries
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Windows, goal_tokens, held_out, steps_left, turn_maps
from genplan.errors import DataError
from genplan.flow import Rng
from genplan.tasks.layouts import FixedLayout
from genplan.types import Episode, SubGoal


def test_windows_are_what_the_episodes_hold(maze):
    windows = Windows(maze.spec, maze.episodes, horizon=10, context=3)
    assert len(windows) == maze.num_steps
    row = 0
    for number, episode in enumerate(maze.episodes):
        for start in range(len(episode)):
            index = torch.tensor([row + start])
            batch = windows.batch(index, windows.map_of[index], torch.tensor([0]))
            length = min(10, len(episode) - start)
            assert batch.valid["actions"][0].tolist() == [k < length for k in range(10)]
            assert batch.valid["states"][0].tolist() == [k <= len(episode) - start for k in range(10)]
            assert batch.x_1["actions"][0, :length].tolist() == episode.actions[start : start + length].tolist()
            states = episode.states[start : start + 10]
            assert batch.x_1["states"][0, : len(states)].tolist() == states.tolist()
            assert batch.given["states"][0].tolist() == [True] + [False] * 9
            past = episode.actions[max(start - 3, 0) : start]
            assert batch.past.actions[0][batch.past.valid[0]].tolist() == past.tolist()
            assert (
                batch.past.states[0][batch.past.valid[0]].tolist() == episode.states[max(start - 3, 0) : start].tolist()
            )
            assert np.array_equal(batch.map[0].numpy(), episode.maps[start])
            assert maze.spec.decode_mission(batch.mission[0].numpy()) == episode.mission
            assert (batch.x_1["goals"][0, 0] == episode.subgoals[-1].token).all()
        row += len(episode) + 1
        if number == 5:
            break


@pytest.mark.parametrize("per_map", [1, 4])
def test_windows_are_drawn_uniformly(maze, per_map):
    """Chi-square over all time steps; its mean is the degrees of freedom n, its deviation sqrt(2 n): five of them."""
    windows = Windows(maze.spec, maze.episodes, horizon=2)
    counts = torch.zeros(len(windows.states))
    draws = 400
    for step in range(draws):
        rng = Rng.of(step)
        number = 64 // per_map
        batch = windows.draw(64, rng, per_map, augment=False)
        assert len(batch) == 64
        assert batch.map.shape == (number, 10, 10, 3)
        assert batch.map_row.tolist() == [k // per_map for k in range(64)]
        rows = windows.choose(number, per_map, rng)
        kinds, rows = windows.map_of[rows[:, 0]], rows.reshape(-1)
        assert torch.equal(windows.states[rows], batch.x_1["states"][:, 0])
        assert (windows.map_of[rows] == kinds.repeat_interleave(per_map)).all()
        counts += torch.bincount(rows, minlength=len(counts))
    drawn = counts[windows.starts]
    expected = draws * 64 / len(windows)
    chi_square = ((drawn - expected) ** 2 / expected).sum().item()
    freedom = len(windows)
    # Companions come in groups, which widens the spread by up to the number per map.
    assert abs(chi_square - freedom) < 5 * per_map * (2 * freedom) ** 0.5
    assert counts.sum() == drawn.sum()


@pytest.mark.parametrize("dataset", ["maze", "blocked"])
def test_a_turned_demonstration_succeeds_in_the_turned_map(dataset, request):
    """All eight symmetries, replayed in the simulator: states, maps, goals and success."""
    data = request.getfixturevalue(dataset)
    spec, tables = data.spec, Symmetries.of(data.spec)
    assert len(tables) == 8
    for episode in data.episodes[:4]:
        for g in range(8):
            first = turn_maps(torch.from_numpy(episode.maps), tables.sources[g].expand(len(episode) + 1, -1)).numpy()
            states = tables.states[g][torch.from_numpy(episode.states)].tolist()
            actions = tables.actions[g][torch.from_numpy(episode.actions)].tolist()
            env = FixedLayout.of(first[0], spec.pose(states[0]), episode.mission)
            env.reset()
            for step, action in enumerate(actions):
                observation, _, terminated, _, _ = env.step(action)
                assert spec.state(*observation["pose"]) == states[step + 1]
                assert np.array_equal(observation["image"], first[step + 1])
            assert terminated
            x, y = env.front_pos
            assert spec.cell(x, y) == tables.cells[g][episode.subgoals[-1].token]


def test_symmetries_form_a_group_and_oblong_maps_have_four():
    tables = Symmetries.of(PlanSpec.grid(5, 5))
    distinct = {tuple(row.tolist()) for row in tables.states}
    assert len(distinct) == 8
    for a in range(8):
        assert torch.equal(tables.cells[a][tables.sources[a]], torch.arange(25))
        for b in range(8):
            assert tuple(tables.states[a][tables.states[b]].tolist()) in distinct
    assert len(Symmetries.of(PlanSpec.grid(4, 6))) == 4
    assert len(Symmetries.of(PlanSpec(4, 9))) == 1
    words = PlanSpec.grid(5, 5).words
    assert words[tables.words[4][words.index("left")]] == "right"
    assert words[tables.words[1][words.index("left")]] == "left"


def test_augmented_batches_are_turned_as_a_whole(maze):
    windows = Windows(maze.spec, maze.episodes, horizon=6, context=2)
    rows = windows.starts[:40]
    kinds, plain = windows.map_of[rows], windows.batch(rows, windows.map_of[rows], torch.arange(40))
    turned = windows.batch(rows, kinds, torch.arange(40), torch.full((40,), 5))
    tables = windows.symmetries
    assert torch.equal(turned.x_1["goals"], tables.cells[5][plain.x_1["goals"]])
    assert torch.equal(turned.past.states, tables.states[5][plain.past.states])
    assert torch.equal(turned.valid["actions"], plain.valid["actions"])
    assert torch.equal(turned.features, plain.features)


def test_colours_are_exchanged_everywhere_at_once(maze):
    windows = Windows(maze.spec, maze.episodes, horizon=3)
    plain = windows.draw(24, Rng.of(2), per_map=2, augment=False)
    painted = windows.draw(24, Rng.of(2), per_map=2, augment=False, recolour=True)
    order = windows.painter.orders(12, Rng.of(2).fold("colours"))
    assert len({tuple(row) for row in order.tolist()}) > 6
    names = ("red", "green", "blue", "purple", "yellow", "grey")
    for number in range(12):
        words = maze.spec.decode_mission(plain.mission[number].tolist()).split()
        turned = [names[order[number, names.index(word)]] if word in names else word for word in words]
        assert maze.spec.decode_mission(painted.mission[number].tolist()).split() == turned
        old, new = plain.map[number], painted.map[number]
        things = old[..., 0] >= 4
        assert torch.equal(new[~things], old[~things])  # walls and floors stay
        assert torch.equal(new[things][:, 1].long(), order[number][old[things][:, 1].long()])
        assert torch.equal(new[..., [0, 2]], old[..., [0, 2]])
    carried = torch.tensor([[1, 0], [5, 2]])
    assert windows.painter.features(carried, order[:2]).tolist() == [[1, 0], [5, int(order[1, 2])]]
    assert torch.equal(painted.x_1["states"], plain.x_1["states"])


def test_a_trail_is_the_set_of_states_visited_before(maze):
    windows = Windows(maze.spec, maze.episodes, horizon=6, trail=True)
    batch = windows.draw(32, Rng.of(1), per_map=4, augment=False)
    assert batch.past.trail.shape[0] == 8
    assert len(batch.past.visited) == 32
    plain = windows.batch(windows.starts, windows.map_of[windows.starts], torch.arange(len(windows)))
    for row, start in enumerate(windows.starts.tolist()):
        states = windows.states[int(windows.first[start]) : start + 1].tolist()
        trail = plain.past.trail[row][plain.past.visited[row]].tolist()
        assert sorted(trail) == sorted(set(states) - {states[-1]})
    turn = torch.full((len(windows),), 5)
    turned = windows.batch(windows.starts, windows.map_of[windows.starts], torch.arange(len(windows)), turn)
    assert torch.equal(turned.past.trail, windows.symmetries.states[5][plain.past.trail])
    beginnings = windows.batch(torch.tensor([0]), windows.map_of[[0]], torch.tensor([0]))
    assert beginnings.past.trail is None


def test_what_was_tried_is_forgotten_when_something_changes():
    spec = PlanSpec.grid(3, 3)
    maps = np.zeros((7, 3, 3, 3), np.uint8)
    maps[4:, 1, 1] = 1
    features = np.zeros((7, 2), np.int64)
    features[6] = 1
    episode = Episode(np.array([4, 4, 8, 4, 4, 4, 4]), np.array([0, 0, 2, 1, 5, 5]), maps, features, "go")
    windows = Windows(spec, [episode], horizon=2, trail=True)
    tried = [{action: int(n) for action, n in enumerate(row) if n} for row in windows.tried]
    assert tried == [{}, {0: 1}, {}, {0: 2}, {}, {5: 1}, {}]
    turned = windows.batch(torch.tensor([3]), windows.map_of[[3]], torch.tensor([0]), torch.tensor([4]))
    assert turned.past.tried[0].tolist() == [0, 2, 0, 0, 0, 0]  # left and right swap


def test_in_haste_windows_near_the_next_goal_are_drawn_more_often():
    spec = PlanSpec(num_actions=2, num_states=9)
    states = np.arange(9)
    short, long = (Episode(states[: n + 1], np.zeros(n, np.int64)) for n in (2, 6))
    aimed = Episode(states, np.zeros(8, np.int64), subgoals=(SubGoal(2, 3, "target"), SubGoal(5, 6, "key")))
    assert steps_left([short, long], ()).tolist() == [2, 1, 1, 6, 5, 4, 3, 2, 1, 1]
    assert steps_left([aimed]).tolist() == [3, 2, 1, 5, 4, 3, 2, 1, 1]
    assert steps_left([aimed], ("target", "key")).tolist() == [3, 2, 1, 3, 2, 1, 2, 1, 1]
    windows = Windows(spec, [short, long], 3, haste=1.0)
    weights = torch.tensor([1 / 2, 1, 1 / 6, 1 / 5, 1 / 4, 1 / 3, 1 / 2, 1], dtype=torch.float64)
    for per_map in (1, 8):  # companions share an episode, and every window's own chance stays the same
        drawn = torch.stack([windows.draw(64, Rng.of(k), per_map).x_1["states"][:, 0] for k in range(400)])
        expected = torch.zeros(9, dtype=torch.float64)
        expected.index_add_(0, torch.tensor([0, 1, 0, 1, 2, 3, 4, 5]), weights / weights.sum())
        found = torch.bincount(drawn.flatten(), minlength=9) / drawn.numel()
        # 25,600 draws in groups of at most eight: deviations of 0.03 are seen less than once in a million times.
        assert (found - expected).abs().max() < 0.03


def test_goals_are_what_is_left_to_reach():
    spec = PlanSpec.grid(4, 4, num_goals=2)
    subgoals = (SubGoal(1, 3, "key"), SubGoal(2, 5, "target"), SubGoal(4, 7, "target"))
    episode = Episode(np.zeros(6, np.int64), np.zeros(5, np.int64), subgoals=subgoals)
    tokens, known = goal_tokens(episode, spec)
    assert tokens.tolist() == [[5, 7], [5, 7], [5, 7], [7, 7], [7, 7], [7, 7]]
    assert known.all()
    tokens, _ = goal_tokens(episode, spec, ("key", "target"))
    assert tokens.tolist() == [[3, 5], [3, 5], [5, 7], [7, 7], [7, 7], [7, 7]]
    _, known = goal_tokens(Episode(np.zeros(3, np.int64), np.zeros(2, np.int64)), spec)
    assert not known.any()


def test_a_spec_without_a_map_or_goals():
    spec = PlanSpec(num_actions=3, num_states=9)
    episodes = [Episode(np.array([0, 4, 8]), np.array([1, 2])), Episode(np.array([5, 6]), np.array([0]))]
    batch = Windows(spec, episodes, horizon=4, context=1).draw(8, Rng.of(0), per_map=2)
    assert set(batch.x_1) == {"states", "actions"}
    assert batch.map is None
    assert batch.mission is None
    assert batch.features is None


def test_bad_requests_are_told():
    spec = PlanSpec(num_actions=3, num_states=9)
    episodes = [Episode(np.array([0, 4]), np.array([1]))]
    with pytest.raises(ValueError, match="horizon is 0"):
        Windows(spec, episodes, 0)
    with pytest.raises(ValueError, match="context is -1"):
        Windows(spec, episodes, 1, -1)
    with pytest.raises(DataError, match="windows of 0 episodes"):
        Windows(spec, [], 1)
    with pytest.raises(ValueError, match="a batch of 5 with 2 per map"):
        Windows(spec, episodes, 1).draw(5, Rng.of(0), per_map=2)
    train, validation = held_out(episodes * 40)
    assert (len(train), len(validation)) == (38, 2)


def test_clutter_stands_off_the_way_and_never_looks_like_the_target(maze):
    windows = Windows(maze.spec, maze.episodes, horizon=3)
    plain = windows.draw(64, Rng.of(2), augment=False)
    full = windows.draw(64, Rng.of(2), augment=False, clutter=8)
    assert torch.equal(full.x_1["states"], plain.x_1["states"])
    assert torch.equal(windows.draw(64, Rng.of(2), augment=False, clutter=8).map, full.map)
    put = (full.map != plain.map).any(-1)  # [M, W, H]
    assert (plain.map[put] == torch.tensor([1, 0, 0])).all()  # only on the floor
    known = torch.isin(full.map[..., 0], torch.unique(plain.map[..., 0]))
    strange, put = put & ~known, put & known
    assert set(full.map[strange][:, 0].tolist()) == {0, 3, 8, 9, 10}  # what is in no maze: not even doors are strange
    assert set(full.map[put][:, 0].tolist()) == {2, 5, 6, 7}  # walls, keys, balls and boxes
    assert len(set(put.sum((1, 2)).tolist())) > 8
    on_the_way = 0
    rows = windows.choose(64, 1, Rng.of(2))[:, 0]
    numbers = torch.searchsorted(torch.unique(windows.first), windows.first[rows])
    for number, episode in enumerate(maze.episodes[k] for k in numbers.tolist()):
        cells = np.unique(episode.states // 4)
        assert not put[number][cells % 10, cells // 10].any()
        on_the_way += int(strange[number][cells % 10, cells // 10].sum())
        target = episode.subgoals[-1].token
        look = full.map[number, target % 10, target // 10]
        alike = (full.map[number] == look).all(-1) & put[number]
        assert not alike.any()
    assert 0.3 < on_the_way / int(strange.sum()) < 0.8  # half of them, and ways through walls
