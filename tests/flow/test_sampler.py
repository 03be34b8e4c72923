"""The sampler: its distribution, its orders, and what it reports."""

import pytest
import torch
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from genplan.flow import Order, ProbPath, Rng, Source, plan_energy, sample
from tests.flow.exact import LENGTH, joint, posterior, sampled_probs
from tests.flow.test_path import problems


def exact_network(path, data):
    """A network that knows the exact posterior of one stream "a" of LENGTH tokens."""

    def logits(x_t, t):
        probs = posterior(path, "a", data, x_t["a"], t.flatten()[0].double())
        return {"a": probs.log()}

    return logits


def hashed_network(path, seed=0):
    """Logits that depend on the row's own tokens and time, and on nothing else."""
    generator = torch.Generator().manual_seed(seed)
    tables = {name: torch.randn(path.num_states(name), size, generator=generator) for name, size in path.sizes.items()}

    def logits(x_t, t):
        out = {}
        for name, x in x_t.items():
            own = tables[name][x]
            out[name] = own + t.reshape(*t.shape, *(1 for _ in own.shape[t.ndim :])) * own.sin()
        return out

    return logits


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_samples_follow_the_propagated_distribution(source, eta):
    """Chi-square of 20,000 samples against the exactly propagated one; 26 degrees of freedom, odds 1e-4 at 61.7."""
    path = ProbPath({"a": 3}, source)
    data = joint(3)
    n, steps = 20_000, 6
    rng = Rng.of(17, batch=(n,))
    x_0 = path.noise({"a": (LENGTH,)}, rng)
    tokens = sample(path, exact_network(path, data), x_0, rng, steps=steps, eta=eta).tokens["a"]
    code = (tokens * torch.tensor([9, 3, 1])).sum(-1)
    expected = sampled_probs(path, "a", data, steps, eta).reshape(-1) * n
    counts = torch.bincount(code, minlength=27)
    assert ((counts - expected) ** 2 / expected).sum() < 61.7


@pytest.mark.parametrize("order", [Order.CONFIDENCE, Order.MARGIN, Order.NEAR_TO_FAR])
def test_one_token_at_a_time_is_exact_in_a_fixed_order(order):
    """With the mask source and as many steps as tokens, near-to-far is ancestral sampling: no error but sampling noise.

    The orders that look at probabilities are exact too: whatever position comes next, its token is drawn
    from its posterior. Chi-square, 26 degrees of freedom: odds 1e-4.
    """
    path = ProbPath({"a": 3})
    data = joint(3)
    n = 20_000
    rng = Rng.of(5, batch=(n,))
    x_0 = path.noise({"a": (LENGTH,)}, rng)
    result = sample(path, exact_network(path, data), x_0, rng, steps=LENGTH, order=order, keep_trace=True)
    code = (result.tokens["a"] * torch.tensor([9, 3, 1])).sum(-1)
    expected = data.reshape(-1) * n
    counts = torch.bincount(code, minlength=27)
    assert ((counts - expected) ** 2 / expected).sum() < 61.7
    # The sum over its tokens is then the plan's exact negative log-likelihood.
    nll = -data.reshape(-1)[code].log()
    assert torch.allclose(-result.log_probs["a"].double().sum(-1), nll, atol=1e-4)
    # The paper's energy is the sum over tokens given nothing.
    alone = sum(-data.sum([d for d in range(3) if d != k]).log()[result.tokens["a"][:, k]] for k in range(3))
    assert torch.allclose(result.energy.double(), alone, atol=1e-4)
    masked = (result.trace.tokens["a"] == 3).sum(-1)
    assert torch.equal(masked, torch.tensor([3, 2, 1, 0])[:, None].expand(4, n))
    assert (result.trace.energy[0] >= result.trace.energy[-1] - 1e-4).double().mean() > 0.9


def test_orders_select_as_documented():
    path = ProbPath({"a": 4})
    # Position 0 is a coin between two tokens (p = 0.5), position 1 is certain, position 2 has p = 0.4 but a margin.
    table = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.97, 0.01, 0.01, 0.01], [0.4, 0.2, 0.2, 0.2]]).log().clamp(min=-50)
    rng = Rng.of(0, batch=(1,))
    x_0 = path.noise({"a": (3,)}, rng)

    def commit_order(order):
        trace = sample(path, lambda x, t: {"a": table[None]}, x_0, rng, steps=3, order=order, keep_trace=True).trace
        committed = (trace.tokens["a"][:, 0] != 4).int()
        return committed.diff(dim=0).argmax(-1).tolist()

    assert commit_order(Order.CONFIDENCE) == [1, 0, 2]
    assert commit_order(Order.MARGIN) == [1, 2, 0]
    assert commit_order(Order.NEAR_TO_FAR) == [0, 1, 2]


def test_near_to_far_goes_along_the_first_axis_and_first_streams_go_first():
    path = ProbPath({"goals": 9, "actions": 5})
    rng = Rng.of(0, batch=(2,))
    shapes = {"goals": (4, 2), "actions": (4,)}
    x_0 = path.noise(shapes, rng)
    network = hashed_network(path)
    trace = sample(path, network, x_0, rng, steps=4, order="near-to-far", keep_trace=True).trace
    for k in range(5):
        assert (trace.tokens["goals"][k][:, :k] != 9).all()
        assert (trace.tokens["goals"][k][:, k:] == 9).all()
    trace = sample(
        path, network, x_0, rng, steps=4, order="near-to-far", first_streams=["goals"], keep_trace=True
    ).trace
    assert (trace.tokens["goals"][1] != 9).all()
    assert (trace.tokens["actions"][1][:, 1:] == 5).all()


@hypothesis_given(
    problems(), st.sampled_from(Source), st.sampled_from(sorted(set(Order) - {Order.CHAIN})), st.integers(1, 5)
)
@settings(max_examples=80, deadline=None)
def test_any_problem_is_finished_and_a_batch_equals_its_rows(problem, source, order, steps):
    sizes, shapes, batch, seed = problem
    shapes = {name: (2, *shape) for name, shape in shapes.items()}
    rng = Rng.of(seed, batch=batch) if batch else Rng.of(seed)
    path = ProbPath(sizes, source)
    network = hashed_network(path, seed % 1000)
    given = {name: rng.fold("given", name).uniform(shapes[name]) < 0.3 for name in sizes}
    known = {name: rng.fold("known", name).integers(sizes[name], shapes[name]) for name in sizes}
    noise = path.noise(shapes, rng)
    x_0 = {name: torch.where(given[name], known[name], noise[name]) for name in sizes}
    options = {"steps": steps, "order": order, "eta": 0.4, "temperature": 0.8, "top_p": 0.9, "keep_trace": True}
    result = sample(path, network, x_0, rng, given=given, **options)
    assert result.num_calls == steps
    for name, x in result.tokens.items():
        assert x.shape == (*batch, *shapes[name])
        assert x.min() >= 0
        assert x.max() < sizes[name]  # MASK is gone
        assert torch.equal(x[given[name]], known[name][given[name]])
        assert (result.log_probs[name] <= 1e-6).all()
        assert (result.log_probs[name][given[name]] == 0).all()
        assert result.trace.tokens[name].shape == (steps + 1, *batch, *shapes[name])
        assert result.trace.confidence[name].max() <= 1 + 1e-6
    assert result.energy.shape == batch
    assert torch.isfinite(result.energy).all()
    if len(batch) == 1:
        for row in range(batch[0]):
            alone = sample(
                path,
                network,
                {name: x[row] for name, x in x_0.items()},
                rng[row],
                given={name: g[row] for name, g in given.items()},
                **options,
            )
            for name in sizes:
                assert torch.equal(alone.tokens[name], result.tokens[name][row])
            assert torch.allclose(alone.energy, result.energy[row], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("source", Source)
def test_any_precision(dtype, source):
    path = ProbPath({"a": 6, "b": 40}, source)
    rng = Rng.of(0, batch=(50,))
    x_0 = path.noise({"a": (10,), "b": (10,)}, rng)
    network = hashed_network(path)
    cast = lambda x, t: {name: a.to(dtype) for name, a in network(x, t).items()}  # noqa: E731
    result = sample(path, cast, x_0, rng, steps=5)
    assert result.tokens["b"].max() < 40
    assert result.energy.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_temperature_and_top_p():
    path = ProbPath({"a": 5, "b": 5})
    logits = torch.tensor([2.0, 1.9, 0.0, -1.0, -9.0])
    n = 4000
    rng = Rng.of(0, batch=(n,))
    x_0 = path.noise({"a": (1,), "b": (1,)}, rng)
    network = lambda x, t: {name: logits.expand(n, 1, 5) for name in "ab"}  # noqa: E731
    cold = sample(path, network, x_0, rng, steps=1, temperature={"a": 0.0}).tokens
    frozen = sample(path, network, x_0, rng, steps=1, temperature=1e-300).tokens  # not to be divided by
    assert torch.equal(frozen["a"], cold["a"])
    assert (cold["a"] == 0).all()
    assert set(cold["b"].unique().tolist()) >= {0, 1, 2}
    nucleus = sample(path, network, x_0, rng, steps=1, top_p={"b": 0.8}).tokens
    assert set(nucleus["b"].unique().tolist()) == {0, 1}
    assert (sample(path, network, x_0, rng, steps=1, top_p=1e-6).tokens["a"] == 0).all()
    for temperature in (0.5, 2.0):
        drawn = sample(path, network, x_0, rng, steps=1, temperature=temperature).tokens["a"].flatten()
        expected = (logits / temperature).softmax(-1) * n
        counts = torch.bincount(drawn, minlength=5)
        # Cells of fewer than five expected draws are left out; at most 4 degrees of freedom: odds 1e-4 at 23.5.
        enough = expected >= 5
        assert ((counts - expected)[enough] ** 2 / expected[enough]).sum() < 23.5


def test_a_later_grid_refines_a_partial_plan():
    """Committed tokens stay (eta = 0); the energy is still read at pure noise, with one more call."""
    path = ProbPath({"a": 6})
    rng = Rng.of(0, batch=(20,))
    network = hashed_network(path)
    whole = sample(path, network, path.noise({"a": (8,)}, rng), rng, steps=4, temperature=0)
    half = path.corrupt(whole.tokens, 0.5, rng)
    again = sample(path, network, half, rng, steps=[0.5, 0.75, 1.0])
    kept = half["a"] != 6
    assert torch.equal(again.tokens["a"][kept], whole.tokens["a"][kept])
    assert again.num_calls == 3
    same = sample(path, network, half, rng, steps=[0.5, 1.0], order="confidence", temperature=0)
    assert torch.allclose(same.energy[kept.all(-1)], whole.energy[kept.all(-1)])


def test_energy_counts_named_streams_and_valid_positions_only():
    path = ProbPath({"a": 4, "b": 3})
    rng = Rng.of(0, batch=(2,))
    x_0 = path.noise({"a": (3,), "b": (3,)}, rng)
    valid = {"a": torch.tensor([[True, True, False], [True, False, False]])}
    uniform = lambda x, t: {"a": torch.zeros(2, 3, 4), "b": torch.zeros(2, 3, 3)}  # noqa: E731
    result = sample(path, uniform, x_0, rng, steps=2, valid=valid, energy_streams=["a"], keep_trace=True)
    log_4 = torch.tensor(4.0).log()
    assert torch.allclose(result.energy, torch.tensor([2.0, 1.0]) * log_4)
    assert torch.allclose(result.trace.energy[0], torch.tensor([2.0, 1.0]) * log_4)


@pytest.mark.parametrize("steps", [3, [0.5, 1.0]])
@pytest.mark.parametrize("source", Source)
def test_any_plan_can_be_scored_at_noise(source, steps):
    path = ProbPath({"a": 4, "b": 3}, source)
    rng = Rng.of(0, batch=(5,))
    x_0 = path.noise({"a": (3,), "b": (3,)}, rng)
    result = sample(path, hashed_network(path), x_0, rng, steps=steps, energy_streams=["a"])
    assert torch.equal(plan_energy(result.log_p_noise, result.tokens, ["a"], batch_ndim=1), result.energy)
    assert torch.allclose(result.log_p_noise["b"].exp().sum(-1), torch.ones(5, 3))
    other = {"a": (result.tokens["a"] + 1) % 4}
    expected = -result.log_p_noise["a"].gather(-1, other["a"][..., None]).sum((-1, -2))
    assert torch.allclose(plan_energy(result.log_p_noise, other, ["a"], batch_ndim=1), expected)


@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_finished_streams_stay_as_they_are(eta):
    """A stream that was committed as a whole stays, unless eta sends tokens back to noise; a trace changes nothing."""
    path = ProbPath({"goals": 9, "actions": 5})
    rng = Rng.of(0, batch=(20,))
    x_0 = path.noise({"goals": (4, 2), "actions": (4,)}, rng)
    options = {"steps": 6, "order": "confidence", "first_streams": ["goals"], "eta": eta}
    traced = sample(path, hashed_network(path), x_0, rng, keep_trace=True, **options)
    goals = traced.trace.tokens["goals"]
    assert torch.equal(goals[1], goals[-1]) is (eta == 0)
    plain = sample(path, hashed_network(path), x_0, rng, **options)
    for name in path.sizes:
        assert torch.equal(plain.tokens[name], traced.tokens[name])
        assert torch.equal(plain.log_probs[name], traced.log_probs[name])


PINNED = {
    ("mask", "random"): [[46, 39, 20, 0, 4, 5], [40, 13, 46, 4, 4, 4]],
    ("mask", "confidence"): [[26, 0, 39, 0, 5, 4], [39, 33, 0, 5, 4, 5]],
    ("mask", "margin"): [[26, 0, 39, 0, 5, 4], [39, 33, 0, 5, 4, 5]],
    ("mask", "near-to-far"): [[13, 46, 13, 4, 4, 4], [1, 7, 46, 4, 4, 4]],
    ("uniform", "random"): [[31, 24, 23, 1, 5, 0], [40, 14, 44, 5, 1, 1]],
    ("uniform", "confidence"): [[23, 3, 33, 1, 2, 5], [39, 26, 2, 4, 2, 3]],
    ("uniform", "margin"): [[23, 49, 13, 1, 2, 5], [48, 26, 48, 4, 2, 3]],
    ("uniform", "near-to-far"): [[9, 49, 13, 1, 1, 5], [1, 6, 48, 2, 2, 1]],
}


@pytest.mark.parametrize(("source", "order"), PINNED)
def test_the_samples_are_pinned(source, order):
    """The same key gives the same plan in every later version: its draws depend on the labels of `rng.fold`."""
    path = ProbPath({"states": 50, "actions": 6}, source)
    rng = Rng.of(3, batch=(2,))
    x_0 = path.noise({"states": (3,), "actions": (3,)}, rng)
    table = torch.arange(51 * 50).reshape(51, 50) * 7919 % 1009 / 200.0
    scale = torch.tensor([[0.5], [2.0], [1.0]])  # of each position, so that the orders differ

    def network(x_t, t):
        return {name: table[x_t[name], :size] * scale for name, size in path.sizes.items()}

    tokens = sample(path, network, x_0, rng, steps=4, order=order, eta=1.0, temperature=0.7, top_p=0.95).tokens
    assert torch.cat([tokens["states"], tokens["actions"]], -1).tolist() == PINNED[source, order]


def test_errors_quote_both_numbers():
    path = ProbPath({"a": 4})
    rng = Rng.of(0, batch=(2,))
    x_0 = path.noise({"a": (3,)}, rng)
    good = hashed_network(path)

    def expect(error, match, network=good, x_0=x_0, **options):
        with pytest.raises(error, match=match):
            sample(path, network, x_0, rng, **options)

    expect(ValueError, "steps is 0, expected at least 1", steps=0)
    expect(ValueError, r"grid is \[0\.0, 0\.5\]", steps=[0.0, 0.5])
    expect(ValueError, r"grid is \[0\.5, 0\.2, 1\.0\]", steps=[0.5, 0.2, 1.0])
    expect(ValueError, r"grid is \[1\.0\]", steps=[1.0])
    expect(ValueError, "temperature of 'a' is -1", temperature=-1)
    expect(ValueError, "top_p of 'a' is 0, expected more than 0", top_p=0)
    expect(ValueError, r"top_p of 'a' is 1\.5", top_p={"a": 1.5})
    expect(ValueError, "eta is -1, expected at least 0", eta=-1)
    expect(ValueError, "'sideways' is not a valid Order", order="sideways")
    expect(ValueError, r"first_streams names \['z'\], expected some of \['a'\]", first_streams=["z"], order="margin")
    expect(ValueError, "needs an order, found 'random'", first_streams=["a"])
    expect(ValueError, "at least 1 stream, found 0", energy_streams=[])
    expect(ValueError, r"is MASK \(4\) where given", given={"a": torch.ones(2, 3, dtype=torch.bool)})
    expect(ValueError, "token 5, expected 0 to 4", x_0={"a": x_0["a"] + 1})
    expect(
        ValueError,
        r"logits\['a'\] have shape \(2, 3, 5\), expected \(2, 3, 4\)",
        lambda x, t: {"a": torch.zeros(2, 3, 5)},
    )
    expect(ValueError, r"logits has the streams \['b'\], expected \['a'\]", lambda x, t: {"b": torch.zeros(2, 3, 4)})
    expect(
        TypeError, r"dtype torch\.int64, expected floating", lambda x, t: {"a": torch.zeros(2, 3, 4, dtype=torch.int64)}
    )
    nan = torch.zeros(2, 3, 4)
    nan[1, 2, 0] = torch.nan
    for temperature in (0.0, 0.5, 1.0):
        expect(ValueError, "at 1 of 6 positions, expected 0", lambda x, t: {"a": nan}, temperature=temperature)
