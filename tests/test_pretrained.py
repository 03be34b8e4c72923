"""The planners that come with the package: small, with a card, and as good as it says on unseen validation seeds."""

import dataclasses
import json
import math

import pytest

import genplan
from genplan.evaluate import rollout
from genplan.export import shipped
from genplan.planners.genplan import GenPlan


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
    won, promised = sum(result.success for result in results), card["results"]["success"]
    # So few successes would be seen once in a thousand times, if the card told the truth.
    chances = [math.comb(20, k) * promised**k * (1 - promised) ** (20 - k) for k in range(won + 1)]
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
