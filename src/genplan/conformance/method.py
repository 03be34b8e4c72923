"""Rules for methods that learn: on identity tasks of every kind of field, with discrete and with continuous actions."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from genplan import checkpoint, config, planners
from genplan.conformance import planner as planner_rules
from genplan.conformance.identity import CODECS, KINDS, demonstrations, identity_task
from genplan.conformance.planner import SEEDS, Followed, PlannerCase, expect_same, follow
from genplan.conformance.rules import Finding, Rule, apply_rules, expect, in_fresh_process
from genplan.data.windows import Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.planners.base import LearnedPlanner
from genplan.presets import TrainConfig
from genplan.rollout import play
from genplan.spec import Kind
from genplan.types import VALIDATION_SEEDS

# Settings that a method does not have are ignored.
TINY: Mapping[str, Any] = {
    "hidden_size": 32, "num_heads": 2, "num_layers": 1, "encoder_iterations": 2, "horizon": 2, "iterations": 2,
    "context_length": 2, "bins": 4, "temperature": 0.1,
}  # fmt: skip
TINY_CHUNKS: Mapping[str, Any] = {"chunk": 2, "levels": 2, "codes": 4}  # of codecs whose codes stand for chunks
ROUND, MAX_STEPS, BATCH_SIZE, LEARNING_RATE = 40, 600, 64, 5e-3
EPISODES, SHARE_RIGHT = 16, 0.95


@dataclass(frozen=True)
class MethodCase(PlannerCase):
    """A method on the identity task of a kind of field and a codec; trained by the rule that it learns."""

    planner: LearnedPlanner
    method: str
    windows: Windows


def make_case(method: str, kind: Kind, codec: str) -> MethodCase:
    """With initial weights and a fitted codec; UserError if the method refuses the combination."""
    chosen = {} if codec in CODECS else {"codec": codec, **TINY_CHUNKS}
    settings = config.override(planners.default_settings(method), strict=False, **{**TINY, **chosen})
    goals = bool(config.get(settings, "privileged_goals", False))
    task, episodes = identity_task(kind, codec, goals), demonstrations(kind, codec, goals)
    planner = planners.build(method, task.spec, settings).eval()
    planner.fit_codec(episodes)
    return MethodCase(planner, task, method, Windows(task.spec, episodes, planner.needs))


def _contents(planner: LearnedPlanner) -> dict[str, Any]:
    """Copies of parameters and buffers, and plain attributes, by name."""
    found: dict[str, Any] = {name: one.detach().clone() for name, one in planner.named_parameters()}
    found |= {name: one.clone() for name, one in planner.named_buffers()}
    for prefix, module in planner.named_modules():
        found |= {f"{prefix}.{name}".strip("."): value for name, value in vars(module).items()
                  if isinstance(value, int | float | str | tuple) and name != "training"}  # fmt: skip
    return found


def _equal(a: Any, b: Any) -> bool:
    return torch.allclose(a, b, 0, 0, True) if isinstance(a, torch.Tensor) else bool(a == b)


def loss_changes_nothing(case: MethodCase) -> None:
    """`loss` leaves parameters, buffers and attributes as they were, and follows from batch and rng."""
    batch, rng, planner = case.windows.sample(BATCH_SIZE, Rng.of(0)), Rng.of(1), case.planner
    before = _contents(planner)
    with torch.random.fork_rng(devices=[]):
        first = planner.train().loss(batch, rng).total.item()
        second, third = (planner.eval().loss(batch, rng).total.item() for _ in range(2))
    for name, value in _contents(planner).items():
        same = name in before and _equal(value, before[name])
        expect(same, f"another {name} after loss()", "the same", "change it in after_step(), not in loss()")
    expect(math.isfinite(first), f"the loss {first}", "a finite number", "look at what is divided")
    expect(second == third, f"the losses {second} and {third} of one batch", "the same twice",
           "draw all random numbers from `rng`")  # fmt: skip


def learns_the_identity_task(case: MethodCase) -> None:
    """After a few training steps, the actions are those that the observations show."""
    planner, share, step = case.planner, 0.0, 0
    optimizer = torch.optim.AdamW(planner.parameters(), LEARNING_RATE, (0.9, 0.95), fused=True)
    while share < SHARE_RIGHT and step < MAX_STEPS:
        with torch.random.fork_rng(devices=[]):
            for _ in range(ROUND):
                torch.manual_seed(step)
                losses = planner.train().loss(case.windows.sample(BATCH_SIZE, Rng.of(0, step)), Rng.of(0, step))
                optimizer.zero_grad()
                torch.autograd.backward(losses.total)
                optimizer.step()
                planner.after_step(losses)
                step += 1
        played = play(planner.eval(), case.task, VALIDATION_SEEDS[:EPISODES], action_steps=1)
        share = sum(float(one.rewards.mean()) for one in played) / EPISODES
    expect(share >= SHARE_RIGHT, f"{share:.0%} of the actions right after {step} steps", f"at least {SHARE_RIGHT:.0%}",
           "see that loss and plan read the observation alike")  # fmt: skip


def acts_the_same_in_a_fresh_process(cases: Sequence[MethodCase]) -> None:
    """Saved and loaded by another process without the demonstrations, it plans bit for bit the same."""
    with tempfile.TemporaryDirectory() as scratch:
        saved = [(case.method, Path(scratch) / str(number)) for number, case in enumerate(cases)]
        for case, (_, folder) in zip(cases, saved, strict=True):
            _save(case, folder)
        again = in_fresh_process("genplan.conformance.method", torch.get_num_threads(), saved)
    for case, followed in zip(cases, again, strict=True):
        advice = "bit for bit: keep all that it needs in its state_dict()"
        expect_same(followed, follow(case.planner, case.task, SEEDS), advice, about=f" ({case.task.name})")


def _save(case: MethodCase, folder: Path) -> None:
    """As a run folder."""
    spec, planner = case.task.spec.to_json(), config.to_dict(case.planner.config)
    written = checkpoint.write_config(folder, {
        "format": checkpoint.FORMAT, "method": case.method, "task": case.task.name, "files": {}, "spec": spec,
        "planner": planner, "training": config.to_dict(TrainConfig()), "transforms": [], "versions": {}, "commit": "",
        "dataset": {"name": case.task.name, "digest": "", "episodes": len(case.windows)},
    })  # fmt: skip
    checkpoint.save_tensors(folder / "model.safetensors", case.planner.state_dict(), {"step": 0}, written["run"])


def replay(threads: int, saved: Sequence[tuple[str, Path]]) -> list[Followed]:
    """What the other process does: load each planner, by method and folder, and plan."""
    torch.set_num_threads(threads)
    found = []
    for method, folder in saved:
        planner, run_config = checkpoint.load_planner(folder, method if ".py:" in method else None)
        kind, codec = run_config["task"].split(" × ")
        found.append(follow(planner, identity_task(kind, codec, planner.spec.goals is not None), SEEDS))
    return found


RULES: tuple[Rule, ...] = (loss_changes_nothing, learns_the_identity_task, *planner_rules.RULES)


def check_method(
    method: str, kinds: Sequence[Kind] = KINDS, codecs: Sequence[str] = CODECS, fresh_process: bool = True
) -> Iterator[Finding]:
    """All rules in all combinations; one that the method refuses with a UserError is skipped, with its reason."""
    cases = []
    for kind, codec in ((kind, codec) for kind in kinds for codec in codecs):
        about = f"{kind} × {codec}"
        try:
            cases.append(make_case(method, kind, codec))
        except UserError as error:
            yield Finding("is built", "It is built, or refuses with a UserError.", "skipped", str(error), about)
        else:
            yield from apply_rules(RULES, cases[-1], about)
    if cases and fresh_process:
        yield from apply_rules([acts_the_same_in_a_fresh_process], cases)
    if not cases:
        yield Finding("is built", "", "broken", "found 0 combinations that it accepts, expected at least 1")
