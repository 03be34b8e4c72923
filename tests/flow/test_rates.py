"""Rate matrices: the definition, its closed form, Kolmogorov's equation, and the order of convergence."""

from itertools import pairwise

import pytest
import torch

from genplan.flow import ProbPath, Source, expected_rates, step_probabilities, transition
from tests.flow.exact import (
    conditional_rates,
    joint,
    marginal,
    marginal_dot,
    posterior,
    sampled_probs,
    states,
    total_variation,
)

TIMES = torch.tensor([0.05, 0.3, 0.5, 0.77, 0.99], dtype=torch.float64)
ETAS = [0.0, 0.5, 3.0]
SIZE = 5


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("eta", ETAS)
def test_kolmogorov_for_every_target(source, eta):
    """p_t|1 R_t = d p_t|1 / dt, to 1e-10."""
    path = ProbPath({"a": SIZE}, source)
    x_1 = torch.arange(SIZE)[:, None].expand(SIZE, len(TIMES))
    t = TIMES.expand(SIZE, -1)
    rates = conditional_rates(path, "a", x_1, t, eta)
    flow = torch.einsum("...x,...xj->...j", marginal(path, "a", x_1, t), rates)
    assert (flow - marginal_dot(path, "a", x_1, t)).abs().max() < 1e-10
    assert rates.sum(-1).abs().max() < 1e-10
    off_diagonal = rates - torch.diag_embed(torch.diagonal(rates, dim1=-2, dim2=-1))
    assert off_diagonal.min() >= 0


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("eta", ETAS)
def test_closed_form_equals_the_definition(source, eta):
    """E[R(x, j | x_1)] over x_1 ~ p(x_1 | x), to 1e-10: only targets that can have led to x have weight."""
    path = ProbPath({"a": SIZE}, source)
    num_states = path.num_states("a")
    data = torch.rand(SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = data / data.sum()
    for t in TIMES:
        targets = torch.arange(SIZE)
        conditional = conditional_rates(path, "a", targets, t.expand(SIZE), eta)  # [S, x, j]
        likelihood = marginal(path, "a", targets, t.expand(SIZE))  # [S, x]
        weights = likelihood * data[:, None]
        weights = weights / weights.sum(0)  # p(x_1 | x): [S, x]
        by_definition = torch.einsum("sx,sxj->xj", weights, conditional)
        closed = expected_rates(path, "a", weights.T, torch.arange(num_states), t, eta)
        scale = by_definition.abs().max().clamp(min=1)
        assert ((closed - by_definition).abs() / scale).max() < 1e-10
        assert (closed.sum(-1).abs() / scale).max() < 1e-10
        # The same for the marginal flow: p_t R_t = d p_t / dt.
        p = torch.einsum("s,sx->x", data, likelihood)
        p_dot = torch.einsum("s,sx->x", data, marginal_dot(path, "a", targets, t.expand(SIZE)))
        assert (p @ closed - p_dot).abs().max() < 1e-10


def test_at_zero_the_closed_form_is_the_limit():
    """Taken literally, dead states forbid the first jump out of MASK; the closed form keeps its limit."""
    path = ProbPath({"a": SIZE})
    zero = torch.zeros((), dtype=torch.float64)
    literal = conditional_rates(path, "a", torch.tensor(1), zero)
    assert literal.abs().max() == 0
    probs = torch.full((SIZE,), 1 / SIZE, dtype=torch.float64)
    limit = expected_rates(path, "a", probs, torch.tensor(SIZE), zero)
    assert torch.allclose(limit[:SIZE], probs)
    near = torch.tensor(1e-9, dtype=torch.float64)
    mean = torch.stack([conditional_rates(path, "a", torch.tensor(x), near)[SIZE] for x in range(SIZE)]).mean(0)
    assert torch.allclose(mean, limit, atol=1e-8)


@pytest.mark.parametrize("source", Source)
def test_steps_are_distributions_and_the_last_is_exact(source):
    path = ProbPath({"a": SIZE}, source)
    num_states = path.num_states("a")
    x = torch.arange(num_states)
    probs = torch.rand(num_states, SIZE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    probs = probs / probs.sum(-1, keepdim=True)
    for eta in (0.0, 1.0, 100.0):  # 100 asks for more than the simplex has: it is clipped
        for t in (0.0, 0.25, 0.5):
            step = transition(path, "a", probs, x, torch.tensor([t]).double(), torch.tensor([t + 0.25]).double(), eta)
            assert step.min() >= 0
            assert torch.allclose(step.sum(-1), torch.ones(num_states).double())
    last = transition(path, "a", probs, x, torch.tensor([0.9]).double(), torch.ones(1).double(), eta=5.0)
    if source is Source.UNIFORM:
        assert torch.allclose(last, probs)
    else:
        assert torch.allclose(last[SIZE, :SIZE], probs[SIZE])
        assert torch.equal(last[:SIZE], torch.eye(SIZE, SIZE + 1).double())


def test_step_probabilities_clip_to_the_simplex():
    rates = torch.tensor([[-8.0, 6.0, 2.0]])
    step = step_probabilities(rates, torch.tensor([0]), torch.tensor([0.5]))
    assert torch.allclose(step, torch.tensor([[0.0, 0.75, 0.25]]))


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_mask_converges_at_first_order(eta):
    """The distance to the data halves as the steps double (factor 0.45 to 0.6 from 4 to 64; no randomness)."""
    path = ProbPath({"a": 3}, Source.MASK)
    data = joint(3)
    distances = [total_variation(sampled_probs(path, "a", data, steps, eta), data) for steps in (4, 8, 16, 32, 64)]
    factors = [b / a for a, b in pairwise(distances)]
    assert all(0.45 <= factor <= 0.6 for factor in factors), (distances, factors)


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_uniform_converges(eta):
    path = ProbPath({"a": 3}, Source.UNIFORM)
    data = joint(3)
    distances = [total_variation(sampled_probs(path, "a", data, steps, eta), data) for steps in (4, 8, 16, 32, 64)]
    factors = [b / a for a, b in pairwise(distances)]
    assert all(factor <= 0.6 for factor in factors), (distances, factors)


def test_the_posterior_used_above_is_a_posterior():
    path = ProbPath({"a": 3})
    data = joint(3)
    probs = posterior(path, "a", data, states(4), torch.tensor(0.4).double())
    assert torch.allclose(probs.sum(-1), torch.ones(64, 3).double())
    all_masked = probs[-1]
    assert torch.allclose(all_masked[0], data.sum((1, 2)))
    committed = probs[0]  # x_t = (0, 0, 0): every token is known
    assert torch.allclose(committed, torch.eye(3).double()[[0, 0, 0]])
