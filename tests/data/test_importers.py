"""Published formats, written here as they are published, and read; and what is damaged is refused with advice."""

import json
import struct

import numpy as np
import pytest

from genplan import tasks
from genplan.cli import data_import
from genplan.data import store
from genplan.data.importers import LOG_HEADER, LOG_SIZES, read_kitchen, read_lerobot, read_log, read_pusht
from genplan.errors import DataError
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Task

pytest.importorskip("gym_pusht")
pytest.importorskip("gymnasium_robotics")
STATE = np.random.default_rng(0).uniform(100, 400, (9, 5)).astype(np.float32)
ACTION = np.random.default_rng(1).uniform(0, 512, (9, 2)).astype(np.float32)


def test_pusht_as_npz_and_as_zarr_are_the_same(tmp_path):
    zarr, task = pytest.importorskip("zarr"), tasks.get("PushT")
    np.savez(tmp_path / "one.npz", state=STATE, action=ACTION, episode_ends=[4, 9])
    root = zarr.open_group(str(tmp_path / "one.zarr"), mode="w", zarr_format=2)
    for place, column in {"data/state": STATE, "data/action": ACTION, "meta/episode_ends": np.array([4, 9])}.items():
        root.create_array(place, data=column)
    first, second = (list(read_pusht(tmp_path / name, task)) for name in ("one.npz", "one.zarr"))
    assert [len(one) for one in first] == [4, 5]
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one.observations["observation"], other.observations["observation"])
        assert np.array_equal(one.actions, other.actions)
    agent = first[1].observations["observation"][:, 18:]
    assert np.allclose(agent[:-1], STATE[4:, :2])
    assert np.array_equal(agent[-1], agent[-2])  # not recorded: repeated, and marked
    assert first[1].last_repeated


def test_an_import_shows_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    np.savez(tmp_path / "one.npz", state=STATE, action=ACTION, episode_ends=[4, 9])
    assert data_import("pusht", tmp_path / "one.npz", check=1) == 0
    said = capsys.readouterr().out
    for text in ("reading PushT", "2/2", "episodes/s", "replaying PushT", "4/4", "steps/s", "2 episodes, 9 steps"):
        assert text in said
    assert data_import("pusht", tmp_path / "one.npz") == 0
    assert "exists already" in capsys.readouterr().out


@pytest.mark.parametrize(("change", "message"), [
    ({"state": None}, "has no 'state'"),
    ({"state": STATE[:, :3]}, "expected \\(steps, 5\\)"),
    ({"episode_ends": [4, 8]}, "episodes end at 8, expected rising numbers up to the 9 steps"),
    ({"action": ACTION + 600}, "actions hold"),
    ({"action": ACTION * np.nan}, "not finite"),
])  # fmt: skip
def test_damaged_recordings_are_refused(tmp_path, change, message):
    columns = {"state": STATE, "action": ACTION, "episode_ends": [4, 9], **change}
    np.savez(tmp_path / "one.npz", **{name: one for name, one in columns.items() if one is not None})
    with pytest.raises(DataError, match=message):
        list(read_pusht(tmp_path / "one.npz", tasks.get("PushT")))


def test_files_that_are_none_of_these_are_refused(tmp_path):
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(DataError, match="expected an npz file"):
        read_pusht(tmp_path / "text.npz", tasks.get("PushT"))
    with pytest.raises(DataError, match="expected raw logs"):
        read_kitchen(tmp_path, tasks.get("Kitchen"))
    with pytest.raises(DataError, match="LeRobot dataset"):
        read_lerobot(tmp_path, tasks.get("PushT"))
    np.savez(tmp_path / "objects.npz", state=np.array([{}], object))
    with pytest.raises(DataError, match="cannot be read"):  # nothing is unpickled
        read_pusht(tmp_path / "objects.npz", tasks.get("PushT"))


def write_log(path, controls):
    """A raw log at 500 Hz in which every control is held for 40 records."""
    name = b"kitchen"
    records = np.zeros((40 * len(controls), 1 + 30 + 29 + 9 + 7), "<f4")
    records[:, 60:69] = np.repeat(controls, 40, 0)
    path.write_bytes(LOG_HEADER.pack(*LOG_SIZES, len(name)) + name + records.tobytes())


def test_raw_logs_of_the_kitchen_are_replayed(tmp_path):
    task = tasks.get("Kitchen")
    start = task.make_env().reset(seed=0)[0][:9]
    controls = start + np.linspace(0, 0.2, 6)[:, None] * np.array([1, 1, 0, 0, 0, 0, 0, 0, 0])
    write_log(tmp_path / "one.mjl", controls)
    assert np.allclose(read_log(tmp_path / "one.mjl"), controls, atol=1e-6)
    (episode,) = read_kitchen(tmp_path, task)
    assert len(episode) == 6
    assert np.allclose(episode.actions[:, :7], controls[:, :7], atol=1e-5)
    assert episode.actions[:, 7:].max() <= 0.04  # the fingers stand open further than they can be asked to
    moved = episode.observations["observation"][-1, :2] - episode.observations["observation"][0, :2]
    assert moved[0] > 0.05
    assert moved[1] > 0.05
    assert not episode.last_repeated
    data = (tmp_path / "one.mjl").read_bytes()
    for damaged in (data[:-3], struct.pack("<7i", *range(7)) + data[28:], b""):
        (tmp_path / "one.mjl").write_bytes(damaged)
        with pytest.raises(DataError, match="expected"):
            read_log(tmp_path / "one.mjl")


def write_lerobot(folder, version="v3.0"):
    import pyarrow
    from pyarrow import parquet

    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"codebase_version": version, "fps": 10}))
    index = 0
    for number, lengths in enumerate([(3, 4), (5,)]):
        rows = [(episode, step) for episode, length in enumerate(lengths, index) for step in range(length)]
        index += len(lengths)
        data = folder / "data" / f"chunk-000/file-{number:03d}.parquet"
        data.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table({
            "observation.state": [[float(episode), float(step), 0.5] for episode, step in rows],
            "action": [[0.1 * step, -0.1] for _, step in rows],
            "episode_index": [episode for episode, _ in rows],
            "frame_index": [step for _, step in rows],
            "next.reward": [float(step) for _, step in rows],
        }), data)  # fmt: skip


def test_lerobot_v3_is_read_and_stored(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    spec = PlanSpec({"state": Field("vector", (3,))}, Actions(low=(-1, -1), high=(1, 1)))
    task = Task("Arm", lambda: None, spec, lambda env, raw: {"state": raw}, 10, None)
    write_lerobot(tmp_path / "arm")
    episodes = list(read_lerobot(tmp_path / "arm", task))
    assert [len(one) for one in episodes] == [3, 4, 5]
    assert [one.observations["state"][0, 0] for one in episodes] == [0, 1, 2]
    assert np.array_equal(episodes[1].rewards, [0, 1, 2, 3])
    assert episodes[1].last_repeated
    store.write("arm/recorded-v0", task, episodes, {"expert": "recorded"})
    assert [len(one) for one in store.read("arm/recorded-v0", task).episodes] == [3, 4, 5]
    write_lerobot(tmp_path / "old", "v2.1")
    with pytest.raises(DataError, match="expected v3"):
        read_lerobot(tmp_path / "old", task)
