"""Experts and blind walks, through the protocol that every planner answers to."""

import numpy as np
import pytest
import torch

from genplan import tasks
from genplan.data.demos import collect_episode
from genplan.errors import UserError
from genplan.evaluate import rollout
from genplan.flow import Rng
from genplan.planners.names import resolve
from genplan.planners.reference import Bot, Walk, demonstrated_actions
from genplan.tasks.noise import SlipperyActions
from genplan.tasks.table import ROWS, TEST_SEEDS, WORLDS


@pytest.mark.parametrize("name", WORLDS)
def test_the_bot_solves_every_world(name):
    ticks = []
    results = rollout(resolve("bot", tasks.get(name)), tasks.get(name), TEST_SEEDS[:12], tick=ticks.append)
    assert all(result.success for result in results)
    assert sum(ticks) == 12
    assert all(len(result.actions) == result.steps == result.plans for result in results)


def test_blind_walks_score_what_the_table_says():
    """60 episodes of the room: 66 % and 34 % in the table; 20 points are three standard errors (odds 3e-3)."""
    task = tasks.get("LocS10N10G2")
    for kind, expected in (("demos", 66), ("uniform", 34)):
        results = rollout(resolve(f"walk:{kind}", task, "LocS10N1"), task, TEST_SEEDS[:60])
        assert abs(100 * np.mean([result.success for result in results]) - expected) < 20
    stalled = sum(result.stalled for result in results) / sum(result.steps for result in results)
    assert 0.3 < stalled < 0.9  # most of what a uniform walk does changes nothing


def test_results_do_not_depend_on_the_batch():
    task = tasks.get("MazeS4G1")
    walk = resolve("walk:lively", task)
    together = rollout(walk, task, TEST_SEEDS[:5], seed=3)
    for number, seed in enumerate(TEST_SEEDS[:5]):
        assert rollout(walk, task, [seed], seed=3) == together[number : number + 1]
    assert rollout(walk, task, TEST_SEEDS[:5], seed=4) != together


def test_histograms_are_those_of_the_demonstrations():
    counts = demonstrated_actions()
    assert set(counts) == set(WORLDS)
    task = tasks.get("MazeClose")
    env, bot = task.make(), Bot()
    episodes = [collect_episode(bot, task, env, seed) for seed in range(10_000, 10_060)]
    found = np.bincount(np.concatenate([episode.actions for episode in episodes]), minlength=6)
    shares, expected = found / found.sum(), np.array(counts["MazeClose"]) / sum(counts["MazeClose"])
    assert abs(shares - expected).max() < 0.04
    assert all(row.trained_on in counts for row in ROWS.values())


def test_a_slippery_world_and_whole_plans():
    task = tasks.get("LocS10N1")
    results = rollout(Bot(), task, TEST_SEEDS[:8], wrap=lambda env: SlipperyActions(env, 0.2))
    assert np.mean([result.success for result in results]) > 0.5

    class Spinner(Walk):
        def plan(self, observations, memory, rng, rows, oracle=None):
            plan, memory = super().plan(observations, memory, rng, rows, oracle)
            return type(plan)(plan.actions.expand(-1, 5)), memory

    whole = rollout(Spinner([1, 0, 0, 0, 0, 0]), task, TEST_SEEDS[:4])
    assert all(result.plans == -(-result.steps // 5) for result in whole)
    some = rollout(Spinner([1, 0, 0, 0, 0, 0]), task, TEST_SEEDS[:4], execute=2)
    assert all(result.plans == -(-result.steps // 2) for result in some)
    with pytest.raises(ValueError, match="execute is 0, expected at least 1"):
        rollout(Bot(), task, [1], execute=0)


def test_names(tmp_path):
    task = tasks.get("MazeS4G1")
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from genplan.planners.reference import Walk\n"
        "class Mine(Walk):\n    def __init__(self):\n        super().__init__([1] * 6)\n"
        "ready = Mine()\nnumber = 3\n"
    )
    assert resolve(f"{mine}:Mine", task).weights.tolist() == [1] * 6
    assert resolve(f"{mine}:ready", task).plan
    for name, message in (
        (f"{mine}:Other", "has no 'Other'; it has: Walk, Mine, ready, number"),
        (f"{tmp_path}/none.py:X", "there is no file"),
        ("walk:backwards", "there is no walk 'backwards'"),
        ("nobody", "there is no planner 'nobody'; expected one of"),
    ):
        with pytest.raises(UserError, match=message):
            resolve(name, task)
    with pytest.raises(UserError, match=r"expected a genplan\.tasks\.Task"):
        tasks.get(f"{mine}:number")
    with pytest.raises(UserError, match="did you mean MazeS4G"):
        tasks.get("MazeS4G")
    with pytest.raises(UserError, match="needs the oracle"):
        Bot().start(None)
    with pytest.raises(UserError, match="knows the demonstrations of"):
        resolve("walk:demos", task, "Nowhere")
    with pytest.raises(UserError, match="has no expert"):
        resolve("bot", type(task)("x", task.make, task.spec, task.observe, 5))
    with pytest.raises(ValueError, match="expected at least 0 each"):
        Walk([-1, 2])
    assert Walk([0, 1]).plan(None, None, Rng.of(0, torch.arange(2)), torch.arange(2))[0].actions.tolist() == [[1], [1]]
