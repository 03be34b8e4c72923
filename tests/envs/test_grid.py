"""The paper's environments, exactly."""

import contextlib
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.envs.babyai.goto import GoTo
from minigrid.minigrid_env import MiniGridEnv

from genplan.envs import ENVS, babyai, make_env
from genplan.envs.babyai import BABYAI_WORDS, MISSION_FIELD
from genplan.envs.grid import carried_name, render_grid
from genplan.types import TRAIN_SEEDS

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "tasks.json").read_text())


def frame(observation):
    return observation["image"].tobytes() + bytes(int(number) for number in observation["pose"])


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_episodes(name):
    """Mission, first frame and up to 50 random steps of every pinned seed; the image equals the grid at every step."""
    env = make_env(name)
    pinned = GOLDEN[name]
    assert (env.width, env.height, env.max_steps) == (pinned["width"], pinned["height"], pinned["max_steps"])
    assert ENVS[name].size == env.width == env.height
    for seed, mission, first, all_frames, steps, terminated, truncated in pinned["episodes"]:
        observation, _ = env.reset(seed=seed)
        assert env.mission == mission
        frames = hashlib.sha256(frame(observation))
        assert frames.hexdigest()[:16] == first
        actions = np.random.RandomState(seed)
        ends = (False, False)
        count = 0
        while count < 50 and not any(ends):
            observation, _, *ends, _ = env.step(int(actions.randint(6)))
            count += 1
            frames.update(frame(observation))
            assert np.array_equal(observation["image"], env.grid.encode())
        assert frames.hexdigest()[:16] == all_frames
        assert (count, *ends) == (steps, terminated, truncated)


@pytest.mark.parametrize("name", ENVS)
def test_gymnasium_accepts_it(name, capfd):
    env = gymnasium.make(f"genplan/{name}-v0")
    env.reset(seed=3)
    assert capfd.readouterr().out == ""
    check_env(env.unwrapped, skip_render_check=True)
    assert env.action_space.n == 6
    assert set(env.observation_space.spaces) == {"image", "pose", "carrying", "mission", "mission_tokens"}


def test_importing_registers_and_imports_no_simulator():
    program = (
        "import sys, gymnasium\nimport genplan.envs\nassert 'minigrid' not in sys.modules\n"
        "assert gymnasium.make('genplan/MazeS4G1-v0').reset(seed=0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    by_module = "import gymnasium; gymnasium.make('genplan.envs:genplan/MazeS4G1-v0')"
    subprocess.run([sys.executable, "-c", by_module], check=True, timeout=120)


def test_vector_environments():
    envs = gymnasium.make_vec("genplan/MazeS4G1-v0", num_envs=3, vectorization_mode="sync")
    observations, _ = envs.reset(seed=[1, 2, 3])
    assert observations["image"].shape == (3, 10, 10, 3)
    envs.step(envs.action_space.sample())


def test_it_equals_stock_minigrid():
    entry = ENVS["MazeS4G1"]
    ours, stock = make_env("MazeS4G1"), GoTo(max_steps=entry.max_steps, **entry.arguments)
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
    env = make_env("MazeS4G1")

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
    env = make_env("MazeS4G2")
    before, _ = env.reset(seed=TRAIN_SEEDS[0])
    env.instrs.a_done = "success"
    env.instrs.instr_a, env.instrs.instr_b = env.instrs.instr_b, env.instrs.instr_a
    env.instrs.instr_a.desc.obj_poss = [(1, 1)]
    after = env.gen_obs()
    assert set(before) == set(after)
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_every_mission_is_in_the_vocabulary():
    for name in ENVS:
        env = make_env(name)
        for seed in range(20_000, 20_030):
            observation, _ = env.reset(seed=seed)
            assert MISSION_FIELD.decode(observation["mission_tokens"]) == observation["mission"]
    assert len(BABYAI_WORDS) == len(set(BABYAI_WORDS))


def test_numbers_are_those_of_minigrid():
    for name in ("EMPTY", "DOOR", "KEY", "BALL", "BOX", "AGENT"):
        assert getattr(babyai, name) == OBJECT_TO_IDX[name.lower()]
    assert STATE_TO_IDX["locked"] == babyai.LOCKED
    assert dict(COLOR_TO_IDX) == {name: index for index, name in enumerate(babyai.COLOR_NAMES)}
    assert [action.name for action in Actions][:6] == list(babyai.ACTION_NAMES)
    assert (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX)) == babyai.CHANNEL_SIZES


def test_pictures_and_names():
    env = make_env("MazeS4G1")
    observation, _ = env.reset(seed=1)
    picture = render_grid(observation["image"], observation["pose"], 12)
    assert picture.shape == (120, 120, 3)
    assert picture.dtype == np.uint8
    moved = render_grid(observation["image"], (*observation["pose"][:2], (observation["pose"][2] + 1) % 4), 12)
    assert (picture != moved).any()
    assert carried_name(observation["carrying"]) == ""
    assert carried_name((5, 4)) == "yellow key"
    with pytest.raises(ValueError, match="the action is 6, expected 0 to 5"):
        env.step(6)
