"""The ledger: every figure that is claimed, with the command that gives it, its interval, and the bar that it meets.

measured  `genplan verify` measures it again, by the command `genplan eval …`
cell      computed from the results of the benchmark
record    measured once, by the command that is named
paper     reported by the paper
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from genplan.errors import UserError

Kind = Literal["measured", "cell", "record", "paper"]
DIGITS = 6  # of the values in the file, after the point
HEAD = """\
# Every figure that README, docs and cards claim: see docs/claims.md. Values are [value, low, high] where there is an
# interval (95 %); shares are from 0 to 1, the paper's numbers in per cent. `genplan verify` checks all of it.
"""


@dataclass(frozen=True)
class Claim:
    """One planner in one row, or one measurement, with all its metrics."""

    kind: Kind
    metrics: Mapping[str, Sequence[float]]  # [value], or [value, low, high]
    command: str = ""  # what a user would run
    seeds: str = ""
    episodes: int = 0
    commit: str = ""
    minutes: float = 0.0  # of CPU, where they are known; of training for cells and cards
    at_least: Mapping[str, float] = field(default_factory=dict)  # bars
    at_most: Mapping[str, float] = field(default_factory=dict)

    def value(self, metric: str) -> float | None:
        return self.metrics[metric][0] if metric in self.metrics else None

    def missed_bars(self) -> Iterator[str]:
        for words, bars, sign in (("at least", self.at_least, 1), ("at most", self.at_most, -1)):
            for metric, bar in bars.items():
                if (value := self.value(metric)) is None or sign * value < sign * bar:
                    yield f"{metric} is {value}, expected {words} {bar}"


Claims = Mapping[str, Claim]


def rounded(values: Sequence[float]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]


def read_ledger(path: Path) -> dict[str, Claim]:
    """The claims of a file by their ids."""
    if not path.is_file():
        raise UserError(f"there is no ledger {path}; run this in a clone of genplan, or name one with --ledger")
    try:
        entries = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML ({error}); correct it") from error
    return {name: _claim(path, name, entry) for name, entry in entries.items()}


def _claim(path: Path, name: str, entry: Any) -> Claim:
    try:
        metrics = {metric: rounded(one if isinstance(one, list) else [one]) for metric, one in entry["metrics"].items()}
        claim = Claim(**{**entry, "metrics": metrics})
        valid = claim.kind in get_args(Kind) and metrics and all(len(one) in (1, 3) for one in metrics.values())
        valid = valid and {*claim.at_least, *claim.at_most} <= set(metrics)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: '{name}' is not a claim ({error}); docs/claims.md says what it needs") from error
    if not valid:
        expected = f"a kind of {', '.join(get_args(Kind))}, metrics of one or three numbers, and bars of these metrics"
        raise UserError(f"{path}: '{name}' is not a claim, expected {expected}")
    return claim


def ledger_text(claims: Claims) -> str:
    """The file: one line per claim."""
    lines = []
    for name, claim in claims.items():
        entry = {key: value for key, value in dataclasses.asdict(claim).items() if value not in ("", 0, {})}
        entry["metrics"] = {metric: one[0] if len(one) == 1 else one for metric, one in claim.metrics.items()}
        lines.append(f"{_toml(name)} = {_toml(entry)}\n")
    return HEAD + "".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name) for name in value)
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in zip(keys, value.values(), strict=True)) + "}"
    return json.dumps(value, ensure_ascii=False)  # texts, numbers and lists are written alike
