"""Episodes as Minari datasets: written atomically, read with every number checked."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from genplan.data import recordings
from genplan.data.tokens import PlanSpec
from genplan.errors import DataError
from genplan.tasks.table import TEST_SEEDS, VALIDATION_SEEDS
from genplan.tasks.task import Task
from genplan.types import Episode

FORMAT = 1


@dataclass(frozen=True)
class Dataset:
    """Episodes in the tokens of a spec, and what is known of where they come from."""

    name: str
    spec: PlanSpec
    episodes: list[Episode]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.episodes:
            raise DataError(f"dataset {self.name} has 0 episodes, expected at least 1")

    @property
    def num_steps(self) -> int:
        return sum(len(episode) for episode in self.episodes)

    @property
    def digest(self) -> str:
        """A hash of the content: the same episodes have the same digest, whoever wrote them."""
        content = hashlib.sha256()
        for episode in self.episodes:
            content.update(json.dumps([episode.mission, episode.seed, list(episode.subgoals)]).encode())
            for array in (episode.states, episode.actions, episode.maps, episode.features):
                if array is not None:
                    content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()[:16]


def check_seeds(seeds: Sequence[int | None], what: str) -> None:
    """Training data must not hold a maze that is used for validation or test."""
    for name, kept in (("test", TEST_SEEDS), ("validation", VALIDATION_SEEDS)):
        clash = [seed for seed in seeds if seed is not None and seed in kept]
        if clash:
            raise DataError(
                f"{what} has {len(clash)} of the {name} seeds {kept[0]}–{kept[-1]} (the first is {clash[0]}), expected "
                "0; collect demonstrations from seed 10000 on"
            )


def fits(dataset: Dataset, task: Task) -> str | None:
    """None if a planner of this task can be trained on the dataset; otherwise why not."""
    ours, theirs = task.spec, dataset.spec
    for name in ("map_shape", "num_actions", "num_states", "map_channels", "features", "words"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} is {getattr(theirs, name)}, expected {getattr(ours, name)}"
    try:
        check_seeds([episode.seed for episode in dataset.episodes], f"dataset {dataset.name}")
    except DataError as error:
        return str(error)
    return None


def datasets_root() -> Path:
    """Where Minari keeps its datasets: MINARI_DATASETS_PATH, or its default."""
    named = os.environ.get("MINARI_DATASETS_PATH")
    # Absolute, for Minari loses its way from a relative one.
    return Path(named).absolute() if named else Path.home() / ".minari" / "datasets"


def exists(name: str) -> bool:
    return (datasets_root() / name / "data" / "metadata.json").is_file()


# --- writing ---------------------------------------------------------------------------------------------------------


def write(name: str, task: Task, episodes: Sequence[Episode], about: Mapping[str, Any]) -> None:
    """A Minari dataset that appears whole or not at all."""
    root = datasets_root()
    root.mkdir(parents=True, exist_ok=True)
    final = root / name
    if final.exists():
        raise DataError(f"a dataset {name} exists already in {root}; remove it or choose another name")
    observation_space, columns = _columns(task)
    with tempfile.TemporaryDirectory(prefix=".genplan-", dir=root) as scratch:
        with _minari_at(scratch) as minari:
            buffers = [
                minari.data_collector.EpisodeBuffer(
                    id=number,
                    seed=episode.seed,
                    observations=columns(episode),
                    actions=episode.actions,
                    rewards=np.r_[np.zeros(len(episode) - 1), 1.0],
                    terminations=np.arange(len(episode)) == len(episode) - 1,
                    truncations=np.zeros(len(episode), bool),
                )
                for number, episode in enumerate(episodes)
            ]
            dataset = minari.create_dataset_from_buffers(
                name,
                buffers,
                action_space=spaces.Discrete(task.spec.num_actions),
                observation_space=observation_space,
                algorithm_name=about.get("expert"),
                description=f"genplan demonstrations of {task.name}",
                data_format="hdf5",
                jpeg_encoding=False,  # symbols, not pictures
            )
            dataset.storage.update_episode_metadata(
                {"subgoals": json.dumps([list(goal) for goal in episode.subgoals])} for episode in episodes
            )
            dataset.storage.update_metadata(
                {"genplan": {"format": FORMAT, "task": task.name, "spec": task.spec.to_json(), **about}}
            )
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(Path(scratch) / name, final)


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("genplan", "minigrid", "gymnasium", "minari", "numpy")}


def _columns(task: Task) -> tuple[spaces.Dict, Any]:
    """The observation space of the dataset, and a function from an episode to its columns."""
    spec = task.spec
    if _is_whole_grid(task):
        space = task.new_env().observation_space
        assert isinstance(space, spaces.Dict)

        def grid_columns(episode: Episode) -> dict[str, Any]:
            length = len(episode) + 1
            return {
                "image": episode.maps,
                "pose": np.array([spec.pose(state) for state in episode.states.tolist()]),
                "carrying": episode.features,
                "mission": [episode.mission] * length,
                "mission_tokens": np.tile(spec.encode_mission(episode.mission), (length, 1)),
            }

        return space, grid_columns
    parts: dict[str, gymnasium.Space[Any]] = {"state": spaces.Discrete(spec.num_states)}
    if spec.map_shape is not None:
        high = np.tile(np.array(spec.map_channels, np.uint8) - 1, (*spec.map_shape, 1))
        parts["map"] = spaces.Box(0, high, dtype=np.uint8)
    if spec.features:
        parts["features"] = spaces.Box(0, np.array(spec.features) - 1, dtype=np.int64)
    if spec.words:
        parts["mission"] = spaces.Text(512)

    def plain_columns(episode: Episode) -> dict[str, Any]:
        columns: dict[str, Any] = {"state": episode.states}
        if spec.map_shape is not None:
            columns["map"] = episode.maps
        if spec.features:
            columns["features"] = episode.features
        if spec.words:
            columns["mission"] = [episode.mission] * (len(episode) + 1)
        return columns

    return spaces.Dict(parts), plain_columns


def _is_whole_grid(task: Task) -> bool:
    from genplan.tasks.table import WORLDS

    return task.name in WORLDS


@contextmanager
def _minari_at(root: str) -> Iterator[Any]:
    """Minari, with its datasets under `root` for the moment."""
    import minari

    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = root
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for an author, an e-mail and a link
            yield minari
    finally:
        if before is None:
            del os.environ["MINARI_DATASETS_PATH"]
        else:
            os.environ["MINARI_DATASETS_PATH"] = before


# --- reading ---------------------------------------------------------------------------------------------------------


def read(name: str, task: Task | None = None) -> Dataset:
    """The dataset of that name (or in that folder), every number in it checked."""
    folder = _folder(name)
    try:
        about, space, num_actions, raw_episodes = _open(name, folder)
        spec, convert = recordings.reader(name, space, about, task, num_actions)
        episodes = []
        for number, raw in enumerate(raw_episodes):
            where = f"dataset {name}, episode {number}"
            actions = recordings.recorded_actions(where, raw, num_actions)
            episodes.append(recordings.checked(where, convert(where, raw, actions), spec))
    except DataError:
        raise
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # h5py, json and Minari fail in many ways on damaged files; none may reach the user raw
        raise DataError(
            f"dataset {name} cannot be read: {type(error).__name__}: {str(error).strip() or 'no more is known'}; "
            "the files are damaged or not a Minari dataset; collect or download it again"
        ) from error
    return Dataset(name, spec, episodes, about)


def _folder(name: str) -> Path:
    for folder in (Path(name), datasets_root() / name):
        if (folder / "data").is_dir():
            return folder / "data"
        if (folder / "metadata.json").is_file():
            return folder
    raise DataError(
        f"there is no dataset '{name}' in {datasets_root()}; list yours with 'minari list local', collect one with "
        "'genplan demos TASK', or set MINARI_DATASETS_PATH"
    )


def _open(name: str, folder: Path) -> tuple[dict[str, Any], gymnasium.Space[Any], int, Iterator[dict[str, Any]]]:
    """What a dataset says of itself, its spaces, and its episodes; the environment is never built."""
    from minari.dataset.minari_storage import MinariStorage

    information = json.loads((folder / "metadata.json").read_text())
    if not isinstance(information, dict):
        raise DataError(f"dataset {name}: metadata.json holds a {type(information).__name__}, expected an object")
    for key in ("observation_space", "action_space", "total_episodes", "data_format"):
        if key not in information:
            raise DataError(f"dataset {name}: metadata.json has no '{key}'; expected a Minari dataset of version 0.5")
    storage = MinariStorage.read(folder)
    actions = storage.action_space
    if not isinstance(actions, spaces.Discrete):
        raise DataError(f"dataset {name} has the actions {actions}, expected Discrete actions")
    if actions.start != 0:
        raise DataError(f"dataset {name} has actions from {actions.start} on, expected from 0 on")
    number = storage.total_episodes
    if number < 1:
        raise DataError(f"dataset {name} has {number} episodes, expected at least 1")
    about = dict(information.get("genplan", {}))
    if about.get("format", FORMAT) > FORMAT:
        raise DataError(f"dataset {name} has format {about['format']}, expected at most {FORMAT}; update genplan")
    about["env_spec"] = information.get("env_spec")

    def episodes() -> Iterator[dict[str, Any]]:
        labels = storage.get_episode_metadata(range(number))
        for raw, label in zip(storage.get_episodes(range(number)), labels, strict=True):
            yield {**raw, "seed": label.get("seed"), "subgoals": label.get("subgoals", "[]")}

    return about, storage.observation_space, int(actions.n), episodes()


logging.getLogger("minari").setLevel(logging.ERROR)
