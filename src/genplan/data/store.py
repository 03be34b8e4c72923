"""Episodes as Minari datasets: written atomically, read with every number checked."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from genplan.data.adapters import Raw, Source, adapter_for, roles_v1
from genplan.data.episodes import episode_from_arrays, spec_difference
from genplan.errors import DataError
from genplan.spec import Field, PlanSpec
from genplan.types import TEST_SEEDS, VALIDATION_SEEDS, Episode, Task

FORMAT = 2


@dataclass(frozen=True)
class Dataset:
    """Episodes in the fields of a spec, and what is known of their origin."""

    name: str
    spec: PlanSpec
    episodes: list[Episode]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.episodes:
            raise DataError(f"dataset {self.name} has 0 episodes, expected at least 1")

    @property
    def digest(self) -> str:
        """A hash of everything recorded: the same episodes have the same digest, whoever wrote them."""
        content = hashlib.sha256()
        for episode in self.episodes:
            content.update(json.dumps([episode.seed, episode.subgoals, episode.last_repeated]).encode())
            for name, column in sorted(columns(episode).items()):
                content.update(f"{name} {column.dtype} {column.shape}".encode())
                content.update(np.ascontiguousarray(column).tobytes())
        return f"2-{content.hexdigest()[:16]}"

    @property
    def digest_v1(self) -> str | None:
        """The digest of format 1, by which older runs know their dataset; None for fields that it did not have."""
        roles = roles_v1(self.spec)
        if "state" not in roles or set(roles.values()) != set(self.spec.fields) or self.spec.actions.n is None:
            return None
        content = hashlib.sha256()
        for episode in self.episodes:
            mission = self.spec.mission({name: column[0] for name, column in episode.observations.items()})
            content.update(json.dumps([mission, episode.seed, episode.subgoals]).encode())
            seen = {role: episode.observations[name] for role, name in roles.items()}
            others = (seen[role] for role in ("map", "features") if role in seen)
            for column in (seen["state"], episode.actions, *others):
                content.update(np.ascontiguousarray(column).tobytes())
        return content.hexdigest()[:16]


def columns(episode: Episode) -> dict[str, NDArray[Any]]:
    """Everything recorded per step, by name."""
    return {
        **{f"observations/{name}": column for name, column in episode.observations.items()},
        "actions": episode.actions,
        "rewards": np.where(np.isnan(episode.rewards), np.nan, episode.rewards),  # NaN has many bit patterns
        "terminations": episode.terminations,
        "truncations": episode.truncations,
        **{f"infos/{name}": column for name, column in episode.infos.items()},
    }


def seed_clash(seeds: Sequence[int | None], what: str) -> str | None:
    """Why these cannot be trained on: some are kept for validation or test. None if they can."""
    for name, kept in (("test", TEST_SEEDS), ("validation", VALIDATION_SEEDS)):
        if clash := [seed for seed in seeds if seed in kept]:
            return (
                f"{what} has {len(clash)} of the {name} seeds {kept[0]}–{kept[-1]} (the first is {clash[0]}), expected "
                "0; collect demonstrations from seed 10000 on"
            )
    return None


def incompatibility(dataset: Dataset, task: Task) -> str | None:
    """Why a planner of this task cannot be trained on the dataset; None if it can."""
    seeds = [episode.seed for episode in dataset.episodes]
    return spec_difference(dataset.spec, task.spec) or seed_clash(seeds, f"dataset {dataset.name}")


def datasets_root() -> Path:
    """Where Minari keeps its datasets: MINARI_DATASETS_PATH, or its default."""
    named = os.environ.get("MINARI_DATASETS_PATH")
    # Absolute, for Minari cannot find its way from a relative one.
    return Path(named).absolute() if named else Path.home() / ".minari" / "datasets"


def exists(name: str) -> bool:
    return (datasets_root() / name / "data" / "metadata.json").is_file()


def versions() -> dict[str, str]:
    return {name: packages.version(name) for name in ("genplan", "minigrid", "gymnasium", "minari", "numpy")}


# --- writing ---------------------------------------------------------------------------------------------------------


def write(name: str, task: Task, episodes: Sequence[Episode], metadata: Mapping[str, Any]) -> None:
    """A Minari dataset that appears whole or not at all."""
    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage

    parse_dataset_id(name)
    final, spec = datasets_root() / name, task.spec
    if final.exists():
        raise DataError(f"a dataset {name} exists already in {datasets_root()}; remove it or choose another name")
    checked = [_checked(spec, episode, f"episode {number} of {name}") for number, episode in enumerate(episodes)]
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".genplan-", dir=datasets_root()) as scratch:
        data = Path(scratch) / "dataset" / "data"
        data.mkdir(parents=True)
        observed = spaces.Dict({key: one.space() for key, one in spec.fields.items()})
        # Symbols are not pictures: no JPEG.
        storage = MinariStorage.new(data, observed, spec.actions.space(), data_format="hdf5", jpeg_encoding=False)
        storage.update_metadata(
            {
                "dataset_id": name,
                "minari_version": minari.__version__,
                "algorithm_name": metadata.get("expert", ""),
                "description": f"genplan demonstrations of {task.name}",
                "genplan": {"format": FORMAT, "task": task.name, "spec": spec.to_json(), **metadata},
            }
        )
        storage.update_episodes(
            EpisodeBuffer(
                id=number,
                observations={key: _stored(one, episode.observations[key]) for key, one in spec.fields.items()},
                infos=dict(episode.infos) or None,
                **{key: getattr(episode, key) for key in ("seed", "actions", "rewards", "terminations", "truncations")},
            )
            for number, episode in enumerate(checked)
        )
        storage.update_episode_metadata(
            {"subgoals": json.dumps(one.subgoals), "success": one.success, "last_repeated": one.last_repeated}
            for one in checked
        )
        os.replace(data.parent, final)


def _checked(spec: PlanSpec, episode: Episode, where: str) -> Episode:
    for name in (*spec.fields, *episode.infos):
        if "/" in name:
            raise DataError(f"{where}: '{name}' has a slash, expected a name that can be a column; give it another")
    given = {name: part for name, part in vars(episode).items() if name != "last_repeated"}
    checked = episode_from_arrays(spec, **given, where=where)
    return replace(checked, last_repeated=episode.last_repeated or checked.last_repeated)


def _stored(one: Field, column: NDArray[Any]) -> Any:
    """A column as Minari keeps it: words as text."""
    if one.kind != "words":
        return column
    texts = {}
    for tokens in {row.tobytes(): row for row in column}.values():
        text = one.decode(tokens)
        if not np.array_equal(one.encode(text), tokens):
            raise DataError(
                f"the words {tokens.tolist()} cannot be kept as text: '{text}' reads as {one.encode(text).tolist()}; "
                "expected a vocabulary of lower-case words without spaces, and padding at the end only"
            )
        texts[tokens.tobytes()] = text
    return [texts[row.tobytes()] for row in column]


# --- reading ---------------------------------------------------------------------------------------------------------


def read(name: str, task: Task | None = None) -> Dataset:
    """The dataset of that name (or in that folder), every number in it checked.

    Its spec is the one stored with it; that of `task`, if one is given, which then must fit.
    """
    folder = _folder(name)
    try:
        source, raws = _open(name, folder, task)
        adapter = adapter_for(source)
        episodes = [adapter.episode(f"dataset {name}, episode {number}", raw) for number, raw in enumerate(raws)]
    except (DataError, MemoryError):
        raise
    except Exception as error:  # h5py, json and Minari fail in many ways on damaged files; none may reach the user raw
        raise DataError(
            f"dataset {name} cannot be read: {type(error).__name__}: {str(error).strip() or 'no more is known'}; "
            "the files are damaged or not a Minari dataset; collect or download it again"
        ) from error
    return Dataset(name, adapter.spec, episodes, source.metadata)


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


def _open(name: str, folder: Path, task: Task | None) -> tuple[Source, Iterator[Raw]]:
    """What a dataset says of itself, and its episodes; the environment is never built."""
    from minari.dataset.minari_storage import MinariStorage

    information = json.loads((folder / "metadata.json").read_text())
    if not isinstance(information, dict):
        raise DataError(f"dataset {name}: metadata.json holds a {type(information).__name__}, expected an object")
    for key in ("observation_space", "action_space", "total_episodes", "data_format"):
        if key not in information:
            raise DataError(f"dataset {name}: metadata.json has no '{key}'; expected a Minari dataset of version 0.5")
    storage = MinariStorage.read(folder)
    numbers = range(storage.total_episodes)
    if not numbers:
        raise DataError(f"dataset {name} has {storage.total_episodes} episodes, expected at least 1")
    metadata = dict(information.get("genplan", {}))
    if metadata.get("format", FORMAT) > FORMAT:
        raise DataError(f"dataset {name} has format {metadata['format']}, expected at most {FORMAT}; update genplan")
    both = zip(storage.get_episodes(numbers), storage.get_episode_metadata(numbers), strict=True)
    episodes = ({"seed": None, **note, **raw} for raw, note in both)
    return Source(name, storage.observation_space, storage.action_space, metadata, task), episodes
