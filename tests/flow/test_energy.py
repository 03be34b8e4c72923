"""Losses, entropy, its bound, and energies."""

import math

import pytest
import torch
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st
from torch import nn

from genplan.flow import EntropyBound, ProbPath, Rng, Source, denoising_loss, entropy, plan_energy, sample
from tests.flow.test_path import clean, problems


@hypothesis_given(problems(), st.sampled_from(Source), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_perfect_prediction_costs_nothing_and_uniform_costs_log_size(problem, source, t):
    sizes, shapes, batch, seed = problem
    rng = Rng.of(seed, batch=batch) if batch else Rng.of(seed)
    path = ProbPath(sizes, source)
    x_1 = clean(sizes, shapes, rng)
    x_t = path.corrupt(x_1, t, rng)
    perfect = {name: nn.functional.one_hot(x, sizes[name]) * 1e4 for name, x in x_1.items()}
    result = denoising_loss(path, {name: p.float() for name, p in perfect.items()}, x_1, x_t)
    assert result.total == 0
    uniform = {name: torch.zeros(*x.shape, sizes[name]) for name, x in x_1.items()}
    result = denoising_loss(path, uniform, x_1, x_t)
    for name, loss in result.losses.items():
        counts = source is Source.UNIFORM or bool((x_t[name] != x_1[name]).any())
        expected = math.log(sizes[name]) if counts else 0.0
        assert math.isclose(loss.item(), expected, rel_tol=1e-5)
    assert math.isclose(result.total.item(), sum(loss.item() for loss in result.losses.values()), rel_tol=1e-5)


@pytest.mark.parametrize("source", Source)
def test_padding_and_batch_size_change_nothing(source):
    path = ProbPath({"a": 5}, source)
    rng = Rng.of(0, batch=(8,))
    x_1 = clean(path.sizes, {"a": (6,)}, rng)
    x_t = path.corrupt(x_1, 0.5, rng)
    logits = torch.randn(8, 6, 5, generator=torch.Generator().manual_seed(0))
    alone = denoising_loss(path, {"a": logits}, x_1, x_t)
    pad = lambda x, value: torch.cat([x, torch.full_like(x, value)], 1)  # noqa: E731
    padded_logits = pad(logits, 7.0).requires_grad_()
    valid = {"a": pad(torch.ones(8, 6, dtype=torch.bool), False)}
    padded = denoising_loss(path, {"a": padded_logits}, {"a": pad(x_1["a"], 3)}, {"a": pad(x_t["a"], 1)}, valid)
    assert torch.allclose(alone.total, padded.total)
    assert torch.equal(alone.accuracies["a"], padded.accuracies["a"])
    padded.total.backward()
    assert (padded_logits.grad[:, 6:] == 0).all()
    assert (padded_logits.grad[:, :6] != 0).any()
    twice = denoising_loss(
        path, {"a": torch.cat([logits] * 2)}, {"a": torch.cat([x_1["a"]] * 2)}, {"a": torch.cat([x_t["a"]] * 2)}
    )
    assert torch.allclose(alone.total, twice.total)


def test_what_counts_depends_on_the_source():
    x_1 = {"a": torch.tensor([[0, 1, 2, 1]])}
    given = {"a": torch.tensor([[True, False, False, False]])}
    logits = {"a": torch.zeros(1, 4, 3, requires_grad=True)}

    def counted(loss):
        """Positions that have a gradient."""
        (gradient,) = torch.autograd.grad(loss.total, logits["a"])
        return (gradient != 0).any(-1).tolist()

    mask = denoising_loss(ProbPath({"a": 3}), logits, x_1, {"a": torch.tensor([[0, 3, 2, 3]])}, given=given)
    assert counted(mask) == [[False, True, False, True]]  # the masked ones
    uniform = denoising_loss(
        ProbPath({"a": 3}, "uniform"), logits, x_1, {"a": torch.tensor([[0, 2, 2, 1]])}, given=given
    )
    assert counted(uniform) == [[False, True, True, True]]  # all that are not given, also those already correct
    assert uniform.accuracies["a"] == 0  # of the one that is corrupted, argmax 0 is wrong
    with pytest.raises(ValueError, match=r"x_t\['a'\] has shape \(1, 3\), expected \(1, 4\)"):
        denoising_loss(ProbPath({"a": 3}), logits, x_1, {"a": torch.zeros(1, 3, dtype=torch.int64)})


def test_weights_of_positions():
    path, x_1, x_t = ProbPath({"a": 3, "b": 2}), {}, {}
    for name, size in path.sizes.items():
        x_1[name], x_t[name] = torch.zeros(2, 3, dtype=torch.int64), torch.full((2, 3), size)
    logits = {
        name: torch.randn(2, 3, size, generator=torch.Generator().manual_seed(size))
        for name, size in path.sizes.items()
    }
    unweighted = denoising_loss(path, logits, x_1, x_t)
    weighted = denoising_loss(path, logits, x_1, x_t, weights={"a": torch.tensor([4.0, 1.0, 0.0])})
    nll = -logits["a"].log_softmax(-1)[..., 0]
    assert torch.allclose(weighted.losses["a"], (4 * nll[:, 0] + nll[:, 1]).sum() / 10)
    assert torch.equal(weighted.losses["b"], unweighted.losses["b"])
    same = denoising_loss(path, logits, x_1, x_t, weights={"a": torch.full((3,), 0.5)})
    assert torch.allclose(same.total, unweighted.total)
    x_t["a"] = x_1["a"]  # nothing is left to learn
    assert denoising_loss(path, logits, x_1, x_t, weights={"a": torch.ones(3)}).losses["a"] == 0


def test_low_precision_logits_are_widened():
    x_1 = {"a": torch.tensor([[0, 1, 2, 1]])}
    x_t = {"a": torch.full((1, 4), 400)}
    loss = denoising_loss(ProbPath({"a": 400}), {"a": torch.zeros(1, 4, 400).bfloat16()}, x_1, x_t).total
    assert math.isclose(loss, math.log(400), rel_tol=1e-6)


def test_entropy():
    logits = torch.zeros(2, 3, 4)
    logits[:, 1:] = torch.tensor([100.0, 0, 0, -torch.inf])
    assert torch.allclose(entropy(logits), torch.tensor(math.log(4) / 3))
    valid = torch.tensor([[True, False, False], [True, False, False]])
    assert torch.allclose(entropy(logits, valid), torch.tensor(math.log(4)))
    assert entropy(logits, valid & False) == 0


def test_the_bound_moves_the_right_way_and_is_saved():
    bound = EntropyBound(0.5, learning_rate=0.1)
    bound.update(torch.tensor(0.1))
    assert bound.multiplier > 0  # too little entropy: push for more
    assert bound.penalty(torch.tensor(2.0)) < bound.penalty(torch.tensor(1.0))
    before = bound.multiplier.clone()
    bound.update(torch.tensor(0.3))
    assert bound.multiplier > before
    for _ in range(100):
        bound.update(torch.tensor(1.0))
    assert bound.multiplier == 0  # never negative
    bound.update(torch.tensor(0.0))
    other = EntropyBound(0.5)
    other.load_state_dict(bound.state_dict())
    assert torch.equal(other.multiplier, bound.multiplier)
    with pytest.raises(ValueError, match="bound is -1, expected at least 0"):
        EntropyBound(-1)
    with pytest.raises(ValueError, match="learning rate is 0, expected more than 0"):
        EntropyBound(1, 0)


def test_the_bound_is_reached():
    """All data is token 0: without a bound the entropy goes to zero; with one it converges to beta (to 0.05 nats)."""
    for beta in (0.0, 0.7):
        logits = nn.Parameter(torch.zeros(6))
        bound = EntropyBound(beta, learning_rate=0.02)
        optimizer = torch.optim.SGD([logits], lr=0.5)
        for _ in range(2000):
            nats = entropy(logits)
            loss = nn.functional.cross_entropy(logits[None], torch.tensor([0])) + bound.penalty(nats)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bound.update(nats)
        assert abs(entropy(logits).item() - beta) < 0.05


def test_plan_energy_without_an_event_axis():
    logits = {"a": torch.zeros(5, 3)}
    assert torch.allclose(
        plan_energy(logits, {"a": torch.zeros(5).long()}, ["a"], batch_ndim=1), torch.tensor(math.log(3))
    )


@pytest.mark.parametrize("everywhere", [True, False])
def test_the_uniform_source_must_learn_at_every_position(everywhere):
    """A tabular network, trained on single tokens; with the loss on corrupted positions alone, it never keeps a token.

    10,000 samples: the distance of an empirical distribution over 4 tokens exceeds its mean (0.008) by 0.02 with odds
    exp(−2 · 10,000 · 0.02²) < 4e-4.
    """
    path = ProbPath({"a": 4}, Source.UNIFORM)
    data = torch.tensor([0.85, 0.05, 0.05, 0.05])
    bins = 20  # of time; the sampler's 20 calls are at their left edges
    table = nn.Parameter(torch.zeros(bins, 4, 4))
    optimizer = torch.optim.Adam([table], lr=0.05)

    def network(x_t, t):
        return {"a": table[(t * bins).long().clamp(max=bins - 1)[:, None], x_t["a"]]}

    for step in range(600):
        rng = Rng.of(0, step, batch=(4096,))
        x_1 = {"a": rng.fold("data").categorical(data.expand(4096, 1, 4))}
        t = (rng.fold("t").integers(bins) + 0.0) / bins
        x_t = path.corrupt(x_1, t, rng)
        valid = None if everywhere else {"a": x_t["a"] != x_1["a"]}
        loss = denoising_loss(path, network(x_t, t), x_1, x_t, valid).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        rng = Rng.of(1, batch=(10_000,))
        tokens = sample(path, network, path.noise({"a": (1,)}, rng), rng, steps=bins).tokens["a"].flatten()
    distance = (torch.bincount(tokens, minlength=4) / 10_000 - data).abs().sum().item() / 2
    assert (distance < 0.03) if everywhere else (distance > 0.3), distance


def test_a_bound_that_is_found_is_the_lowest_that_held_out_demonstrations_cost():
    bound = EntropyBound(None)
    assert bound.is_found
    assert bound.is_on
    for nll, expected in ((2.0, 1.8), (1.0, 0.9), (3.0, 0.9)):
        bound.observe(nll)
        assert bound.beta.item() == pytest.approx(expected)
    assert "beta" in bound.state_dict()  # it must be there when a training is resumed
    fixed = EntropyBound(0.3)
    fixed.observe(0.1)
    assert fixed.beta.item() == pytest.approx(0.3)
    assert "beta" not in fixed.state_dict()
