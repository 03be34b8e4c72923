"""Rules for action codecs: the six of every codec, on discrete and on continuous actions."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from genplan.conformance.rules import Broken, Finding, Rule, Skipped, apply_rules, expect, in_fresh_process
from genplan.errors import UserError
from genplan.models.codecs import ActionCodec
from genplan.models.settings import CodecConfig
from genplan.planners import codec_class
from genplan.spec import Actions

SPACES = {"discrete": Actions(5), "continuous": Actions(low=(-1.0, 0.0, -3.0), high=(1.0, 10.0, 3.0))}
CONSTANT = (1, 4.25)  # a dimension of continuous actions, and a value of it
ROWS, NUMBER = 50, 600


@dataclass(frozen=True)
class CodecCase:
    """A codec of an action space, by name and as a class."""

    name: str
    make: Callable[[], ActionCodec]
    space: str

    @property
    def actions(self) -> Actions:
        return SPACES[self.space]

    def demonstrated(self, constant: bool = False) -> Tensor:
        """Actions [N, *A] within the middle half of the space; with `constant`, one dimension has one value."""
        generator = torch.Generator().manual_seed(0)
        if self.actions.n is not None:
            return torch.randint(1 if constant else self.actions.n, (NUMBER,), generator=generator)
        low, high = torch.tensor(self.actions.low), torch.tensor(self.actions.high)
        values = low + (high - low) * (0.25 + 0.5 * torch.rand(NUMBER, len(low), generator=generator))
        if constant:
            values[:, CONSTANT[0]] = CONSTANT[1]
        return values

    def fitted(self, constant: bool = False) -> tuple[ActionCodec, Tensor, dict[str, float]]:
        """The codec, actions [B, H, *A] that it was fitted on, and the errors that it states."""
        codec, values = self.make(), self.demonstrated(constant)
        return codec, values.reshape(ROWS, -1, *values.shape[1:]), codec.fit(values)

    def any_tokens(self, codec: ActionCodec) -> Tensor:
        """Every code, in all places at once, and as many combinations of codes, [B, 1, *codes]."""
        size, shape = codec.stream.size, (1, *codec.stream.shape)
        generator = torch.Generator().manual_seed(0)
        alike = torch.arange(size).reshape(-1, *(1 for _ in shape)).expand(-1, *shape)
        return torch.cat([alike, torch.randint(size, (size, *shape), generator=generator)])


def a_round_trip_stays_within_the_stated_bound(case: CodecCase) -> None:
    """decode(encode(actions)) differs at most by the `max_error` that fit() returns; discrete actions not at all."""
    codec, actions, errors = case.fitted()
    tokens = codec.encode(actions, None)
    shape = (ROWS, actions.shape[1] // codec.chunk, *codec.stream.shape)
    whole = tokens.dtype == torch.int64 and tokens.shape == shape
    expect(whole, f"tokens of {tokens.dtype} and shape {tuple(tokens.shape)}", f"torch.int64 and {shape}",
           "encode() gives [B, H / chunk, *stream.shape]")  # fmt: skip
    inside = 0 <= int(tokens.min()) <= int(tokens.max()) < codec.stream.size
    expect(inside, f"tokens from {tokens.min()} to {tokens.max()}", f"0 to {codec.stream.size - 1}", "clamp them")
    stated = errors.get("max_error", 0.0 if case.actions.n is not None else None)
    expect(stated is not None, f"the errors {errors}", "max_error among them", "return it from fit()")
    found = float((codec.decode(tokens, None) - actions).abs().max())
    expect(found <= (stated or 0.0) * 1.001 + 1e-6, f"an error of {found:g}", f"at most the stated {stated:g}",
           "see that decode() undoes encode()")  # fmt: skip


def any_code_decodes_inside_the_space(case: CodecCase) -> None:
    """Whatever the tokens, and wherever the origin, decoded actions are actions of the environment."""
    codec, _, _ = case.fitted()
    tokens, origins = case.any_tokens(codec), [None]  # type: tuple[Tensor, list[Tensor | None]]
    if case.actions.n is None:
        far = 100 * torch.tensor(case.actions.high).expand(len(tokens), -1)
        origins += [far, -far]
    for origin in origins:
        actions = codec.decode(tokens, origin)
        expect(actions.shape == (len(tokens), codec.chunk, *case.actions.shape), f"actions of {tuple(actions.shape)}",
               f"{(len(tokens), codec.chunk, *case.actions.shape)}", "decode() gives [B, H, *A]")  # fmt: skip
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
    outside = actions.clone()
    outside[:, 0] = 10 * torch.tensor(case.actions.high)
    tokens, counted = codec.encode(outside, None), codec.is_clipped(outside, None)
    expect(0 <= int(tokens.min()) <= int(tokens.max()) < codec.stream.size, f"tokens up to {int(tokens.max())}",
           f"0 to {codec.stream.size - 1}", "clamp them")  # fmt: skip
    expect(bool(counted[:, 0].all()), f"{int(counted[:, 0].sum())} of {ROWS} actions far outside counted", str(ROWS),
           "let is_clipped() say which actions are clipped")  # fmt: skip


def missing_statistics_are_an_error(case: CodecCase) -> None:
    """Without fit(), or the tensors that it filled, decoding is refused."""
    fresh, fitted = case.make(), case.fitted()[0]
    before, after = fresh.state_dict(), fitted.state_dict()
    if all(torch.equal(before[name], after[name]) for name in before):
        raise Skipped("fit() has nothing to fill")
    try:
        decoded = fresh.decode(case.any_tokens(fresh), None)
    except UserError:
        return
    raise Broken(f"found the actions {decoded.flatten()[:3].tolist()} from a codec that was never fitted, expected a "
                 "UserError; fill buffers with NaN at first, and refuse them in decode()")  # fmt: skip


def acts_the_same_in_a_fresh_process(case: CodecCase) -> None:
    """Loaded by another process without the demonstrations, it decodes bit for bit the same."""
    codec, _, _ = case.fitted()
    tokens = case.any_tokens(codec)
    expected = codec.decode(tokens, None)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "codec.safetensors"
        save_file({**codec.state_dict(), "tokens": tokens}, path)
        in_fresh_process("genplan.conformance.codec", case.name, case.space, path)
        again = load_file(path)["actions"]
    expect(torch.equal(again, expected), again.flatten()[:3].tolist(), str(expected.flatten()[:3].tolist()),
           "keep all that fit() found in buffers")  # fmt: skip


def replay(name: str, space: str, path: str) -> None:
    """What the other process does: load the codec, decode the tokens, save the actions."""
    tensors, codec = load_file(path), codec_class(name)(SPACES[space], CodecConfig())
    tokens = tensors.pop("tokens")
    codec.load_state_dict(tensors)
    save_file({"actions": codec.decode(tokens, None).contiguous()}, path)


RULES: tuple[Rule, ...] = (
    a_round_trip_stays_within_the_stated_bound, any_code_decodes_inside_the_space, constant_dimensions_stay,
    values_out_of_range_are_clipped_and_counted, missing_statistics_are_an_error, acts_the_same_in_a_fresh_process,
)  # fmt: skip


def check_codec(name: str) -> Iterator[Finding]:
    """By name: one of CODECS, or file.py:Class."""
    cls, accepted = codec_class(name), False
    for space, actions in SPACES.items():
        case = CodecCase(name, lambda actions=actions: cls(actions, CodecConfig()), space)  # type: ignore[misc]
        try:
            case.make()
        except UserError as error:
            yield Finding("is made", "", "skipped", str(error), space)
        else:
            accepted = True
            yield from apply_rules(RULES, case, name, space)
    if not accepted:
        yield Finding("is made", "", "broken", f"found {' and '.join(SPACES)} actions refused, expected one accepted")
