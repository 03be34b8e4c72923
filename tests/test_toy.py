"""Learning, shown on something tiny: the real loss, the real sampler, a known answer."""

import pytest
import torch

from genplan import toy
from genplan.flow import Rng, Source


def test_the_law_is_a_law_and_demonstrations_follow_it():
    actions, chances = toy.plans()
    assert len(actions) == 27
    assert torch.allclose(chances.sum(), torch.tensor(1.0))
    n = 20_000
    demos = toy.demonstrations(n, Rng.of(0, batch=(n,)))
    assert torch.equal(toy.walk(demos["states"][:, 0], demos["actions"]), demos["states"])
    code = (demos["actions"] * torch.tensor([9, 3, 1])).sum(-1)
    counts = torch.bincount(code, minlength=27)
    assert ((counts - chances * n) ** 2 / (chances * n)).sum() < 61.7  # 26 degrees of freedom: odds 1e-4


@pytest.mark.parametrize("source", Source)
def test_it_is_learnt(source):
    """The verdict allows a distance of 0.07 beyond that of 4,000 true draws.

    Sampling noise exceeds its mean by 0.03 with odds exp(−2 · 4,000 · 0.03²) < 8e-4; seeds are fixed.
    """
    ticks = []
    verdict = toy.run(source, tick=lambda: ticks.append(1))
    assert verdict.passed, verdict
    assert len(ticks) == toy.STEPS


def test_an_untrained_network_is_not_taken_for_a_trained_one():
    torch.manual_seed(0)
    for source in Source:
        assert not toy.judge(source, toy.Network(), seconds=0).passed
