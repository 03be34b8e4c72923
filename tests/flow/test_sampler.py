"""The one loop: its law, its orders, and what it reports."""

import pytest
import torch
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from genplan.flow import Order, Path, Posterior, Rng, Schedule, Source, sample
from tests.flow.exact import LENGTH, joint, posterior, sampled_law
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
@pytest.mark.parametrize("posterior_kind", Posterior)
@pytest.mark.parametrize("eta", [0.0, 0.5])
def test_samples_follow_the_propagated_law(source, posterior_kind, eta):
    """Chi-square of 20,000 samples against the exactly propagated law; 26 degrees of freedom, odds 1e-4 at 61.7.

    Both ways to use the posterior have the same one-step law, as rates are linear in it, unless a step is clipped.
    """
    path = Path({"a": 3}, source)
    data = joint(3)
    n, steps = 20_000, 6
    rng = Rng.of(17, batch=(n,))
    x_0 = path.noise({"a": (LENGTH,)}, rng)
    tokens = sample(path, exact_network(path, data), x_0, rng, steps=steps, eta=eta, posterior=posterior_kind).tokens[
        "a"
    ]
    code = (tokens * torch.tensor([9, 3, 1])).sum(-1)
    expected = sampled_law(path, "a", data, steps, eta).reshape(-1) * n
    counts = torch.bincount(code, minlength=27)
    assert ((counts - expected) ** 2 / expected).sum() < 61.7


@pytest.mark.parametrize("order", [Order.CONFIDENCE, Order.MARGIN, Order.NEAR_TO_FAR])
def test_one_token_at_a_time_is_exact_in_a_fixed_order(order):
    """With the mask source and as many steps as tokens, near-to-far is ancestral sampling: no error but chance.

    The orders that look at probabilities choose by what they see, and are exact too: whatever position comes next, its
    token is drawn from its posterior. Chi-square, 26 degrees of freedom: odds 1e-4.
    """
    path = Path({"a": 3})
    data = joint(3)
    n = 20_000
    rng = Rng.of(5, batch=(n,))
    x_0 = path.noise({"a": (LENGTH,)}, rng)
    result = sample(path, exact_network(path, data), x_0, rng, steps=LENGTH, order=order, keep_trace=True)
    code = (result.tokens["a"] * torch.tensor([9, 3, 1])).sum(-1)
    expected = data.reshape(-1) * n
    counts = torch.bincount(code, minlength=27)
    assert ((counts - expected) ** 2 / expected).sum() < 61.7
    # The path's energy is then the plan's exact negative log-likelihood, and so is the sum over its tokens.
    nats = -data.reshape(-1)[code].log()
    assert torch.allclose(result.path_energy.double(), nats, atol=1e-4)
    assert torch.allclose(-result.log_probs["a"].double().sum(-1), nats, atol=1e-4)
    # The paper's energy is the sum over tokens given nothing.
    alone = sum(-data.sum([d for d in range(3) if d != k]).log()[result.tokens["a"][:, k]] for k in range(3))
    assert torch.allclose(result.energy.double(), alone, atol=1e-4)
    masked = (result.trace.tokens["a"] == 3).sum(-1)
    assert torch.equal(masked, torch.tensor([3, 2, 1, 0])[:, None].expand(4, n))
    assert (result.trace.energy[0] >= result.trace.energy[-1] - 1e-4).double().mean() > 0.9


def test_orders_choose_as_they_say():
    path = Path({"a": 4})
    # Position 0 is a coin between two tokens (p = 0.5), position 1 is sure, position 2 has p = 0.4 but a wide margin.
    table = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.97, 0.01, 0.01, 0.01], [0.4, 0.2, 0.2, 0.2]]).log().clamp(min=-50)
    rng = Rng.of(0, batch=(1,))
    x_0 = path.noise({"a": (3,)}, rng)

    def as_settled(order):
        trace = sample(path, lambda x, t: {"a": table[None]}, x_0, rng, steps=3, order=order, keep_trace=True).trace
        settled = (trace.tokens["a"][:, 0] != 4).int()
        return settled.diff(dim=0).argmax(-1).tolist()

    assert as_settled(Order.CONFIDENCE) == [1, 0, 2]
    assert as_settled(Order.MARGIN) == [1, 2, 0]
    assert as_settled(Order.NEAR_TO_FAR) == [0, 1, 2]


def test_near_to_far_goes_along_the_first_axis_and_named_streams_go_first():
    path = Path({"goals": 9, "actions": 5})
    rng = Rng.of(0, batch=(2,))
    shapes = {"goals": (4, 2), "actions": (4,)}
    x_0 = path.noise(shapes, rng)
    network = hashed_network(path)
    trace = sample(path, network, x_0, rng, steps=4, order="near-to-far", keep_trace=True).trace
    for k in range(5):
        assert (trace.tokens["goals"][k][:, :k] != 9).all()
        assert (trace.tokens["goals"][k][:, k:] == 9).all()
    trace = sample(path, network, x_0, rng, steps=4, order="near-to-far", first=["goals"], keep_trace=True).trace
    assert (trace.tokens["goals"][1] != 9).all()
    assert (trace.tokens["actions"][1][:, 1:] == 5).all()


@hypothesis_given(
    problems(), st.sampled_from(Source), st.sampled_from(Order), st.sampled_from(Schedule), st.integers(1, 5)
)
@settings(max_examples=80, deadline=None)
def test_any_problem_is_finished_and_a_batch_equals_its_rows(problem, source, order, schedule, steps):
    sizes, shapes, batch, seed = problem
    shapes = {name: (2, *shape) for name, shape in shapes.items()}
    rng = Rng.of(seed, batch=batch) if batch else Rng.of(seed)
    path = Path(sizes, source, schedule)
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
    assert torch.isfinite(result.path_energy).all()
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
    path = Path({"a": 6, "b": 40}, source)
    rng = Rng.of(0, batch=(50,))
    x_0 = path.noise({"a": (10,), "b": (10,)}, rng)
    network = hashed_network(path)
    cast = lambda x, t: {name: a.to(dtype) for name, a in network(x, t).items()}  # noqa: E731
    result = sample(path, cast, x_0, rng, steps=5)
    assert result.tokens["b"].max() < 40
    assert result.energy.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_temperature_and_top_p():
    path = Path({"a": 5, "b": 5})
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


def test_a_later_grid_refines_what_is_there():
    """Tokens already settled stay (eta = 0); the energy still looks at pure noise, with one more call."""
    path = Path({"a": 6})
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
    path = Path({"a": 4, "b": 3})
    rng = Rng.of(0, batch=(2,))
    x_0 = path.noise({"a": (3,), "b": (3,)}, rng)
    valid = {"a": torch.tensor([[True, True, False], [True, False, False]])}
    uniform = lambda x, t: {"a": torch.zeros(2, 3, 4), "b": torch.zeros(2, 3, 3)}  # noqa: E731
    result = sample(path, uniform, x_0, rng, steps=2, valid=valid, energy_of=["a"], keep_trace=True)
    log_4 = torch.tensor(4.0).log()
    assert torch.allclose(result.energy, torch.tensor([2.0, 1.0]) * log_4)
    assert torch.allclose(result.trace.energy[0], torch.tensor([2.0, 1.0]) * log_4)


def test_bad_input_is_told_both_numbers():
    path = Path({"a": 4})
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
    expect(ValueError, r"first names the streams \['z'\], expected some of \['a'\]", first=["z"], order="margin")
    expect(ValueError, "needs an order, found 'random'", first=["a"])
    expect(ValueError, "at least 1 stream, found 0", energy_of=[])
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
