"""The baselines: each learns, and each is what it says it is."""

import dataclasses
import itertools

import pytest
import torch

from genplan import planners, tasks
from genplan.config import override
from genplan.data.windows import Windows
from genplan.errors import UserError
from genplan.flow import Rng
from genplan.planners.leap import least_energy, metropolis, pseudo_energy
from genplan.presets import default_config
from genplan.rollout import EnvBatch, play
from genplan.spec import Stream
from genplan.types import History, Observations, Oracle, SubGoal

from ..data.worlds import number_spec, numbers

SPEC = number_spec(5, 3)
SPEC = dataclasses.replace(SPEC, streams={**SPEC.streams, "goals": Stream(5, (1,))})
SMALL = {"hidden_size": 32, "num_layers": 2, "encoder_iterations": 2}


def make(method, spec=SPEC, seed=0, **settings):
    config = override(planners.default_settings(method), strict=False, **SMALL)
    return planners.build(method, spec, override(config, **settings), seed)


def states(*numbers):
    return Observations({"state": torch.tensor(numbers)})


def recollections(number=64):
    """Begin in state 0 or 1, pass through 2 and 3, and do then what the beginning says: it must be remembered."""
    return [numbers([k % 2, 2, 3, 4], [2, 2, k % 2], (SubGoal(2, k % 2, "target"),)) for k in range(number)]


def learn(planner, episodes, steps=120):
    windows = Windows(planner.spec, episodes, planner.needs)
    optimizer = torch.optim.AdamW(planner.parameters(), lr=5e-3)
    for step in range(steps):
        rng = Rng.of(1, step)
        losses = planner.train().loss(windows.sample(32, rng, 1, augment=False), rng)
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
        planner.after_step(losses)
    return planner.eval()


def last_action(planner):
    """What the planner does in state 3, having begun in 0 and in 1."""
    rows = torch.arange(2)
    memory = planner.reset(states(0, 1))
    for state in (2, 3):
        memory = planner.observe(memory, torch.tensor([2, 2]), states(state, state), rows)
    plan, _ = planner.plan(states(3, 3), memory, Rng.of(0, rows), rows)
    return plan.actions[:, 0].tolist()


@pytest.mark.parametrize(
    ("method", "settings", "remembers"),
    [
        ("BC", {"context_length": 3}, True),
        ("BC", {"context_length": 2}, False),
        ("BC", {"context_length": 1, "visit_memory": True}, True),
        ("DT-noGC", {"context_length": 1, "visit_memory": True}, True),
        ("DT-noGC", {"context_length": 3}, True),
        ("LEAP-noGC", {"horizon": 2, "context_length": 3}, True),
        ("LEAP-noGC", {"horizon": 2, "context_length": 1, "visit_memory": True}, True),
        ("LEAP-noGC", {"horizon": 2, "context_length": 3, "single_mask_prob": 1.0}, True),
        ("BC-step", {"context_length": 3}, True),
        ("LEAP-step", {"horizon": 2, "context_length": 3}, True),
        ("GenPlan-M", {"horizon": 2, "context_length": 3}, True),
        ("GenPlan-U", {"horizon": 2, "context_length": 1, "visit_memory": True}, True),
    ],
)
def test_each_learns_a_tiny_task_and_memory_matters_where_it_must(method, settings, remembers):
    planner = learn(make(method, temperature=0.0, **settings), recollections())
    assert (last_action(planner) == [0, 1]) == remembers


def history(actions, past, valid):
    return History(Observations({"state": past}), actions, valid)


def test_privileged_goals_are_used():
    planner = learn(make("DT", context_length=1, temperature=0.0), recollections())
    empty = torch.zeros(2, 0, dtype=torch.int64)
    encoding = planner.encoder(Observations({}), 2)
    goals = torch.tensor([[0], [1]])
    logits = planner.logits(encoding, states(3, 3), history(empty, empty, empty.bool()), goals)
    assert logits[:, -1].argmax(-1).tolist() == [0, 1]


def test_a_decision_transformer_cannot_see_the_future():
    planner = make("DT", context_length=4).eval()
    encoding = planner.encoder(Observations({}), 1)
    past, actions = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]])
    goals, valid = torch.tensor([[4]]), torch.ones(1, 3, dtype=torch.bool)

    @torch.no_grad()
    def answer(past, actions):
        return planner.logits(encoding, states(3), history(actions, past, valid), goals)

    before = answer(past, actions)
    for later in range(3):
        other_past, other_actions = past.clone(), actions.clone()
        other_past[:, later] = 4
        other_actions[:, later] = 1 if actions[0, later] != 1 else 2
        after = answer(other_past, actions)
        assert torch.allclose(after[:, :later], before[:, :later])
        assert not torch.allclose(after[:, later], before[:, later])
        # An action is known only behind the state that it answers.
        after = answer(past, other_actions)
        assert torch.allclose(after[:, : later + 1], before[:, : later + 1])
        assert not torch.allclose(after[:, later + 1], before[:, later + 1])


def test_the_entropy_bound_of_leap_moves_its_multiplier_after_the_step():
    """LEAP⊕H is pulled towards more entropy than it has; without the bound nothing is."""
    totals = []
    for bound in (5.0, 0.0):  # no distribution over four tokens has five nats
        planner = make("LEAP-noGC", horizon=2, entropy_bound=bound).train()
        batch = Windows(SPEC, recollections(), planner.needs).sample(32, Rng.of(0))
        first = planner.loss(batch, Rng.of(1))
        assert planner.bound.multiplier == 0
        planner.after_step(first)
        assert (planner.bound.multiplier > 0) == (bound > 0)
        totals.append(planner.loss(batch, Rng.of(1)))
    assert totals[0].total < totals[1].total  # entropy is rewarded
    assert totals[0].metrics["loss/actions"] == totals[1].metrics["loss/actions"]


def test_leap_at_temperature_zero_never_raises_the_energy():
    generator = torch.Generator().manual_seed(0)
    couplings = torch.randn(8, 6, 4, 6, 4, generator=generator)  # of an action here with another there
    everyone = torch.arange(8)

    def conditionals(actions, rows=everyone):
        shown = torch.nn.functional.one_hot(actions, 4).float()
        others = couplings[rows] * ~torch.eye(6, dtype=torch.bool)[:, None, :, None]
        return torch.einsum("bka,bkalc->blc", shown, others).log_softmax(-1)

    start = torch.randint(4, (8, 6), generator=generator)
    energies = {}
    for temperature in (0.0, 5.0):
        steps = list(metropolis(start, conditionals, Rng.of(3, everyone), 80, temperature))
        assert len(steps) == 81
        for actions, energy, _ in steps:
            assert torch.allclose(pseudo_energy(conditionals(actions), actions), energy, atol=1e-5)
        energies[temperature] = torch.stack([energy for _, energy, _ in steps])
        best, least, _ = least_energy(iter(steps))
        assert torch.allclose(least, energies[temperature].amin(0))  # the best that was met
        assert torch.allclose(pseudo_energy(conditionals(best), best), least, atol=1e-5)
    assert (energies[0.0].diff(dim=0) <= 1e-5).all()  # every step of the chain
    assert (energies[0.0][-1] < energies[0.0][0]).all()
    assert (energies[5.0].diff(dim=0) > 1e-3).any()  # while it is warm, it may rise


@pytest.mark.parametrize("context_length", [1, 2])
def test_one_step_asked_alone_is_answered_as_among_all(context_length):
    """LEAP asks for the masked step only; what it saves changes no answer, with pasts of unequal length too."""
    task = tasks.get("MazeS4G1")
    planner = make("LEAP", task.spec, context_length=context_length, visit_memory=True).eval()
    batch, rows = EnvBatch(task, [2000, 2001, 2002]), torch.arange(3)
    memory = planner.reset(batch.observations())
    for moved in (rows, rows[:1]):
        actions = torch.full((len(moved),), 1)
        batch.step(moved, actions)
        memory = planner.observe(memory, actions, batch.observations(moved), moved)
    now = batch.observations(rows)
    with torch.no_grad():
        encoding, past = planner.conditioning(now, memory, rows)
        assert past.visited_mask is not None
        assert not past.visited_mask.all()
        current = now.only(task.spec.step_fields)
        logits = planner.network(encoding, current, past, 1, torch.zeros(3, 1, dtype=torch.int64))
        which, query = torch.tensor([2, 0]), torch.tensor([3, 9, 0, 4])
        plans = torch.randint(planner.mask + 1, (4, 10))
        alone, among = logits(plans, which, query), logits(plans, which)
    assert torch.allclose(alone[:, 0], among[torch.arange(4), query], atol=1e-5)


@pytest.mark.parametrize("method", [name for name, one in planners.METHODS.items() if not one.continuous])
def test_all_play_and_only_some_are_privileged(method):
    task = dataclasses.replace(tasks.get("KeyCorridorS3R3"), max_steps=4)
    planner = make(method, task.spec).eval()
    assert planner.privileged == (method in ("DT", "LEAP"))
    assert [rollout.num_steps for rollout in play(planner, task, [2000, 2001])] == [4, 4]
    if planner.privileged:
        now, row = EnvBatch(task, [2000]).observations(), torch.zeros(1, dtype=torch.int64)
        with pytest.raises(UserError, match="gets its goals from the simulator, and the task tells none"):
            planner.plan(now, planner.reset(now), Rng.of(0, row), row)


@pytest.mark.parametrize("method", ["DT", "LEAP"])
def test_privileged_goals_are_never_in_the_observation(method):
    """They come through the oracle alone: what is observed and remembered is the same whatever the goals are."""
    task = tasks.get("MazeS4G1")
    planner = make(method, task.spec, context_length=3, visit_memory=True).eval()
    batch, rows = EnvBatch(task, [2000]), torch.arange(1)
    now = batch.observations()
    assert set(now.fields) == set(task.spec.fields)
    assert "goals" not in now
    asked, found = [], []
    for cell in (9, 40):
        oracle = Oracle(batch.envs, lambda env, cell=cell: asked.append(env) or [cell])
        memory = planner.reset(now, oracle)
        _, past = planner.conditioning(now, memory, rows)
        plan, memory = planner.plan(now, memory, Rng.of(0, rows), rows, oracle)
        found.append((memory.last.fields, past.steps.fields, plan.energy))
    assert asked == [batch.envs[0]] * 2
    for one, other in zip(found[0][:2], found[1][:2], strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(found[0][2], found[1][2])  # but what is planned depends on them


def test_lowering_the_energy_does_no_harm_near_the_goal():
    """Go along a line to its end: plans are longer than the way, and what stands behind its end must not mislead."""
    episodes = []
    for begin, end in itertools.product((1, 2, 3), (0, 4)):
        line = range(begin, end + 1) if end else range(begin, -1, -1)
        goal = SubGoal(len(line) - 2, end, "target")
        episodes += [numbers(list(line), [end // 4] * (len(line) - 1), (goal,))] * 8
    planner = learn(make("LEAP", horizon=6, context_length=1, temperature=0.5), episodes)
    rows = torch.arange(60)
    now, wanted = states(*(rows % 3 + 1).tolist()), (rows // 3) % 2
    oracle = Oracle(list(range(60)), lambda env: [4 if (env // 3) % 2 else 0])
    shares = []
    for iterations in (1, 10, 40):
        eager = planner.with_options(iterations=iterations)
        plan, _ = eager.plan(now, eager.reset(now), Rng.of(0, rows), rows, oracle)
        shares.append((plan.actions[:, 0] == wanted).float().mean())
    assert min(shares) > 0.95


def test_leap_does_not_read_its_last_step_in_the_training_task_of_the_adaptive_rows():
    """It harms there and helps elsewhere; the others read it everywhere."""
    for method in (name for name, one in planners.METHODS.items() if not one.continuous):
        unread = method.startswith("LEAP")
        assert default_config("LocS10N1", method)[0].memory.context_length == (1 if unread else 2)
        assert default_config("MazeS4G1", method)[0].memory.context_length == 2


def test_after_the_end_of_a_plan_its_last_step_stands_again():
    planner = make("LEAP-noGC")
    end = planner.end
    plans = torch.tensor([[2, 1, end, 0, end], [0, 1, 2, 1, 0], [2, end, end, end, end]])
    assert planner._without_end(plans).tolist() == [[2, 1, 1, 1, 1], [0, 1, 2, 1, 0], [2] * 5]
