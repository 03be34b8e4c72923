import math

import pytest
import torch
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from genplan.flow import ProbPath, Rng, Source
from tests.flow.exact import marginal, marginal_dot


@st.composite
def problems(draw):
    """Any number of streams, with any vocabularies, events and batch."""
    names = draw(st.lists(st.sampled_from(["states", "actions", "goals", "x"]), min_size=1, max_size=4, unique=True))
    sizes = {name: draw(st.integers(2, 50)) for name in names}
    shapes = {name: tuple(draw(st.lists(st.integers(1, 4), max_size=2))) for name in names}
    batch = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    return sizes, shapes, batch, draw(st.integers(0, 2**32))


def clean(sizes, shapes, rng):
    return {name: rng.fold("clean", name).integers(sizes[name], shapes[name]) for name in sizes}


@hypothesis_given(problems(), st.sampled_from(Source), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_corrupt_keeps_shape_range_and_what_is_given(problem, source, t):
    sizes, shapes, batch, seed = problem
    rng = Rng.of(seed, batch=batch) if batch else Rng.of(seed)
    path = ProbPath(sizes, source)
    x_1 = clean(sizes, shapes, rng)
    given = {name: rng.fold("given", name).uniform(shapes[name]) < 0.5 for name in sizes}
    x_t = path.corrupt(x_1, t, rng, given)
    for name, x in x_t.items():
        assert x.shape == x_1[name].shape
        assert x.dtype == torch.int64
        assert x.min() >= 0
        assert x.max() < path.num_states(name)
        assert torch.equal(x[given[name]], x_1[name][given[name]])
        if source is Source.MASK:
            assert ((x == x_1[name]) | (x == path.mask_token(name))).all()


@pytest.mark.parametrize("source", Source)
def test_endpoints(source):
    path = ProbPath({"a": 5, "b": 3}, source)
    rng = Rng.of(0, batch=(1000,))
    x_1 = clean(path.sizes, {"a": (4,), "b": ()}, rng)
    at_end = path.corrupt(x_1, 1.0, rng)
    assert all(torch.equal(at_end[name], x_1[name]) for name in x_1)
    at_start = path.corrupt(x_1, 0.0, rng)
    noise = path.noise({"a": (4,), "b": ()}, rng)
    assert all(torch.equal(at_start[name], noise[name]) for name in x_1)
    if source is Source.MASK:
        assert (at_start["a"] == 5).all()


@pytest.mark.parametrize("source", Source)
def test_schedule(source):
    path, x_1 = ProbPath({"a": 3}, source), torch.tensor([0, 1])
    t = torch.linspace(0.1, 0.9, 2, dtype=torch.float64)
    h = 1e-6
    numeric = (marginal(path, "a", x_1, t + h) - marginal(path, "a", x_1, t - h)) / (2 * h)
    assert torch.allclose(marginal_dot(path, "a", x_1, t), numeric, atol=1e-8)


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("t", [0.15, 0.5, 0.9])
def test_frequencies_follow_the_marginal(source, t):
    """Chi-square against p_t|1, at most six degrees of freedom: a limit of 31.5 has odds below 2e-5."""
    size, n = 6, 40_000
    path = ProbPath({"a": size}, source)
    x_1 = {"a": torch.full((n, 1), 2)}
    x_t = path.corrupt(x_1, t, Rng.of(11, batch=(n,)))["a"]
    expected = marginal(path, "a", torch.tensor(2), torch.tensor(t, dtype=torch.float64)) * n
    counts = torch.bincount(x_t.flatten(), minlength=path.num_states("a"))
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 31.5


def test_streams_and_positions_are_corrupted_independently():
    """One t, independent draws: two positions are both data with probability kappa². Four sigma: odds 6e-5."""
    n, t = 40_000, 0.4
    path = ProbPath({"a": 5, "b": 5})
    rng = Rng.of(1, batch=(n,))
    x_1 = {name: torch.zeros(n, 2, dtype=torch.int64) for name in "ab"}
    x_t = path.corrupt(x_1, t, rng)
    is_data = torch.cat([x_t["a"] == 0, x_t["b"] == 0], -1).double()
    both = (is_data.T @ is_data / n)[~torch.eye(4, dtype=torch.bool)]
    assert ((both - t**2).abs() < 4 * math.sqrt(t**2 * (1 - t**2) / n)).all()


@pytest.mark.parametrize("source", Source)
def test_a_batch_equals_its_rows(source):
    path = ProbPath({"a": 9, "b": 4}, source)
    rng = Rng.of(3, batch=(6,))
    x_1 = clean(path.sizes, {"a": (5,), "b": (2, 3)}, rng)
    t = torch.linspace(0, 1, 6)
    together = path.corrupt(x_1, t, rng)
    for row in range(6):
        alone = path.corrupt({k: v[row] for k, v in x_1.items()}, t[row], rng[row])
        assert all(torch.equal(together[name][row], alone[name]) for name in alone)


def test_low_precision_times_are_widened():
    path = ProbPath({"a": 4})
    rng = Rng.of(0, batch=(8,))
    x_1 = {"a": torch.zeros(8, 3, dtype=torch.int64)}
    t = torch.full((8,), 0.5)
    assert torch.equal(path.corrupt(x_1, t.bfloat16(), rng)["a"], path.corrupt(x_1, t, rng)["a"])


def test_errors_quote_both_numbers():
    with pytest.raises(ValueError, match="at least 2 tokens, found 1"):
        ProbPath({"a": 1})
    with pytest.raises(ValueError, match="at least 1 stream, found 0"):
        ProbPath({})
    with pytest.raises(ValueError, match="'fog' is not a valid Source"):
        ProbPath({"a": 2}, "fog")
    path = ProbPath({"a": 4})
    rng = Rng.of(0, batch=(2,))
    good = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match="has a token 4, expected 0 to 3"):
        path.corrupt({"a": good + 4}, 0.5, rng)
    with pytest.raises(ValueError, match="has a token -1, expected 0 to 3"):
        path.corrupt({"a": good - 1}, 0.5, rng)
    with pytest.raises(TypeError, match=r"dtype torch\.int32, expected torch\.int64"):
        path.corrupt({"a": good.int()}, 0.5, rng)
    with pytest.raises(ValueError, match=r"shape \(2, 3\), expected it to start with \(5,\)"):
        path.corrupt({"a": good}, 0.5, Rng.of(0, batch=(5,)))
    with pytest.raises(ValueError, match=r"streams \['b'\], expected \['a'\]"):
        path.corrupt({"b": good}, 0.5, rng)
    with pytest.raises(ValueError, match=r"t is 1\.5, expected 0 to 1"):
        path.corrupt({"a": good}, torch.tensor([0.5, 1.5]), rng)
    with pytest.raises(ValueError, match="t is nan, expected 0 to 1"):
        path.corrupt({"a": good}, math.nan, rng)
    with pytest.raises(TypeError, match=r"t has dtype torch\.int64"):
        path.corrupt({"a": good}, 1, rng)
    with pytest.raises(ValueError, match=r"t has shape \(3,\), expected \(2,\)"):
        path.corrupt({"a": good}, torch.zeros(3), rng)
    with pytest.raises(ValueError, match=r"given\['a'\] has shape \(2, 2\), expected \(2, 3\)"):
        path.corrupt({"a": good}, 0.5, rng, {"a": torch.zeros(2, 2, dtype=torch.bool)})
    with pytest.raises(TypeError, match=r"given\['a'\] has dtype torch\.int64, expected torch\.bool"):
        path.corrupt({"a": good}, 0.5, rng, {"a": good})
    with pytest.raises(ValueError, match=r"given names a stream 'z', expected one of \['a'\]"):
        path.corrupt({"a": good}, 0.5, rng, {"z": good.bool()})
    assert path.corrupt({"a": good[:, :0]}, 0.5, rng)["a"].shape == (2, 0)
