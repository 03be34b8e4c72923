"""Rules for action codecs: the six of every codec, on discrete and on continuous actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from genplan.conformance.rules import Finding, Rule, Skipped, apply_rules, expect, in_fresh_process
from genplan.errors import UserError
from genplan.models.codecs import ActionCodec
from genplan.models.settings import CodecConfig
from genplan.planners import codec_class
from genplan.spec import Actions

SPACES = {"discrete": Actions(5), "continuous": Actions(low=(-1.0, 0.0, -3.0), high=(1.0, 10.0, 3.0))}
CONSTANT = (1, 4.25)  # a dimension of continuous actions, and a value of it
ROWS, NUMBER = 25, 600


@dataclass(frozen=True)
class CodecCase:
    """A codec, by name, of an action space."""

    name: str
    space: str

    @property
    def actions(self) -> Actions:
        return SPACES[self.space]

    def make(self) -> ActionCodec:
        return codec_class(self.name)(self.actions, CodecConfig())

    def fitted(self, constant: bool = False) -> tuple[ActionCodec, Tensor, dict[str, float]]:
        """The codec, actions [B, H, *A] within the middle half of the space, and the errors that it states of them.

        With `constant`, one dimension has one value.
        """
        generator = torch.Generator().manual_seed(0)
        if self.actions.n is not None:
            values = torch.randint(1 if constant else self.actions.n, (NUMBER,), generator=generator)
        else:
            low, high = torch.tensor(self.actions.low), torch.tensor(self.actions.high)
            values = low + (high - low) * (0.25 + 0.5 * torch.rand(NUMBER, len(low), generator=generator))
            if constant:
                values[:, CONSTANT[0]] = CONSTANT[1]
        codec = self.make()
        chunks = values if codec.chunk == 1 else values.reshape(-1, codec.chunk, *values.shape[1:])
        errors = codec.fit(chunks)
        return codec, values.reshape(ROWS, -1, *values.shape[1:]), errors


def _any_tokens(codec: ActionCodec) -> Tensor:
    """Every code, in all places at once, and as many combinations of codes, [B, 1, *codes]."""
    size, shape = codec.stream.size, (1, *codec.stream.shape)
    alike = torch.arange(size).reshape(-1, *(1 for _ in shape)).expand(-1, *shape)
    return torch.cat([alike, torch.randint(size, (size, *shape), generator=torch.Generator().manual_seed(0))])


def _expect_codes(tokens: Tensor, codec: ActionCodec) -> None:
    low, high = int(tokens.min()), int(tokens.max())
    expect(0 <= low <= high < codec.stream.size, f"tokens from {low} to {high}", f"0 to {codec.stream.size - 1}",
           "clamp them")  # fmt: skip


def a_round_trip_stays_within_the_stated_bound(case: CodecCase) -> None:
    """decode(encode(actions)) differs at most by the `max_error` that fit() returns; discrete actions not at all."""
    codec, actions, errors = case.fitted()
    tokens = codec.encode(actions, None)
    shape = (ROWS, actions.shape[1] // codec.chunk, *codec.stream.shape)
    expect(tokens.dtype == torch.int64 and tokens.shape == shape,
           f"tokens of {tokens.dtype} and shape {tuple(tokens.shape)}", f"torch.int64 and {shape}",
           "encode() gives [B, H / chunk, *stream.shape]")  # fmt: skip
    _expect_codes(tokens, codec)
    if case.actions.n is not None:
        errors = {"max_error": 0.0, **errors}
    expect("max_error" in errors, f"the errors {errors}", "max_error among them", "return it from fit()")
    found, stated = float((codec.decode(tokens, None) - actions).abs().max()), errors["max_error"]
    expect(found <= stated * 1.001 + 1e-6, f"an error of {found:g}", f"at most the stated {stated:g}",
           "see that decode() undoes encode()")  # fmt: skip


def any_code_decodes_inside_the_space(case: CodecCase) -> None:
    """Whatever the tokens, and wherever the origin, decoded actions are actions of the environment."""
    codec, _, _ = case.fitted()
    tokens, origins = _any_tokens(codec), [None]  # type: tuple[Tensor, list[Tensor | None]]
    if case.actions.n is None:
        far = 100 * torch.tensor(case.actions.high).expand(len(tokens), -1)
        origins += [far, -far]
    shape = (len(tokens), codec.chunk, *case.actions.shape)
    for origin in origins:
        actions = codec.decode(tokens, origin)
        expect(actions.shape == shape, f"actions of {tuple(actions.shape)}", shape, "decode() gives [B, H, *A]")
        case.actions.check(actions.numpy(), "decoded actions")


def constant_dimensions_stay(case: CodecCase) -> None:
    """What never changes in the demonstrations is decoded as it was."""
    codec, actions, _ = case.fitted(constant=True)
    decoded = codec.decode(codec.encode(actions, None), None)
    part, expected = (x if case.actions.n is not None else x[..., CONSTANT[0]] for x in (decoded, actions))
    found, value = (x.flatten()[0].item() for x in (part, expected))
    expect(bool(torch.isclose(part, expected).all()), f"{found:g}", f"{value:g}", "do not divide by a range of 0")


def values_out_of_range_are_clipped_and_counted(case: CodecCase) -> None:
    """Actions that cannot be expressed get the nearest code, and is_clipped() says which they are."""
    if case.actions.n is not None:
        raise Skipped("discrete actions are their own range")
    codec, actions, _ = case.fitted()
    counted = codec.is_clipped(actions, None)
    expect(counted.shape == actions.shape[:2] and not counted.any(), f"{int(counted.sum())} of the fitted actions",
           "0 that are clipped", "let is_clipped() be True outside the fitted range alone")  # fmt: skip
    actions[:, 0] = 10 * torch.tensor(case.actions.high)
    _expect_codes(codec.encode(actions, None), codec)
    counted = codec.is_clipped(actions, None)[:, 0]
    expect(counted.all(), f"{int(counted.sum())} of {ROWS} actions far outside counted", ROWS,
           "let is_clipped() say which actions are clipped")  # fmt: skip


def missing_statistics_are_an_error(case: CodecCase) -> None:
    """Without fit(), or the tensors that it filled, decoding is refused."""
    fresh, fitted = case.make(), case.fitted()[0].state_dict()
    if all(torch.equal(before, fitted[name]) for name, before in fresh.state_dict().items()):
        raise Skipped("fit() has nothing to fill")
    try:
        decoded = fresh.decode(_any_tokens(fresh), None)
    except UserError:
        return
    expect(False, f"the actions {decoded.flatten()[:3].tolist()} from a codec that was never fitted", "a UserError",
           "fill buffers with NaN at first, and refuse them in decode()")  # fmt: skip


def acts_the_same_in_a_fresh_process(case: CodecCase) -> None:
    """Loaded by another process without the demonstrations, it decodes bit for bit the same."""
    codec, _, _ = case.fitted()
    tokens = _any_tokens(codec)
    expected = codec.decode(tokens, None)
    again = in_fresh_process("genplan.conformance.codec", case.name, case.space, codec.state_dict(), tokens)
    expect(torch.equal(again, expected), again.flatten()[:3].tolist(), expected.flatten()[:3].tolist(),
           "keep all that fit() found in buffers")  # fmt: skip


def replay(name: str, space: str, state: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """What the other process does."""
    codec = CodecCase(name, space).make()
    codec.load_state_dict(state)
    return codec.decode(tokens, None)


RULES: tuple[Rule, ...] = (
    a_round_trip_stays_within_the_stated_bound, any_code_decodes_inside_the_space, constant_dimensions_stay,
    values_out_of_range_are_clipped_and_counted, missing_statistics_are_an_error, acts_the_same_in_a_fresh_process,
)  # fmt: skip


def check_codec(name: str) -> Iterator[Finding]:
    """By name: one of CODECS, or file.py:Class."""
    refused = 0
    for space in SPACES:
        case = CodecCase(name, space)
        try:
            case.make()
        except UserError as error:
            refused += 1
            yield Finding("is made", "", "skipped", str(error), space)
        else:
            yield from apply_rules(RULES, case, space)
    if refused == len(SPACES):
        yield Finding("is made", "", "broken", f"found {' and '.join(SPACES)} actions refused, expected one accepted")
