"""Collecting: the same content whatever happens on the way."""

import os
import signal
import subprocess
import sys
import time

import minari
import numpy as np
import pytest

from genplan import tasks
from genplan.data import demos, episodes
from genplan.data.demos import Recipe, collect
from genplan.errors import DataError, UserError
from genplan.planners.names import resolve
from genplan.workers import only_one


def test_minari_reads_what_was_written(maze):
    dataset = minari.load_dataset(maze.name)
    assert dataset.total_episodes == 30
    for raw, episode in zip(dataset.iterate_episodes(), maze.episodes, strict=True):
        assert np.array_equal(raw.observations["image"], episode.maps)
        assert np.array_equal(raw.actions, episode.actions)
        assert raw.observations["mission"][0] == episode.mission
        assert raw.terminations[-1]
        assert raw.rewards[-1] == 1


def test_what_is_kept_succeeded_and_replays(maze, blocked):
    for dataset, name in ((maze, "MazeS4G1"), (blocked, "BlockUnlock")):
        env = tasks.make_world(name)
        for episode in dataset.episodes:
            observation, _ = env.reset(seed=episode.seed)
            assert np.array_equal(observation["image"], episode.maps[0])
            for action in episode.actions.tolist():
                observation, reward, terminated, *_ = env.step(action)
            assert terminated
            assert reward > 0
            assert np.array_equal(observation["image"], episode.maps[-1])
            assert episode.subgoals[-1].kind == "target"
            assert episode.subgoals[-1].step == len(episode) - 1
    kinds = [[goal.kind for goal in episode.subgoals] for episode in blocked.episodes]
    assert all({"blocker", "key", "door", "target"} <= set(kind) for kind in kinds)
    assert blocked.about["versions"]["minigrid"]
    assert blocked.about["expert"] == "bot"


def test_the_content_does_not_depend_on_workers(maze, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert collect(Recipe("MazeS4G1", 30), workers=2).digest == maze.digest


def test_a_script_that_starts_itself_over_and_over_is_told_so(tmp_path, monkeypatch):
    """Workers import the script that started them; without a guard each would begin the whole job again."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    script = tmp_path / "script.py"
    script.write_text("from genplan.data.demos import Recipe, collect\ncollect(Recipe('MazeS4G1', 60), workers=2)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "around its calls, or workers=1" in done.stderr.splitlines()[-1]


def test_killed_in_the_middle_it_goes_on(maze, tmp_path, monkeypatch):
    """kill -9 after the first chunk is there; nothing is taken for a dataset; the next run makes the same one."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    recipe = Recipe("MazeS4G1", 300)
    shards = tmp_path / ".genplan-collecting" / recipe.name.replace("/", "--")
    command = [sys.executable, "-m", "genplan", "demos", "MazeS4G1", "--episodes", "300", "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 60
    while not list(shards.glob("seeds-*.npz")) and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sorted(shards.glob("seeds-*.npz"))
    assert kept
    assert not episodes.exists(recipe.name)
    with pytest.raises(DataError, match="there is no dataset"):
        episodes.read(recipe.name)
    stamps = {path.name: path.stat().st_mtime_ns for path in kept}
    looked_at = []
    load = demos._load_shard
    monkeypatch.setattr(demos, "_load_shard", lambda path: looked_at.append(path.name) or load(path))
    whole = collect(recipe, workers=1)
    assert set(looked_at) == set(stamps)  # not collected again
    assert len(whole.episodes) == 300
    assert [e.seed for e in whole.episodes[:30]] == [e.seed for e in maze.episodes]
    assert not shards.exists()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "other"))
    assert collect(recipe, workers=2).digest == whole.digest


def test_only_one_process_collects(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    recipe = Recipe("LocS10N1", 3)
    shards = tmp_path / ".genplan-collecting" / recipe.name.replace("/", "--")
    shards.mkdir(parents=True)
    with (
        only_one(shards / "lock", "x"),
        pytest.raises(UserError, match="being collected by another process"),
    ):
        collect(recipe, workers=1)


def test_held_out_seeds_are_refused():
    with pytest.raises(DataError, match=r"of the test seeds 1234–1483 \(the first is 1234\), expected 0"):
        Recipe("MazeS4G1", 10, seed=1230)
    with pytest.raises(DataError, match="of the validation seeds 2000–2999"):
        Recipe("MazeS4G1", 10, seed=2500)
    with pytest.raises(UserError, match="expected training seeds within 10000–99999"):
        Recipe("MazeS4G1", 10, seed=99_995)
    with pytest.raises(UserError, match="episodes is 0"):
        Recipe("MazeS4G1", 0)


def test_clumsy_and_shortest_demonstrations():
    task = tasks.get("MazeS4G1")
    env = task.make()
    lengths = {}
    for expert in ("bot", "shortest", "clumsy"):
        planner = resolve(expert, task)
        tried = [demos.collect_episode(planner, task, env, seed) for seed in range(10_000, 10_040)]
        kept = {episode.seed: episode for episode in tried if episode is not None}
        assert all(episode.success for episode in kept.values())
        assert len(kept) >= (40 if expert != "clumsy" else 30)
        lengths[expert] = {seed: len(episode) for seed, episode in kept.items()}
    common = set.intersection(*(set(found) for found in lengths.values()))
    mean = {expert: np.mean([found[seed] for seed in common]) for expert, found in lengths.items()}
    assert mean["shortest"] < mean["bot"] < mean["clumsy"]


def test_failed_seeds_are_left_out_and_replaced(tmp_path, monkeypatch):
    """A blind walk succeeds now and then: only successes are kept, in the order of seeds, from further seeds."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    ticks = []
    found = collect(Recipe("LocS10N1", 40, expert="walk:lively"), workers=1, tick=ticks.append)
    seeds = [episode.seed for episode in found.episodes]
    assert seeds == sorted(seeds)
    assert all(episode.success for episode in found.episodes)
    assert sum(ticks) == 40
    assert os.listdir(tmp_path) == ["genplan"]
