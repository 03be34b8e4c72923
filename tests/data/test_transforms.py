"""Transforms of batches: turned demonstrations still succeed, colors and missions agree, the way stays free."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from genplan import tasks
from genplan.data.episodes import episode_from_arrays
from genplan.data.transforms import (
    TRANSFORMS,
    ColorPermutation,
    EitherOrder,
    MapRandomization,
    Stitch,
    Symmetry,
    extend_episodes,
    transform_from_json,
    transform_to_json,
)
from genplan.data.transforms.colors import BoundColorPermutation
from genplan.data.transforms.grids import permute_cells
from genplan.data.transforms.hold import Finish, HoldLast
from genplan.data.transforms.reflection import Reflection
from genplan.data.transforms.sensor_noise import SensorNoise
from genplan.data.transforms.symmetry import BoundSymmetry
from genplan.data.windows import Drawn, Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Observations, SubGoal, WindowNeeds

from ..samples import sample_field
from .worlds import (
    COLOR_PERMUTATION,
    COLORS,
    FLOOR,
    SYMMETRY,
    WORDS,
    get_key,
    go_to,
    grid_spec,
    number_spec,
    numbers,
    step,
    vector_spec,
)

SPEC = grid_spec(8, 8)


@pytest.fixture(scope="module")
def rooms():
    return go_to(SPEC, 60, walls=6)


@pytest.fixture(scope="module")
def doors():
    return get_key(SPEC, 12)


def all_windows(spec, episodes, **needs):
    windows = Windows(spec, episodes, WindowNeeds(6, 3, **needs))
    return windows, windows.batch(Drawn(windows.starts, windows.scene_of_step[windows.starts]))


# --- symmetry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["rooms", "doors"])
def test_a_turned_demonstration_is_one_in_the_turned_grid(dataset, request):
    """All eight symmetries, played again: states, grids and what is carried."""
    tables = BoundSymmetry(SPEC, SYMMETRY)
    assert len(tables) == 8
    for episode in request.getfixturevalue(dataset)[:6]:
        seen = episode.observations
        for g in range(8):
            inverse = tables.inverse_cells[g].expand(len(episode) + 1, -1)
            grids = permute_cells(torch.from_numpy(seen["grid"]), inverse).numpy()
            states = tables.states[g][torch.from_numpy(seen["state"])].tolist()
            grid, carrying = grids[0].copy(), seen["carrying"][0].copy()
            pose = SPEC.geometry.pose(states[0])
            for number, action in enumerate(tables.actions[g][torch.from_numpy(episode.actions)].tolist()):
                pose = step(grid, carrying, pose, action)
                assert SPEC.geometry.state(*pose) == states[number + 1]
                assert np.array_equal(grid, grids[number + 1])
                assert np.array_equal(carrying, seen["carrying"][number + 1])


def test_symmetries_form_a_group_and_oblong_grids_have_four():
    tables = BoundSymmetry(grid_spec(5, 5), SYMMETRY)
    distinct = {tuple(row.tolist()) for row in tables.states}
    assert len(distinct) == 8
    for a in range(8):
        assert torch.equal(tables.cells[a][tables.inverse_cells[a]], torch.arange(25))
        for b in range(8):
            assert tuple(tables.states[a][tables.states[b]].tolist()) in distinct
    assert len(BoundSymmetry(grid_spec(4, 6), SYMMETRY)) == 4
    assert WORDS[tables.words["mission"][4][WORDS.index("left")]] == "right"
    assert WORDS[tables.words["mission"][1][WORDS.index("left")]] == "left"


def test_batches_are_turned_as_a_whole(doors):
    windows, plain = all_windows(SPEC, doors, visit_memory=True)
    tables = BoundSymmetry(SPEC, SYMMETRY)
    turned = tables.apply(plain, torch.full((len(windows),), 5))
    for name, table in (("states", tables.states), ("goals", tables.cells)):
        assert torch.equal(turned.tokens[name], table[5][plain.tokens[name]])
    assert torch.equal(turned.actions, tables.actions[5][plain.actions])
    assert torch.equal(turned.current["state"], tables.states[5][plain.current["state"]])
    assert torch.equal(turned.current["carrying"], plain.current["carrying"])
    assert turned.valid == plain.valid
    before, after = plain.history, turned.history
    assert torch.equal(after.steps["state"], tables.states[5][before.steps["state"]])
    assert torch.equal(after.actions, tables.actions[5][before.actions])
    assert torch.equal(after.visited_states, tables.states[5][before.visited_states])
    assert torch.equal(after.action_counts, before.action_counts[:, [1, 0, 2, 3, 4, 5]])  # left and right swap
    inverse = tables.inverse_cells[5].expand(len(windows), -1)
    assert torch.equal(turned.scene["grid"], permute_cells(plain.scene["grid"], inverse))


def test_every_scene_is_turned_in_its_own_way(rooms):
    windows = Windows(SPEC, rooms, WindowNeeds(6), transforms=[SYMMETRY])
    plain, turned = (windows.sample(64, Rng.of(3), 4, augment=augment) for augment in (False, True))
    chosen = Rng.of(3).fold("symmetry").integers(8, (16,))  # a label that results depend on
    assert len(set(chosen.tolist())) > 4
    assert torch.equal(turned.actions, BoundSymmetry(SPEC, SYMMETRY).apply(plain, chosen).actions)


@pytest.mark.parametrize(
    ("spec", "transform", "message"),
    [
        (number_spec(), SYMMETRY, "'symmetry' needs observed states that point at a grid, found the fields state"),
        (vector_spec(), SYMMETRY, "needs observed states that point at a grid"),
        (SPEC, Symmetry((1, 0)), r"reflected actions \(1, 0\), expected an order of the 6 actions"),
        (SPEC, Symmetry((1, 0, 2, 3, 4, 5), {"left": "starboard"}), "'starboard' is not in the vocabulary"),
        (SPEC, ColorPermutation(COLORS[:3], 1, None, (4,)), "exchanges 3 colors in channel 1 of 'grid', which has 6"),
        (SPEC, ColorPermutation(COLORS, 7, None, (4,)), "channel 7 of 'grid', which has no such thing"),
        (SPEC, ColorPermutation(COLORS, 1, ("hands", 1), (4,)), "number 1 of 'hands', which has no such thing"),
        (SPEC, ColorPermutation(COLORS, 1, None, (11,)), r"are \(11,\), expected 0 to 10"),
        (SPEC, ColorPermutation((*COLORS[:5], "pink"), 1, None, (4,)), "color 'pink' is not in the vocabulary"),
        (number_spec(), COLOR_PERMUTATION, "'color_permutation' needs observed states"),
        (number_spec(), MapRandomization(3), "'map_randomization' needs observed states"),
    ],
)
def test_transforms_that_do_not_fit_a_task_are_refused(rooms, spec, transform, message):
    empty = {name: np.stack([sample_field(field, np.random.default_rng(0))] * 2) for name, field in spec.fields.items()}
    actions = np.zeros((1, *spec.actions.shape), spec.actions.dtype)
    episodes = [replace(numbers([0, 1], [0]), observations=empty, actions=actions)]
    with pytest.raises(UserError, match=message):
        Windows(spec, episodes, WindowNeeds(2), transforms=[transform])


# --- colors ----------------------------------------------------------------------------------------------------------


def test_colors_are_exchanged_everywhere_at_once(rooms):
    windows = Windows(SPEC, rooms, WindowNeeds(3), transforms=[COLOR_PERMUTATION])
    plain, painted = (windows.sample(24, Rng.of(2), 2, augment=augment) for augment in (False, True))
    order = Rng.of(2).fold("colours").uniform((12, len(COLORS))).argsort(-1)  # a label that results depend on
    assert len({tuple(row) for row in order.tolist()}) > 6
    mission = SPEC.fields["mission"]
    for number in range(12):
        words = mission.decode(plain.scene["mission"][number].tolist()).split()
        renamed = [COLORS[order[number, COLORS.index(word)]] if word in COLORS else word for word in words]
        assert mission.decode(painted.scene["mission"][number].tolist()).split() == renamed
        old, new = plain.scene["grid"][number], painted.scene["grid"][number]
        objects = old[..., 0] >= 4
        assert torch.equal(new[~objects], old[~objects])  # walls and floors stay
        assert torch.equal(new[objects][:, 1].long(), order[number][old[objects][:, 1].long()])
        assert torch.equal(new[..., [0, 2]], old[..., [0, 2]])
    assert torch.equal(painted.tokens["states"], plain.tokens["states"])


def test_what_is_carried_changes_its_color_along_now_and_in_the_past(doors):
    windows, plain = all_windows(SPEC, doors)
    order = torch.tensor([3, 4, 5, 0, 1, 2]).repeat(len(windows), 1)
    painted = BoundColorPermutation(SPEC, COLOR_PERMUTATION).apply(plain, order)
    assert (plain.current["carrying"][:, 0] == 5).any()
    for old, new in ((plain.current, painted.current), (plain.history.steps, painted.history.steps)):
        old, new = old["carrying"], new["carrying"]
        held = old[..., 0] == 5
        assert torch.equal(new[..., 0], old[..., 0])
        assert torch.equal(new[..., 1], torch.where(held, (old[..., 1] + 3) % 6, old[..., 1]))


# --- map randomization -----------------------------------------------------------------------------------------------


def test_added_objects_stand_off_the_way_and_never_look_like_the_target(rooms):
    windows = Windows(SPEC, rooms, WindowNeeds(3), transforms=[MapRandomization(8)])
    plain, full = (windows.sample(64, Rng.of(2), augment=augment) for augment in (False, True))
    before, after = plain.scene["grid"], full.scene["grid"]
    assert torch.equal(full.tokens["states"], plain.tokens["states"])
    assert torch.equal(windows.sample(64, Rng.of(2)).scene["grid"], after)
    added = (after != before).any(-1)  # [M, W, H]
    assert (before[added] == torch.tensor([FLOOR, 0, 0])).all()
    known = torch.isin(after[..., 0], torch.unique(torch.tensor([1, 2, 5, 6, 7])))
    unseen, added = added & ~known, added & known
    assert set(after[unseen][:, 0].tolist()) == {0, 3, 4, 8, 9, 10}  # what is in no room
    assert set(after[added][:, 0].tolist()) == {2, 5, 6, 7}  # walls, keys, balls and boxes
    assert len(set(added.sum((1, 2)).tolist())) > 8
    on_the_way = 0
    steps = windows.sample_starts(64, 1, Rng.of(2))[:, 0]
    numbers = torch.searchsorted(torch.unique(windows.first), windows.first[steps])
    for number, episode in enumerate(rooms[k] for k in numbers.tolist()):
        cells = np.unique(episode.observations["state"] // 4)
        assert not added[number][cells % 8, cells // 8].any()
        on_the_way += int(unseen[number][cells % 8, cells // 8].sum())
        target = after[number][SPEC.geometry.position(episode.subgoals[-1].token)]
        assert not ((after[number] == target).all(-1) & added[number]).any()
    assert 0.2 < on_the_way / int(unseen.sum()) < 0.8  # half of them, and passages through walls


def test_a_recipe_applies_to_recorded_scenes_first(rooms):
    """A randomizer looks up cells of the recorded grid: after a turn it would put objects on the way."""
    orders = ([MapRandomization(8), SYMMETRY, COLOR_PERMUTATION], [SYMMETRY, COLOR_PERMUTATION, MapRandomization(8)])
    grids = [
        Windows(SPEC, rooms, WindowNeeds(3), transforms=one).sample(32, Rng.of(0), 4).scene["grid"] for one in orders
    ]
    assert torch.equal(*grids)


def test_a_spec_without_goals_has_no_objects_to_add(rooms):
    spec = replace(SPEC, streams={"states": SPEC.streams["states"]})
    windows = Windows(spec, rooms, WindowNeeds(3), transforms=[MapRandomization(8), SYMMETRY])
    assert set(windows.sample(32, Rng.of(0)).tokens) == {"states"}


# --- missions in either order ----------------------------------------------------------------------------------------


def test_missions_are_joined_in_either_order(rooms):
    words = {word: number for number, word in enumerate(SPEC.fields["mission"].vocabulary)}
    windows, batch = all_windows(SPEC, rooms[:4])
    said = ["go to the red ball and open the door", "get the key", "key and ball and door", "and ball"]
    then = ["open the door and go to the red ball", "get the key", "key and ball and door", "ball and"]
    tokens = torch.zeros(batch.num_scenes, 12, dtype=torch.int64)
    for row, text in enumerate(said):
        tokens[row, : len(text.split())] = torch.tensor([words[word] for word in text.split()])
    batch = replace(batch, scene=Observations({**batch.scene.fields, "mission": tokens}))
    bound = EitherOrder("and").bind(windows)
    exchanged = torch.arange(batch.num_scenes) < 4
    changed = bound.apply(batch, exchanged)
    shown = [SPEC.fields["mission"].decode(one.numpy()) for one in changed.scene["mission"]]
    assert shown[:4] == then
    assert torch.equal(bound.apply(changed, exchanged).scene["mission"], tokens)
    assert torch.equal(bound.apply(batch, ~exchanged).scene["mission"], tokens)
    assert changed.tokens is batch.tokens
    drawn = [bound(batch, None, Rng.of(seed)).scene["mission"][0, 0] == words["open"] for seed in range(200)]
    assert 60 < sum(drawn) < 140  # every other one: odds of a false alarm 1 in 10 ** 8


@pytest.mark.parametrize(
    ("spec", "conjunction", "message"),
    [
        (SPEC, "or", "the conjunction 'or' is not in the vocabulary of 'mission'"),
        (number_spec(), "and", "'either_order' needs a mission, found the fields state"),
    ],
)
def test_missions_that_are_not_joined_are_refused(spec, conjunction, message, rooms):
    episodes = rooms if spec is SPEC else [numbers([0, 1, 2], [0, 1])]
    with pytest.raises(UserError, match=message):
        Windows(spec, episodes, WindowNeeds(3), transforms=[EitherOrder(conjunction)])


# --- recipes ---------------------------------------------------------------------------------------------------------

RECIPE = (
    {"name": "erase_loops"},
    {"name": "stitch", "num_episodes": 5, "conjunction": "and"},
    {"name": "map_randomization", "max_objects": 10},
    {"name": "symmetry", "reflected_actions": [1, 0, 2, 3, 4, 5], "reflected_words": {"left": "right"}},
    {
        "name": "color_permutation",
        "words": list(COLORS),
        "channel": 1,
        "feature": ["carrying", 1],
        "types": [4, 5, 6, 7],
    },
    {"name": "either_order", "conjunction": "and"},
    {"name": "finish", "env": "PushT", "steps": 8, "info": "coverage", "least": 0.9},
    {"name": "hold_last", "steps": 8, "goal": None},
    {"name": "sensor_noise", "field": "joints", "std": 0.01, "first": 0, "number": 7},
    {"name": "reflection", "field": "points", "body": [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], "size": 512},
)


def test_recipes_survive_json():
    transforms = [transform_from_json(one) for one in RECIPE]
    assert [type(one) for one in transforms] == list(TRANSFORMS.values())
    assert transforms[4] == COLOR_PERMUTATION
    again = json.loads(json.dumps([transform_to_json(one) for one in transforms]))
    assert again == [transform_to_json(one) for one in transforms] == list(RECIPE)
    assert [transform_from_json(one) for one in again] == transforms


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("symmetry!", "there is no transform 'symmetry!'; known are erase_loops, stitch, map_randomization, sym"),
        ({"name": ["x"]}, "there is no transform"),
        ({"max_objects": 3}, "there is no transform 'None'"),
        ({"name": "symmetry"}, "'symmetry' cannot be made of {}: .*; its settings are reflected_actions"),
        ({"name": "symmetry", "reflected_actions": 3}, "cannot be made of"),
        ({"name": "symmetry", "reflected_actions": ["a"]}, "cannot be made of"),
        ({"name": "symmetry", "turns": 3}, "unknown setting 'turns'; known are reflected_actions, reflected_words"),
        ({"name": "map_randomization", "max_objects": 0}, "max_objects is 0, expected a whole number from 1 to 100000"),
        ({"name": "map_randomization", "max_objects": "ten"}, "max_objects is ten"),
        ({"name": "stitch", "num_episodes": -1}, "num_episodes is -1"),
        ({"name": "color_permutation", "words": ["red"], "channel": 1}, "1 words and 0 types, expected at least 2"),
        ({"name": "color_permutation", "words": COLORS, "channel": 1, "feature": 3}, "cannot be made of"),
    ],
)
def test_bad_recipes_are_refused(data, message):
    with pytest.raises(UserError, match=message):
        transform_from_json(data)


@dataclass(frozen=True)
class FirstGoalOnly:
    """A transform of one's own: an object with `bind`."""

    def bind(self, windows):
        return lambda batch, drawn, rng: replace(batch, tokens={**batch.tokens, "goals": batch.tokens["goals"] * 0})


class Twice:
    """One that makes episodes."""

    def episodes(self, spec, episodes, rng):
        return list(episodes)


def test_transforms_of_your_own(rooms):
    recipe = [Twice(), FirstGoalOnly()]
    episodes = extend_episodes(recipe, SPEC, rooms, np.random.default_rng(0))
    assert len(episodes) == 2 * len(rooms)
    windows = Windows(SPEC, episodes, WindowNeeds(3), transforms=recipe)
    assert (windows.sample(8, Rng.of(0)).tokens["goals"] == 0).all()
    assert (windows.sample(8, Rng.of(0), augment=False).tokens["goals"] != 0).any()
    with pytest.raises(UserError, match="a Twice cannot be stored with a run, expected one of EraseLoops"):
        transform_to_json(recipe[0])


def test_every_shipped_transform_is_named_as_in_the_table():
    assert all(kind.name == name for name, kind in TRANSFORMS.items())
    assert Stitch(3) == transform_from_json({"name": "stitch", "num_episodes": 3})


ARM = PlanSpec({"joints": Field("vector", (3,))}, Actions(low=(-1,), high=(1,), origin=("joints", 0)))


def arm_episode(length=6):
    joints = np.cumsum(np.ones((length + 1, 3), np.float32), 0) * 0.01
    return episode_from_arrays(ARM, {"joints": joints}, joints[1:, :1], infos={"done": np.arange(length)})


def test_who_has_arrived_stays():
    """The target is what is observed; an action that is not relative to it is repeated."""
    (held,) = HoldLast(4).episodes(ARM, [arm_episode()], np.random.default_rng(0))
    assert len(held) == 10
    assert (held.actions[6:] == held.observations["joints"][6, :1]).all()
    (repeated,) = HoldLast(4).episodes(
        PlanSpec(ARM.fields, Actions(low=(-1,), high=(1,))), [arm_episode()], np.random.default_rng(0)
    )
    assert (repeated.actions[6:] == held.actions[5]).all()
    assert (held.observations["joints"][7:] == held.observations["joints"][6]).all()
    assert held.infos["done"].tolist() == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5]
    with pytest.raises(UserError, match="needs continuous actions"):
        HoldLast(4).episodes(PlanSpec(ARM.fields, Actions(2)), [], np.random.default_rng(0))
    with pytest.raises(UserError, match="expected 1 to 10000"):
        HoldLast(0)


def test_to_stay_is_a_goal_where_the_task_has_one():
    goals = PlanSpec(ARM.fields, ARM.actions, {"goals": Stream(2, (1,))})
    (held,) = HoldLast(4, 1).episodes(goals, [arm_episode()], np.random.default_rng(0))
    assert held.subgoals == (SubGoal(9, 1, "target"),)
    with pytest.raises(UserError, match="goal 2, and the task has 2"):
        HoldLast(4, 2).episodes(goals, [], np.random.default_rng(0))
    with pytest.raises(UserError, match="expected a token"):
        HoldLast(4, -1)


def pusht_episode(length=20, seed=3, push=True):
    """In the simulator: the agent goes for the middle of the block, which is not observed behind the last action."""
    pytest.importorskip("gym_pusht", reason="the extra robots is not installed")
    task = tasks.get("PushT")
    env = task.make_env()
    seen, actions = [env.reset(seed=seed)[0]], []
    for _ in range(length):
        actions.append(seen[-1][:18].reshape(9, 2).mean(0))
        seen.append(env.step(actions[-1])[0])
    env.close()
    episode = episode_from_arrays(
        task.spec, {"observation": np.stack(seen[:-1])}, np.stack(actions), subgoals=[SubGoal(length - 1, 0, "target")]
    )
    return task.spec, episode, np.stack(seen)


def test_a_recording_that_is_cut_off_is_finished_in_the_simulator():
    spec, episode, seen = pusht_episode()
    (finished,) = Finish("PushT", 5).episodes(spec, [episode], np.random.default_rng(0))
    assert episode.last_repeated
    assert not finished.last_repeated
    assert len(finished) == 25
    assert finished.subgoals == (SubGoal(24, 0, "target"),)
    assert (finished.actions[20:] == episode.actions[-1]).all()
    observed = finished.observations["observation"]
    assert (observed[:20] == seen[:20]).all()
    assert np.abs(observed[20] - seen[20]).max() < 10  # the agent's speed was not recorded
    distance = np.linalg.norm(observed[19:, 18:] - episode.actions[-1], axis=1)
    assert distance[-1] < distance[0]
    (kept,) = Finish("PushT", 5, "coverage", 0.99).episodes(spec, [episode], np.random.default_rng(0))
    assert replace(kept, success=True) == episode  # it ends badly,
    assert HoldLast(3, 1).episodes(spec, [kept], np.random.default_rng(0)) == [kept]  # and is no example of rest
    with pytest.raises(UserError, match="least nan, expected a number"):
        Finish("PushT", 5, "coverage", float("nan"))
    with pytest.raises(UserError, match="expected one of PushT, Kitchen"):
        Finish("Chess", 5)
    with pytest.raises(UserError, match="needs continuous actions"):
        Finish("PushT", 5).episodes(PlanSpec(ARM.fields, Actions(2)), [], np.random.default_rng(0))


def test_the_reflected_episode_is_what_the_simulator_would_show():
    """Up to where block and agent touch, exactly; then contacts are solved in another order."""
    spec, episode, seen = pusht_episode(length=9, seed=5)
    reflection = transform_from_json(next(one for one in tasks.get("PushT").transforms if one["name"] == "reflection"))
    (reflected,) = reflection.episodes(spec, [episode], np.random.default_rng(0))
    env = tasks.get("PushT").make_env()
    found, _ = env.reset(seed=0, options={"start": {"observation": reflected.observations["observation"][0]}})
    for number, action in enumerate(reflected.actions[:-1]):
        touched = np.abs(seen[number, :18] - seen[0, :18]).max() > 0
        assert np.abs(found - reflected.observations["observation"][number]).max() < (5 if touched else 0.01)
        found = env.step(action)[0]
    assert touched
    (back,) = reflection.episodes(spec, [reflected], np.random.default_rng(0))
    assert np.abs(back.observations["observation"] - episode.observations["observation"]).max() < 1e-3
    assert np.allclose(back.actions, episode.actions)


def test_mirrors_of_something_else_are_refused():
    with pytest.raises(UserError, match="not all on one line"):
        Reflection("observation", ((0, 0), (1, 1), (2, 2)), 512)
    with pytest.raises(UserError, match="expected a number"):
        Reflection("observation", ((0, 0), (1, 1), (2, 0)), float("nan"))
    with pytest.raises(UserError, match="needs a vector field 'joints'"):
        Reflection("joints", ((0, 0), (1, 1), (2, 0)), 1).episodes(ARM, [], np.random.default_rng(0))


def test_what_is_observed_is_noisy_and_what_is_done_is_not():
    """The same noise now and before; relative actions lead back to where the demonstration went."""
    needs = WindowNeeds(2, 2)
    noisy = Windows(ARM, [arm_episode()] * 40, needs, transforms=[SensorNoise("joints", 0.1, 1, 2)])
    batch, clean = (noisy.sample(400, Rng.of(0), augment=augment) for augment in (True, False))
    assert torch.equal(batch.actions, clean.actions)
    added = batch.current["joints"] - clean.current["joints"]
    assert not added[:, 0].any()
    assert abs(float(added[:, 1:].std()) - 0.1) < 0.02
    before = batch.history.steps["joints"][:, 0] - clean.history.steps["joints"][:, 0]
    assert torch.allclose(before, added, atol=1e-6)
    for wrong, message in (
        (SensorNoise("arm", 0.1), "expected a vector field"),
        (SensorNoise("joints", 0.1, 2, 2), "has 3"),
    ):
        with pytest.raises(UserError, match=message):
            Windows(ARM, [arm_episode()], needs, transforms=[wrong])
    with pytest.raises(UserError, match="expected more than 0"):
        SensorNoise("joints", 0)
