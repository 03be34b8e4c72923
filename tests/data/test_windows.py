"""Windows: padding never counts, nothing crosses episodes, what is sampled follows its weights."""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from genplan.data.transforms import MapRandomization
from genplan.data.windows import Drawn, TaskMixture, Windows, goal_tokens, split_episodes, steps_to_subgoal
from genplan.errors import DataError
from genplan.flow import Rng
from genplan.spec import Field, PlanSpec, Stream
from genplan.types import SubGoal, WindowNeeds

from .worlds import (
    COLOR_PERMUTATION,
    SYMMETRY,
    episode,
    get_key,
    go_to,
    grid_spec,
    number_spec,
    numbers,
    vector_spec,
)

SPEC = grid_spec(8, 8)


@pytest.fixture(scope="module")
def rooms():
    return go_to(SPEC, 30, walls=6)


@pytest.fixture(scope="module")
def doors():
    return get_key(SPEC, 12)


def every(windows):
    """All windows, each in a scene of its own."""
    return windows.batch(Drawn(windows.starts, windows.scene_of_step[windows.starts]))


@pytest.mark.parametrize("dataset", ["rooms", "doors"])
def test_windows_are_what_the_episodes_hold(dataset, request):
    episodes = request.getfixturevalue(dataset)
    windows = Windows(SPEC, episodes, WindowNeeds(10, context_length=4))
    assert len(windows) == sum(map(len, episodes))
    batch, row = every(windows), 0
    assert set(batch.valid) == {"states", "goals", "actions"}
    assert batch.num_scenes == len(batch) == len(windows)
    for one in episodes:
        seen = one.observations
        for start in range(len(one)):
            length = min(10, len(one) - start)
            assert batch.valid["actions"][row].tolist() == [k < length for k in range(10)]
            assert batch.valid["states"][row].tolist() == [k <= len(one) - start for k in range(10)]
            assert batch.actions[row, :length].tolist() == one.actions[start : start + length].tolist()
            states = seen["state"][start : start + 10]
            assert batch.tokens["states"][row, : len(states)].tolist() == states.tolist()
            for name in ("state", "carrying"):
                assert np.array_equal(batch.current[name][row].numpy(), seen[name][start])
                past = batch.history.steps[name][row][batch.history.valid[row]].numpy()
                assert np.array_equal(past, seen[name][max(start - 3, 0) : start])
            past = batch.history.actions[row][batch.history.valid[row]].tolist()
            assert past == one.actions[max(start - 3, 0) : start].tolist()
            same = batch.history.same_scene[row][batch.history.valid[row]].tolist()
            before = seen["grid"][max(start - 3, 0) : start]
            assert same == [np.array_equal(grid, seen["grid"][start]) for grid in before]
            assert np.array_equal(batch.scene["grid"][row].numpy(), seen["grid"][start])
            assert np.array_equal(batch.scene["mission"][row].numpy(), seen["mission"][start])
            assert (batch.tokens["goals"][row, 0] == one.subgoals[-1].token).all()
            row += 1


@pytest.mark.parametrize("per_scene", [1, 4])
def test_windows_are_sampled_uniformly(rooms, per_scene):
    """Chi-square over all time steps; its mean is the degrees of freedom n, its deviation sqrt(2 n): five of them."""
    windows = Windows(SPEC, rooms, WindowNeeds(2))
    counts = torch.zeros(len(windows.last))
    draws = 400
    for step in range(draws):
        rng = Rng.of(step)
        number = 64 // per_scene
        batch = windows.sample(64, rng, per_scene)
        assert (len(batch), batch.num_scenes, batch.windows_per_scene) == (64, number, per_scene)
        assert batch.scene["grid"].shape == (number, 8, 8, 3)
        steps = windows.sample_starts(number, per_scene, rng)
        scenes, steps = windows.scene_of_step[steps[:, 0]], steps.reshape(-1)
        assert torch.equal(windows.steps["state"][steps], batch.current["state"])
        assert torch.equal(batch.tokens["states"][:, 0], batch.current["state"])
        assert (windows.scene_of_step[steps] == scenes.repeat_interleave(per_scene)).all()
        counts += torch.bincount(steps, minlength=len(counts))
    sampled = counts[windows.starts]
    expected = draws * 64 / len(windows)
    chi_square = ((sampled - expected) ** 2 / expected).sum().item()
    freedom = len(windows)
    # Companions come in groups, which widens the spread by up to the number per scene.
    assert abs(chi_square - freedom) < 5 * per_scene * (2 * freedom) ** 0.5
    assert counts.sum() == sampled.sum()


def test_windows_near_the_next_goal_are_sampled_more_often():
    spec = PlanSpec(
        {"state": Field("category", (), (9,)), "words": Field("words", (1,), vocabulary=("", "go"))},
        number_spec().actions,
        number_spec().streams,
    )
    short, long = (
        episode({"state": np.arange(n + 1), "words": np.ones((n + 1, 1), np.int64)}, np.zeros(n, np.int64))
        for n in (2, 6)
    )
    windows = Windows(spec, [short, long], WindowNeeds(3), goal_proximity_exponent=1.0)
    weights = torch.tensor([1 / 2, 1, 1 / 6, 1 / 5, 1 / 4, 1 / 3, 1 / 2, 1], dtype=torch.float64)
    for per_scene in (1, 8):  # companions share an episode, and every window's own probability stays the same
        sampled = torch.stack([windows.sample(64, Rng.of(k), per_scene).current["state"] for k in range(400)])
        expected = torch.zeros(9, dtype=torch.float64)
        expected.index_add_(0, torch.tensor([0, 1, 0, 1, 2, 3, 4, 5]), weights / weights.sum())
        found = torch.bincount(sampled.flatten(), minlength=9) / sampled.numel()
        # 25,600 draws in groups of at most eight: deviations of 0.03 are seen less than once in a million times.
        assert (found - expected).abs().max() < 0.03


def test_steps_to_the_next_subgoal():
    short, long = (numbers(np.arange(n + 1), np.zeros(n)) for n in (2, 6))
    aimed = numbers(np.arange(9), np.zeros(8), (SubGoal(2, 3, "target"), SubGoal(5, 6, "key")))
    assert steps_to_subgoal([short, long], ()).tolist() == [2, 1, 1, 6, 5, 4, 3, 2, 1, 1]
    assert steps_to_subgoal([aimed]).tolist() == [3, 2, 1, 5, 4, 3, 2, 1, 1]
    assert steps_to_subgoal([aimed], ("target", "key")).tolist() == [3, 2, 1, 3, 2, 1, 2, 1, 1]


def test_goals_are_what_is_left_to_reach():
    subgoals = (SubGoal(1, 3, "key"), SubGoal(2, 5, "target"), SubGoal(4, 7, "target"))
    one = numbers(np.zeros(6), np.zeros(5), subgoals)
    tokens, known = goal_tokens(one, 2)
    assert tokens.tolist() == [[5, 7], [5, 7], [5, 7], [7, 7], [7, 7], [7, 7]]
    assert known.all()
    tokens, _ = goal_tokens(one, 2, ("key", "target"))
    assert tokens.tolist() == [[3, 5], [3, 5], [5, 7], [7, 7], [7, 7], [7, 7]]
    _, known = goal_tokens(numbers(np.zeros(3), np.zeros(2)), 2)
    assert not known.any()


def test_goals_of_a_window_have_the_shape_of_their_stream(doors):
    for shape in ((), (3,)):
        streams = {**SPEC.streams, "goals": Stream(64, shape, points_at="grid")}
        spec = PlanSpec(SPEC.fields, SPEC.actions, streams)
        batch = Windows(spec, doors, WindowNeeds(5, 3, ("key", "target"))).sample(8, Rng.of(0), 2)
        assert batch.tokens["goals"].shape == batch.valid["goals"].shape == (8, 5, *shape)
        assert batch.history.same_goals.shape == (8, 2)
    windows = Windows(SPEC, doors[:1], WindowNeeds(1, 2, ("key", "target")))
    reached = doors[0].subgoals[0].step + 1  # the step at which the first goal lies behind
    assert [bool(same) for same in every(windows).history.same_goals[1:]] == [
        step != reached for step in range(1, len(doors[0]))
    ]


# --- visit memory ----------------------------------------------------------------------------------------------------


def test_visited_states_are_those_before(rooms):
    windows = Windows(SPEC, rooms, WindowNeeds(6, visit_memory=True))
    batch = windows.sample(32, Rng.of(1), 4)
    assert len(batch.history.visited_states) == 8
    assert len(batch.history.visited_mask) == 32
    history, states = every(windows).history, windows.steps["state"]
    for row, start in enumerate(windows.starts.tolist()):
        before = states[int(windows.first[start]) : start + 1].tolist()
        visited = history.visited_states[row][history.visited_mask[row]].tolist()
        assert sorted(visited) == sorted(set(before) - {before[-1]})
    beginning = windows.batch(Drawn(torch.tensor([0]), windows.scene_of_step[:1])).history
    assert beginning.visited_states is None
    assert beginning.visited_mask is None
    assert beginning.action_counts.tolist() == [[0] * 6]


def test_action_counts_start_again_when_anything_but_the_state_changes():
    spec = grid_spec(3, 3)
    grids = np.zeros((7, 3, 3, 3), np.uint8)
    grids[4:, 1, 1] = 1
    carrying = np.zeros((7, 2), np.int64)
    carrying[6] = 1
    states = np.array([4, 4, 8, 4, 4, 4, 4])
    columns = {"state": states, "grid": grids, "mission": np.zeros((7, 12), np.int64), "carrying": carrying}
    one = episode(columns, np.array([0, 0, 2, 1, 5, 5]))
    windows = Windows(spec, [one, one], WindowNeeds(2, visit_memory=True))
    counts = [{action: int(n) for action, n in enumerate(row) if n} for row in windows.visits.action_counts]
    assert counts == [{}, {0: 1}, {}, {0: 2}, {}, {5: 1}, {}] * 2
    plain = Windows(number_spec(), [numbers([1, 1, 2, 1], [0, 2, 1])] * 2, WindowNeeds(2, visit_memory=True))
    assert plain.visits.action_counts.tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1]] * 2


def test_without_states_or_discrete_actions_nothing_is_counted():
    one = episode({"position": np.zeros((4, 3), np.float32)}, np.zeros((3, 2), np.float32))
    batch = Windows(vector_spec(), [one], WindowNeeds(2, visit_memory=True)).sample(4, Rng.of(0))
    assert batch.history.action_counts is None
    assert batch.history.visited_states is None


# --- other tasks than grids ------------------------------------------------------------------------------------------


def test_a_spec_of_plain_numbers():
    episodes = [numbers([0, 4, 8], [1, 2]), numbers([5, 6], [0])]
    batch = Windows(number_spec(), episodes, WindowNeeds(4, 2)).sample(8, Rng.of(0), windows_per_scene=2)
    assert list(batch.tokens) == ["states"]
    assert list(batch.valid) == ["states", "actions"]
    assert not batch.scene.fields
    assert batch.num_scenes == 8  # nothing to share
    assert batch.history.same_goals is None
    assert (batch.history.same_scene | ~batch.history.valid).all()


def test_a_robot_has_vectors_and_continuous_actions():
    rng = np.random.default_rng(0)
    lengths = (5, 3, 8)
    episodes = [
        episode({"position": rng.normal(size=(n + 1, 3)).astype(np.float32)}, rng.uniform(-1, 1, (n, 2)))
        for n in lengths
    ]
    windows = Windows(vector_spec(), episodes, WindowNeeds(4, 3))
    batch = every(windows)
    assert batch.tokens == {}
    assert list(batch.valid) == ["actions"]
    assert (batch.actions.shape, batch.actions.dtype) == ((16, 4, 2), torch.float32)
    assert batch.history.steps["position"].shape == (16, 2, 3)
    assert batch.history.actions.shape == (16, 2, 2)
    row = 0
    for one in episodes:
        for start in range(len(one)):
            length = min(4, len(one) - start)
            assert np.allclose(batch.actions[row, :length], one.actions[start : start + length])
            assert batch.valid["actions"][row].sum() == length
            assert np.array_equal(batch.current["position"][row], one.observations["position"][start])
            row += 1
    assert (batch.actions[~batch.valid["actions"]] == 0).all()
    sampled = windows.sample(6, Rng.of(0), windows_per_scene=4)
    assert (len(sampled), sampled.num_scenes) == (6, 6)


def test_a_mixture_samples_every_task_alike(rooms, doors):
    small = grid_spec(6, 6)
    needs = WindowNeeds(3)
    parts = [Windows(SPEC, rooms, needs), Windows(small, go_to(small, 3), needs)]
    widths = [TaskMixture(parts).sample(4, Rng.of(k)).scene["grid"].shape[1] for k in range(200)]
    assert 60 < widths.count(6) < 140  # 100 expected, with a deviation of 7
    number = int(Rng.of(5).fold("world").integers(2))  # a label that results depend on
    expected = parts[number].sample(4, Rng.of(5))
    assert torch.equal(TaskMixture(parts).sample(4, Rng.of(5)).actions, expected.actions)


# --- requests --------------------------------------------------------------------------------------------------------


def test_bad_requests_are_refused():
    spec, episodes = number_spec(), [numbers([0, 4], [1])]
    with pytest.raises(ValueError, match="horizon is 0"):
        Windows(spec, episodes, WindowNeeds(0))
    with pytest.raises(ValueError, match="context_length is 0"):
        Windows(spec, episodes, WindowNeeds(1, 0))
    with pytest.raises(DataError, match="windows of 0 episodes"):
        Windows(spec, [], WindowNeeds(1))
    with pytest.raises(DataError, match="episode 0 has no field 'grid', expected one beside state"):
        Windows(SPEC, episodes, WindowNeeds(1))
    with pytest.raises(DataError, match="'states' is not observed"):
        Windows(PlanSpec(spec.fields, spec.actions, {"states": Stream(9)}), episodes, WindowNeeds(1))
    with pytest.raises(ValueError, match="a batch of 0"):
        Windows(spec, episodes, WindowNeeds(1)).sample(0, Rng.of(0))
    with pytest.raises(ValueError, match="a batch of 5 with 2 windows per scene"):
        Windows(SPEC, go_to(SPEC, 2), WindowNeeds(1)).sample(5, Rng.of(0), windows_per_scene=2)


def test_episodes_are_split_by_their_order():
    train, validation = split_episodes([numbers([k % 9, 0], [1]) for k in range(40)])
    assert (len(train), len(validation)) == (38, 2)
    alone = [numbers([0, 1], [1])]
    assert split_episodes(alone) == (alone, alone)


class NoDefaultDevice(TorchFunctionMode):
    """Refuses tensors that would be made on whatever device is the default."""

    FACTORIES = (torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.tensor, torch.eye, torch.rand)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in self.FACTORIES or "device" in (kwargs or {}), f"{func.__name__} without device="
        return func(*args, **(kwargs or {}))


def test_sampling_makes_no_tensor_on_the_default_device(doors):
    transforms = (MapRandomization(4), SYMMETRY, COLOR_PERMUTATION)
    windows = Windows(SPEC, doors, WindowNeeds(5, 3, visit_memory=True), 0.7, transforms)
    windows.sample(8, Rng.of(0), 2)  # tables that are made once
    rng = Rng.of(1)
    with NoDefaultDevice():
        windows.sample(8, rng, 2)
