"""Collecting: the same content whatever happens on the way."""

import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from genplan import collect as collecting
from genplan import tasks
from genplan.collect import CollectConfig, collect, collect_episode
from genplan.data import store
from genplan.envs import make_env
from genplan.errors import DataError, ExpertFailure, UserError
from genplan.jobs import file_lock
from genplan.names import load_planner
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Plan, Task


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        return {
            name: collect(CollectConfig(name, number), 1) for name, number in (("MazeS4G1", 30), ("BlockUnlock", 8))
        }


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def test_what_is_kept_succeeded_and_replays(collected):
    for name, dataset in collected.items():
        env = make_env(name)
        for episode in dataset.episodes:
            observation, _ = env.reset(seed=episode.seed)
            assert np.array_equal(observation["image"], episode.observations["grid"][0])
            steps = [env.step(action) for action in episode.actions.tolist()]
            assert [step[1] for step in steps] == episode.rewards.tolist()
            assert [step[2] for step in steps] == episode.terminations.tolist()
            assert [step[3] for step in steps] == episode.truncations.tolist()
            assert episode.terminations[-1]
            assert episode.rewards[-1] > 0
            assert np.array_equal(steps[-1][0]["image"], episode.observations["grid"][-1])
            assert episode.subgoals[-1].type == "target"
            assert episode.subgoals[-1].step == len(episode) - 1
    blocked = collected["BlockUnlock"]
    types = [{goal.type for goal in episode.subgoals} for episode in blocked.episodes]
    assert all({"blocker", "key", "door", "target"} <= one for one in types)
    assert blocked.metadata["versions"]["minigrid"]
    assert blocked.metadata["expert"] == "bot"
    assert blocked.name == "genplan/BlockUnlock/bot-8-v0"


def test_the_content_does_not_depend_on_workers(collected):
    assert collect(CollectConfig("MazeS4G1", 30), workers=2).digest == collected["MazeS4G1"].digest


def test_a_script_that_starts_itself_over_and_over_is_told_so(root):
    """Workers import the script that started them; without a guard each would begin the whole job again."""
    script = root / "script.py"
    script.write_text(
        "from genplan.collect import CollectConfig, collect\ncollect(CollectConfig('MazeS4G1', 60), workers=2)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "around its calls, or workers=1" in done.stderr.splitlines()[-1]


def test_killed_in_the_middle_it_continues(collected, root, monkeypatch):
    """kill -9 after the first chunk is there; nothing is taken for a dataset; the next run makes the same one."""
    config = CollectConfig("MazeS4G1", 300)
    shards = root / ".genplan-collecting" / config.name.replace("/", "--")
    command = [sys.executable, "-c", "from genplan.collect import *; collect(CollectConfig('MazeS4G1', 300), 1)"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 60
    while not list(shards.glob("seeds-*.npz")) and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sorted(shards.glob("seeds-*.npz"))
    assert kept
    assert not store.exists(config.name)
    with pytest.raises(DataError, match="there is no dataset"):
        store.read(config.name)
    done_again = []
    chunk = collecting.collect_chunk

    def collect_chunk(*arguments, report):
        done_again.append(arguments[-1])
        chunk(*arguments, report=report)

    monkeypatch.setattr(collecting, "collect_chunk", collect_chunk)
    whole = collect(config, workers=1)
    assert not set(done_again) & {str(path) for path in kept}
    assert len(done_again) + len(kept) == 12
    assert len(whole.episodes) == 300
    first = store.Dataset("first", whole.spec, whole.episodes[:30])
    assert first.digest == collected["MazeS4G1"].digest  # the shards keep everything
    assert not shards.exists()
    monkeypatch.undo()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root / "other"))
    assert collect(config, workers=2).digest == whole.digest


def test_only_one_process_collects(root):
    config = CollectConfig("LocS10N1", 3)
    shards = root / ".genplan-collecting" / config.name.replace("/", "--")
    shards.mkdir(parents=True)
    with (
        file_lock(shards / "lock", "x"),
        pytest.raises(UserError, match="being collected by another process"),
    ):
        collect(config, workers=1)


def test_held_out_seeds_are_refused():
    with pytest.raises(DataError, match=r"of the test seeds 1234–1483 \(the first is 1234\), expected 0"):
        CollectConfig("MazeS4G1", 10, seed=1230)
    with pytest.raises(DataError, match="of the validation seeds 2000–2999"):
        CollectConfig("MazeS4G1", 10, seed=2500)
    with pytest.raises(UserError, match="expected training seeds within 10000–99999"):
        CollectConfig("MazeS4G1", 10, seed=99_995)
    with pytest.raises(UserError, match="episodes is 0"):
        CollectConfig("MazeS4G1", 0)


def test_names_of_datasets():
    assert CollectConfig("MazeS4G1").name == "genplan/MazeS4G1/bot-1000-v0"
    assert CollectConfig("a/taxi.py:task", 5, "runs/one", 20_000).name == "genplan/taxi/one-5-from-20000-v0"
    assert CollectConfig("LocS10N1", 40, "random:forward").name == "genplan/LocS10N1/random-forward-40-v0"


def test_noisy_and_shortest_demonstrations():
    task = tasks.get("MazeS4G1")
    env = task.make()
    lengths = {}
    for expert in ("bot", "bot:full-view", "bot:noisy"):
        planner = load_planner(expert, task)
        tried = [collect_episode(planner, task, env, seed) for seed in range(10_000, 10_040)]
        kept = {episode.seed: episode for episode in tried if episode is not None}
        assert all(episode.success for episode in kept.values())
        assert len(kept) >= (40 if expert != "bot:noisy" else 30)
        lengths[expert] = {seed: len(episode) for seed, episode in kept.items()}
    common = set.intersection(*(set(found) for found in lengths.values()))
    mean = {expert: np.mean([found[seed] for seed in common]) for expert, found in lengths.items()}
    assert mean["bot:full-view"] < mean["bot"] < mean["bot:noisy"]


def test_failed_seeds_are_left_out_and_replaced(root):
    """A random policy succeeds now and then: only successes are kept, in the order of seeds, from further seeds."""
    progress = []
    config = CollectConfig("LocS10N1", 40, expert="random:forward")
    found = collect(config, workers=1, on_progress=progress.append)
    seeds = [episode.seed for episode in found.episodes]
    assert seeds == sorted(seeds)
    assert all(episode.success for episode in found.episodes)
    assert sum(progress) == 40
    assert os.listdir(root) == ["genplan"]


def test_a_failing_job_names_the_dataset():
    with pytest.raises(UserError, match=r"genplan/LocS10N1/nobody-3-v0 is not collected: there is no planner 'nobody'"):
        collect(CollectConfig("LocS10N1", 3, expert="nobody"), workers=1)


@pytest.mark.parametrize(("name", "types"), [("doorkey", {"key", "door", "target"}), ("taxi", set())])
def test_own_environments_are_collected_and_read(name, types):
    source = f"examples/{name}.py:task"
    found = collect(CollectConfig(source, 5), workers=1)
    assert {goal.type for episode in found.episodes for goal in episode.subgoals} == types
    assert store.incompatibility(found, tasks.get(source)) is None
    assert store.read(found.name).spec == found.spec
    # As computed by the code of format 1 for the same collections.
    assert found.digest_v1 == {"doorkey": "a96acf2c93d6ce4e", "taxi": "9f2c4645143eeb8b"}[name]


# --- a robot's task: continuous, with infos and without success ------------------------------------------------------


class Slide(gymnasium.Env):
    """A point on a line that is pushed; it never ends by itself."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(-1, 1))
        return np.array([self.x, 0], np.float32), {}

    def step(self, action):
        assert action.shape == (1,)
        self.x += float(action[0])
        info = {"distance": abs(self.x), "text": "ignored"}
        return np.array([self.x, action[0]], np.float32), -abs(self.x), False, False, info


class Push:
    """Plans three actions, of which one is executed; gives up on one seed."""

    privileged, action_steps = True, None

    def __init__(self):
        self.plans = 0

    def reset(self, observations, oracle=None):
        self.gives_up = float(observations["point"][0, 0]) > 0.5
        return None

    def plan(self, observations, memory, rng, ids, oracle=None):
        self.plans += 1
        if self.gives_up:
            raise ExpertFailure("too far away")
        return Plan((-observations["point"][:, :1] / 2).clamp(-1, 1)[:, None].expand(-1, 3, -1)), memory

    def observe(self, memory, actions, observations, ids):
        assert actions.dtype == torch.float32
        return memory


def slide_task(**options):
    spec = PlanSpec({"point": Field("vector", (2,))}, Actions(low=(-1,), high=(1,), origin=("point", 0)))
    return Task("Slide", Slide, spec, lambda env, raw: {"point": raw}, 6, infos=("distance",), expert=Push, **options)


def test_without_a_notion_of_success_every_finished_episode_is_kept(monkeypatch):
    task = slide_task(success=None)
    monkeypatch.setattr(tasks, "get", lambda name: task)
    found = collect(CollectConfig("Slide", 30), workers=1)
    seeds = [episode.seed for episode in found.episodes]
    assert len(set(range(10_000, seeds[-1] + 1)) - set(seeds)) > 0  # some seeds were given up
    for episode in found.episodes:
        assert len(episode) == 6
        assert episode.success
        assert not episode.terminations.any()
        assert episode.truncations.tolist() == [False] * 5 + [True]
        assert episode.rewards == pytest.approx(-episode.infos["distance"])
        points = episode.observations["point"]
        assert points[1:, 0] == pytest.approx(points[:-1, 0] + episode.actions[:, 0], abs=1e-6)
        assert episode.actions[:, 0] == pytest.approx(-points[:-1, 0] / 2, abs=1e-6)  # planned anew at every step
        assert not episode.last_repeated


def test_an_episode_ends_at_its_first_success():
    task = slide_task(success=lambda reward, terminated, info: info["distance"] < 0.1)
    planner, env = Push(), Slide()
    episodes = [collect_episode(planner, task, env, seed) for seed in range(10_000, 10_020)]
    assert any(episode is None for episode in episodes)
    for episode in filter(None, episodes):
        assert episode.infos["distance"][-1] < 0.1
        assert (episode.infos["distance"][:-1] >= 0.1).all()
    never = slide_task(success=lambda reward, terminated, info: False)
    assert collect_episode(planner, never, env, 10_000) is None
