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
from dataclasses import dataclass, field, replace
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from genplan.data.adapters import Raw, Roles, Source, adapter_for
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
            notes = [episode.seed, list(episode.subgoals), episode.last_repeated]
            content.update(json.dumps(notes).encode())
            for name, column in sorted(columns(episode).items()):
                content.update(f"{name} {column.dtype} {column.shape}".encode())
                content.update(np.ascontiguousarray(column).tobytes())
        return f"2-{content.hexdigest()[:16]}"

    @property
    def digest_v1(self) -> str | None:
        """The digest of format 1, by which older runs know their dataset; None for fields that it did not have."""
        roles = Roles.of(self.spec)
        if roles.state is None or set(self.spec.fields) != set(roles) - {None} or self.spec.actions.n is None:
            return None
        content = hashlib.sha256()
        for episode in self.episodes:
            mission = self.spec.mission({name: column[0] for name, column in episode.observations.items()})
            content.update(json.dumps([mission, episode.seed, list(episode.subgoals)]).encode())
            seen = [None if name is None else episode.observations[name] for name in roles[:3]]
            for column in (seen[0], episode.actions, seen[1], seen[2]):
                if column is not None:
                    content.update(np.ascontiguousarray(column).tobytes())
        return content.hexdigest()[:16]

    def matches(self, digest: str) -> bool:
        """Whether this is the dataset of that digest, of either format."""
        return digest in ((self.digest,) if digest.startswith("2-") else (self.digest_v1,))


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


def check_seeds(seeds: Sequence[int | None], what: str) -> None:
    """Training data must not hold an episode that is used for validation or test."""
    for name, kept in (("test", TEST_SEEDS), ("validation", VALIDATION_SEEDS)):
        clash = [seed for seed in seeds if seed is not None and seed in kept]
        if clash:
            raise DataError(
                f"{what} has {len(clash)} of the {name} seeds {kept[0]}–{kept[-1]} (the first is {clash[0]}), expected "
                "0; collect demonstrations from seed 10000 on"
            )


def incompatibility(dataset: Dataset, task: Task) -> str | None:
    """Why a planner of this task cannot be trained on the dataset; None if it can."""
    if reason := spec_difference(dataset.spec, task.spec):
        return reason
    try:
        check_seeds([episode.seed for episode in dataset.episodes], f"dataset {dataset.name}")
    except DataError as error:
        return str(error)
    return None


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
    root = datasets_root()
    root.mkdir(parents=True, exist_ok=True)
    final = root / name
    if final.exists():
        raise DataError(f"a dataset {name} exists already in {root}; remove it or choose another name")
    spec = task.spec
    checked = [_checked(spec, episode, f"episode {number} of {name}") for number, episode in enumerate(episodes)]
    with tempfile.TemporaryDirectory(prefix=".genplan-", dir=root) as scratch:
        with _minari_at(scratch) as minari:
            buffers = [
                minari.data_collector.EpisodeBuffer(
                    id=number,
                    seed=episode.seed,
                    observations={key: _stored(spec.fields[key], episode.observations[key]) for key in spec.fields},
                    actions=episode.actions,
                    rewards=episode.rewards,
                    terminations=episode.terminations,
                    truncations=episode.truncations,
                    infos=dict(episode.infos) or None,
                )
                for number, episode in enumerate(checked)
            ]
            dataset = minari.create_dataset_from_buffers(
                name,
                buffers,
                action_space=spec.actions.space(),
                observation_space=spaces.Dict({key: one.space() for key, one in spec.fields.items()}),
                algorithm_name=metadata.get("expert"),
                description=f"genplan demonstrations of {task.name}",
                data_format="hdf5",
                jpeg_encoding=False,  # symbols, not pictures
            )
            dataset.storage.update_episode_metadata(
                {
                    "subgoals": json.dumps([list(goal) for goal in episode.subgoals]),
                    "success": episode.success,
                    "last_repeated": episode.last_repeated,
                }
                for episode in checked
            )
            dataset.storage.update_metadata(
                {"genplan": {"format": FORMAT, "task": task.name, "spec": spec.to_json(), **metadata}}
            )
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(Path(scratch) / name, final)


def _checked(spec: PlanSpec, episode: Episode, where: str) -> Episode:
    for name in (*spec.fields, *episode.infos):
        if "/" in name:
            raise DataError(f"{where}: '{name}' has a slash, expected a name that can be a column; give it another")
    checked = episode_from_arrays(
        spec, episode.observations, episode.actions, episode.rewards, episode.terminations, episode.truncations,
        episode.infos, episode.seed, episode.subgoals, episode.success, where,
    )  # fmt: skip
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
    """The dataset of that name (or in that folder), every number in it checked.

    Its spec is the one stored with it; that of `task`, if one is given, which then must fit.
    """
    folder = _folder(name)
    try:
        source, raw_episodes = _open(name, folder, task)
        adapter = adapter_for(source)
        episodes = [
            adapter.episode(f"dataset {name}, episode {number}", raw) for number, raw in enumerate(raw_episodes)
        ]
    except (DataError, KeyboardInterrupt, MemoryError):
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
    number = storage.total_episodes
    if number < 1:
        raise DataError(f"dataset {name} has {number} episodes, expected at least 1")
    metadata = dict(information.get("genplan", {}))
    if metadata.get("format", FORMAT) > FORMAT:
        raise DataError(f"dataset {name} has format {metadata['format']}, expected at most {FORMAT}; update genplan")
    metadata["env_spec"] = information.get("env_spec")

    def episodes() -> Iterator[Raw]:
        notes = storage.get_episode_metadata(range(number))
        for raw, note in zip(storage.get_episodes(range(number)), notes, strict=True):
            yield {"seed": None, **note, **raw}

    return Source(name, storage.observation_space, storage.action_space, metadata, task), episodes()


logging.getLogger("minari").setLevel(logging.ERROR)
