"""Measure claims of the ledger again, and find those that no longer hold.

What was measured here is kept in a file of lines, one per claim, with a digest of the code that plays episodes and of
the planner: a claim is stale, and is measured again, if it has no line with the digests of today.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from genplan import checkpoint, names, runs
from genplan.bench.claims import DERIVED, derive
from genplan.bench.ledger import Claim, Claims, rounded
from genplan.bench.store import ResultStore
from genplan.errors import UserError
from genplan.evaluate import evaluate
from genplan.jobs import Executor, Job, JobEvent, LocalExecutor, Report
from genplan.types import TEST_SEEDS

SOURCES = (
    "flow", "spec.py", "types.py", "config.py", "migrations.py", "envs", "rollout.py", "tasks", "models", "metrics.py",
    "planners", "checkpoint.py", "names.py", "evaluate.py",
)  # fmt: skip
OPTIONS = {"--task": "", "--episodes": str(len(TEST_SEEDS)), "--seed": str(TEST_SEEDS[0]), "--threads": "1"}


@functools.cache
def code_digest(planner: str) -> str:
    """Of all code that decides how an episode goes, and of the planner's config and weights."""
    sources = [Path(__file__).parent / name for name in SOURCES]
    files = [path for one in sources for path in ([one] if one.suffix else sorted(one.rglob("*.py")))]
    if checkpoint.is_run(planner):
        files += [checkpoint.run_dir(planner) / name for name in ("config.json", "model.safetensors")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def parse_command(command: str) -> tuple[str, str | None, range]:
    """Planner, task and seeds of a command that can be measured: genplan eval NAME with some of OPTIONS."""
    match shlex.split(command):
        case ["genplan", "eval", planner, *rest] if len(rest) % 2 == 0 and set(rest[::2]) <= set(OPTIONS):
            options = {**OPTIONS, **dict(zip(rest[::2], rest[1::2], strict=True))}
            first, number = options["--seed"], options["--episodes"]
            if first.isdecimal() and number.isdecimal() and int(number):
                return planner, options["--task"] or None, range(int(first), int(first) + int(number))
    expected = f"genplan eval PLANNER with flags of {', '.join(OPTIONS)}"
    raise UserError(f"a measured claim has the command '{command}'; expected {expected}")


def measure(command: str, report: Report) -> dict[str, Any]:
    """Metrics of the planner, the random policy and the expert, each with its interval; and the CPU-minutes taken."""
    planner_name, task_name, seeds = parse_command(command)
    start, played = time.process_time(), 0
    planner, config, task = names.load_for_eval(planner_name, task_name)

    def on_progress(number: int) -> None:
        nonlocal played
        played += number
        report(min(played / (3 * len(seeds)), 1.0))

    baseline = names.load_baseline(None, task, config)
    found = evaluate(planner, task, seeds, baseline=baseline, on_progress=on_progress)
    metrics = {
        prefix + name: rounded((one.value, one.low, one.high))
        for prefix, score in (("", found.planner), ("random_", found.random), ("expert_", found.expert))
        if score is not None
        for name, one in score.metrics.items()
        if one is not None
    }
    if solved := [one.num_steps for one in found.rollouts if one.success]:
        metrics["first_steps"] = rounded((solved[0], 1, task.max_steps))  # of the first episode that is solved
    return {"metrics": metrics, "minutes": round((time.process_time() - start) / 60, 2)}


class Measurements:
    """The file of what was measured here, one line of JSON per claim, appended."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, list[dict[str, Any]]()
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            with contextlib.suppress(ValueError):  # a line that was cut off by a kill: its claim is measured again
                self.lines.append(dict(json.loads(line)))
        self._cut = bool(text) and not text.endswith("\n")

    def find(self, claim: Claim, since: int = 0) -> dict[str, Any] | None:
        """The last measurement of a claim by the code of today."""
        code = code_digest(parse_command(claim.command)[0])
        lines = (line for line in reversed(self.lines[since:]) if line.get("command") == claim.command)
        return next((line for line in lines if line.get("code") == code), None)

    def stale(self, claims: Claims, everything: bool = False) -> dict[str, Claim]:
        """Claims to measure; `everything`: all of them once more, going on where that was stopped."""
        measured = {name: claim for name, claim in claims.items() if claim.kind == "measured"}
        since = 0
        if everything:
            since = max((number for number, line in enumerate(self.lines) if "everything" in line), default=-1)
            if since < 0 or all(self.find(claim, since) for claim in measured.values()):
                since = len(self.lines)
                self.add({"everything": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        return {name: claim for name, claim in measured.items() if self.find(claim, since) is None}

    def add(self, line: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("\n" * self._cut + json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._cut = False
        self.lines.append(line)

    def measure(self, claims: Claims, workers: int = 2, executor: Executor | None = None) -> Iterator[JobEvent]:
        """Measure claims, the quick ones first; each is kept as soon as it is done. Keys of jobs are ids of claims."""
        commands = {name: claims[name].command for name in sorted(claims, key=lambda name: claims[name].minutes)}
        codes = {name: code_digest(parse_command(command)[0]) for name, command in commands.items()}
        jobs = [Job(name, measure, (command,)) for name, command in commands.items()]
        for event in (executor or LocalExecutor(workers)).run(jobs):
            if event.type == "done":
                name = event.job.key
                about = {"claim": name, "command": commands[name], "code": codes[name], "commit": runs.commit()}
                self.add({**about, **event.result})
            yield event


def differences(claim: Claim, metrics: Mapping[str, Sequence[float]]) -> tuple[list[str], bool]:
    """How a measurement contradicts a claim, and whether it equals it to the digit.

    On another kind of machine rounding may tip an episode: a value holds within the claim's 95 % interval.
    """
    found = []
    for name, values in claim.metrics.items():
        low, high = (values[1], values[2]) if len(values) == 3 else (values[0], values[0])
        if name not in metrics:
            found.append(f"{name} is missing, claimed is {values[0]}")
        elif not low <= metrics[name][0] <= high:
            found.append(f"{name} is {metrics[name][0]}, claimed is {values[0]} ({low} to {high})")
    now = dataclasses.replace(claim, metrics={**claim.metrics, **metrics})
    return [*found, *now.missed_bars()], all(metrics.get(name) == list(one) for name, one in claim.metrics.items())


def problems(claims: Claims, store: ResultStore, measurements: Measurements) -> dict[str, list[str]]:
    """Per claim, why it no longer holds: by cells and cards of today, by what was measured here, by its bars."""
    derived, found = derive(store), dict[str, list[str]]()
    for name, claim in claims.items():
        if claim.kind == "measured":
            line = measurements.find(claim)
            wrong = [] if line is None else differences(claim, line["metrics"])[0]
        else:
            wrong = list(claim.missed_bars())
            if name.startswith(DERIVED) and (name not in derived or dict(derived[name].metrics) != dict(claim.metrics)):
                wrong.append("it is not what follows from cells and cards; genplan verify --write takes that over")
        if wrong:
            found[name] = wrong
    if missing := sorted(set(derived) - set(claims)):
        what = f"{len(missing)} claims that follow from cells and cards are not in the ledger, such as {missing[0]}"
        found["ledger"] = [f"{what}; genplan verify --write adds them"]
    return found


def updated(claims: Claims, store: ResultStore, measurements: Measurements) -> dict[str, Claim]:
    """The ledger with what was measured here, and with what follows from cells and cards; bars stay as they are."""
    found = {}
    for name, claim in claims.items():
        if not name.startswith(DERIVED):
            line = measurements.find(claim) if claim.kind == "measured" else None
            new = {} if line is None else {key: line[key] for key in ("metrics", "commit", "minutes")}
            found[name] = dataclasses.replace(claim, **new)
    for name, claim in derive(store).items():
        old = claims.get(name, claim)
        found[name] = dataclasses.replace(claim, at_least=old.at_least, at_most=old.at_most)
    return found
