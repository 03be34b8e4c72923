"""The files of docs/extending.md are short and complete, and keep the rules that the page says they keep."""

import re
import sys
from pathlib import Path

import pytest

from genplan import cli, conformance, planners
from genplan.models.codecs import CODECS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text()
FILES = re.findall(r"```python\n(.*?)```.*?\$ genplan check (\w+\.py):(\w+)(?: --task (\S+))?\n", PAGE, re.DOTALL)
MAX_LINES = 30
SMALL = "--planner.hidden-size 16 --planner.bins 8 --training.steps 4 --training.batch-size 8"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, entries_restored):
    """A folder with all files of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    for code, path, _, _ in FILES:
        (tmp_path / path).write_text(code)
    return tmp_path


@pytest.fixture
def call(monkeypatch, capsys):
    def run(command):
        monkeypatch.setattr(sys, "argv", ["genplan", *command.split()])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return run


@pytest.mark.parametrize(("code", "path", "name", "task"), [pytest.param(*one, id=one[1]) for one in FILES])
def test_a_file_keeps_every_rule(code, path, name, task):
    assert len(code.splitlines()) <= MAX_LINES
    findings = list(conformance.check(f"{path}:{name}", task or None))
    assert [str(one) for one in findings if one.outcome == "broken"] == []
    assert sum(one.outcome == "ok" for one in findings) >= 4


def test_every_door_has_a_file():
    titles = re.findall(r"^## (.*)", PAGE, re.MULTILINE)
    assert len(titles) == 7
    assert len(FILES) == 7  # a method and a planner, and none for jobs


def test_a_codec_of_ones_own_is_named_again_to_load_a_run(call, folder):
    """Training names it by its setting; a folder alone never runs it."""
    code, said = call("demos pendulum.py:task --episodes 4")
    assert code == 0, said
    train = f"train pendulum.py:task --method BC --planner.codec quantiles.py:Quantiles --out run {SMALL}"
    code, said = call(f"{train} --data genplan/pendulum/expert-4-v0")
    assert code == 0, said
    assert '"codec": "quantiles.py:Quantiles"' in (folder / "run" / "config.json").read_text()
    CODECS.pop("quantiles.py:Quantiles")  # as in a new process
    evaluate = "eval run --task pendulum.py:task --episodes 1 --seed 2000"
    code, said = call(evaluate)
    assert code == 1
    assert "no file is run because a folder names it; if you trust yours, name it: --codec quantiles.py" in said
    code, said = call(f"{evaluate} --codec quantiles.py:Quantiles")
    assert code == 0, said
    code, said = call(f"{evaluate} --codec pendulum.py:task")
    assert code == 1
    assert "'pendulum.py:task' is no codec" in said


def test_a_transform_of_ones_own_is_stored_with_the_run(call, folder):
    code, said = call("demos mirror.py:task --episodes 4")
    assert code == 0, said
    code, said = call(f"train mirror.py:task --method BC --data genplan/mirror/expert-4-v0 --out run {SMALL}")
    assert code == 0, said
    assert '"name": "mirror"' in (folder / "run" / "config.json").read_text()


def test_names_of_codecs():
    assert planners.codec_class("bins") is CODECS["bins"]
    planners.use_codec(None)
    planners.use_codec("bins")  # ships already
    assert set(CODECS) == {"identity", "bins", "residual", "learned", "fsq"}
