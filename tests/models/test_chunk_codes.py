"""Codes of chunks: what residual, learned and scalar codes have in common, and what is particular to each."""

import copy
from functools import cache

import pytest
import torch

from genplan import planners
from genplan.config import override
from genplan.errors import UserError
from genplan.models.codecs import CODECS, ChunkCodes, CodecConfig, make_codec
from genplan.models.residual_codes import residual_tokens, residual_words
from genplan.spec import Actions, Field, PlanSpec

NAMES = [name for name, codec in CODECS.items() if issubclass(codec, ChunkCodes)]
ACTIONS = Actions(low=(0.0, 0.0), high=(10.0, 10.0))
CHUNK, LEVELS, CODES = 4, 2, 12
CONFIG = CodecConfig(chunk=CHUNK, levels=LEVELS, codes=CODES)


def chunks(number=400, seed=0):
    """Chunks [number, 4, 2] around nothing in particular, of three free numbers each: far from straight."""
    generator = torch.Generator().manual_seed(seed)
    turn, bend, speed = torch.rand(3, number, 1, generator=generator)
    angle = 6 * turn + (bend - 0.5) * torch.arange(CHUNK)
    return (2 + speed)[..., None] * torch.stack([angle.cos(), angle.sin()], -1)


@cache
def fitted(name, **settings):
    """The codec, which a test must not change, and its errors."""
    codec = make_codec(ACTIONS, override(CONFIG, codec=name, **settings))
    return codec, codec.fit(chunks())


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_those_of_relative_actions(name):
    """Half of them are below 0, where the space of absolute actions ends: they are not clipped there."""
    codec, errors = fitted(name)
    origin = torch.full((400, 2), 5.0)
    absolute = chunks() + origin[:, None]
    again = (codec.decode(codec.encode(absolute, origin), origin) - absolute).abs()
    assert again.mean() == pytest.approx(errors["mean_error"], rel=1e-3)
    assert errors["mean_error"] < 0.4 * chunks().abs().mean()


@pytest.mark.parametrize("name", NAMES)
def test_more_codes_leave_less_over(name):
    few, some, many = (fitted(name, **one)[1]["mean_error"] for one in ({"levels": 1}, {}, {"levels": 4}))
    assert many < 0.75 * some
    assert some < 0.75 * few


@pytest.mark.parametrize("name", NAMES)
def test_the_same_chunks_give_the_same_codec(name):
    """Whatever else draws random numbers, of which none are used up."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        codec, before = make_codec(ACTIONS, override(CONFIG, codec=name)), torch.random.get_rng_state()
        codec.fit(chunks())
        assert torch.equal(torch.random.get_rng_state(), before)
        found.append(codec.state_dict())
    assert all(torch.equal(tensor, found[1][key]) for key, tensor in found[0].items())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_for_an_optimizer(name):
    """What is fitted is saved, does not change in training, and is NaN until then."""
    fresh = make_codec(ACTIONS, override(CONFIG, codec=name))
    assert list(fresh.parameters()) == []
    assert all(tensor.isnan().all() for tensor in fresh.state_dict().values())
    assert all(tensor.isfinite().all() for tensor in fitted(name)[0].state_dict().values())
    with pytest.raises(UserError, match="the action codec has no statistics"):
        fresh.scaled(torch.zeros(1, LEVELS, dtype=torch.int64))


@pytest.mark.parametrize("name", NAMES)
def test_levels_can_be_left_out(name):
    """Without any, the mean chunk is left; each that is used brings the chunk nearer."""
    codec, _ = fitted(name)
    values = codec.normalized(chunks(), None)[:, 0]
    tokens, none = codec.tokens_of(values), torch.zeros(400, dtype=torch.int64)
    assert (codec.scaled(tokens, none) == 0).all()
    assert torch.equal(codec.scaled(tokens, none + LEVELS), codec.scaled(tokens))
    if codec.any_levels:
        assert codec.level_choices == tuple(range(LEVELS + 1))
        errors = [(codec.scaled(tokens, none + number) - values).abs().mean() for number in range(LEVELS + 1)]
        assert errors[0] > errors[1] > errors[2]
        assert [codec.num_used(number) for number in (None, 0, 1)] == [LEVELS, 0, 1]
    else:
        assert codec.level_choices == (0, LEVELS)
        with pytest.raises(UserError, match="used_levels is 1, expected 0 or all 2"):
            codec.num_used(1)


def test_words_follow_what_chooses_them_and_begin_anew_without():
    codec = copy.deepcopy(fitted("learned")[0])
    generator = torch.Generator().manual_seed(0)
    codec.counts.fill_(1.0)
    codec.words[0] = 100.0
    codec.words[0, 0], codec.words[1] = 0.0, 0.0
    codec.sums.copy_(codec.words)
    latent = torch.randn(256, codec.words.shape[-1], generator=torch.Generator().manual_seed(0)) + 3
    for _ in range(500):  # all choose the first word; then others begin anew where latents are
        codec.quantized(latent, generator)
    assert codec.words[0].abs().max() < 10
    words = residual_words(latent, 1, CODES, generator)
    error, best = (
        (latent - one[0][residual_tokens(latent, one)[:, 0]]).abs().mean() for one in (codec.words[:1], words)
    )
    assert error < 1.1 * best


@pytest.mark.parametrize(
    ("codes", "size", "last"), [(32, 30, [4, 5]), (25, 25, [4, 4]), (3, 3, [0, 2]), (2, 2, [0, 1])]
)
def test_the_grid_of_a_token_is_as_square_as_can_be(codes, size, last):
    codec, _ = fitted("fsq", codes=codes)
    assert codec.stream.size == size
    assert codec.last.tolist() == last
    tokens = torch.arange(size)[:, None].expand(-1, LEVELS)
    points = codec._latent(torch.stack([tokens // (last[1] + 1), tokens % (last[1] + 1)], -1))
    assert len(points.unique(dim=0)) == size
    assert points.abs().max() <= 1
    assert torch.equal(codec.quantized(points, torch.Generator()), points)


@pytest.mark.parametrize("method", ["GenPlan-M", "VQ-BeT"])
def test_planners_refuse_levels_that_mean_nothing(method):
    spec = PlanSpec({"place": Field("vector", (2,))}, ACTIONS)
    settings = {"codec": "fsq", "horizon": 8, "levels": 3}
    config = override(planners.default_settings(method), **settings)
    planner = planners.build(method, spec, config)
    assert planner.with_options(used_levels=0).config.codec.used_levels == 0
    with pytest.raises(UserError, match="used_levels is 2, expected 0 or all 3"):
        planner.with_options(used_levels=2)
    with pytest.raises(UserError, match="used_levels is 1, expected 0 or all 3"):
        planners.build(method, spec, override(config, used_levels=1))


def test_vq_bet_is_of_codes_of_chunks():
    spec = PlanSpec({"place": Field("vector", (2,))}, ACTIONS)
    default = planners.default_settings("VQ-BeT")
    assert type(planners.build("VQ-BeT", spec, default).codec) is CODECS["residual"]
    for name in NAMES:
        assert type(planners.build("VQ-BeT", spec, override(default, codec=name)).codec) is CODECS[name]
    with pytest.raises(UserError, match="codes of chunks, found the codec 'bins'"):
        planners.build("VQ-BeT", spec, override(default, codec="bins"))
