"""Ways in which a dataset can be damaged; `FIELDS` are those of today's format, `POSES` those of format 1."""

import json

import h5py
import minari
import numpy as np
from gymnasium import spaces

DAMAGES = {}
FIELDS = ("grid", "state", "carrying")
POSES = ("image", "pose", "carrying")


def damage(function):
    DAMAGES[function.__name__] = function
    return function


def data_file(folder):
    return folder / "main_data.hdf5"


def replace(group, key, value):
    del group[key]
    group.create_dataset(key, data=value)


def pick(file, rng):
    return file[f"episode_{rng.integers(len(file))}"]


def column_of(episode, rng):
    """One of the columns of observations that hold numbers."""
    observations = episode["observations"]
    names = POSES if "pose" in observations else FIELDS
    return observations, names[rng.integers(3)]


def edit_metadata(folder, edit):
    information = json.loads((folder / "metadata.json").read_text())
    edit(information)
    (folder / "metadata.json").write_text(json.dumps(information))


@damage
def truncated_data(folder, rng):
    size = data_file(folder).stat().st_size
    with data_file(folder).open("r+b") as file:
        file.truncate(int(size * rng.uniform(0.0, 0.95)))


@damage
def truncated_metadata(folder, rng):
    text = (folder / "metadata.json").read_text()
    (folder / "metadata.json").write_text(text[: int(len(text) * rng.uniform(0, 0.95))])


@damage
def garbage(folder, rng):
    name = ("main_data.hdf5", "metadata.json")[rng.integers(2)]
    (folder / name).write_bytes(rng.bytes(5000))


@damage
def missing_file(folder, rng):
    (folder / ("main_data.hdf5", "metadata.json")[rng.integers(2)]).unlink()


@damage
def missing_metadata_key(folder, rng):
    key = ("observation_space", "action_space", "total_episodes", "data_format")[rng.integers(4)]
    edit_metadata(folder, lambda information: information.pop(key))


@damage
def metadata_of_another_type(folder, rng):
    (folder / "metadata.json").write_text(("[]", "3", "null", '"text"')[rng.integers(4)])


@damage
def continuous_actions(folder, rng):
    space = minari.serialization.serialize_space(spaces.Box(-1, 1, (int(rng.integers(1, 5)),)))
    edit_metadata(folder, lambda information: information.update(action_space=space))


@damage
def other_number_of_actions(folder, rng):
    space = minari.serialization.serialize_space(spaces.Discrete(int(rng.integers(7, 12))))
    edit_metadata(folder, lambda information: information.update(action_space=space))


@damage
def too_many_episodes_claimed(folder, rng):
    more = int(rng.integers(1, 9))
    edit_metadata(folder, lambda information: information.update(total_episodes=information["total_episodes"] + more))


@damage
def newer_format(folder, rng):
    number = int(rng.integers(3, 9))
    edit_metadata(folder, lambda information: information["genplan"].update(format=number))


@damage
def broken_spec(folder, rng):
    def edit(information):
        spec = information["genplan"]["spec"]
        for key in ("fields", "actions", "streams", "num_states", "map_shape"):
            if key in spec:
                spec[key] = ({}, [], 3, "text")[rng.integers(4)] if key != "streams" else 3

    edit_metadata(folder, edit)


@damage
def missing_column(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        names = ("actions", "rewards", "terminations", "truncations", "observations")
        del pick(file, rng)[names[rng.integers(5)]]


@damage
def missing_observation(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations, name = column_of(pick(file, rng), rng)
        del observations["mission" if rng.integers(4) == 0 else name]


@damage
def missing_episode(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        del file[f"episode_{rng.integers(len(file))}"]


@damage
def action_out_of_range(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        actions = pick(file, rng)["actions"]
        actions[rng.integers(len(actions))] = (-1, 6, 99)[rng.integers(3)]


@damage
def actions_as_floats(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, rng)
        replace(episode, "actions", episode["actions"][()].astype((np.float32, np.float64)[rng.integers(2)]))


@damage
def not_finite(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, rng)
        group, key = ((episode, "rewards"), column_of(episode, rng))[rng.integers(2)]
        values = group[key][()].astype(float)
        values.flat[rng.integers(values.size)] = np.inf if values.size == 1 else (np.nan, np.inf)[rng.integers(2)]
        replace(group, key, values)


@damage
def empty_episode(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, rng)
        for key in ("actions", "rewards", "terminations", "truncations"):
            replace(episode, key, episode[key][:0])


@damage
def columns_of_different_length(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, rng)
        key = ("rewards", "terminations", "truncations")[rng.integers(3)]
        replace(episode, key, episode[key][:-1])


@damage
def observations_of_different_length(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations, key = column_of(pick(file, rng), rng)
        replace(observations, key, observations[key][:-1])


@damage
def no_observation_after_the_last_action(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations = pick(file, rng)["observations"]
        for key in list(observations):
            values = observations[key][:-1]
            del observations[key]
            observations.create_dataset(key, data=values)


@damage
def wrong_shape(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations, key = column_of(pick(file, rng), rng)
        values = observations[key][()]
        replace(observations, key, values[..., :1] if values.ndim > 1 else values[:, None])


@damage
def grid_out_of_range(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations = pick(file, rng)["observations"]
        grid = observations["image" if "image" in observations else "grid"]
        grid[0, rng.integers(10), rng.integers(10), rng.integers(3)] = 200


@damage
def state_out_of_range(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations = pick(file, rng)["observations"]
        if "pose" in observations:
            observations["pose"][0] = ((-1, 0, 0), (0, 10, 0), (0, 0, 4))[rng.integers(3)]
        else:
            observations["state"][0] = (-1, 400, 10**9)[rng.integers(3)]


@damage
def unknown_word(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        pick(file, rng)["observations"]["mission"][...] = "go to the elephant"


@damage
def numbers_instead_of_text(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        observations = pick(file, rng)["observations"]
        replace(observations, "mission", np.zeros(len(observations["mission"]), np.int64))


@damage
def text_instead_of_numbers(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, rng)
        key = ("actions", "rewards", "terminations")[rng.integers(3)]
        replace(episode, key, np.array([b"left"] * len(episode["actions"])))


@damage
def flags_that_are_none(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        episode = pick(file, rng)
        key = ("terminations", "truncations")[rng.integers(2)]
        replace(episode, key, np.full(len(episode["actions"]), (2, -1)[rng.integers(2)]))


@damage
def broken_subgoals(folder, rng):
    with h5py.File(data_file(folder), "a") as file:
        wrong = ("not json", "[[1]]", '[[999, 3, "target"]]', '[[0, 100, "target"]]', '[[-1, 3, "key"]]', "[3]")
        pick(file, rng).attrs["subgoals"] = wrong[rng.integers(len(wrong))]
