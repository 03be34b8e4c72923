"""The baselines: each learns, and each is what it says it is."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from genplan import tasks
from genplan.config import METHODS, BCConfig, DTConfig, LEAPConfig, settings
from genplan.data.demos import collect_episode
from genplan.data.tokens import PlanSpec
from genplan.data.windows import Past, Windows, goal_tokens
from genplan.errors import UserError
from genplan.evaluate import rollout
from genplan.flow import Rng
from genplan.planners.leap import descend, pseudo_energy
from genplan.planners.reference import Bot
from genplan.runs import PLANNERS
from genplan.tasks.batch import EnvBatch
from genplan.types import Episode, Observations, SubGoal

SPEC = PlanSpec(num_actions=3, num_states=5, num_goals=1, goal_size=5)
SMALL = {"width": 32, "layers": 2, "passes": 2}


def recollections(number=64):
    """Begin in state 0 or 1, pass through 2 and 3, and do then what the beginning says: it must be remembered."""
    episodes = []
    for index in range(number):
        begin = index % 2
        goals = (SubGoal(2, begin, "target"),)
        episodes.append(Episode(np.array([begin, 2, 3, 4]), np.array([2, 2, begin]), subgoals=goals))
    return episodes


def learn(planner, windows, steps=120):
    optimiser = torch.optim.AdamW(planner.parameters(), lr=5e-3)
    for step in range(steps):
        rng = Rng.of(1, step)
        loss = planner.train().loss(windows.draw(32, rng, 1, augment=False), rng).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return planner.eval()


def last_action(planner):
    """What the planner does in state 3, having begun in 0 and in 1."""
    seen = Observations(torch.tensor([0, 1]))
    rows = torch.arange(2)
    memory = planner.start(seen)
    for state in (2, 3):
        seen = Observations(torch.tensor([state, state]))
        memory = planner.observe(memory, torch.tensor([2, 2]), seen, rows)
    plan, _ = planner.plan(seen, memory, Rng.of(0, rows), rows)
    return plan.actions[:, 0].tolist()


@pytest.mark.parametrize(
    ("config", "memory"),
    [
        (BCConfig(context=2, temperature=0, **SMALL), True),
        (BCConfig(context=1, temperature=0, **SMALL), False),
        (BCConfig(context=0, trail=True, temperature=0, **SMALL), True),
        (DTConfig(context=0, trail=True, goals=False, temperature=0, **SMALL), True),
        (DTConfig(context=2, goals=False, temperature=0, **SMALL), True),
        (LEAPConfig(horizon=2, context=2, goals=False, temperature=0, **SMALL), True),
        (LEAPConfig(horizon=2, context=0, trail=True, goals=False, temperature=0, **SMALL), True),
        (LEAPConfig(horizon=2, context=2, goals=False, temperature=0, single_share=1.0, **SMALL), True),
    ],
)
def test_each_learns_a_tiny_task_and_memory_matters_where_it_must(config, memory):
    torch.manual_seed(0)
    planner = PLANNERS[type(config)](SPEC, config)
    learn(planner, Windows(SPEC, recollections(), config.horizon, config.context, trail=config.trail))
    assert (last_action(planner) == [0, 1]) == memory


def test_what_the_simulator_tells_is_used():
    torch.manual_seed(0)
    config = DTConfig(context=0, temperature=0, **SMALL)
    planner = learn(PLANNERS[DTConfig](SPEC, config), Windows(SPEC, recollections(), 1, 0))
    context = planner.encoder(None, None, 2)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    past = Past(empty, empty, empty.bool())
    logits = planner.logits(context, None, past, torch.tensor([3, 3]), torch.tensor([[0], [1]]))
    assert logits[:, -1].argmax(-1).tolist() == [0, 1]


def test_a_decision_transformer_cannot_see_the_future():
    torch.manual_seed(0)
    planner = PLANNERS[DTConfig](SPEC, DTConfig(context=3, **SMALL)).eval()
    context = planner.encoder(None, None, 1)
    states, actions = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]])
    goals, valid = torch.tensor([[4]]), torch.ones(1, 3, dtype=torch.bool)
    with torch.no_grad():
        before = planner.logits(context, None, Past(states, actions, valid), torch.tensor([3]), goals)
        for later in range(3):
            changed_states, changed_actions = states.clone(), actions.clone()
            changed_states[:, later] = 4
            changed_actions[:, later] = 1 if actions[0, later] != 1 else 2
            after = planner.logits(context, None, Past(changed_states, actions, valid), torch.tensor([3]), goals)
            assert torch.allclose(after[:, :later], before[:, :later])
            assert not torch.allclose(after[:, later], before[:, later])
            # An action is known only behind the state that it answers.
            after = planner.logits(context, None, Past(states, changed_actions, valid), torch.tensor([3]), goals)
            assert torch.allclose(after[:, : later + 1], before[:, : later + 1])
            assert not torch.allclose(after[:, later + 1], before[:, later + 1])


def test_the_entropy_bound_of_leap_moves_its_multiplier():
    """LEAP⊕H is pulled towards more entropy than it has; without the bound nothing is."""
    totals = []
    for bound in (5.0, 0.0):  # no distribution over four tokens has five nats
        torch.manual_seed(0)
        planner = PLANNERS[LEAPConfig](SPEC, LEAPConfig(horizon=2, goals=False, entropy_bound=bound, **SMALL)).train()
        batch = Windows(SPEC, recollections(), 2, 1).draw(32, Rng.of(0))
        planner.loss(batch, Rng.of(1))
        totals.append(planner.loss(batch, Rng.of(1)))
        assert (planner.bound.multiplier > 0) == (bound > 0)
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
    walked = {}
    for temperature in (0.0, 5.0):
        steps = [(start, pseudo_energy(conditionals(start), start))]
        plan = descend(
            start, conditionals, Rng.of(3, everyone), 80, temperature, tell=lambda *step, to=steps: to.append(step)
        )
        assert len(steps) == 81
        for actions, energy in steps:
            assert torch.allclose(pseudo_energy(conditionals(actions), actions), energy, atol=1e-5)
        walked[temperature] = torch.stack([energy for _, energy in steps])
        assert torch.allclose(plan.energy, walked[temperature].amin(0))  # the best that was met
        assert torch.allclose(pseudo_energy(conditionals(plan.actions), plan.actions), plan.energy, atol=1e-5)
    assert (walked[0.0].diff(dim=0) <= 1e-5).all()  # every step of the walk
    assert (walked[0.0][-1] < walked[0.0][0]).all()
    assert (walked[5.0].diff(dim=0) > 1e-3).any()  # while it is warm, it may rise


@pytest.mark.parametrize("context", [0, 1])
def test_one_step_asked_alone_is_answered_as_among_all(context):
    """LEAP asks for the masked step only; what it saves changes no answer, with pasts of unequal length too."""
    torch.manual_seed(0)
    task = tasks.get("MazeS4G1")
    planner = PLANNERS[LEAPConfig](task.spec, LEAPConfig(context=context, trail=True, **SMALL)).eval()
    batch = EnvBatch(task, [2000, 2001, 2002])
    seen, rows = batch.observations(), torch.arange(3)
    memory = planner.start(seen)
    for moved in (rows, rows[:1]):
        actions = torch.full((len(moved),), 1)
        batch.step(moved, actions)
        memory = planner.observe(memory, actions, batch.observations(moved), moved)
    seen = batch.observations(rows)
    with torch.no_grad():
        encoded, past = planner.recall(seen, memory, rows)
        assert past.visited is not None
        assert not past.visited.all()
        logits = planner.network(encoded, seen.features, past, 1, seen.state, torch.zeros(3, 1, dtype=torch.int64))
        which, only = torch.tensor([2, 0]), torch.tensor([3, 9, 0, 4])
        plans = torch.randint(planner.mask + 1, (4, 10))
        alone, among = logits(plans, which, only), logits(plans, which)
    assert torch.allclose(alone[:, 0], among[torch.arange(4), only], atol=1e-5)


@pytest.mark.parametrize("method", [name for name in METHODS if not name.startswith("GenPlan")])
def test_all_play_and_only_some_need_the_simulator(method):
    config = dataclasses.replace(METHODS[method], **SMALL)
    task = dataclasses.replace(tasks.get("KeyCorridorS3R3"), max_steps=4)
    planner = PLANNERS[type(config)](task.spec, config).eval()
    assert planner.needs_oracle == (method in ("DT", "LEAP"))
    results = rollout(planner, task, [2000, 2001])
    assert [result.steps for result in results] == [4, 4]
    if planner.needs_oracle:
        seen = EnvBatch(task, [2000]).observations()
        row = torch.zeros(1, dtype=torch.int64)
        with pytest.raises(UserError, match="told its goals by the simulator"):
            planner.plan(seen, planner.start(seen), Rng.of(0, row), row)


def test_the_simulator_tells_keys_then_doors_then_targets():
    task = tasks.get("KeyCorridorS3R3")
    env = task.new_env()
    env.reset(seed=2000)
    cells = task.goals(env)
    kinds = [env.unwrapped.grid.get(*task.spec.position(cell)).type for cell in cells]
    assert kinds == ["key", "door", "ball"]
    # The ball stands right behind the door: whoever is nearer to it than to the door is still told the door first.
    level, key = env.unwrapped, task.spec.position(cells[0])
    level.carrying = level.grid.get(*key)
    level.grid.set(*key, None)
    for spot in ((5, 1), (5, 3), (5, 5)):
        level.agent_pos = spot
        assert task.goals(env) == cells[1:]
    two = tasks.get("MazeS4G2")
    env = two.new_env()
    env.reset(seed=2000)
    assert len(two.goals(env)) == 2
    env.unwrapped.instrs.a_done = "success"
    assert len(two.goals(env)) == 1
    level = env.unwrapped
    for x, y in list(level.instrs.instr_b.desc.obj_poss):  # picked up: then it is where the agent is
        level.grid.set(x, y, None)
    assert two.goals(env) == [two.spec.cell(*level.agent_pos)]


@pytest.mark.parametrize("row", ["MazeS4G1", "MazeS4G2", "DoorsOrder", "BlockUnlock", "KeyCorridorS3R3"])
def test_what_the_simulator_tells_is_what_was_learnt(row):
    """Along the bot's own episodes, the next goal told is the next goal of the demonstration."""
    task = tasks.get(row)
    kinds = settings(row)[0].goal_kinds
    env, right, number = task.new_env(), 0, 0
    for seed in range(10_000, 10_006):
        episode = collect_episode(Bot(), task, env, seed)
        learnt, _ = goal_tokens(episode, task.spec, kinds)
        env.reset(seed=seed)
        for step, action in enumerate(episode.actions.tolist()):
            right += task.goals(env)[0] == learnt[step, 0]
            number += 1
            env.step(action)
    # The bot may pass another thing of the same kind, or put a key down and come back for it.
    assert right / number > (1 if row in ("DoorsOrder", "BlockUnlock") else 0.85) - 1e-9


def test_lowering_the_energy_does_no_harm_near_the_goal():
    """Walk along a line to its end: plans are longer than the way, and what stands behind its end must not mislead."""
    torch.manual_seed(0)
    episodes = []
    for begin, end in itertools.product((1, 2, 3), (0, 4)):
        states = np.arange(begin, end + 1) if end else np.arange(begin, -1, -1)
        goal = SubGoal(len(states) - 2, end, "target")
        episodes += [Episode(states, np.full(len(states) - 1, end // 4), subgoals=(goal,))] * 8
    config = LEAPConfig(horizon=6, context=0, temperature=0.5, **SMALL)
    planner = learn(PLANNERS[LEAPConfig](SPEC, config), Windows(SPEC, episodes, 6))
    rows = torch.arange(60)
    seen = Observations(rows % 3 + 1)
    wanted = (rows // 3) % 2

    class Told:
        envs, goals = list(range(60)), staticmethod(lambda env: [4 if (env // 3) % 2 else 0])

    shares = []
    for iterations in (0, 10, 40):
        eager = planner.with_options(iterations=iterations)
        plan, _ = eager.plan(seen, eager.start(seen), Rng.of(0, rows), rows, Told())
        shares.append((plan.actions[:, 0] == wanted).float().mean())
    assert min(shares) > 0.95


def test_leap_does_not_read_its_last_step_in_the_world_of_the_adaptive_rows():
    """It harms there and helps elsewhere; the others read it everywhere."""
    for method in METHODS:
        unread = method.startswith("LEAP")
        assert settings("LocS10N1", method=method)[0].context == (0 if unread else 1)
        assert settings("MazeS4G1", method=method)[0].context == 1
