"""Value iteration in what was learnt: from every state of a training scene, the fewest steps to its sub-goals.

Demonstrations show a way or two through a scene. The learnt step model knows the others: which cells can be entered,
which doors must be opened first. The fewest steps that it needs are what cost-to-go learns, so that planning in a scene
never seen takes one look at a cell. Nothing here is asked when a plan is made, and the simulator never.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from genplan.flow import Rng
from genplan.models.step import ADVANCE, GridFrame, GridStepModel, carried_values, number
from genplan.types import Batch

FAR = 1e6  # steps: there is no way
CHECK_EVERY = 4  # iterations between checks of convergence
NUM_STATES = 32  # of each scene, of which the cost is learnt at a time
RNG_VALUES = "values"  # label of random draws: never renamed


class StepGraph(NamedTuple):
    """What the step model says can be done in scenes, at its likeliest."""

    following: Tensor  # [M, C, S]: the states that C moves lead to; S: nowhere
    steps: Tensor  # [C]: actions of each move; of some, the first makes way for the second
    standable: Tensor  # bool [M, S]: whether its cell can be entered at all


class Values(NamedTuple):
    """Targets for windows [B] of M scenes."""

    states: Tensor  # [B, n]
    reached: Tensor  # [B, n]: the state in which a sub-goal was reached before, −1 for none
    steps_left: Tensor  # [B, n]
    valid: Tensor  # bool [B, n]


def step_graph(model: GridStepModel, frame: GridFrame, maps: Tensor, carried: Tensor, cutoff: float) -> StepGraph:
    """Of scenes whose cells look like maps [M, cells], with carried [M] in hand; both as numbers.

    cutoff  an action this many nats rarer before such a look than elsewhere is impossible there
    """
    table, num_states = model.table(), len(frame.ahead)
    num_carried = math.prod(model.carried_sizes)
    states = torch.arange(num_states, device=maps.device)[:, None]
    look = maps[:, frame.ahead].long()
    key = look * num_carried + carried[:, None]  # [M, S]
    possible, outcome = table.log_ratio >= -cutoff, table.outcome[..., 0]
    onward = torch.where(possible[key], frame.following[states, outcome[key]], -1)  # [M, S, A]
    moves, steps = [onward.masked_fill(onward == states, -1)], [1] * onward.shape[-1]
    # What changes the look ahead, and nothing else, makes way: the moves behind it.
    changed, kept = table.look[key], table.carried[key] == carried[:, None, None]
    prepares = possible[key] & (onward == states) & (changed != look[..., None]) & kept
    for action in prepares.flatten(0, 1).any(0).nonzero().squeeze(1).tolist():
        then = changed[..., action] * num_carried + carried[:, None]
        behind = torch.where(possible[then] & prepares[..., action, None], frame.following[states, outcome[then]], -1)
        moves.append(behind.masked_fill(behind == states, -1))
        steps += [2] * behind.shape[-1]
    following = torch.cat(moves, -1)
    used = (following >= 0).flatten(0, 1).any(0)
    enterable = ((outcome == ADVANCE) & possible).any(-1)  # [K], of what is ahead
    standable = enterable[maps.long() * num_carried + carried[:, None]].repeat_interleave(4, 1)
    following = torch.where(following < 0, num_states, following)[..., used]
    return StepGraph(following.transpose(1, 2).contiguous(), torch.tensor(steps, device=maps.device)[used], standable)


def fewest_steps(graph: StepGraph, ends: Tensor) -> Tensor:
    """[M, G, S] from steps left at ends [M, G, S], FAR where none is."""
    size, num_ends, num_states = ends.shape
    index = graph.following.flatten(1)[:, None].expand(-1, num_ends, -1)
    found = torch.nn.functional.pad(ends, (0, 1), value=FAR)  # from nowhere
    for iteration in range(1, num_states):
        onward = found.gather(2, index).view(size, num_ends, -1, num_states) + graph.steps[:, None]
        before = found
        found = torch.nn.functional.pad(torch.minimum(found[..., :-1], onward.amin(2)), (0, 1), value=FAR)
        if iteration % CHECK_EVERY == 0 and torch.equal(before, found):
            break
    return found[..., :-1]


def value_targets(model: GridStepModel, batch: Batch, cutoff: float, any_order: bool, rng: Rng) -> Values:
    """For a batch whose sub-goals are reached by facing them; the last two that are left count.

    any_order  they may be reached in any order, else as demonstrated
    """
    spec, goals = batch.spec, batch.tokens["goals"][:, 0].flatten(1)
    assert spec.geometry is not None
    size, per_scene, device = batch.num_scenes, batch.windows_per_scene, goals.device
    frame = GridFrame.of(spec.geometry, device)
    grids = batch.scene[spec.grid_field or ""].transpose(1, 2).flatten(1, 2).long()
    maps = number(grids.unbind(-1), model.look_sizes)
    carried = torch.zeros_like(goals[:, 0])
    if model.carried_sizes:
        carried = number(carried_values(spec, batch.current).unbind(-1), model.carried_sizes)
    graph = step_graph(model, frame, maps, carried[::per_scene], cutoff)
    first, last = (goals[:, slot].view(size, per_scene) for slot in (0, -1))
    both = first != last
    final = last[:, 0]
    other = torch.where(both.any(1), first.gather(1, both.int().argmax(1, keepdim=True)).squeeze(1), final)
    cells = torch.stack([other, final], 1)[..., None]  # [M, 2, 1]
    faces = (frame.ahead == cells) & graph.standable[:, None]  # [M, 2, S]
    to_each = fewest_steps(graph, torch.where(faces, 0.0, FAR))
    to_other, to_final = to_each.unbind(1)
    ends = torch.where(faces, to_each.flip(1), FAR)  # one is reached, and the other left
    ends = ends.amin(1) if any_order else ends[:, 0]
    to_both = fewest_steps(graph, ends[:, None]).squeeze(1)
    # The same states for all windows of a scene; a third of the columns each: nothing, the first, the last reached.
    usable = graph.standable & (to_final < FAR) & (to_other < FAR)
    number_drawn = min(NUM_STATES, usable.shape[1])  # a grid may have fewer
    drawn = rng.fold(RNG_VALUES).uniform((size, usable.shape[1])).masked_fill(~usable, -1.0).topk(number_drawn, 1)
    chosen, stage = drawn.indices, torch.arange(number_drawn, device=device) % (3 if any_order else 2)
    at = faces.int().argmax(2)  # a state that faces each, [M, 2]
    reached = torch.where(stage == 0, -1, torch.where(stage == 1, at[:, :1], at[:, 1:]))
    left_both = torch.where(
        stage == 0,
        to_both.gather(1, chosen),
        torch.where(stage == 1, to_final.gather(1, chosen), to_other.gather(1, chosen)),
    )
    left_one = to_final.gather(1, chosen)

    def per_window(one: Tensor) -> Tensor:
        return one.repeat_interleave(per_scene, 0)

    both = both.flatten()[:, None]
    steps_left = torch.where(both, per_window(left_both), per_window(left_one))
    known = batch.valid["goals"][:, 0].flatten(1).all(1)
    same_carried = carried == per_window(carried[::per_scene, None]).squeeze(1)
    valid = per_window(drawn.values >= 0) & (steps_left < FAR) & (known & same_carried)[:, None]
    return Values(per_window(chosen), torch.where(both, per_window(reached), -1), steps_left, valid)
