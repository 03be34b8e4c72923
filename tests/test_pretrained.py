"""The planners that come with the package: small, with a card, and as good as it says on unseen validation seeds."""

import dataclasses
import json
import math

import pytest

import genplan
from genplan.evaluate import rollout
from genplan.export import shipped
from genplan.planners.genplan import GenPlan


def counts(results):
    good = round(results["success"] * results["episodes"])
    return good, results["episodes"] - good


def predictive(won, number, good, bad):
    """The chance of `won` successes in `number` episodes after `good` and `bad` ones (beta-binomial, flat prior)."""

    def log_beta(a, b):
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    ways = math.log(math.comb(number, won))
    return math.exp(ways + log_beta(won + good + 1, number - won + bad + 1) - log_beta(good + 1, bad + 1))


@pytest.mark.parametrize("name", sorted(shipped()))
def test_it_keeps_what_its_card_promises(name):
    folder = shipped()[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_500_000
    card = json.loads((folder / "card.json").read_text())
    assert {"method", "task", "dataset", "steps", "cpu_seconds", "commit", "results"} <= set(card)
    assert card["results"]["episodes"] == 250
    pilot = genplan.load(f"pretrained:{name}")
    seeds = range(2500, 2520)
    results = rollout(pilot.planner, pilot.task, seeds, execute=pilot.planner.config.execute)
    won, (good, bad) = sum(result.success for result in results), counts(card["results"])
    # So few successes would be seen once in a thousand times after what the card tells, itself a sample of 250.
    chances = [predictive(k, 20, good, bad) for k in range(won + 1)]
    assert sum(chances) > 0.001


def test_the_same_planner_without_what_it_learnt_is_lost():
    """The control: the network untrained, everything else the same."""
    pilot = genplan.load("pretrained:MazeS4G1")
    config = dataclasses.replace(pilot.planner.config, iterations=3)  # chance does not need ten
    untrained = GenPlan(pilot.task.spec, config).eval()
    short = dataclasses.replace(pilot.task, max_steps=60)
    seeds = range(2500, 2530)
    trained = sum(result.success for result in rollout(pilot.planner, short, seeds, execute=3))
    blind = sum(result.success for result in rollout(untrained, short, seeds, execute=3))
    assert trained >= 27
    assert blind <= 15
