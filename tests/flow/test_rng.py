"""Row-keyed random numbers: reproducible, independent of the batch, and uniform.

Statistical tests use fixed seeds, so their outcome never changes. The stated odds are those of a false alarm had the
seed been drawn at random.
"""

import math

import pytest
import torch

from genplan.flow import Rng
from genplan.flow.rng import categorical


def test_a_row_does_not_depend_on_its_batch():
    episodes = torch.tensor([7, 3, 99])
    batch = Rng.of(1, episodes, 4)
    for row, episode in enumerate(episodes):
        alone = Rng.of(1, episode[None], 4)
        assert torch.equal(batch.fold("x", 2).uniform((5,))[row], alone.fold("x", 2).uniform((5,))[0])
        assert torch.equal(batch[row].key, alone.key[0])


def test_different_names_give_different_draws():
    rng = Rng.of(0, batch=(4,))
    draws = [
        rng.uniform((8,)),
        rng.fold("a").uniform((8,)),
        rng.fold("b").uniform((8,)),
        rng.fold("a", "b").uniform((8,)),
        rng.fold("b", "a").uniform((8,)),
        rng.fold(0).uniform((8,)),
        rng.fold(1).uniform((8,)),
        rng.fold(0, 1).uniform((8,)),
        rng.fold(1, 0).uniform((8,)),
        Rng.of(1, batch=(4,)).uniform((8,)),
        Rng.of(-1, batch=(4,)).uniform((8,)),
        Rng.of(2**70 + 1, batch=(4,)).uniform((8,)),
    ]
    for i, a in enumerate(draws):
        for b in draws[i + 1 : -1]:
            assert not (a == b).any()
    assert torch.equal(draws[-1], draws[-3])  # seeds are taken modulo 2^64


def test_the_numbers_are_pinned():
    """The same seed means the same plan in every later version; change this only with a new format version."""
    keys = Rng.of(0, batch=(2,)).fold("actions", 3).key
    assert keys.tolist() == [-3494395437815738254, 8997663918903607331]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_is_uniform(dtype):
    n = 200_000
    u = Rng.of(3, batch=(n // 10,)).uniform((10,), dtype)
    assert u.dtype == dtype
    assert u.min() >= 0
    assert u.max() < 1
    # Kolmogorov-Smirnov: P(D > 2.2 / sqrt(n)) = 2 exp(−2 · 2.2²) < 1.3e-4.
    ranks = torch.arange(1, n + 1, dtype=torch.float64) / n
    assert (u.flatten().double().sort().values - ranks).abs().max() < 2.2 / math.sqrt(n)
    # Neighbors, along the row and across rows, are uncorrelated: |r| < 4 / sqrt(n), odds 6e-5 each.
    centered = u.double() - 0.5
    for a, b in ((centered[:, 1:], centered[:, :-1]), (centered[1:], centered[:-1])):
        assert abs((a * b).mean() * 12) < 4 / math.sqrt(a.numel())


def test_integers_cover_their_range_evenly():
    n, size = 60_000, 7
    counts = torch.bincount(Rng.of(5, batch=(n,)).integers(size, (1,)).flatten(), minlength=size)
    chi_square = ((counts - n / size) ** 2 / (n / size)).sum()
    assert len(counts) == size
    assert chi_square < 27.9  # six degrees of freedom: odds 1e-4


def test_categorical_follows_its_weights():
    n = 50_000
    weights = torch.tensor([0.0, 2.0, 0.0, 1.0, 5.0, 0.0])
    draws = Rng.of(2, batch=(n,)).categorical(weights.expand(n, 6))
    counts = torch.bincount(draws, minlength=6)
    assert counts[weights == 0].sum() == 0
    expected = weights[weights > 0] / weights.sum() * n
    assert ((counts[weights > 0] - expected) ** 2 / expected).sum() < 18.4  # two degrees of freedom: odds 1e-4


def test_categorical_never_falls_off_the_end():
    edge = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    for scale in (1.0, 1 + 2**-23, 3e-30, 7e20):
        weights = torch.tensor([0.3, 0.7, 0.0]) * scale
        assert categorical(weights, edge) == 1
        assert categorical(weights, torch.tensor(0.0)) == 0


def test_keys_must_be_integers():
    with pytest.raises(TypeError, match=r"int64 keys, found torch\.float32"):
        Rng(torch.zeros(3))


def test_normal_draws_follow_the_law():
    """Mean, deviation and quantiles of 40,000 draws; a false alarm of six deviations: one in 10^9."""
    draws = Rng.of(3, batch=(200,)).normal((20, 10))
    assert draws.shape == (200, 20, 10)
    assert draws.dtype == torch.float32
    number = draws.numel()
    assert abs(float(draws.mean())) < 6 / number**0.5
    assert abs(float(draws.std()) - 1) < 6 / (2 * number) ** 0.5
    for quantile, share in ((-1.0, 0.158655), (0.0, 0.5), (1.96, 0.975002)):
        found = float((draws < quantile).double().mean())
        assert abs(found - share) < 6 * (share * (1 - share) / number) ** 0.5
    assert torch.equal(Rng.of(3, batch=(200,))[7:8].normal((20, 10))[0], draws[7])
