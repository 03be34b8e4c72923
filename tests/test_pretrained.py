"""The planners that come with the package: small, with a card, and as good as it says on unseen validation seeds."""

import dataclasses
import math

import pytest

import genplan
from genplan import planners
from genplan.checkpoint import pretrained, read_card
from genplan.config import override
from genplan.rollout import play


def counts(results):
    successes = round(results["metrics"]["success"]["value"] * results["num_episodes"])
    return successes, results["num_episodes"] - successes


def predictive(successes, number, before, failures_before):
    """The probability of `successes` in `number` episodes after those of a card (beta-binomial, flat prior)."""

    def log_beta(a, b):
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    a, b = before + 1, failures_before + 1
    ways = math.log(math.comb(number, successes))
    return math.exp(ways + log_beta(successes + a, number - successes + b) - log_beta(a, b))


@pytest.mark.parametrize("name", sorted(pretrained()))
def test_it_keeps_what_its_card_promises(name):
    folder = pretrained()[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_500_000
    card = read_card(folder)
    assert {"method", "task", "dataset", "steps", "cpu_seconds", "commit", "results"} <= set(card)
    assert card["results"]["num_episodes"] == 250
    policy = genplan.load(f"pretrained:{name}")
    successes = sum(one.success for one in play(policy.planner, policy.task, range(2500, 2520)))
    # So few successes would be seen once in a thousand times after what the card says, itself a sample of 250.
    assert sum(predictive(k, 20, *counts(card["results"])) for k in range(successes + 1)) > 0.001


def test_the_same_planner_without_what_it_learnt_is_lost():
    """The control: the network untrained, everything else the same."""
    policy = genplan.load("pretrained:MazeS4G1")
    config = override(policy.planner.config, iterations=3)  # chance does not need ten
    untrained = planners.build(policy.config["method"], policy.task.spec, config).eval()
    short, seeds = dataclasses.replace(policy.task, max_steps=60), range(2500, 2530)
    trained_successes = sum(one.success for one in play(policy.planner, short, seeds, action_steps=3))
    untrained_successes = sum(one.success for one in play(untrained, short, seeds, action_steps=3))
    assert trained_successes >= 27
    assert untrained_successes <= 15
