"""Everything follows the model's device: while a planner learns and acts, no tensor is made without naming a device.

There is no GPU where these tests run. A model on a GPU fails as soon as a tensor of the default device meets it, so it
is enough that there is none: whatever is made names its device, and within a planner that device is the planner's.
"""

import dataclasses

import pytest
import torch
from torch.overrides import TorchFunctionMode

from genplan import planners, tasks
from genplan.collect import collect_episode
from genplan.config import override
from genplan.data.windows import Windows
from genplan.flow import Rng
from genplan.planners.reference import random_policy
from genplan.rollout import EnvBatch, rollout
from genplan.training import EMA

FACTORIES = {
    *(torch.arange, torch.as_tensor, torch.asarray, torch.empty, torch.eye, torch.full, torch.linspace, torch.logspace),
    *(torch.normal, torch.ones, torch.rand, torch.randint, torch.randn, torch.randperm, torch.range),
    *(torch.scalar_tensor, torch.sparse_coo_tensor, torch.tensor, torch.tril_indices, torch.triu_indices, torch.zeros),
    *(torch.Tensor.new, torch.empty_strided, torch.bartlett_window, torch.hann_window),
}


class RefuseDefaultDevice(TorchFunctionMode):
    """Refuses tensors without `device=`; with `own`, also those of any other device, or of one named by a string.

    Single numbers may be anywhere, for they meet tensors of any device.
    """

    def __init__(self, own=None):
        super().__init__()
        self.own = own

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function in FACTORIES:
            name, device = f"torch.{function.__name__}", (kwargs or {}).get("device")
            assert device is not None, f"{name} without device="
            if self.own is not None and made.ndim:
                is_own = isinstance(device, torch.device) and device == self.own
                assert is_own, f"{name} with device={device!r}, expected the planner's"
        return made


class Guarded:
    """A planner whose calls may only make tensors on its own device."""

    def __init__(self, planner):
        self.planner, self.privileged, self.action_steps = planner, planner.privileged, planner.action_steps

    def reset(self, *arguments):
        with RefuseDefaultDevice(self.planner.device):
            return self.planner.reset(*arguments)

    def plan(self, *arguments):
        with RefuseDefaultDevice(self.planner.device):
            return self.planner.plan(*arguments)

    def observe(self, *arguments):
        with RefuseDefaultDevice(self.planner.device):
            return self.planner.observe(*arguments)


def test_the_guard_notices():
    with RefuseDefaultDevice(), pytest.raises(AssertionError, match=r"torch\.zeros without device="):
        torch.zeros(3)
    for device in ("cpu", torch.device("meta")):
        with RefuseDefaultDevice(torch.device("cpu")), pytest.raises(AssertionError, match="expected the planner's"):
            torch.ones(3, device=device)
    with RefuseDefaultDevice(torch.device("cpu")):
        made = torch.ones(3, device=torch.device("cpu"))
        torch.zeros_like(made.new_zeros(2))


@pytest.fixture(scope="module")
def data():
    """A grid, and vectors with discrete and continuous actions: tasks of a few steps, with demonstrations."""
    found = {}
    for name in ("MazeS4G1", "CartPole-v1", "Pendulum-v1"):
        task = tasks.get(name) if name in tasks.TASKS else tasks.task_from_gym(name)
        expert = random_policy("uniform", task.spec.actions, None) if task.expert is None else task.expert()
        short = task if task.expert is not None else dataclasses.replace(task, max_steps=8)
        env = short.make_env()
        episodes = [collect_episode(expert, short, env, seed) for seed in range(10_000, 10_003)]
        found[name] = dataclasses.replace(task, max_steps=6), episodes
    return found


SMALL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "encoder_iterations": 2, "iterations": 3}
CASES = [
    (name, method, {"visit_memory": True, "exploration": 0.9} if name == "MazeS4G1" else {})
    for name in ("MazeS4G1", "CartPole-v1", "Pendulum-v1")
    for method in planners.METHODS
    if name == "MazeS4G1" or method not in ("DT", "LEAP", "BC-step", "LEAP-step")  # which need goals, or a step model
    if name == "Pendulum-v1" or not planners.METHODS[method].continuous
] + [
    ("MazeS4G1", "GenPlan-M", {"preset": "paper", "num_candidates": 1, "full_noise_prob": 0.0}),
    ("MazeS4G1", "GenPlan-M", {"num_candidates": 3, "position_embedding": True, "entropy_bound": 0.3, "eta": 0.5}),
    ("MazeS4G1", "GenPlan-M", {"order": "chain", "num_candidates": 3, "action_steps": 3, "temperature": 0.5}),
    ("MazeS4G1", "GenPlan-U", {"order": "near-to-far", "top_p": 0.9}),
    ("Pendulum-v1", "GenPlan-M", {"num_candidates": 3, "context_length": 1}),
]


@pytest.mark.parametrize(("name", "method", "settings"), CASES, ids=[f"{a}-{b}-{'-'.join(c)}" for a, b, c in CASES])
def test_learning_and_acting_follow_the_model(data, name, method, settings):
    task, episodes = data[name]
    config = override(planners.default_settings(method), strict=False, **SMALL)
    planner = planners.build(method, task.spec, override(config, **settings))
    planner.fit_codec(episodes)
    batch = Windows(task.spec, episodes, planner.needs).sample(8, Rng.of(0), 2 if name == "MazeS4G1" else 1)
    ema = EMA(planner, 0.9)
    with RefuseDefaultDevice(planner.device):
        losses = planner.train().loss(batch.to(planner.device), Rng.of(0, device=planner.device))
        losses.total.backward()
        planner.after_step(losses)
        ema.update(planner, 0)
    planner.eval()
    with RefuseDefaultDevice():
        played = list(rollout(Guarded(planner), EnvBatch(task, [2000, 2001])))
        assert played
        observations = EnvBatch(task, [2000]).observations()
        if planner.keeps_trace:
            ids, memory = torch.zeros(1, dtype=torch.int64, device=planner.device), planner.reset(observations)
            plan, _ = planner.plan(observations, memory, Rng.of(0, ids), ids, keep_trace=True)
            assert plan.trace is not None
