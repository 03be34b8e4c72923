"""Datasets of format 1, as genplan wrote them before fields: for tests that they are still read."""

import json

import minari
import numpy as np
from gymnasium import spaces


def spec_v1(spec):
    """What format 1 stored of a spec of a grid, or of a single number."""
    old = {"num_actions": spec.actions.n, "num_states": spec.states.size}
    if spec.grid_field is not None:
        grid, words = spec.fields["grid"], spec.fields["mission"]
        old |= {
            "num_goals": spec.num_goals, "goal_size": spec.goals.size, "map_shape": list(grid.shape),
            "map_channels": list(grid.sizes), "num_headings": spec.states.directions,
            "features": list(spec.fields["carrying"].sizes), "words": list(words.vocabulary),
            "max_words": words.shape[0], "mirrored_actions": [1, 0, 2, 3, 4, 5],
            "mirrored_words": {"left": "right", "right": "left"}, "palette": None,
        }  # fmt: skip
    return old


def grid_columns(spec, episode):
    seen = episode.observations
    return {
        "image": seen["grid"],
        "pose": np.array([spec.geometry.pose(state) for state in seen["state"].tolist()]),
        "carrying": seen["carrying"],
        "mission": [spec.fields["mission"].decode(tokens) for tokens in seen["mission"]],
        "mission_tokens": seen["mission"],
    }


def token_columns(spec, episode):
    columns = {"state": "state", "map": "grid", "features": "carrying"}
    seen = episode.observations
    words = {"mission": grid_columns(spec, episode)["mission"]} if "mission" in seen else {}
    return {**{old: seen[new] for old, new in columns.items() if new in seen}, **words}


def grid_space(width, height, words):
    return spaces.Dict({
        "image": spaces.Box(0, np.tile(np.array([10, 5, 2], np.uint8), (width, height, 1)), dtype=np.uint8),
        "pose": spaces.Box(0, np.array([width - 1, height - 1, 3]), dtype=np.int64),
        "carrying": spaces.Box(0, np.array([10, 5]), dtype=np.int64),
        "mission": spaces.Text(256),
        "mission_tokens": spaces.Box(0, words - 1, (32,), dtype=np.int64),
    })  # fmt: skip


def token_space(spec, columns):
    parts = {"state": spaces.Discrete(spec.states.size)}
    if "map" in columns:
        grid = spec.fields["grid"]
        high = np.tile(np.array(grid.sizes, np.uint8) - 1, (*grid.shape, 1))
        parts["map"] = spaces.Box(0, high, dtype=np.uint8)
        parts["features"] = spaces.Box(0, np.array(spec.fields["carrying"].sizes) - 1, dtype=np.int64)
    if "mission" in columns:
        parts["mission"] = spaces.Text(512)
    return spaces.Dict(parts)


def write_format_1(name, dataset, as_tokens=False):
    """The episodes of a dataset as format 1 kept them: rewards 0 … 0, 1."""
    spec = dataset.spec
    columns = [(token_columns if as_tokens else grid_columns)(spec, episode) for episode in dataset.episodes]
    space = token_space(spec, columns[0]) if as_tokens else grid_space(*spec.fields["grid"].shape, 34)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            seed=episode.seed,
            observations=observed,
            actions=episode.actions,
            rewards=np.r_[np.zeros(len(episode) - 1), 1.0],
            terminations=np.arange(len(episode)) == len(episode) - 1,
            truncations=np.zeros(len(episode), bool),
        )
        for number, (episode, observed) in enumerate(zip(dataset.episodes, columns, strict=True))
    ]
    written = minari.create_dataset_from_buffers(
        name, buffers, action_space=spec.actions.space(), observation_space=space, data_format="hdf5",
        jpeg_encoding=False,
    )  # fmt: skip
    written.storage.update_episode_metadata(
        {"subgoals": json.dumps([list(goal) for goal in episode.subgoals])} for episode in dataset.episodes
    )
    written.storage.update_metadata({"genplan": {"format": 1, "task": "any", "spec": spec_v1(spec), "expert": "bot"}})
