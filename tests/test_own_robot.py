"""An environment of one's own with Box spaces, and recorded demonstrations of it, to a planner of action chunks."""

import importlib
import json
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from genplan.cli import data_import
from genplan.data import store

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NUM_EPISODES = 60


@pytest.fixture
def robot(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    (tmp_path / "minari").mkdir()
    yield importlib.import_module("robot")
    sys.modules.pop("robot")


def demonstrate(env, seed):
    """An episode in which both joints are turned to where they are to be: what was observed before every action."""
    observation, _ = env.reset(seed=seed)
    arm, seen, actions, is_over = env.unwrapped, [], [], False
    while not is_over:
        seen.append(observation)
        actions.append(np.float32(np.clip(arm.goal - arm.joints, -0.15, 0.15)))
        observation, _, _, is_over, _ = env.step(actions[-1])
    return seen, actions


def write_minari(env, name):
    import minari

    collector = minari.DataCollector(env)
    for number in range(NUM_EPISODES):
        demonstrate(collector, 10_000 + number)
    collector.create_dataset(name)
    collector.close()


def write_lerobot(env, folder):
    import pyarrow
    from pyarrow import parquet

    columns = {"observation.state": [], "action": [], "episode_index": [], "frame_index": []}
    for number in range(NUM_EPISODES):
        seen, actions = demonstrate(env, 10_000 + number)
        length = range(len(actions))
        for column, rows in zip(columns.values(), (seen, actions, [number] * len(actions), length), strict=True):
            column += [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": 10}))
    (folder / "data" / "chunk-000").mkdir(parents=True)
    parquet.write_table(pyarrow.table(columns), folder / "data" / "chunk-000" / "file-000.parquet")


def test_it_is_short():
    lines = {name: len((EXAMPLES / name).read_text().splitlines()) for name in ("robot.py", "reach_env.py")}
    assert lines["robot.py"] <= 40
    assert lines["reach_env.py"] <= 25


@pytest.mark.parametrize("source", ["minari", "lerobot"])
def test_it_is_learnt_and_evaluated(robot, source, tmp_path, capsys):
    env, dataset = gymnasium.make("Reach-v0"), "reach/human-v0"
    if source == "minari":
        write_minari(env, dataset)
    else:
        pytest.importorskip("pyarrow")
        write_lerobot(env, tmp_path / "arm")
        assert data_import("lerobot", tmp_path / "arm", task=f"{EXAMPLES / 'robot.py'}:task", name=dataset) == 0
        assert f"{NUM_EPISODES}/{NUM_EPISODES}" in capsys.readouterr().out
    episodes = store.read(dataset, robot.task).episodes
    assert [len(one) for one in episodes] == [40] * NUM_EPISODES
    found = robot.main(dataset, tmp_path / "run", steps=150, episodes=10)
    assert found.rollouts[0].num_plans == 10  # four of the eight actions of each chunk are executed
    assert found.planner.value("return") > 0.6 * found.random.value("return")  # both are negative
    assert "'this planner': -" in capsys.readouterr().out
