"""The package as a new user meets it: set-up, wheel, command line."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def bootstrap():
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools" / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


def test_an_old_python_is_reported_in_one_line():
    with pytest.raises(SystemExit) as stopped:
        bootstrap().check_python((3, 9, 2), "/usr/bin/python3")
    message = str(stopped.value)
    assert "3.11 or newer is needed, /usr/bin/python3 is 3.9.2" in message
    assert "\n" not in message
    bootstrap().check_python((3, 11, 0), "python3")


def test_a_missing_network_is_reported_in_one_line(tmp_path):
    """A copy of the project, a package index nobody listens on: one line, and no stamp that claims success."""
    for name in ("tools", "pyproject.toml", "constraints.txt"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHONPATH"))} | closed
    # Outside any environment's site-packages, so that the torch of this one is not seen.
    done = run(Path(sys.executable).resolve(), tmp_path / "tools" / "bootstrap.py", env=environment)
    assert done.returncode == 1
    assert done.stderr.strip().count("\n") == 0
    assert "cannot be reached; connect to the network" in done.stderr
    assert not (tmp_path / ".venv" / "setup.stamp").exists()


def test_the_wheel_installs_into_an_empty_environment_and_runs(tmp_path):
    wheels = tmp_path / "wheels"
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT, check=True)
    (wheel,) = wheels.glob("genplan-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    for what in ("torch==2.13.0", wheel):
        done = run(python, "-m", "pip", "install", "-q", "-c", constraints, what, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    code = "import genplan, pathlib; p = pathlib.Path(genplan.__file__).parent; print((p / 'py.typed').exists())"
    assert run(python, "-c", code, cwd=tmp_path, check=True).stdout.strip() == "True"
    assert run(python.parent / "genplan", "--version", cwd=tmp_path, check=True).stdout.startswith("genplan 0.")
    answer = run(python.parent / "genplan", "plan", "pretrained:MazeS4G1", "--seed", "2000", cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "energy" in answer.stdout


def test_an_unknown_command_is_refused_with_the_nearest_name():
    answer = run(Path(sys.executable).parent / "genplan", "evla")
    assert answer.returncode == 2
    assert "eval" in answer.stderr + answer.stdout
    assert "Traceback" not in answer.stderr
