"""What SECURITY.md promises of code: none is run because a run folder names it; and one training at a time in it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import genplan
from genplan import checkpoint, cli, export, planners, runs
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.data import store
from genplan.errors import ChangedFileWarning, UserError
from genplan.files import write_sealed
from genplan.presets import TrainConfig
from genplan.serve.catalogue import Catalogue
from genplan.tasks import files

TASK = """
from pathlib import Path
from genplan.tasks import task_from_gym
from genplan.tasks.experts import ExpertPlanner
Path({marker!r}).touch()
task = task_from_gym("FrozenLake-v1", max_steps=4, is_slippery=False,
                     expert=lambda: ExpertPlanner(lambda env: lambda last: 1 + (env.unwrapped.s > 7)), success=None)
"""
METHOD = """
from pathlib import Path
from genplan.planners.behavior_cloning import BehaviorCloning
Path({marker!r}).touch()
class Mine(BehaviorCloning): pass
"""
NAMES = {"task": "own.py:task", "method": "mine.py:Mine"}
FLAGS = [part for key, name in NAMES.items() for part in (f"--{key}", name)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a task, a method and a run of both; the files leave a mark whenever they are run."""
    folder = tmp_path_factory.mktemp("own")
    for file, text in (("own.py", TASK), ("mine.py", METHOD)):
        (folder / file).write_text(text.format(marker=str(folder / "executed")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        patch.setattr(export, "TEST_SEEDS", range(2000, 2001))
        data = collect(CollectConfig(NAMES["task"], 5), workers=1).name
        planner = override(planners.default_settings(NAMES["method"]), hidden_size=8, num_heads=1)
        training = TrainConfig(steps=2, batch_size=4, windows_per_scene=1)
        runs.create_run(folder / "run", NAMES["task"], NAMES["method"], planner, training, data).fit()
        export.export(folder / "run", folder / "exported", **NAMES)
        yield folder


@pytest.fixture
def marker(folder):
    files._run_file.cache_clear()  # a file that was run before would leave no mark
    (folder / "executed").unlink(missing_ok=True)
    return folder / "executed"


@pytest.fixture
def call(folder, monkeypatch, capsys):
    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert ended.value.code == code, said.err
        return said.out if code == 0 else said.err

    return run


COMMANDS = {
    "eval": ("eval", "run", "--episodes", "1"),
    "untrained": ("eval", "run", "--episodes", "1", "--untrained"),
    "plan": ("plan", "run"),
    "export": ("export", "run", "--out", "again"),
    "reproduce": ("reproduce", "exported", "--out", "reproduced"),
    "resume": ("train", "--resume", "run"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_a_file_that_a_folder_names(folder, marker, call, command):
    asked = call(*COMMANDS[command], code=1)
    assert "no file is run because a folder names it" in asked
    assert asked.count("\n") == 1
    asked = call(*COMMANDS[command], "--task", NAMES["task"], code=1)
    assert asked.endswith("name it: --method mine.py:Mine\n")
    assert not marker.exists()
    asked = call(*COMMANDS[command], "--method", NAMES["method"], code=1)
    assert asked.endswith("name it: --task own.py:task\n")
    if command != "reproduce":
        marker.unlink(missing_ok=True)
        files._run_file.cache_clear()
        call(*COMMANDS[command], *FLAGS)
        assert marker.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_what_was_tampered_with_in_one_line(folder, call, command):
    """A handful through the command line; hundreds in test_tampering.py."""
    path = folder / COMMANDS[command][2 if command == "resume" else 1] / "config.json"
    whole = path.read_bytes()
    renamed = whole.replace(b'"planner"', b'"plaNner"')
    for data in (b"[" * 100_000, b'{"format": 3}', b"\xff\xfe", whole[:-200], renamed):
        path.write_bytes(data)
        try:
            said = call(*COMMANDS[command], *FLAGS, code=1)
        finally:
            path.write_bytes(whole)
        assert said.startswith("genplan: ")
        assert said.count("\n") == 1


def test_python_and_the_page_run_none_either(folder, marker):
    for given in ({}, {"task": NAMES["task"]}):
        with pytest.raises(UserError, match=r"name it: --method mine\.py:Mine"):
            genplan.load("run", **given)
    with pytest.raises(UserError, match=r"name it: --task own\.py:task"):
        runs.resume_run(folder / "run")
    catalogue = Catalogue(folder)
    assert "run" in catalogue.runs()
    assert "run" not in [planner.name for planner in catalogue.describe().planners]
    assert catalogue.progress("run", 0).steps == 2
    with pytest.raises(UserError, match="expected one that comes with genplan"):
        catalogue.load("run")
    assert not marker.exists()
    assert genplan.load("run", **NAMES).task.name == "FrozenLake-v1"
    assert marker.exists()


def test_names_in_a_shipped_planner_run_none(folder, marker, call):
    """Somebody's config.json, with a digest of its own: every place that could name a file names one."""
    shutil.copytree(checkpoint.pretrained()["MazeS4G1"], folder / "evil")
    config = checkpoint.read_config(folder / "evil")
    own = "own.py:task"
    for changes in ({"task": own}, {"task": f"MazeS4G1+{own}"}, {"method": "mine.py:Mine"}, {"dataset": own}):
        if "dataset" in changes:
            changes = {"dataset": {**config["dataset"], "name": own}}
        write_sealed(folder / "evil" / "config.json", {**config, **changes})
        if "dataset" in changes:
            with pytest.raises(UserError):
                runs.resume_run(folder / "evil")
        else:
            assert "no file is run because" in call("eval", "evil", "--episodes", "1", code=1)
    for path in (("codec", "codec"), ("source",), ("preset",), ("sampler", "order")):
        changed = json.loads(json.dumps(config))
        group = changed["planner"]
        for name in path[:-1]:
            group = group.setdefault(name, {})
        group[path[-1]] = "mine.py:Mine"
        write_sealed(folder / "evil" / "config.json", changed)
        call("eval", "evil", "--episodes", "1", code=1)
    assert not marker.exists()


def test_a_file_that_changed_is_told_and_not_trained_on(folder, call, recwarn):
    files = checkpoint.read_config(folder / "run")["files"]
    assert files == {key: checkpoint.file_identity(name) for key, name in NAMES.items()}
    with (folder / "own.py").open("a") as file:
        file.write("# one more line\n")
    try:
        with pytest.warns(
            ChangedFileWarning, match="own.py:task is not the task that run was trained with, or was chan"
        ):
            genplan.load("run", **NAMES)
        with pytest.raises(UserError, match="going on would not be exact: put the old file back, or train in another"):
            runs.resume_run(folder / "run", **NAMES)
        with pytest.raises(UserError, match=r"task is own\.py:task there, own\.py:task, changed since, given"):
            cli.train([NAMES["task"], "--method", NAMES["method"], "--out", "run"])
    finally:
        (folder / "own.py").write_text(TASK.format(marker=str(folder / "executed")))
    shutil.copy(folder / "own.py", folder / "moved.py")  # the content counts, not where it is
    assert runs.resume_run(folder / "run", "moved.py:task", NAMES["method"]).step == 2
    assert not [one for one in recwarn if one.category is ChangedFileWarning]


def test_next_steps_name_the_files(call):
    said = call("train", "--resume", "run", *FLAGS)
    assert said.endswith("evaluate: genplan eval run --task own.py:task --method mine.py:Mine\n")


def test_no_dataset_runs_what_it_names(folder, marker):
    name = checkpoint.read_config(folder / "run")["dataset"]["name"]
    path = folder / "minari" / name / "data" / "metadata.json"
    whole = json.loads(path.read_text())
    spec = {"id": "mine:Own-v0", "entry_point": "mine:Mine", "kwargs": {}, "additional_wrappers": []}
    path.write_text(json.dumps({**whole, "env_spec": json.dumps(spec), "eval_env_spec": json.dumps(spec)}))
    sys.modules.pop("mine", None)
    assert len(store.read(name).episodes) == 5
    path.write_text(json.dumps(whole))
    assert not marker.exists()


def test_every_promise_names_its_tests():
    root = Path(__file__).parent.parent
    named = set(re.findall(r"tests/[\w/]+\.py", (root / "SECURITY.md").read_text()))
    assert {"tests/test_security.py", "tests/test_tampering.py"} <= named
    assert all((root / path).is_file() for path in named)


HOLD = """
import sys, time
from pathlib import Path
from genplan.training import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_in_use_is_locked_until_its_process_ends(folder, call):
    trainer = runs.resume_run(folder / "run", **NAMES)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, "run"], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        message = "run is being trained in by another process; wait for it, or stop it first"
        assert call("train", "--resume", "run", *FLAGS, code=1) == f"genplan: {message}\n"
        with pytest.raises(UserError, match=message):
            trainer.fit()
        genplan.load("run", **NAMES)  # what is being trained can be used
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    trainer.fit()
    other = runs.resume_run(folder / "run", **NAMES, steps=3)
    other.fit()
    with pytest.raises(UserError, match=r"another process trained in .*run meanwhile; run the same command again"):
        trainer.fit()
