"""The shape of the source: order of imports, sizes of files, functions and configurations, and a light import."""

import ast
import dataclasses
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import genplan

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "genplan"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 400
MAX_SETTINGS = 20
MAX_LINES = 21_124  # Python in src/genplan, as it is: the bar, 12,000, is not met (results/reshape.md); let it fall
MAX_IMPORT_SECONDS = 0.3  # beyond torch
HEAVY = ["minigrid", "gymnasium", "mujoco", "matplotlib", "minari", "lightning_fabric", "tyro", "rich"]


def num_lines(path):
    return len(path.read_text().splitlines())


def test_imports_go_downwards_and_nowhere_in_circles():
    """The contracts of pyproject.toml: layers, no cycles, methods apart, simulators and servers in one room each."""
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr
    assert " 0 broken" in answer.stdout


def test_functions_are_short():
    found = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.name} has {length} lines"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not found, found


def test_files_are_short():
    files = [*FILES, *SOURCE.rglob("*.js")]
    assert any(path.suffix == ".js" for path in files)
    found = {str(path.relative_to(SOURCE)): num_lines(path) for path in files if num_lines(path) > MAX_FILE_LINES}
    assert not found, found


def test_the_source_does_not_grow():
    assert sum(map(num_lines, FILES)) <= MAX_LINES


def configurations():
    """All dataclasses of settings in the package."""
    for info in pkgutil.walk_packages(genplan.__path__, "genplan."):
        if info.name != "genplan.__main__":
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, type) and value.__module__ == info.name and value.__name__.endswith("Config"):
                    yield value


def test_configurations_are_small():
    """Settings per dataclass, inherited ones counted; groups that are nested in it are counted by themselves."""
    found = {}
    for cls in configurations():
        assert dataclasses.is_dataclass(cls), cls
        types = get_type_hints(cls)
        leaves = [one.name for one in dataclasses.fields(cls) if not dataclasses.is_dataclass(types[one.name])]
        found[cls.__name__] = len(leaves)
    assert {"GenPlanConfig", "TrainConfig", "LEAPConfig", "BCConfig", "CodecConfig", "MemoryConfig"} <= set(found)
    assert max(found.values()) <= MAX_SETTINGS, found


def measure(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("what", ["genplan", "genplan, genplan.flow"])
def test_the_import_is_light(what):
    """In a fresh process that has imported torch, best of three; and nothing heavy comes along."""
    code = (
        f"import sys, time, torch; a = time.process_time(); import {what}; "
        f"print(time.process_time() - a, *[name for name in {HEAVY} if name in sys.modules])"
    )
    seconds, heavy = 9.0, []
    for _ in range(3):
        first, *heavy = measure(code)
        seconds = min(seconds, float(first))
        if seconds < MAX_IMPORT_SECONDS:
            break
    assert seconds < MAX_IMPORT_SECONDS
    assert heavy == []


@pytest.mark.parametrize("planner", ["untrained:GenPlan-M", "expert"])
def test_tasks_of_ones_own_do_without_minigrid(planner):
    """In a fresh process: whoever trains, loads and plays planners in an own task never imports that simulator."""
    code = (
        "import sys; from genplan import names, policy, rollout, runs, tasks; "
        f"task = tasks.get('{ROOT / 'examples' / 'cartpole.py'}:task'); "
        f"rollout.play(names.load_planner('{planner}', task), task, [0]); "
        "print(*[name for name in sys.modules if name.startswith('minigrid')])"
    )
    assert measure(code) == []
