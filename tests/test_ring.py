"""Learning on a tiny problem with a known answer, with the real loss and the real sampler: examples/ring.py."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from genplan.flow import Rng, Source

EXAMPLE = Path(__file__).parents[1] / "examples" / "ring.py"


@pytest.fixture(scope="module")
def ring():
    spec = importlib.util.spec_from_file_location("ring", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ring"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["ring"]


def test_demonstrations_follow_the_known_distribution(ring):
    actions, probs = ring.all_plans()
    assert len(actions) == 27
    assert torch.allclose(probs.sum(), torch.tensor(1.0))
    n = 20_000
    demos = ring.demonstrations(n, Rng.of(0, batch=(n,)))
    assert torch.equal(ring.follow(demos["states"][:, 0], demos["actions"]), demos["states"])
    code = (demos["actions"] * torch.tensor([9, 3, 1])).sum(-1)
    counts = torch.bincount(code, minlength=27)
    assert ((counts - probs * n) ** 2 / (probs * n)).sum() < 61.7  # 26 degrees of freedom: odds 1e-4


@pytest.mark.parametrize("source", Source)
def test_the_distribution_is_learned(ring, source):
    """A distance of 0.07 beyond that of 4,000 true draws is allowed.

    Sampling noise exceeds its mean by 0.03 with odds exp(−2 · 4,000 · 0.03²) < 8e-4; seeds are fixed.
    """
    result = ring.run(source)
    assert result.passed, result


def test_an_untrained_network_does_not_pass(ring):
    torch.manual_seed(0)
    for source in Source:
        assert not ring.evaluate(source, ring.Network(), seconds=0).passed


@pytest.mark.parametrize("distance", [0.03, 0.3])
def test_results_are_printed(ring, monkeypatch, capsys, distance):
    monkeypatch.setattr(ring, "run", lambda source: ring.ToyResult(source, 0.99, distance, 0.02, 1.5))
    assert ring.main() == (0 if distance < 0.1 else 1)
    _, header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "source"
    assert [line.split()[:2] for line in lines] == [["mask", "99.0%"], ["uniform", "99.0%"]]
    assert all(line.endswith(" learned") for line in lines)
    assert all(("not learned" in line) is (distance > 0.1) for line in lines)
