"""How a step model is learnt: some seconds on demonstrated steps, before the training of the planner begins.

Pairs of action and outcome are learnt from the first steps of training windows, as the data transforms show them: in
scenes that are turned, painted and randomized it shows what nobody walks into. What becomes of cells is learnt from the
steps as they were recorded, since windows do not show the next scene.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from genplan.data.windows import TaskMixture, Windows
from genplan.flow import Rng
from genplan.models.step import GridFrame, GridStepModel, StepModel, Transitions, carried_values, number
from genplan.spec import PlanSpec
from genplan.types import Batch, Observations

BATCH, LEARNING_RATE = 1024, 5e-3
WINDOWS_PER_SCENE = 16
UNCERTAIN = 0.02  # with a larger share of steps that come otherwise than expected, two outcomes are kept
FACED = 0.98  # of all times that a sub-goal is faced or reached, those where it is both
RNG_STEPS = "step model"  # label of random draws: never renamed


def fit_step_model(
    model: StepModel, windows: Windows | TaskMixture, held_out: Windows | TaskMixture, steps: int
) -> dict[str, float]:
    """Learn it; the losses on recorded steps that were held out."""
    parts, device = _parts(windows), model.log_prior.device
    recorded = [recorded_steps(model, part) for part in parts]
    _describe(model, parts[0], recorded)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with torch.enable_grad():
        for step in range(steps):
            rng = Rng.of(0).fold(RNG_STEPS, step)
            shown = first_steps(model, windows.sample(BATCH, rng, WINDOWS_PER_SCENE))
            known = recorded[int(rng.fold("part").integers(len(recorded)))]
            known = known.rows(rng.fold("rows").integers(len(known.actions), (BATCH,)))
            losses = [model.nll(one).values() for one in (shown, known)]
            loss = torch.stack([part for one in losses for part in one]).sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    test = recorded_steps(model, _parts(held_out)[0])
    with torch.no_grad():
        rows = torch.arange(len(test.actions), device=device)
        likeliest = model.joint_logits(test.before)[rows, test.actions].argmax(-1)
        model.num_outcomes.fill_(2 if (likeliest != test.outcomes).float().mean() > UNCERTAIN else 1)
        errors = {f"step/{name}": float(value) for name, value in model.nll(test).items()}
    for parameter in model.parameters():  # nothing changes it any more
        parameter.requires_grad_(False)
        parameter.grad = None
    return errors


def _parts(windows: Windows | TaskMixture) -> list[Windows]:
    return list(windows.parts) if isinstance(windows, TaskMixture) else [windows]


def _describe(model: StepModel, windows: Windows, recorded: list[Transitions]) -> None:
    """How often actions are done, which were demonstrated at which keys, and which channels hold mere names."""
    actions = torch.cat([one.actions for one in recorded])
    counts = torch.bincount(actions, minlength=model.num_actions) + 1.0
    model.log_prior.copy_((counts / counts.sum()).log())
    keys = number(torch.cat([one.before for one in recorded]).unbind(1), model.sizes)
    pairs = torch.bincount(keys * model.num_actions + actions, minlength=model.demonstrated.numel())
    model.demonstrated.copy_(pairs.clamp(max=2**15 - 1).view_as(model.demonstrated))
    names = {channel for one in windows.transforms for channel in getattr(one, "exchangeable", ())}
    if isinstance(model, GridStepModel):
        model.exchangeable.copy_(torch.tensor([channel in names for channel in _channels(windows.spec)]))


def _channels(spec: PlanSpec) -> Iterator[tuple[str, int]]:
    """The channels of a key, as (field, number)."""
    for name in (spec.grid_field or "", *(name for name in spec.step_fields if name != spec.state_field)):
        for channel in range(len(spec.fields[name].sizes)):
            yield name, channel


def goals_are_faced(windows: Windows | TaskMixture) -> bool:
    """Whether sub-goals were reached when they were faced, and never otherwise, in nearly all demonstrated steps."""
    agreed = total = 0
    for part in _parts(windows):
        spec, starts = part.spec, part.starts
        if spec.goals is None or spec.geometry is None or spec.goals.directions != 1 or part.goals is None:
            return False
        goal, after = (part.goals[starts + later].flatten(1)[:, 0] for later in (0, 1))
        states = part.steps[spec.state_field or ""]
        faced = GridFrame.of(spec.geometry, states.device).ahead[states[starts + 1]] == goal
        reached = (after != goal) | (part.last[starts] == starts + 1)
        agreed, total = agreed + int((faced & reached).sum()), total + int((faced | reached).sum())
    return agreed > FACED * total


def has_any_order(windows: Windows | TaskMixture) -> bool:
    """Whether a data transform says that sub-goals may be reached in any order."""
    return all(any(getattr(one, "any_order", False) for one in part.transforms) for part in _parts(windows))


def first_steps(model: StepModel, batch: Batch) -> Transitions:
    """The first step of every window, as it is shown."""
    spec, states = batch.spec, batch.tokens["states"]
    seen = batch.valid["states"][:, 1] & batch.valid["actions"][:, 0]
    now, after, actions = states[seen, 0], states[seen, 1], batch.actions[seen, 0]
    if not isinstance(model, GridStepModel):
        return Transitions(now[:, None], actions, after)
    assert spec.geometry is not None
    frame = GridFrame.of(spec.geometry, states.device)
    scenes = torch.arange(batch.num_scenes, device=states.device).repeat_interleave(batch.windows_per_scene)[seen]
    look = _look(batch.scene[spec.grid_field or ""], scenes, frame.ahead[now])
    return Transitions(
        torch.cat([look, carried_values(spec, batch.current[seen])], 1), actions, frame.outcome(now, after)
    )


def recorded_steps(model: StepModel, windows: Windows) -> Transitions:
    """All steps, as they were recorded."""
    spec, starts = windows.spec, windows.starts
    states, actions = windows.steps[spec.state_field or ""], windows.actions[starts]
    now, after = states[starts], states[starts + 1]
    if not isinstance(model, GridStepModel):
        return Transitions(now[:, None], actions, after)
    assert spec.geometry is not None
    frame, grids = GridFrame.of(spec.geometry, states.device), windows.scenes[spec.grid_field or ""]
    looks = [_look(grids, windows.scene_of_step[starts + later], frame.ahead[now]) for later in (0, 1)]
    carried = [carried_values(spec, Observations({name: one[starts + later] for name, one in windows.steps.items()}))
               for later in (0, 1)]  # fmt: skip
    before, then = (torch.cat(pair, 1) for pair in zip(looks, carried, strict=True))
    return Transitions(before, actions, frame.outcome(now, after), then)


def _look(grids: Tensor, scenes: Tensor, cells: Tensor) -> Tensor:
    """What scenes [n] of grids [M, W, H, C] show at cells [n]: [n, C]."""
    return grids[scenes, cells % grids.shape[1], cells // grids.shape[1]].long()
