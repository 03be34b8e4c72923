"""Datasets: what is written is what is read, Minari reads it too, and broken ones are refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import minari
import numpy as np
import pytest
from gymnasium import spaces

from genplan import tasks
from genplan.data import store
from genplan.data.episodes import episode_from_arrays
from genplan.errors import DataError
from genplan.spec import Actions, Field, PlanSpec, Stream
from genplan.types import Episode, SubGoal, Task

from ..samples import sample_field
from .damages import DAMAGES
from .format_1 import write_format_1

PUSHT = Path(__file__).parents[3] / "shared" / "data" / "pusht" / "pusht_lowdim.npz"


def make_task(spec, name="own", **options):
    return Task(name, lambda: None, spec, lambda env, raw: raw, 10, **options)


def assert_equal(a, b):
    assert list(a.observations) == list(b.observations)
    for column, other in (
        *((a.observations[name], b.observations[name]) for name in a.observations),
        *((a.infos[name], b.infos[name]) for name in (*a.infos, *b.infos)),
        *((getattr(a, name), getattr(b, name)) for name in ("actions", "rewards", "terminations", "truncations")),
    ):
        assert column.dtype == other.dtype
        np.testing.assert_array_equal(column, other)
    for name in ("subgoals", "success", "seed", "last_repeated"):
        assert getattr(a, name) == getattr(b, name)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("number_of_format", [1, 2])
def test_two_hundred_broken_datasets(maze, datasets, tmp_path, number_of_format):
    """Each gives one clear error, and nothing is written to it."""
    name = maze.name
    if number_of_format == 1:
        write_format_1(name := "old/broken-v0", maze)
    source = datasets / name / "data"
    for number in range(200):
        name = list(DAMAGES)[number % len(DAMAGES)]
        folder = tmp_path / f"{number}"
        shutil.copytree(source, folder / "data")
        DAMAGES[name](folder / "data", np.random.default_rng(number))
        before = contents(folder / "data")
        with pytest.raises(DataError) as caught:
            store.read(str(folder))
        message = str(caught.value)
        assert len(message) > 30, (name, message)
        assert contents(folder / "data") == before, name
        shutil.rmtree(folder)


def test_whole_datasets_are_read(maze, datasets):
    again = store.read(str(datasets / maze.name))
    assert again.digest == maze.digest
    assert again.spec == maze.spec == tasks.get("MazeS4G1").spec
    assert store.incompatibility(again, tasks.get("MazeS4G1")) is None
    expected = "the shape of field 'grid' is (10, 10), expected (19, 19)"
    assert store.incompatibility(again, tasks.get("MazeS7G1")) == expected
    with pytest.raises(DataError, match="does not fit task MazeS7G1: the shape of field 'grid'"):
        store.read(maze.name, tasks.get("MazeS7G1"))


def test_a_dataset_is_never_overwritten(maze):
    with pytest.raises(DataError, match="exists already"):
        store.write(maze.name, tasks.get("MazeS4G1"), maze.episodes, {})


def test_minari_reads_what_was_written(maze):
    dataset = minari.load_dataset(maze.name)
    assert dataset.total_episodes == 30
    assert dataset.observation_space["state"] == spaces.Discrete(400)
    for raw, episode in zip(dataset.iterate_episodes(), maze.episodes, strict=True):
        assert np.array_equal(raw.observations["grid"], episode.observations["grid"])
        assert np.array_equal(raw.observations["state"], episode.observations["state"])
        assert np.array_equal(raw.actions, episode.actions)
        mission = maze.spec.fields["mission"].decode(episode.observations["mission"][0])
        assert set(raw.observations["mission"]) == {mission}
        assert raw.terminations[-1]
        assert not raw.truncations.any()
        # The reward of MiniGrid, as it was: less for a longer way.
        assert raw.rewards[-1] == pytest.approx(1 - 0.9 * len(episode) / 399)
        assert np.array_equal(raw.rewards, episode.rewards)
        assert dataset.observation_space.contains({key: column[0] for key, column in raw.observations.items()})


EVERY_KIND = PlanSpec(
    {
        "room": Field("grid", (4, 3), (5, 2)),
        "order": Field("words", (4,), vocabulary=("<pad>", ",", "fetch", "red", "blue")),
        "mode": Field("category", (), (3,)),
        "hands": Field("category", (2,), (4, 6)),
        "joints": Field("vector", (5,)),
    },
    Actions(low=(-1.0, 0.0), high=(1.0, 512.0), origin=("joints", 2)),
    {"states": Stream(3, observed="mode"), "goals": Stream(12, (2,), points_at="room")},
)


def episode_of_every_kind(length, rng, **options):
    words = EVERY_KIND.fields["order"]
    columns = {
        name: np.stack([sample_field(field, rng) for _ in range(length + 1)])
        for name, field in EVERY_KIND.fields.items()
        if name != "order"
    }
    texts = rng.choice(["fetch red", "fetch blue, red", ""], length + 1)
    columns["order"] = np.stack([words.encode(str(text)) for text in texts])
    return episode_from_arrays(
        EVERY_KIND, columns, rng.uniform((-1, 0), (1, 512), (length, 2)), rng.normal(size=length),
        rng.random(length) < 0.2, rng.random(length) < 0.2,
        {"coverage": rng.random(length), "contacts": rng.integers(0, 9, length), "is_held": rng.random(length) < 0.5},
        **options,
    )  # fmt: skip


def test_every_kind_of_field_survives(datasets):
    rng = np.random.default_rng(0)
    subgoals = (SubGoal(0, 3, "key"), SubGoal(2, 11, "target"))
    episodes = [
        episode_of_every_kind(7, rng, seed=10_000, subgoals=subgoals),
        episode_of_every_kind(1, rng, success=False),
        dataclasses.replace(episode_of_every_kind(3, rng), rewards=np.full(3, np.nan), last_repeated=True),
    ]
    task = make_task(EVERY_KIND)
    store.write("own/every-kind-v0", task, episodes, {"expert": "people"})
    for given in (None, task):
        found = store.read("own/every-kind-v0", given)
        assert found.spec == EVERY_KIND
        assert found.metadata["expert"] == "people"
        for episode, original in zip(found.episodes, episodes, strict=True):
            assert_equal(episode, original)
    assert found.digest == store.Dataset("same", EVERY_KIND, episodes).digest
    assert found.digest.startswith("2-")
    assert len(found.digest) == 18
    assert found.digest_v1 is None
    raw = minari.load_dataset("own/every-kind-v0")
    assert raw.action_space == spaces.Box(np.array([-1, 0], np.float32), np.array([1, 512], np.float32))
    assert raw[0].observations["order"][0] in ("fetch red", "fetch blue, red", "")
    # A task that needs only some of the fields can use it.
    fewer = dataclasses.replace(EVERY_KIND, fields={k: v for k, v in EVERY_KIND.fields.items() if k != "hands"})
    assert "hands" not in store.read("own/every-kind-v0", make_task(fewer)).episodes[0].observations


def test_the_digest_knows_every_column():
    rng = np.random.default_rng(1)
    episode = episode_of_every_kind(5, rng, seed=7, subgoals=((1, 2, "key"),))
    whole = store.Dataset("whole", EVERY_KIND, [episode]).digest

    def changed(column):
        column = column.copy()
        column[0] = ~column[0] if column.dtype == bool else column[0] + 1
        return column

    others = [
        *(
            dataclasses.replace(episode, observations={**episode.observations, name: changed(column)})
            for name, column in episode.observations.items()
        ),
        *(dataclasses.replace(episode, infos={**episode.infos, k: changed(c)}) for k, c in episode.infos.items()),
        *(
            dataclasses.replace(episode, **{name: changed(getattr(episode, name))})
            for name in ("actions", "rewards", "terminations", "truncations")
        ),
        dataclasses.replace(episode, seed=8),
        dataclasses.replace(episode, subgoals=()),
        dataclasses.replace(episode, last_repeated=True),
    ]
    digests = {store.Dataset("other", EVERY_KIND, [other]).digest for other in others}
    assert len(digests | {whole}) == len(others) + 1
    reordered = dataclasses.replace(episode, observations=dict(reversed(episode.observations.items())))
    assert store.Dataset("same", EVERY_KIND, [reordered]).digest == whole


def test_what_cannot_be_kept_is_not_written(datasets):
    rng = np.random.default_rng(2)
    episode, task = episode_of_every_kind(3, rng), make_task(EVERY_KIND)
    gap = np.array([[2, 0, 3, 0]] * 4)
    for changes, message in (
        ({"actions": episode.actions + 1000}, r"episode 0 of own/bad-v0: actions hold .*, expected \(-1.0, 0.0\) to"),
        ({"rewards": episode.rewards[:-1]}, r"rewards have shape \(2,\), expected \(3,\), one per action"),
        ({"infos": {"a/b": np.zeros(3)}}, "'a/b' has a slash"),
        ({"observations": {**episode.observations, "order": gap}}, r"the words \[2, 0, 3, 0\] cannot be kept as text"),
        ({"subgoals": (SubGoal(3, 0, "key"),)}, "a sub-goal is reached at step 3, expected 0 to 2"),
    ):
        with pytest.raises(DataError, match=message):
            store.write("own/bad-v0", task, [dataclasses.replace(episode, **changes)], {})
        assert not store.exists("own/bad-v0")
    with pytest.raises(DataError, match="has 0 episodes, expected at least 1"):
        store.Dataset("empty", EVERY_KIND, [])


def changed_field(name, **changes):
    field = dataclasses.replace(EVERY_KIND.fields[name], **changes)
    return dataclasses.replace(EVERY_KIND, fields={**EVERY_KIND.fields, name: field})


def changed_actions(**changes):
    return dataclasses.replace(EVERY_KIND, actions=dataclasses.replace(EVERY_KIND.actions, **changes))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (changed_field("joints", shape=(6,)), "the shape of field 'joints' is (5,), expected (6,)"),
        (changed_field("hands", sizes=(4, 7)), "the sizes of field 'hands' is (4, 6), expected (4, 7)"),
        (
            changed_field("order", vocabulary=("<pad>", ",", "fetch", "red", "green")),
            "the vocabulary of field 'order' has 5 words, expected 5; they differ in blue, green",
        ),
        (
            changed_field("order", vocabulary=("<pad>", ",", "fetch", "blue", "red")),
            "the vocabulary of field 'order' has 5 words, expected 5; they differ in their order",
        ),
        (changed_actions(high=(1.0, 256.0)), "high of the actions is (1.0, 512.0), expected (1.0, 256.0)"),
        (
            changed_actions(origin=None),
            "actions are relative to field 'joints' from entry 2 on, expected absolute",
        ),
        (
            changed_actions(origin=("joints", 0)),
            "actions are relative to field 'joints' from entry 2 on, "
            "expected relative to field 'joints' from entry 0 on",
        ),
        (
            PlanSpec({**EVERY_KIND.fields, "more": Field("vector", (1,))}, EVERY_KIND.actions),
            "there is no field 'more', found room, order, mode, hands, joints",
        ),
        (
            dataclasses.replace(EVERY_KIND, streams={"goals": Stream(99)}),
            "there are 12 goal tokens, expected 99",
        ),
        (dataclasses.replace(EVERY_KIND, streams={}), None),
    ],
)
def test_incompatibilities_tell_both_sides(spec, reason):
    dataset = store.Dataset("own", EVERY_KIND, [episode_of_every_kind(2, np.random.default_rng(3))])
    assert store.incompatibility(dataset, make_task(spec)) == reason


def test_training_data_must_not_hold_test_mazes(maze):
    spoiled = store.Dataset("spoiled", maze.spec, [dataclasses.replace(maze.episodes[0], seed=1300)])
    assert "1 of the test seeds" in store.incompatibility(spoiled, tasks.get("MazeS4G1"))


def test_relative_paths_and_missing_datasets(maze, datasets, monkeypatch):
    monkeypatch.chdir(datasets)
    monkeypatch.setenv("MINARI_DATASETS_PATH", ".")
    assert store.datasets_root().is_absolute()
    assert store.read(maze.name).digest == maze.digest
    with pytest.raises(DataError, match="there is no dataset 'genplan/Nothing/bot-1-v0'"):
        store.read("genplan/Nothing/bot-1-v0")


# --- recordings as arrays --------------------------------------------------------------------------------------------


def number_spec(actions=None):
    return PlanSpec({"state": Field("category", (), (9,))}, actions or Actions(2), {"states": Stream(9, (), "state")})


def test_what_was_not_recorded_is_marked_and_not_invented():
    episode = episode_from_arrays(number_spec(), {"state": [3, 4]}, [0, 1])
    assert isinstance(episode, Episode)
    assert episode.observations["state"].tolist() == [3, 4, 4]
    assert episode.last_repeated
    assert np.isnan(episode.rewards).all()
    assert not episode.terminations.any()
    assert not episode.truncations.any()
    assert episode.success
    whole = episode_from_arrays(number_spec(), {"state": [3, 4, 5], "more": 0}, [0, 1], [0, 1.5], [0, 1], [0, 0])
    assert not whole.last_repeated
    assert whole.rewards.tolist() == [0, 1.5]
    assert whole.terminations.tolist() == [False, True]
    assert list(whole.observations) == ["state"]
    texts = PlanSpec({"order": EVERY_KIND.fields["order"]}, Actions(2))
    for order in ("fetch red", ["fetch red"] * 3, np.array(["fetch red"] * 3), np.array([[2, 3, 0, 0]] * 3)):
        assert episode_from_arrays(texts, {"order": order}, [0, 1]).observations["order"].tolist() == [[2, 3, 0, 0]] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observations": {}}, r"it: observations have no 'state', found \[\]"),
        ({"observations": {"state": [1]}}, "it: 1 'state' observations, expected 3: one more than actions"),
        ({"observations": {"state": [1, 2, 9]}}, "it: state holds 9, expected 0 to 8"),
        (
            {"observations": {"state": [1.0, np.nan, 2.0]}},
            "state has dtype float64; one is nan, expected whole numbers",
        ),
        ({"observations": {"state": [[1], [1, 2], [3]]}}, "it: state are no array"),
        ({"actions": []}, "it: 0 actions, expected at least 1"),
        ({"actions": [0, 2]}, "it: actions hold 2, expected 0 to 1"),
        ({"actions": [[0], [1]]}, r"it: actions have shape \(2, 1\), expected \(2,\)"),
        ({"actions": 3}, r"it: actions have shape \(\)"),
        ({"rewards": [1]}, r"it: rewards have shape \(1,\), expected \(2,\)"),
        ({"rewards": [1, np.nan]}, "it: a reward is nan, expected a number"),
        ({"rewards": ["a", "b"]}, "it: rewards have dtype <U1, expected numbers"),
        ({"truncations": [0, 2]}, "it: truncations hold 2, expected True or False"),
        ({"infos": {"coverage": [[1], [2]]}}, r"it: info 'coverage' have shape \(2, 1\), expected \(2,\)"),
        ({"subgoals": [(1,)]}, r"it: a sub-goal is \(1,\), expected \[step, token, type\]"),
    ],
)
def test_arrays_that_do_not_fit(arguments, message):
    arguments = {"observations": {"state": [1, 2, 3]}, "actions": [0, 1], **arguments}
    with pytest.raises(DataError, match=message):
        episode_from_arrays(number_spec(), **arguments, where="it")


@pytest.mark.skipif(not PUSHT.exists(), reason="the recordings of PushT are not here")
def test_human_demonstrations_of_pusht(datasets):
    """206 demonstrations: 9 key points and the agent observed, target positions as actions, and nothing else."""
    data = np.load(PUSHT, allow_pickle=False)
    observed = np.concatenate([data["keypoint"].reshape(len(data["keypoint"]), 18), data["state"][:, :2]], 1)
    spec = PlanSpec(
        {"observation": Field("vector", (20,))}, Actions(low=(0, 0), high=(512, 512), origin=("observation", 18))
    )
    parts = np.split(np.arange(len(observed)), data["episode_ends"][:-1])
    episodes = [
        episode_from_arrays(spec, {"observation": observed[steps]}, data["action"][steps], where=f"episode {number}")
        for number, steps in enumerate(parts)
    ]
    assert len(episodes) == 206
    assert sum(map(len, episodes)) == 25_650
    assert all(episode.last_repeated and np.isnan(episode.rewards).all() for episode in episodes)
    task = make_task(spec, "PushT", success=None)
    store.write("pusht/human-v0", task, episodes[:20], {"expert": "people"})
    found = store.read("pusht/human-v0")
    assert found.spec == spec
    for episode, original in zip(found.episodes, episodes, strict=False):
        assert_equal(episode, original)
    assert store.incompatibility(found, task) is None
    absolute = make_task(dataclasses.replace(spec, actions=dataclasses.replace(spec.actions, origin=None)))
    expected = "actions are relative to field 'observation' from entry 18 on, expected absolute"
    assert store.incompatibility(found, absolute) == expected
    with pytest.raises(DataError, match="actions are relative"):
        store.read("pusht/human-v0", absolute)


def test_metadata_names_its_versions(maze):
    assert {"genplan", "minigrid", "gymnasium", "minari", "numpy"} == set(maze.metadata["versions"])
    assert maze.metadata["format"] == store.FORMAT == 2
    assert PlanSpec.from_json(json.loads(json.dumps(maze.metadata["spec"]))) == maze.spec
