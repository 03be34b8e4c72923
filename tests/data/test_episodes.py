"""Reading datasets: ours, other people's, and broken ones."""

import json
import shutil

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minigrid.wrappers import FullyObsWrapper

from genplan import tasks
from genplan.data import episodes
from genplan.data.demos import Recipe, collect
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Windows
from genplan.errors import DataError
from genplan.flow import Rng
from genplan.tasks.task import Task

DAMAGES = {}


def damage(function):
    DAMAGES[function.__name__] = function
    return function


def data_file(folder):
    return folder / "main_data.hdf5"


def replace(group, key, value):
    del group[key]
    group.create_dataset(key, data=value)


def pick(file, chance):
    return file[f"episode_{chance.integers(len(file))}"]


@damage
def truncated_data(folder, chance):
    size = data_file(folder).stat().st_size
    with data_file(folder).open("r+b") as file:
        file.truncate(int(size * chance.uniform(0.0, 0.95)))


@damage
def truncated_metadata(folder, chance):
    text = (folder / "metadata.json").read_text()
    (folder / "metadata.json").write_text(text[: int(len(text) * chance.uniform(0, 0.95))])


@damage
def garbage(folder, chance):
    name = ("main_data.hdf5", "metadata.json")[chance.integers(2)]
    (folder / name).write_bytes(chance.bytes(5000))


@damage
def missing_file(folder, chance):
    (folder / ("main_data.hdf5", "metadata.json")[chance.integers(2)]).unlink()


@damage
def missing_metadata_key(folder, chance):
    information = json.loads((folder / "metadata.json").read_text())
    del information[("observation_space", "action_space", "total_episodes", "data_format")[chance.integers(4)]]
    (folder / "metadata.json").write_text(json.dumps(information))


@damage
def metadata_of_another_kind(folder, chance):
    (folder / "metadata.json").write_text(("[]", "3", "null", '"text"')[chance.integers(4)])


@damage
def continuous_actions(folder, chance):
    information = json.loads((folder / "metadata.json").read_text())
    information["action_space"] = minari.serialization.serialize_space(spaces.Box(-1, 1, (int(chance.integers(1, 5)),)))
    (folder / "metadata.json").write_text(json.dumps(information))


@damage
def too_many_episodes_claimed(folder, chance):
    information = json.loads((folder / "metadata.json").read_text())
    information["total_episodes"] += int(chance.integers(1, 9))
    (folder / "metadata.json").write_text(json.dumps(information))


@damage
def newer_format(folder, chance):
    information = json.loads((folder / "metadata.json").read_text())
    information["genplan"]["format"] = int(chance.integers(2, 9))
    (folder / "metadata.json").write_text(json.dumps(information))


@damage
def missing_column(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        del pick(file, chance)[
            ("actions", "rewards", "terminations", "truncations", "observations")[chance.integers(5)]
        ]


@damage
def missing_observation(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        del pick(file, chance)["observations"][("image", "pose", "carrying", "mission")[chance.integers(4)]]


@damage
def missing_episode(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        del file[f"episode_{chance.integers(len(file))}"]


@damage
def action_out_of_range(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        actions = pick(file, chance)["actions"]
        actions[chance.integers(len(actions))] = (-1, 6, 99)[chance.integers(3)]


@damage
def actions_as_floats(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, chance)
        replace(episode, "actions", episode["actions"][()].astype((np.float32, np.float64)[chance.integers(2)]))


@damage
def nan_among_numbers(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, chance)
        group, key = ((episode, "rewards"), (episode["observations"], "pose"))[chance.integers(2)]
        values = group[key][()].astype(float)
        values.flat[chance.integers(values.size)] = (np.nan, np.inf)[chance.integers(2)]
        replace(group, key, values)


@damage
def empty_episode(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, chance)
        for key in ("actions", "rewards", "terminations", "truncations"):
            replace(episode, key, episode[key][:0])


@damage
def columns_of_different_length(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, chance)
        key = ("rewards", "terminations", "truncations")[chance.integers(3)]
        replace(episode, key, episode[key][:-1])


@damage
def observations_of_different_length(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        seen = pick(file, chance)["observations"]
        key = ("image", "pose", "carrying")[chance.integers(3)]
        replace(seen, key, seen[key][:-1])


@damage
def wrong_shape(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        seen = pick(file, chance)["observations"]
        key = ("image", "pose", "carrying")[chance.integers(3)]
        replace(seen, key, seen[key][()][..., :1])


@damage
def cell_out_of_range(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        seen = pick(file, chance)["observations"]
        seen["image"][0, chance.integers(10), chance.integers(10), chance.integers(3)] = 200


@damage
def pose_off_the_map(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        pick(file, chance)["observations"]["pose"][0] = ((-1, 0, 0), (0, 10, 0), (0, 0, 4))[chance.integers(3)]


@damage
def unknown_word(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        pick(file, chance)["observations"]["mission"][...] = "go to the elephant"


@damage
def changing_mission(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        pick(file, chance)["observations"]["mission"][0] = "go to the red ball on your left"


@damage
def text_instead_of_numbers(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, chance)
        replace(episode, "actions", np.array([b"left"] * len(episode["actions"])))


@damage
def broken_subgoals(folder, chance):
    with h5py.File(data_file(folder), "a") as file:
        wrong = ("not json", "[[1]]", '[[999, 3, "target"]]', '[[0, 100, "target"]]', '[[-1, 3, "key"]]')
        pick(file, chance).attrs["subgoals"] = wrong[chance.integers(len(wrong))]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_two_hundred_broken_datasets(maze, datasets, tmp_path):
    """Each gives one clear error, and nothing is written to it."""
    source = datasets / maze.name / "data"
    for number in range(200):
        name = list(DAMAGES)[number % len(DAMAGES)]
        folder = tmp_path / f"{number}"
        shutil.copytree(source, folder / "data")
        DAMAGES[name](folder / "data", np.random.default_rng(number))
        before = contents(folder / "data")
        with pytest.raises(DataError) as caught:
            episodes.read(str(folder))
        message = str(caught.value)
        assert len(message) > 30, (name, message)
        assert contents(folder / "data") == before, name
        shutil.rmtree(folder)


def test_whole_datasets_are_read(maze, datasets):
    again = episodes.read(str(datasets / maze.name))
    assert again.digest == maze.digest
    assert episodes.fits(again, tasks.get("MazeS4G1")) is None
    assert "map_shape is (10, 10), expected (19, 19)" in episodes.fits(again, tasks.get("MazeS7G1"))


def test_a_dataset_is_never_overwritten(maze):
    with pytest.raises(DataError, match="exists already"):
        episodes.write(maze.name, tasks.get("MazeS4G1"), maze.episodes, {})


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
    found = episodes.read("stock/go-to-local-v0")
    assert found.spec.map_shape == (8, 8)
    for episode in found.episodes:
        assert episode.success
        assert (episode.maps[..., 0] != 10).all()  # the agent is a state, not a thing on the map
        x, y, heading = found.spec.pose(int(episode.states[-1]))
        front = (x + (1, 0, -1, 0)[heading], y + (0, 1, 0, -1)[heading])
        assert found.spec.cell(*front) == episode.subgoals[-1].token
        assert (episode.maps == episode.maps[0]).all()  # nothing was moved in these
    Windows(found.spec, found.episodes, 5).draw(16, Rng.of(0))


def test_stock_pickups_doors_and_done(datasets):
    """What is carried and what is under the agent is worked out from what was seen; `done` is left out."""
    grid = np.zeros((5, 5, 3), np.uint8)
    grid[...] = (2, 5, 0)
    grid[1:4, 1] = (1, 0, 0)
    grid[3, 1] = (5, 4, 0)  # a yellow key
    door = grid.copy()
    frames, actions = [], [6, 2, 3, 2, 4]
    for x, key in ((1, True), (1, True), (2, True), (2, False), (3, False), (3, False)):
        picture = door.copy()
        picture[3, 1] = (5, 4, 0) if key else (1, 0, 0)
        picture[x, 1] = (10, 0, 0)
        frames.append(picture)
    buffer = minari.data_collector.EpisodeBuffer(
        observations={"image": np.array(frames), "direction": np.zeros(6, np.int64), "mission": ["go to the door"] * 6},
        actions=np.array(actions), rewards=np.zeros(5), terminations=np.zeros(5, bool), truncations=np.ones(5, bool),
    )  # fmt: skip
    space = spaces.Dict(
        {"image": spaces.Box(0, 255, (5, 5, 3), np.uint8), "direction": spaces.Discrete(4), "mission": spaces.Text(99)}
    )
    minari.create_dataset_from_buffers(
        "stock/key-v0", [buffer], action_space=spaces.Discrete(7), observation_space=space
    )
    (episode,) = episodes.read("stock/key-v0").episodes
    assert episode.actions.tolist() == [2, 3, 2, 4]
    assert episode.features.tolist() == [[1, 0], [1, 0], [5, 4], [5, 4], [5, 4]]
    assert not episode.success
    assert episode.subgoals == ()


def test_a_partial_view_is_refused(datasets):
    image = np.ones((3, 7, 7, 3), np.uint8)
    buffer = minari.data_collector.EpisodeBuffer(
        observations={"image": image, "direction": np.zeros(3, np.int64), "mission": ["go to the door"] * 3},
        actions=np.zeros(2, np.int64), rewards=np.ones(2), terminations=np.ones(2, bool), truncations=np.zeros(2, bool),
    )  # fmt: skip
    space = spaces.Dict(
        {"image": spaces.Box(0, 255, (7, 7, 3), np.uint8), "direction": spaces.Discrete(4), "mission": spaces.Text(99)}
    )
    minari.create_dataset_from_buffers(
        "stock/view-v0", [buffer], action_space=spaces.Discrete(7), observation_space=space
    )
    with pytest.raises(DataError, match="shows 0 agents, expected 1: record with minigrid's FullyObsWrapper"):
        episodes.read("stock/view-v0")


def test_numbers_as_observations_and_tasks_that_observe(datasets):
    states = np.array([3, 4, 5])
    column = {"rewards": np.ones(2), "terminations": np.array([False, True]), "truncations": np.zeros(2, bool)}
    plain = minari.data_collector.EpisodeBuffer(observations=states, actions=np.array([0, 1]), **column)
    options = {"action_space": spaces.Discrete(2)}
    minari.create_dataset_from_buffers("other/plain-v0", [plain], observation_space=spaces.Discrete(9), **options)
    found = episodes.read("other/plain-v0")
    assert found.spec == PlanSpec(num_actions=2, num_states=9)
    assert found.episodes[0].states.tolist() == [3, 4, 5]
    box = spaces.Box(0, 9, (2,), np.float32)
    pairs = np.stack([states, states], 1).astype(np.float32)
    boxed = minari.data_collector.EpisodeBuffer(observations=pairs, actions=np.array([0, 1]), **column)
    minari.create_dataset_from_buffers("other/boxed-v0", [boxed], observation_space=box, **options)
    with pytest.raises(DataError, match="describe it as a Task"):
        episodes.read("other/boxed-v0")
    task = Task("boxed", lambda: None, PlanSpec(2, 9), lambda env, raw: {"state": int(raw[0])}, 10)
    assert episodes.read("other/boxed-v0", task).episodes[0].states.tolist() == [3, 4, 5]
    peeking = Task("peeking", lambda: None, PlanSpec(2, 9), lambda env, raw: {"state": env.unwrapped.s}, 10)
    with pytest.raises(DataError, match="cannot read a recorded observation without its environment"):
        episodes.read("other/boxed-v0", peeking)


def test_training_data_must_not_hold_test_mazes(maze):
    spoiled = episodes.Dataset(
        "spoiled", maze.spec, [type(maze.episodes[0])(**{**vars(maze.episodes[0]), "seed": 1300})]
    )
    assert "1 of the test seeds" in episodes.fits(spoiled, tasks.get("MazeS4G1"))


def test_own_environments_are_collected_and_read(datasets):
    for name, kinds in (("doorkey", {"key", "door", "target"}), ("taxi", set())):
        source = f"examples/{name}.py:task"
        found = collect(Recipe(source, 5), workers=1)
        assert {goal.kind for episode in found.episodes for goal in episode.subgoals} == kinds
        assert episodes.fits(found, tasks.get(source)) is None
        assert episodes.read(found.name).spec == found.spec
        Windows(found.spec, found.episodes, 6, 2).draw(16, Rng.of(0), per_map=2)
