"""Datasets of other formats: genplan's own of before, stock MiniGrid, numbers, and what a task can observe."""

import dataclasses
import json

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minigrid.wrappers import FullyObsWrapper

from genplan import tasks
from genplan.data import store
from genplan.envs.babyai import babyai_spec
from genplan.errors import DataError
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Task

from .format_1 import write_format_1

# Digests of format 1, as the code of format 1 computed them for these collections.
MAZE_V1, BLOCKED_V1 = "ac2d1ed915156be2", "ea6d1562de08c97c"


def numbers(size, actions=2):
    return PlanSpec(
        {"state": Field("category", (), (size,))}, Actions(actions), {"states": Stream(size, observed="state")}
    )


def write(name, observations, actions, space, action_space=None, **columns):
    length = len(actions)
    columns = {
        "rewards": np.ones(length), "terminations": np.arange(length) == length - 1,
        "truncations": np.zeros(length, bool), **columns,
    }  # fmt: skip
    buffer = minari.data_collector.EpisodeBuffer(observations=observations, actions=np.array(actions), **columns)
    minari.create_dataset_from_buffers(
        name, [buffer], action_space=action_space or spaces.Discrete(2), observation_space=space
    )


def test_digests_of_format_1_are_still_known(maze, blocked):
    """Runs of before name their dataset by it."""
    for dataset, digest in ((maze, MAZE_V1), (blocked, BLOCKED_V1)):
        assert dataset.digest_v1 == digest
        assert store.Dataset("less", dataset.spec, dataset.episodes[1:]).digest_v1 != digest


@pytest.mark.parametrize("as_tokens", [False, True])
def test_datasets_of_format_1_are_still_read(blocked, as_tokens):
    name = f"old/blocked-{int(as_tokens)}-v0"
    write_format_1(name, blocked, as_tokens)
    for task in (None, tasks.get("BlockUnlock")):
        found = store.read(name, task)
        assert found.spec == blocked.spec
        assert found.digest_v1 == BLOCKED_V1
        assert store.incompatibility(found, tasks.get("BlockUnlock")) is None
        for episode, original in zip(found.episodes, blocked.episodes, strict=True):
            for field, column in original.observations.items():
                assert episode.observations[field].dtype == column.dtype
                assert np.array_equal(episode.observations[field], column)
            assert episode.success
            assert np.isnan(episode.rewards).all()  # they were not kept
            assert np.array_equal(episode.terminations, original.terminations)
            assert episode.subgoals == original.subgoals
    with pytest.raises(DataError, match=r"9, 9.*expected .*10, 10"):
        store.read(name, tasks.get("MazeS4G1"))


def test_numbers_of_format_1(datasets):
    spec = numbers(9)
    episode = store.episode_from_arrays(spec, {"state": [3, 4, 5]}, [0, 1], [0, 1.0], [0, 1], [0, 0], seed=10_000)
    dataset = store.Dataset("numbers", spec, [episode])
    write_format_1("old/numbers-v0", dataset, as_tokens=True)
    found = store.read("old/numbers-v0")
    assert found.spec == spec
    assert found.digest_v1 == dataset.digest_v1 is not None
    renamed = PlanSpec({"place": spec.fields["state"]}, spec.actions, {"states": Stream(9, observed="place")})
    task = Task("own", lambda: None, renamed, lambda env, raw: {"place": raw}, 10)
    assert store.read("old/numbers-v0", task).episodes[0].observations["place"].tolist() == [3, 4, 5]


def test_one_mission_for_an_episode_of_format_1(blocked, datasets):
    write_format_1("old/missions-v0", blocked)
    with h5py.File(datasets / "old" / "missions-v0" / "data" / "main_data.hdf5", "a") as file:
        file["episode_3"]["observations"]["mission"][0] = "go to the red ball on your left"
    with pytest.raises(DataError, match="episode 3: 2 missions, expected 1 for the whole episode"):
        store.read("old/missions-v0")


# --- stock MiniGrid --------------------------------------------------------------------------------------------------


def stock_buffers(number, first_seed=0):
    """Episodes of a stock BabyAI level with FullyObsWrapper, as its bot plays them."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    env = FullyObsWrapper(gymnasium.make("BabyAI-GoToLocal-v0", max_steps=64))
    observation_space = spaces.Dict({**env.observation_space.spaces, "mission": spaces.Text(200)})
    collector = minari.DataCollector(env, observation_space=observation_space)
    for seed in range(first_seed, first_seed + number):
        collector.reset(seed=seed)
        bot, action, done = BabyAIBot(collector), None, False
        while not done:
            action = bot.replan(action)
            _, _, terminated, truncated, _ = collector.step(action)
            done = terminated or truncated
    return collector


def test_stock_minigrid_recorded_by_minari(datasets):
    """Also when the environment cannot be rebuilt: its spec names one that does not exist."""
    pytest.importorskip("jax", reason="Minari's DataCollector needs it")
    stock_buffers(4, first_seed=50_000).create_dataset("stock/go-to-local-v0")
    path = datasets / "stock" / "go-to-local-v0" / "data" / "metadata.json"
    information = json.loads(path.read_text())
    information["env_spec"] = information["env_spec"].replace("GoToLocal", "Nowhere")
    path.write_text(json.dumps(information))
    found = store.read("stock/go-to-local-v0")
    assert found.spec == babyai_spec(8, 8)
    for episode in found.episodes:
        grid, states = episode.observations["grid"], episode.observations["state"]
        assert episode.success
        assert episode.rewards[-1] > 0  # as the environment gave it
        assert episode.terminations[-1]
        assert (grid[..., 0] != 10).all()  # the agent is a state, not an object of the grid
        x, y, direction = found.spec.geometry.pose(int(states[-1]))
        front = (x + (1, 0, -1, 0)[direction], y + (0, 1, 0, -1)[direction])
        assert found.spec.geometry.cell(*front) == episode.subgoals[-1].token
        assert (grid == grid[0]).all()  # nothing was moved in these


STOCK_SPACE = {"direction": spaces.Discrete(4), "mission": spaces.Text(99)}


def stock_space(size):
    return spaces.Dict({"image": spaces.Box(0, 255, (size, size, 3), np.uint8), **STOCK_SPACE})


def corridor(positions):
    """Images of a corridor with a yellow key at its end, for (x of the agent, whether the key is there)."""
    grid = np.zeros((5, 5, 3), np.uint8)
    grid[...] = (2, 5, 0)
    grid[1:4, 1] = (1, 0, 0)
    images = []
    for x, key in positions:
        image = grid.copy()
        image[3, 1] = (5, 4, 0) if key else (1, 0, 0)
        image[x, 1] = (10, 0, 0)
        images.append(image)
    length = len(images)
    return {"image": np.array(images), "direction": np.zeros(length, np.int64), "mission": ["go to the door"] * length}


def test_stock_pickups_doors_and_done(datasets):
    """What is carried and what is under the agent follows from earlier images; `done` is left out."""
    seen = corridor([(1, True), (1, True), (2, True), (2, False), (3, False), (3, False)])
    write(
        "stock/key-v0", seen, [6, 2, 3, 2, 4], stock_space(5), spaces.Discrete(7), rewards=np.zeros(5),
        terminations=np.zeros(5, bool), truncations=np.arange(5) == 4,
    )  # fmt: skip
    (episode,) = store.read("stock/key-v0").episodes
    assert episode.actions.tolist() == [2, 3, 2, 4]
    assert episode.observations["carrying"].tolist() == [[1, 0], [1, 0], [5, 4], [5, 4], [5, 4]]
    assert episode.truncations.tolist() == [False, False, False, True]
    assert not episode.success
    assert episode.subgoals == ()


def test_what_happened_at_done_belongs_to_the_step_before(datasets):
    seen = corridor([(1, True), (2, True), (2, True), (2, True)])
    write("stock/done-v0", seen, [2, 6, 6], stock_space(5), spaces.Discrete(7), rewards=np.array([0.25, 0.0, 0.5]))
    (episode,) = store.read("stock/done-v0").episodes
    assert episode.actions.tolist() == [2]
    assert episode.rewards.tolist() == [0.75]
    assert episode.terminations.tolist() == [True]
    assert episode.success
    assert episode.subgoals == ((0, 3 + 5 * 1, "target"),)
    write("stock/only-done-v0", corridor([(1, True)] * 2), [6], stock_space(5), spaces.Discrete(7))
    with pytest.raises(DataError, match="all 1 actions are 'done', expected at least 1 other"):
        store.read("stock/only-done-v0")


def test_stock_recordings_that_do_not_fit(datasets):
    partial = {
        "image": np.ones((3, 7, 7, 3), np.uint8),
        "direction": np.zeros(3, int),
        "mission": ["go to the door"] * 3,
    }
    write("stock/view-v0", partial, [0, 0], stock_space(7), spaces.Discrete(7))
    with pytest.raises(DataError, match="shows 0 agents, expected 1: record with minigrid's FullyObsWrapper"):
        store.read("stock/view-v0")
    with pytest.raises(DataError, match=r"has grids of \(7, 7\), expected \(10, 10\) for task MazeS4G1"):
        store.read("stock/view-v0", tasks.get("MazeS4G1"))
    write("stock/actions-v0", partial, [0, 0], stock_space(7), spaces.Discrete(9))
    with pytest.raises(DataError, match="expected MiniGrid's 6 or 7"):
        store.read("stock/actions-v0")


# --- anything else ---------------------------------------------------------------------------------------------------


def test_numbers_as_observations_and_tasks_that_observe(datasets):
    states = np.array([3, 4, 5])
    write("other/plain-v0", states, [0, 1], spaces.Discrete(9))
    found = store.read("other/plain-v0")
    assert found.spec == numbers(9)
    assert found.episodes[0].observations["state"].tolist() == [3, 4, 5]
    assert found.episodes[0].rewards.tolist() == [1, 1]
    box = spaces.Box(0, 9, (2,), np.float32)
    write("other/boxed-v0", np.stack([states, states], 1).astype(np.float32), [0, 1], box)
    with pytest.raises(DataError, match="describe it as a Task"):
        store.read("other/boxed-v0")
    task = Task("boxed", lambda: None, numbers(9), lambda env, raw: {"state": int(raw[0])}, 10)
    assert store.read("other/boxed-v0", task).episodes[0].observations["state"].tolist() == [3, 4, 5]
    peeking = Task("peeking", lambda: None, numbers(9), lambda env, raw: {"state": env.unwrapped.s}, 10)
    with pytest.raises(DataError, match="cannot read a recorded observation without its environment"):
        store.read("other/boxed-v0", peeking)
    more = dataclasses.replace(task, spec=numbers(9, actions=3))
    with pytest.raises(DataError, match=r"has the actions Discrete\(2\), expected Discrete\(3\)"):
        store.read("other/boxed-v0", more)


def test_continuous_actions_vectors_and_infos(datasets):
    """A robot's recording: success by the task's own rule, from the infos that it names."""
    space = spaces.Dict({"arm": spaces.Box(-9, 9, (2,)), "goal": spaces.Box(-9, 9, (1,))})
    seen = {"arm": np.ones((4, 2), np.float32), "goal": np.zeros((4, 1), np.float32)}
    coverage = np.array([0.0, 0.1, 0.96, 0.5])  # Minari's collector keeps that of reset too
    actions = np.array([[0.5, 0.5], [1, -1], [0, 0]])
    write(
        "other/robot-v0", seen, actions, space, spaces.Box(-1, 1, (2,)), rewards=np.zeros(3),
        infos={"coverage": coverage, "other": np.zeros(4)},
    )  # fmt: skip
    spec = PlanSpec({"joints": Field("vector", (3,))}, Actions(low=(-1, -1), high=(1, 1)))
    task = Task(
        "robot", lambda: None, spec, lambda env, raw: {"joints": np.concatenate([raw["arm"], raw["goal"]])}, 10,
        success=lambda reward, terminated, info: info["coverage"] > 0.95, infos=("coverage",),
    )  # fmt: skip
    (episode,) = store.read("other/robot-v0", task).episodes
    assert episode.observations["joints"].tolist() == [[1, 1, 0]] * 4
    assert episode.actions.tolist() == actions.tolist()
    assert episode.infos["coverage"].tolist() == [0.1, 0.96, 0.5]
    assert list(episode.infos) == ["coverage"]
    assert episode.success

    def succeeds(**changes):
        return store.read("other/robot-v0", dataclasses.replace(task, **changes)).episodes[0].success

    assert not succeeds(success=lambda reward, terminated, info: info["coverage"] > 0.99)
    assert succeeds(success=None)
    with pytest.raises(DataError, match=r"success\(\) of the task cannot be applied .*KeyError: 'coverage'"):
        succeeds(infos=())


def test_the_last_observation_may_be_missing_elsewhere(datasets):
    write("other/short-v0", np.array([3, 4]), [0, 1], spaces.Discrete(9))
    (episode,) = store.read("other/short-v0").episodes
    assert episode.observations["state"].tolist() == [3, 4, 4]
    assert episode.last_repeated
    write("other/shorter-v0", np.array([3]), [0, 1], spaces.Discrete(9))
    with pytest.raises(DataError, match="1 'state' observations, expected 3: one more than actions"):
        store.read("other/shorter-v0")
