"""The shape of PushT, walked through the types.

Human demonstrations, 20 numbers observed, 2 continuous actions relative to the agent, plans of eight, coverage as the
metric. The simulator is not needed: episodes are played in a stand-in of the same shape.
"""

import dataclasses
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from genplan import checkpoint, planners, runs, tasks
from genplan.config import override
from genplan.data import store
from genplan.data.episodes import episode_from_arrays
from genplan.data.windows import Windows
from genplan.evaluate import evaluate, to_record
from genplan.flow import Rng
from genplan.planners.reference import random_policy
from genplan.presets import TrainConfig
from genplan.rollout import EnvBatch, rollout
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Metric, Observations, Task

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "pusht" / "pusht_lowdim.npz"
HORIZON, AGENT = 8, 18  # the agent's position follows nine key points of the block
SPEC = PlanSpec(
    {"observation": Field("vector", (20,))}, Actions(low=(0, 0), high=(512, 512), origin=("observation", AGENT))
)
SETTINGS = {
    "horizon": HORIZON, "action_steps": 4, "hidden_size": 32, "num_layers": 1, "iterations": 3, "context_length": 2,
}  # fmt: skip
METHODS = ["GenPlan-M", "GenPlan-U", "BC", "DT-noGC", "LEAP-noGC", "VQ-BeT", "DP-C", "DP-T", "Regression", "MIP"]


class Stub(gymnasium.Env):
    """As PushT: the agent goes to a target position in ten steps per second, and pushes a block (here, a disk)."""

    observation_space = spaces.Box(-100, 700, (20,), np.float64)
    action_space = spaces.Box(0, 512, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.agent, self.block = self.np_random.uniform(100, 400, (2, 2))
        return self.observed(), {}

    def observed(self):
        around = np.stack([[np.cos(angle), np.sin(angle)] for angle in np.linspace(0, 6, 9)])
        return np.concatenate([(self.block + 30 * around).ravel(), self.agent])

    def step(self, action):
        assert self.action_space.contains(action)
        self.agent = self.agent + np.clip(action - self.agent, -40, 40)
        away = self.block - self.agent
        if (distance := float(np.linalg.norm(away))) < 40:
            self.block = self.block + away / max(distance, 1e-3) * (40 - distance)
        coverage = max(0.0, 1 - float(np.linalg.norm(self.block - 256)) / 200)
        info = {"coverage": coverage, "n_contacts": int(distance < 40)}
        return self.observed(), coverage / 0.95, coverage > 0.95, False, info


COVERAGE = (
    Metric("coverage", lambda rollout: float(rollout.infos["coverage"][-1]), label="final coverage"),
    Metric("max_coverage", lambda rollout: float(rollout.infos["coverage"].max()), label="maximum coverage"),
)
TASK = Task(
    name="PushT",
    make=Stub,
    spec=SPEC,
    observe=lambda env, raw: {"observation": raw.astype(np.float32)},
    max_steps=20,
    success=lambda reward, terminated, info: info["coverage"] > 0.95,
    infos=("coverage",),
    metrics=(*COVERAGE, "success", "steps"),
)


def human_episodes(number):
    if not DATA.exists():
        pytest.skip("the recordings of PushT are not here")
    data = np.load(DATA, allow_pickle=False)
    observed = np.concatenate([data["keypoint"].reshape(len(data["keypoint"]), 18), data["state"][:, :2]], 1)
    parts = np.split(np.arange(len(observed)), data["episode_ends"][:-1])[:number]
    return [
        episode_from_arrays(SPEC, {"observation": observed[steps]}, data["action"][steps], where=f"episode {index}")
        for index, steps in enumerate(parts)
    ]


@pytest.fixture(scope="module")
def episodes():
    return human_episodes(12)


def make(method):
    config = override(planners.default_settings(method), strict=False, **SETTINGS)
    return planners.build(method, SPEC, config)


def test_what_was_not_recorded_is_not_invented(episodes):
    for episode in episodes:
        observed = episode.observations["observation"]
        assert observed.shape == (len(episode) + 1, 20)
        assert episode.last_repeated
        assert (observed[-1] == observed[-2]).all()
        assert np.isnan(episode.rewards).all()
        assert not episode.terminations.any()
        assert not episode.truncations.any()
        assert episode.actions.dtype == np.float32


def test_a_plan_is_relative_to_the_agent_at_its_start(episodes):
    planner = make("GenPlan-M")
    errors = planner.fit_codec(episodes)
    size = (planner.codec.high - planner.codec.low) / planner.codec.stream.size
    assert errors["max_error"] <= float(size.max()) / 2 * 1.001
    assert (planner.codec.low < 0).all()
    assert (planner.codec.high > 0).all()
    batch = Windows(SPEC, episodes, planner.needs).sample(64, Rng.of(0))
    assert batch.actions.shape == (64, HORIZON, 2)
    origin = planner.origin(batch.current)
    assert torch.equal(origin, batch.current["observation"][:, AGENT:])
    tokens, valid = planner.action_tokens(batch)
    assert tokens.shape == valid.shape == (64, HORIZON, 2)
    assert planner.clipped_share(batch) == 0
    decoded = planner.codec.decode(tokens, origin)
    assert ((decoded - batch.actions).abs() <= size / 2 * 1.01)[batch.valid["actions"]].all()


@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_training_and_a_plan(episodes, method):
    planner = make(method)
    planner.fit_codec(episodes)
    batch = Windows(SPEC, episodes, planner.needs).sample(16, Rng.of(0))
    losses = planner.train().loss(batch, Rng.of(0))
    losses.total.backward()
    torch.optim.AdamW(planner.parameters()).step()
    assert np.isfinite(losses.total.item())
    assert planner.loss(batch, Rng.of(0)).total < losses.total
    observed = np.stack([episode.observations["observation"][5] for episode in episodes])
    now, rows = Observations({"observation": torch.from_numpy(observed)}), torch.arange(len(episodes))
    plan, _ = planner.eval().plan(now, planner.reset(now), Rng.of(0, rows), rows)
    horizon = HORIZON if planner.needs.horizon > 1 else 1
    assert plan.actions.shape == (len(episodes), horizon, 2)
    SPEC.actions.check(plan.actions.numpy(), "planned actions")
    relative = plan.actions - planner.origin(now)[:, None]
    inside = (plan.actions > 0) & (plan.actions < 512)  # where nothing had to be clipped
    low, high = planner.codec.low, planner.codec.high
    assert (((relative >= low - 1e-3) & (relative <= high + 1e-3)) | ~inside).all()


def test_coverage_is_a_metric_of_infos(episodes):
    """Final and maximum coverage of the very same episodes, beside success."""
    planner = make("GenPlan-M")
    planner.fit_codec(episodes)
    random = random_policy("uniform", SPEC.actions, None)
    found = evaluate(planner.eval(), TASK, range(2000, 2004), baseline=random)
    assert list(found.planner.metrics) == ["coverage", "max_coverage", "success", "steps"]
    for one in found.rollouts:
        assert one.infos["coverage"].shape == (one.num_steps,)
        assert one.num_plans == -(-one.num_steps // 4)
    final = np.mean([one.infos["coverage"][-1] for one in found.rollouts])
    assert found.planner.value("coverage") == pytest.approx(final)
    assert found.planner.value("max_coverage") >= found.planner.value("coverage")
    record = to_record("mine", TASK, range(2000, 2004), {}, found)
    assert record["baselines"]["random"]["metrics"]["coverage"]["value"] >= 0
    agents, actions = [], []
    for steps in rollout(planner, EnvBatch(dataclasses.replace(TASK, max_steps=4), [2000])):
        agents.append(steps.before[0]["observation"][AGENT:])
        actions.append(steps.actions[0].numpy())
    codes = np.stack(actions) - agents[0]  # four actions of one plan, from where it was made
    low, high = planner.codec.low.numpy(), planner.codec.high.numpy()
    inside = (np.stack(actions) > 0) & (np.stack(actions) < 512)
    assert (((codes >= low - 1e-3) & (codes <= high + 1e-3)) | ~inside).all()


def test_a_run_on_human_demonstrations(episodes, tmp_path, monkeypatch):
    """Stored, read, trained on, loaded and played: by the commands' own functions."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.setitem(tasks.TASKS, "PushT", lambda: TASK)
    store.write("pusht/human-v0", TASK, episodes, {"expert": "people"})
    config = override(planners.default_settings("GenPlan-M"), **SETTINGS)
    training = TrainConfig(steps=3, batch_size=8, windows_per_scene=1, evaluate_every=3, evaluate_episodes=2)
    runs.create_run(tmp_path / "run", "PushT", "GenPlan-M", config, training, "pusht/human-v0").fit()
    assert '"eval/coverage"' in (tmp_path / "run" / "log.jsonl").read_text()
    planner, run_config = checkpoint.load_planner(tmp_path / "run")
    assert planner.spec.actions.origin == ("observation", AGENT)
    assert run_config["dataset"]["episodes"] == 12
