"""A real server on a free port, with the pretrained planners and a run folder that is being trained."""

import contextlib
import json
import shutil
import threading
import time

import pytest

pytest.importorskip("fastapi")
import httpx
import numpy as np
import uvicorn

from genplan import runs, tasks
from genplan.checkpoint import pretrained, read_config
from genplan.config import override
from genplan.data import store
from genplan.data.episodes import episode_from_arrays
from genplan.files import write_sealed
from genplan.presets import TrainConfig, default_config
from genplan.serve.app import make_app


@contextlib.contextmanager
def run_server(folder):
    server = uvicorn.Server(uvicorn.Config(make_app(folder), host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def write_config(folder, config):
    write_sealed(folder / "config.json", config)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The folder that is served."""
    folder = tmp_path_factory.mktemp("served")
    run = folder / "runs" / "mine"
    shutil.copytree(pretrained()["MazeS4G1"], run)
    lines = [{"step": step, "loss/actions": 1 / step, "val/loss": 2 / step} for step in (50, 100, 150)]
    (run / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"step": 2')
    long = folder / "runs" / "a-run-with-a-name-that-goes-on-and-on-because-it-holds-all-of-its-settings-2000"
    shutil.copytree(run, long)
    config = read_config(long)
    config["planner"]["sampler"]["iterations"] = 64  # more than the page can ask for
    write_config(long, config)
    foreign = folder / "foreign"
    shutil.copytree(run, foreign)
    (folder / "own.py").write_text(f"open({str(folder / 'executed')!r}, 'w')")
    write_config(foreign, {**config, "method": f"{folder / 'own.py'}:Planner"})
    empty = folder / "empty"
    empty.mkdir()
    (empty / "config.json").write_text('{"format": 1}')
    (empty / "log.jsonl").write_text("[]\n")
    (empty / "model.safetensors").write_text("")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    (broken / "log.jsonl").write_text("")
    (broken / "model.safetensors").write_text("")
    outside = tmp_path_factory.mktemp("outside") / "secret"
    shutil.copytree(run, outside)
    (folder / "link").symlink_to(outside)
    return folder


@pytest.fixture(scope="session")
def address(served):
    with run_server(served) as url:
        yield url


@pytest.fixture(scope="session")
def client(address):
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def maze(client):
    return client.post("/api/maze", json={"task": "MazeS4G1", "seed": 2000}).json()["maze"]


@pytest.fixture(scope="session")
def pusht(served, tmp_path_factory):
    """Planners of PushT in the served folder, with codes and without, which have hardly learnt anything."""
    pytest.importorskip("gym_pusht")
    task, rng, episodes = tasks.get("PushT"), np.random.default_rng(0), []
    for number in range(6):
        observed = rng.uniform(100, 400, (21, 20))
        actions = np.clip(observed[:-1, -2:] + rng.normal(0, 30, (20, 2)), 0, 512).astype(np.float32)
        where = f"episode {number}"
        episodes.append(episode_from_arrays(task.spec, {"observation": observed}, actions, where=where))
    training = TrainConfig(steps=1, batch_size=8, windows_per_scene=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
        store.write("pusht/random-v0", task, episodes, {})
        for method in ("GenPlan-M", "VQ-BeT", "Regression"):
            config = override(default_config("PushT", method)[0], hidden_size=32, num_layers=1, strict=False, codes=4)
            folder = served / "pusht" / method
            runs.create_run(folder, "PushT", method, config, training, "pusht/random-v0", transforms=[]).fit()
    return "pusht/GenPlan-M"
