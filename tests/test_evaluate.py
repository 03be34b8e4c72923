"""A planner beside the expert and a random policy, as numbers and as JSON."""

import dataclasses
import json

import pytest

from genplan import tasks
from genplan.envs.wrappers import SlipperyActions
from genplan.evaluate import evaluate, play_timed, to_record
from genplan.tasks.files import task_from_gym
from genplan.types import TEST_SEEDS
from tests.test_rollout import Drawing


@pytest.fixture(scope="module")
def found():
    task, ended = tasks.get("LocS10N10G2"), []
    result = evaluate(
        Drawing(1), task, TEST_SEEDS[:20], baseline=Drawing(3), action_steps=1, on_progress=ended.append,
        wrapper=lambda env: SlipperyActions(env, 0.2),
    )  # fmt: skip
    assert sum(ended) == 60
    return result


def test_references_stand_beside(found):
    assert list(found.planner.metrics) == list(found.task.metrics)
    assert found.expert.value("success") == found.expert.value("spl") == 1.0  # the expert plays without slips
    assert found.expert.value("stalling") == 0.0
    assert 0 < found.expert.value("spl_shortest") < 1
    assert 0 < found.planner.value("spl") < found.planner.value("success") < 1
    assert found.planner.value("spl") >= found.planner.value("spl_shortest")
    assert all(set(one.references) == {"expert", "shortest"} for one in found.rollouts)
    assert all(one.references["shortest"] <= one.references["expert"] for one in found.rollouts)
    assert found.planner.num_plans == sum(one.num_steps for one in found.rollouts)
    assert found.random.num_plans < found.random.value("steps") * 20
    assert 0 < found.planner.planner_seconds < found.planner.seconds


def test_records_are_json(found):
    config = {"method": "GenPlan-M", "planner": {"preset": "default", "action_steps": 1}}
    record = json.loads(json.dumps(to_record("mine", found.task, TEST_SEEDS[:20], config, found, commit="abc")))
    assert (record["task"], record["planner"], record["method"]) == ("LocS10N10G2", "mine", "GenPlan-M")
    assert (record["first_seed"], record["num_episodes"], record["action_steps"]) == (1234, 20, 1)
    success = record["metrics"]["success"]
    assert success["low"] <= success["value"] <= success["high"]
    assert set(record["baselines"]) == {"random", "expert"}
    episodes = record["episodes"]
    assert episodes["seeds"] == list(TEST_SEEDS[:20])
    assert sum(episodes["metrics"]["success"]) / 20 == success["value"]
    stalled, steps = sum(episodes["metrics"]["stalling"]), sum(episodes["weights"]["stalling"])
    assert stalled / steps == record["metrics"]["stalling"]["value"]
    assert len(episodes["references"]["expert"]) == 20


def test_tasks_without_an_expert_or_success():
    task = task_from_gym("CartPole-v1")
    result = evaluate(Drawing(2, size=2), task, range(5), baseline=None)
    assert list(result.planner.metrics) == ["return", "steps"]
    assert result.planner.value("return") == result.planner.value("steps")
    assert (result.random, result.expert) == (None, None)
    json.dumps(to_record("mine", task, range(5), {}, result))
    grid = dataclasses.replace(tasks.get("LocS10N1"), expert=None, references={})
    result = evaluate(Drawing(), grid, TEST_SEEDS[:2], baseline=None)
    assert result.planner.metrics["spl"] is None
    assert result.planner.value("spl_shortest") is None


def test_time_in_a_planner_that_fails():
    class Failing(Drawing):
        def plan(self, *arguments):
            raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        play_timed(Failing(), tasks.get("LocS10N1"), [2000])
