"""Outcome memory: what stood in the way once is known the next time, for as long as the episode lasts."""

import copy

import pytest
import torch

from genplan import planners
from genplan.config import override
from genplan.envs.babyai import babyai_spec
from genplan.flow import Rng, plan_energy
from genplan.planners.outcomes import OutcomeMemory, Suggestion
from genplan.rollout import EnvBatch
from genplan.types import Observations

SPEC = babyai_spec(6, 1)
GEOMETRY = SPEC.geometry
FLOOR, WALL, CLOSED, OPEN = (1, 0, 0), (2, 5, 0), (4, 2, 1), (4, 2, 0)
BLUE = (4, 3, 1)  # closed, and of another color
FORWARD, TOGGLE = 2, 5
ROW = torch.tensor([0])


def observed(x, *cells, direction=0):
    """An agent at x, that faces right, in a corridor of six cells."""
    corridor = [*cells, *[FLOOR] * (6 - len(cells))]
    return Observations({
        "state": torch.tensor([GEOMETRY.state(x, 0, direction)]),
        "grid": torch.tensor(corridor, dtype=torch.uint8).reshape(1, 6, 1, 3),
        "mission": torch.zeros(1, SPEC.fields["mission"].shape[0], dtype=torch.int64),
        "carrying": torch.tensor([[1, 0]]),
    })  # fmt: skip


def onward(action, now):
    """A plan that begins with `action` and is to be one cell further then."""
    ahead = now["state"][:, None] + torch.tensor([0, GEOMETRY.directions, 2 * GEOMETRY.directions])
    return torch.tensor([[action, FORWARD, FORWARD]]), ahead


def after(*steps):
    """The memory after steps (action, observed before it, observed after it), all of which were planned to lead on."""
    memory = OutcomeMemory(SPEC, 1, torch.device("cpu"))
    for action, before, then in steps:
        memory.commit(ROW, memory.suggest(ROW, before, *onward(action, before)))
        memory.update(ROW, torch.tensor([action]), before, then)
    return memory


BUMP = (FORWARD, observed(0, FLOOR, CLOSED), observed(0, FLOOR, CLOSED))
OPENED = (TOGGLE, observed(0, FLOOR, CLOSED), observed(0, FLOOR, OPEN))


def first(memory, now):
    """What is done first of a plan that leads on."""
    suggestion = memory.suggest(ROW, now, *onward(FORWARD, now))
    return int(suggestion.action) if suggestion.override else FORWARD


def test_what_helped_once_comes_first_the_next_time():
    memory = after(BUMP, OPENED)
    assert first(memory, observed(2, FLOOR, OPEN, FLOOR, CLOSED)) == TOGGLE
    assert first(memory, observed(2, FLOOR, OPEN, FLOOR, BLUE)) == TOGGLE  # whatever its color


@pytest.mark.parametrize("cell", [FLOOR, WALL, OPEN])
def test_other_types_of_cells_are_another_matter(cell):
    assert first(after(BUMP, OPENED), observed(2, FLOOR, OPEN, FLOOR, cell)) == FORWARD


def test_nothing_is_known_before_it_was_tried():
    assert first(after(), observed(0, FLOOR, CLOSED)) == FORWARD
    assert first(after(BUMP), observed(0, FLOOR, CLOSED)) == FORWARD  # in the way, but nothing is known to help
    passed = (FORWARD, observed(0, FLOOR, CLOSED), observed(1, FLOOR, CLOSED))
    assert first(after(passed, OPENED), observed(0, FLOOR, CLOSED)) == FORWARD


def test_what_helps_less_than_every_other_time_is_not_relied_on():
    failed = (TOGGLE, observed(0, FLOOR, CLOSED), observed(0, FLOOR, CLOSED))
    assert first(after(BUMP, failed, OPENED), observed(0, FLOOR, CLOSED)) == TOGGLE
    assert first(after(BUMP, failed, failed, OPENED), observed(0, FLOOR, CLOSED)) == FORWARD


def test_an_agent_that_has_turned_away_faces_something_else():
    memory = after(BUMP)
    turned = observed(0, FLOOR, CLOSED, direction=1)
    memory.update(ROW, torch.tensor([1]), observed(0, FLOOR, CLOSED), turned)
    stays = turned["state"][:, None].repeat(1, 3)
    memory.commit(ROW, memory.suggest(ROW, turned, torch.tensor([[TOGGLE, 1, 1]]), stays))  # is to stay where it is
    changed = observed(0, FLOOR, CLOSED, WALL, direction=1)
    memory.update(ROW, torch.tensor([TOGGLE]), turned, changed)  # something else changed
    assert first(memory, observed(0, FLOOR, CLOSED)) == FORWARD


def test_asking_changes_nothing():
    memory = after(BUMP, OPENED)
    before = copy.deepcopy(vars(memory))
    now = observed(2, FLOOR, OPEN, FLOOR, CLOSED)
    one, other = (memory.suggest(ROW, now, *onward(FORWARD, now)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    for name, value in vars(memory).items():
        assert torch.equal(value, before[name]) if isinstance(value, torch.Tensor) else value == before[name]


# --- in GenPlan ------------------------------------------------------------------------------------------------------


def make(spec, **settings):
    config = override(
        planners.default_settings("GenPlan-M"), hidden_size=32, num_layers=1, order="confidence", **settings
    )
    return planners.build("GenPlan-M", spec, config).eval()


@pytest.mark.parametrize(("exploration", "outcome_memory"), [(0.0, True), (0.5, True), (0.5, False)])
def test_outcomes_are_remembered_with_exploration_alone(room, exploration, outcome_memory):
    task, _ = room
    model = make(task.spec, exploration=exploration, outcome_memory=outcome_memory)
    now, rows = EnvBatch(task, [10_000, 10_001]).observations(), torch.arange(2)
    memory = model.reset(now)
    assert (memory.outcomes is not None) == bool(exploration and outcome_memory)
    plan, memory = model.plan(now, memory, Rng.of(0, rows), rows)
    assert plan.actions.shape == (2, 10)
    model.observe(memory, plan.actions[:, 0], now, rows)


@pytest.mark.parametrize("num_candidates", [1, 3])
def test_a_plan_with_a_suggested_action_describes_itself(room, monkeypatch, num_candidates):
    """What a plan says is what is done: tokens, states, energy, confidence and trace are those of the revised plan."""
    task, _ = room
    model = make(task.spec, exploration=0.5, num_candidates=num_candidates)
    now, rows = EnvBatch(task, range(10_000, 10_003)).observations(), torch.arange(3)
    at_noise = []
    denoise = model.denoiser.forward

    def spy(x_t, t, prepared):
        logits = denoise(x_t, t, prepared)
        at_noise.extend([logits] if not t.any() else [])
        return logits

    model.denoiser.forward = spy
    memory = model.reset(now)
    before, _ = model.plan(now, memory, Rng.of(0, rows), rows, keep_trace=True)
    where = torch.tensor([True, False, True])
    nothing = torch.full((3,), -1)
    suggestion = Suggestion(where, torch.tensor([4, 4, 3]), torch.tensor([0.75, 0.5, 1.0]), nothing, nothing)
    monkeypatch.setattr(memory.outcomes, "suggest", lambda *arguments: suggestion)
    plan, _ = model.plan(now, memory, Rng.of(0, rows), rows, keep_trace=True)
    # The rest comes a step later; rows without a suggestion are as they were.
    assert plan.actions[:, 0].tolist() == [4, int(before.actions[1, 0]), 3]
    assert torch.equal(plan.actions[where, 1:], before.actions[where, :-1])
    assert torch.equal(plan.states[where, 1:], before.states[where, :-1])
    assert torch.equal(plan.states[:, 0], now["state"])
    assert torch.equal(plan.confidence[where, 0], suggestion.success_rate[where])
    assert torch.equal(plan.confidence[where, 1:], before.confidence[where, :-1])
    for name in ("actions", "energy", "confidence", "candidate_energies"):
        assert torch.equal(getattr(plan, name)[1], getattr(before, name)[1])
    assert torch.equal(plan.actions, plan.tokens["actions"])
    best = torch.arange(3) * num_candidates + before.candidate_energies.argmin(-1)
    logits = {name: x[best] for name, x in at_noise[-1].items()}
    assert torch.allclose(plan.energy, plan_energy(logits, plan.tokens, ["actions"], 1), atol=1e-5)
    assert torch.equal(plan.candidate_energies.gather(1, (best % num_candidates)[:, None])[:, 0], plan.energy)
    for name, tokens in plan.tokens.items():
        assert torch.equal(plan.trace.tokens[name][-1, best], tokens)
    others = torch.ones(3 * num_candidates, dtype=torch.bool)
    others[best[where]] = False
    for name in plan.tokens:
        assert torch.equal(plan.trace.tokens[name][:, others], before.trace.tokens[name][:, others])
    assert torch.isfinite(plan.trace.energy).all()


def test_plans_and_steps_reach_the_outcome_memory(room, monkeypatch):
    """What plans expect is committed, and what was done and observed before and after is told."""
    task, episodes = room
    model = make(task.spec, exploration=0.5)
    columns = {name: torch.from_numpy(column) for name, column in episodes[0].observations.items()}
    before, then = (Observations({name: one[k : k + 1] for name, one in columns.items()}) for k in (0, 1))
    memory = model.reset(before)
    plan, memory = model.plan(before, memory, Rng.of(0, ROW), ROW)
    stays = plan.states[0, 1] // 4 == plan.states[0, 0] // 4
    assert int(memory.outcomes.predicted[0]) == (-1 if stays else int(plan.states[0, 1]))
    updates = []
    monkeypatch.setattr(memory.outcomes, "update", lambda *arguments: updates.append(arguments))
    model.observe(memory, torch.tensor([4]), then, ROW)
    _, actions, last, now = updates[0]
    assert actions.tolist() == [4]
    for name in ("state", "grid", "carrying"):
        assert torch.equal(last[name], before[name])
        assert torch.equal(now[name], then[name])
