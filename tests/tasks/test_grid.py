"""The paper's worlds, exactly."""

import contextlib
import hashlib
import io
import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minigrid.envs.babyai.goto import GoTo
from minigrid.minigrid_env import MiniGridEnv

from genplan import tasks
from genplan.tasks.table import ROWS, TEST_SEEDS, TRAIN_SEEDS, VALIDATION_SEEDS, WORLDS

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "tasks.json").read_text())


def frame(observation):
    return observation["image"].tobytes() + bytes(int(number) for number in observation["pose"])


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_episodes(name):
    """Mission, first frame and up to 50 random steps of every pinned seed; the image equals the grid at every step."""
    env = tasks.make_world(name)
    pinned = GOLDEN[name]
    assert (env.width, env.height, env.max_steps) == (pinned["width"], pinned["height"], pinned["max_steps"])
    for seed, mission, first, all_frames, steps, terminated, truncated in pinned["episodes"]:
        observation, _ = env.reset(seed=seed)
        assert env.mission == mission
        frames = hashlib.sha256(frame(observation))
        assert frames.hexdigest()[:16] == first
        chance = np.random.RandomState(seed)
        ends = (False, False)
        count = 0
        while count < 50 and not any(ends):
            observation, _, *ends, _ = env.step(int(chance.randint(6)))
            count += 1
            frames.update(frame(observation))
            assert np.array_equal(observation["image"], env.grid.encode())
        assert frames.hexdigest()[:16] == all_frames
        assert (count, *ends) == (steps, terminated, truncated)


@pytest.mark.parametrize("name", WORLDS)
def test_gymnasium_accepts_it(name, capfd):
    env = gymnasium.make(f"genplan/{name}-v0")
    env.reset(seed=3)
    assert capfd.readouterr().out == ""
    check_env(env.unwrapped, skip_render_check=True)
    assert env.action_space.n == 6
    assert set(env.observation_space.spaces) == {"image", "pose", "carrying", "mission", "mission_tokens"}


def test_vector_environments():
    envs = gymnasium.make_vec("genplan/MazeS4G1-v0", num_envs=3, vectorization_mode="sync")
    observations, _ = envs.reset(seed=[1, 2, 3])
    assert observations["image"].shape == (3, 10, 10, 3)
    envs.step(envs.action_space.sample())


def test_it_equals_stock_minigrid():
    world = WORLDS["MazeS4G1"]
    ours, stock = tasks.make_world("MazeS4G1"), GoTo(max_steps=world.max_steps, **world.arguments)
    for seed in range(30_000, 30_010):
        ours.reset(seed=seed)
        with contextlib.redirect_stdout(io.StringIO()):
            stock.reset(seed=seed)
        assert ours.mission == stock.mission
        for action in np.random.default_rng(seed).integers(6, size=60).tolist():
            _, reward, *ends, _ = ours.step(action)
            _, stock_reward, *stock_ends, _ = stock.step(action)
            assert (reward, ends) == (stock_reward, stock_ends)
            assert np.array_equal(ours.grid.encode(), stock.grid.encode())


def test_the_partial_view_is_not_computed(monkeypatch):
    env = tasks.make_world("MazeS4G1")

    def forbidden(self, *args):
        raise AssertionError("the 7×7 view was computed")

    monkeypatch.setattr(MiniGridEnv, "gen_obs_grid", forbidden)
    env.reset(seed=0)
    for action in range(6):
        env.step(action)
    monkeypatch.undo()
    assert env.gen_obs_grid()[0].width == 7  # whoever asks gets it


def test_nothing_of_the_goal_is_in_the_observation():
    """Another instruction, other latches, in the same maze with the same words: the same observation."""
    env = tasks.make_world("MazeS4G2")
    before, _ = env.reset(seed=TRAIN_SEEDS[0])
    env.instrs.a_done = "success"
    env.instrs.instr_a, env.instrs.instr_b = env.instrs.instr_b, env.instrs.instr_a
    env.instrs.instr_a.desc.obj_poss = [(1, 1)]
    after = env.gen_obs()
    assert set(before) == set(after)
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_what_is_carried_is_told_and_done_is_no_action():
    env = tasks.get("BlockUnlock").make()
    observation, _ = env.reset(seed=10_000)
    assert observation["carrying"].tolist() == [1, 0]
    planner = tasks.get("BlockUnlock").expert()
    from genplan.evaluate import rollout

    (result,) = rollout(planner, tasks.get("BlockUnlock"), [10_000])
    carried = {tuple(env.step(action)[0]["carrying"].tolist()) for action in result.actions}
    assert {kind for kind, _ in carried} >= {1, 5, 6}  # nothing, a key, a ball
    with pytest.raises(ValueError, match="the action is 6, expected 0 to 5"):
        env.step(6)


def test_seed_ranges_are_apart_and_rows_are_complete():
    assert not set(TRAIN_SEEDS) & (set(TEST_SEEDS) | set(VALIDATION_SEEDS))
    assert not set(TEST_SEEDS) & set(VALIDATION_SEEDS)
    assert (len(TEST_SEEDS), TEST_SEEDS[0], TEST_SEEDS[-1]) == (250, 1234, 1483)
    assert len(ROWS) == 13
    assert [row.family for row in ROWS.values()].count("AP") == 5
    key = ROWS["KeyCorridorS3R3"]
    assert (key.context, key.horizon, key.iterations, key.entropy) == (10, 30, 15, 0.3)
    assert ROWS["AP-MazeClose"].trained_on == "LocS10N1"
    assert ROWS["AP-MazeClose"].entropy == 0.7
