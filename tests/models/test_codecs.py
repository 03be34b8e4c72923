"""Every codec: what it encodes comes back, whatever it decodes is an action, and without statistics it is nothing."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from genplan import checkpoint, export, planners, runs, tasks
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.data import store
from genplan.data.episodes import episode_from_arrays
from genplan.errors import CheckpointError, UserError
from genplan.models.codecs import CODECS, ChunkCodes, CodecConfig, demonstrated_actions, make_codec
from genplan.presets import TrainConfig
from genplan.rollout import EnvBatch, play, rollout
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Task

DISCRETE = Actions(5)
CONTINUOUS = Actions(low=(-1.0, 0.0, -3.0), high=(1.0, 10.0, 3.0))
SPACES = dict.fromkeys(CODECS, CONTINUOUS) | {"identity": DISCRETE}
CHUNKED = [name for name, codec in CODECS.items() if issubclass(codec, ChunkCodes)]
BINS = 16


def make(name, actions=None, fitted=True):
    actions = actions or SPACES[name]
    codec = make_codec(actions, CodecConfig(name, bins=BINS, chunk=2, levels=2, codes=BINS))
    if fitted:
        fit(codec, sample(actions, 500))
    return codec


def fit(codec, actions):
    return codec.fit(actions if codec.chunk == 1 else actions.reshape(-1, codec.chunk, *actions.shape[1:]))


def sample(actions, number, seed=0):
    """Actions [number, *A] within the middle half of the space."""
    generator = torch.Generator().manual_seed(seed)
    if actions.n is not None:
        return torch.randint(actions.n, (number,), generator=generator)
    low, high = torch.tensor(actions.low), torch.tensor(actions.high)
    return low + (high - low) * (0.25 + 0.5 * torch.rand(number, len(low), generator=generator))


def bound(codec):
    """The largest error of a round trip, per dimension: half a bin of the fitted range, and nothing for tokens."""
    if isinstance(codec, ChunkCodes):  # as it was stated for the same chunks
        return torch.tensor(fit(codec, sample(CONTINUOUS, 500))["max_error"])
    return (codec.high - codec.low) / codec.stream.size / 2 if hasattr(codec, "low") else torch.tensor(0)


def test_every_codec_is_tested_and_can_be_chosen():
    assert set(CODECS) == {"identity", "bins", "residual", "learned", "fsq"}
    for name, actions in SPACES.items():
        assert type(make_codec(actions, override(CodecConfig(), codec=name))) is CODECS[name]
        if name not in CHUNKED:
            assert type(make_codec(actions, CodecConfig())) is CODECS[name]  # auto


@pytest.mark.parametrize("name", CODECS)
def test_a_round_trip_stays_within_the_bound(name):
    codec = make(name)
    actions = sample(SPACES[name], 500).reshape(50, 10, *SPACES[name].shape)
    tokens = codec.encode(actions, None)
    assert tokens.dtype == torch.int64
    assert tokens.shape == (50, 10 // codec.chunk, *codec.stream.shape)
    assert 0 <= tokens.min() <= tokens.max() < codec.stream.size
    errors = (codec.decode(tokens, None) - actions).abs()
    assert (errors <= bound(codec) * 1.001).all()
    if name not in CHUNKED:  # of their codes others may be nearer
        assert torch.equal(codec.encode(codec.decode(tokens, None), None), tokens)


@pytest.mark.parametrize("name", CODECS)
def test_the_errors_of_a_fit_are_those_of_a_round_trip(name):
    codec = make(name, fitted=False)
    actions = sample(SPACES[name], 500)
    found, rows = fit(codec, actions), actions.reshape(-1, codec.chunk, *actions.shape[1:])
    errors = (codec.decode(codec.encode(rows, None), None) - rows).abs().float()
    assert found.get("mean_error", 0) == pytest.approx(errors.mean().item(), rel=1e-4)
    assert found.get("max_error", 0) == pytest.approx(errors.max().item(), rel=1e-4)
    if "bins_used" in found:
        assert 0.9 < found["bins_used"] <= 1


@pytest.mark.parametrize("name", CODECS)
def test_any_code_decodes_inside_the_space(name):
    codec = make(name)
    tokens = torch.arange(codec.stream.size).reshape(-1, 1, *(1 for _ in codec.stream.shape))
    tokens = tokens.expand(-1, 1, *codec.stream.shape)
    number = len(tokens)
    origins = [None]
    if SPACES[name].n is None:
        far = torch.tensor(SPACES[name].high) * 100
        origins += [far.expand(number, -1), -far.expand(number, -1)]
    for origin in origins:
        actions = codec.decode(tokens, origin)
        SPACES[name].check(actions.numpy(), "decoded actions")
        if SPACES[name].n is None:
            assert ((actions >= torch.tensor(SPACES[name].low)) & (actions <= torch.tensor(SPACES[name].high))).all()


@pytest.mark.parametrize("name", CODECS)
def test_dimensions_that_never_change_stay_as_they_are(name):
    codec = make(name, fitted=False)
    actions = sample(SPACES[name], 50)
    constant = actions[:1].expand_as(actions) if SPACES[name].n is not None else actions.clone()
    if SPACES[name].n is None:
        constant[:, 1] = 4.25
    fit(codec, constant)
    rows = constant.reshape(-1, codec.chunk, *constant.shape[1:])
    decoded = codec.decode(codec.encode(rows, None), None).flatten(0, 1)
    column = (slice(None), 1) if SPACES[name].n is None else slice(None)
    assert torch.equal(decoded[column], constant[column])
    assert torch.isfinite(decoded.float()).all()
    every = torch.arange(codec.stream.size).reshape(-1, 1, *(1 for _ in codec.stream.shape))
    every = codec.decode(every.expand(-1, 1, *codec.stream.shape), None)
    if SPACES[name].n is None:
        assert (every[..., 1] == 4.25).all()  # whatever the code


@pytest.mark.parametrize("name", CODECS)
def test_values_out_of_range_are_clipped_and_counted(name):
    codec = make(name)
    if SPACES[name].n is not None:
        with pytest.raises(UserError, match="hold 5, expected 0 to 4"):  # they are refused where they enter
            SPACES[name].check(np.array([5]), "actions")
        return
    actions = sample(CONTINUOUS, 8).reshape(2, 4, 3)
    assert not codec.is_clipped(actions, None).any()
    actions[0, 1, 2], actions[1, 3, 0], actions[1, 3, 1] = 2.9, -0.99, 9.9  # in two of eight actions
    tokens = codec.encode(actions, None)
    assert codec.is_clipped(actions, None).nonzero().tolist() == [[0, 1], [1, 3]]
    if name in CHUNKED:  # the nearest of its codes
        assert torch.isfinite(codec.decode(tokens, None)).all()
        return
    assert (tokens[0, 1, 2], tokens[1, 3, 0]) == (BINS - 1, 0)
    assert torch.isclose(codec.decode(tokens, None)[0, 1, 2], codec.high[2], atol=float(bound(codec)[2]) * 1.001)


@pytest.mark.parametrize("name", CODECS)
def test_missing_statistics_are_an_error(name):
    codec = make(name, fitted=False)
    actions, statistics = sample(SPACES[name], 4).reshape(4 // codec.chunk, codec.chunk, -1), dict(codec.state_dict())
    actions = actions.reshape(-1, codec.chunk, *SPACES[name].shape)
    if not statistics:
        assert torch.equal(codec.decode(codec.encode(actions, None), None), actions)  # it needs none
        return
    with pytest.raises(UserError, match="the action codec has no statistics"):
        codec.encode(actions, None)
    with pytest.raises(UserError, match="the action codec has no statistics"):
        codec.decode(torch.zeros(1, 1, *codec.stream.shape, dtype=torch.int64), None)


def test_relative_actions_are_those_of_their_origin():
    """The same motion from elsewhere has the same tokens; decoded, it is where it began."""
    codec = make("bins")
    origin = torch.tensor([[0.1, 3.0, 1.0], [-0.2, 1.0, 0.5]])
    steps = sample(CONTINUOUS, 8).reshape(2, 4, 3) * 0.1
    codec.fit(steps.reshape(-1, 3))
    tokens = codec.encode(origin[:, None] + steps, origin)
    assert (tokens - codec.encode(steps, None)).abs().max() <= 1  # rounding at the edge of a bin
    assert ((codec.decode(tokens, origin) - origin[:, None] - steps).abs() <= bound(codec) * 1.01).all()


def test_the_range_of_relative_actions_covers_the_whole_horizon():
    spec = PlanSpec({"place": Field("vector", (3,))}, Actions(low=(0.0,), high=(9.0,), origin=("place", 1)))
    place = np.zeros((5, 3), np.float32)
    place[:, 1] = [0, 1, 2, 3, 4]
    episode = episode_from_arrays(spec, {"place": place}, np.array([[1], [2], [3], [4]], np.float32))
    assert demonstrated_actions(spec, [episode]).flatten().tolist() == [1, 1, 1, 1]
    assert sorted(demonstrated_actions(spec, [episode], 3).flatten().tolist()) == [1, 1, 1, 1, 2, 2, 2, 3, 3]


def test_wrong_settings_are_refused():
    with pytest.raises(UserError, match="codec is 'vq', expected one of auto, identity, bins"):
        make_codec(DISCRETE, CodecConfig("vq"))
    with pytest.raises(UserError, match="bins is 1, expected at least 2"):
        CodecConfig(bins=1)
    with pytest.raises(UserError, match="'identity' is for discrete actions"):
        make("identity", CONTINUOUS)
    with pytest.raises(UserError, match="'bins' is for continuous actions"):
        make("bins", DISCRETE)


# --- in a run --------------------------------------------------------------------------------------------------------

TASK_FILE = """
import gymnasium
import numpy as np
from gymnasium import spaces
from genplan.tasks.experts import ExpertPlanner
from genplan.spec import Actions, Field, PlanSpec
from genplan.types import Task


class Reach(gymnasium.Env):
    observation_space = spaces.Box(-2, 2, (4,))
    action_space = spaces.Box(-2, 2, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.target = self.np_random.uniform(-1, 1, (2, 2))
        self.time = 0
        return self.seen(), {}

    def seen(self):
        return np.concatenate([self.place, self.target]).astype(np.float32)

    def step(self, action):
        self.place, self.time = np.clip(action, self.place - 0.3, self.place + 0.3), self.time + 1
        return self.seen(), -float(abs(self.place - self.target).sum()), self.time == 6, False, {}


def make_policy(env):
    return lambda last: np.clip(env.target, env.place - 0.3, env.place + 0.3).astype(np.float32)


spec = PlanSpec({"place": Field("vector", (4,))}, Actions(low=(-2, -2), high=(2, 2), origin=ORIGIN))
task = Task("Reach", Reach, spec, lambda env, seen: {"place": seen}, 6, None, metrics=("return",),
            expert=lambda: ExpertPlanner(make_policy))
"""
LOAD_AND_PLAY = """
import json, sys
import numpy as np
from pathlib import Path
from genplan import checkpoint, tasks
from genplan.rollout import play
planner, config = checkpoint.load_planner(Path("run"))
played = play(planner, tasks.get("reach.py:task"), range(2000, 2004))
np.savez("played.npz", *(one.actions for one in played))
"""


@pytest.fixture(scope="module", params=["None", "('place', 0)"], ids=["absolute", "relative"])
def reach(request, tmp_path_factory):
    """A folder with a task of its own, and a run of a few steps in it."""
    folder = tmp_path_factory.mktemp("reach")
    (folder / "reach.py").write_text(TASK_FILE.replace("ORIGIN", request.param))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        config = override(
            planners.default_settings("GenPlan-M"), horizon=3, hidden_size=16, num_layers=1, num_heads=2,
            iterations=2, action_steps=2, bins=BINS,
        )  # fmt: skip
        name = collect(CollectConfig("reach.py:task", 10), workers=1).name
        training = TrainConfig(steps=6, batch_size=8, windows_per_scene=1, save_every=3)
        runs.create_run(folder / "run", "reach.py:task", "GenPlan-M", config, training, name).fit()
        yield folder


def test_loaded_in_a_fresh_process_without_the_data_it_acts_bit_equal(reach):
    planner, _ = checkpoint.load_planner(reach / "run")
    played = play(planner, tasks.get("reach.py:task"), range(2000, 2004))
    (reach / "minari").rename(reach / "elsewhere")
    try:
        done = subprocess.run([sys.executable, "-c", LOAD_AND_PLAY], cwd=reach, capture_output=True, text=True)
    finally:
        (reach / "elsewhere").rename(reach / "minari")
    assert done.returncode == 0, done.stderr
    again = np.load(reach / "played.npz")
    for one, name in zip(played, again.files, strict=True):
        assert one.actions.tobytes() == again[name].tobytes()
    assert len({one.actions.tobytes() for one in played}) == 4


def test_statistics_are_a_stage_of_the_run_and_part_of_its_weights(reach):
    fitted, metadata = checkpoint.load_tensors(reach / "run" / "codec.safetensors")
    assert {"codec.low", "codec.high"} <= set(fitted)
    assert any(name.endswith(".mean") for name in fitted)  # of the observations
    assert 0 < metadata["errors"]["mean_error"] <= metadata["errors"]["max_error"] < 4 / BINS
    first = json.loads((reach / "run" / "log.jsonl").read_text().splitlines()[0])
    assert first == {"step": 0, **{f"codec/{name}": value for name, value in metadata["errors"].items()}}
    for file in ("model", "best", "last"):
        tensors, _ = checkpoint.load_tensors(reach / "run" / f"{file}.safetensors")
        for name, tensor in fitted.items():
            found = [one for key, one in tensors.items() if key.removeprefix("live/").removeprefix("ema/") == name]
            assert found
            assert all(torch.equal(one, tensor) for one in found)


def test_an_exported_planner_keeps_its_statistics(reach, tmp_path, monkeypatch):
    """Weights are rounded to half precision; ranges, means and deviations are not."""
    monkeypatch.setattr(export, "TEST_SEEDS", range(2000, 2002))
    export.export(reach / "run", tmp_path / "out", task="reach.py:task")
    (small, _), (whole, _) = (
        checkpoint.load_tensors(one / "model.safetensors") for one in (tmp_path / "out", reach / "run")
    )
    fitted, _ = checkpoint.load_tensors(reach / "run" / "codec.safetensors")
    assert all(torch.equal(small[name], tensor) for name, tensor in fitted.items())
    assert sum(tensor.dtype == torch.float16 for tensor in small.values()) > len(whole) / 2


def test_a_file_without_statistics_is_refused(reach, tmp_path):
    tensors, metadata = checkpoint.load_tensors(reach / "run" / "model.safetensors")
    (tmp_path / "config.json").write_text((reach / "run" / "config.json").read_text())
    for missing in [name for name in tensors if name.startswith("codec.") or name.endswith((".mean", ".std"))]:
        rest = {name: tensor for name, tensor in tensors.items() if name != missing}
        checkpoint.save_tensors(tmp_path / "model.safetensors", rest, {"step": metadata["step"]}, metadata["run"])
        with pytest.raises(CheckpointError, match=f"lacks 1 tensors, such as {missing}"):
            checkpoint.load_planner(tmp_path)


def test_it_is_undone_before_a_plan_leaves_the_planner(reach):
    """Plans hold actions of the environment, tokens are beside them, and decoding them gives the actions."""
    task = tasks.get("reach.py:task")
    assert isinstance(task, Task)
    planner, _ = checkpoint.load_planner(reach / "run")
    batch = EnvBatch(dataclasses.replace(task, max_steps=3), [2000, 2001])
    now = batch.observations()
    for steps in rollout(planner, batch):
        if steps.plan is not None:
            assert steps.plan.actions.shape == (2, 3, 2)
            task.spec.actions.check(steps.plan.actions.numpy(), "planned actions")
            decoded = planner.codec.decode(steps.plan.tokens["actions"], planner.origin(now))
            assert torch.equal(decoded, steps.plan.actions)
        now = steps.observations
    assert store.exists("genplan/reach/expert-10-v0")  # of actions, not of codes:
    recorded = store.read("genplan/reach/expert-10-v0", task).episodes[0].actions
    assert recorded.dtype == np.float32
