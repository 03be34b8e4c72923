"""The command line, as a user types it."""

import os
import subprocess
import sys

import pytest

from genplan import cli
from genplan.errors import UserError


def genplan(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "genplan", *arguments], capture_output=True, text=True, **options)


def test_tasks_and_gallery(tmp_path):
    picture = tmp_path / "gallery.png"
    answer = genplan("tasks", "--gallery", str(picture))
    assert answer.returncode == 0, answer.stderr
    for name in ("MazeS4G1", "AP-MazeS4G2", "KeyCorridorS3R3", "LocS10N1"):
        assert name in answer.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["gallery.png"]


def test_demos_and_data_show(tmp_path):
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path)}
    answer = genplan("demos", "LocS10N1", "--episodes", "6", "--workers", "1", env=environment)
    assert answer.returncode == 0, answer.stderr
    assert "6/6" in answer.stdout
    again = genplan("demos", "LocS10N1", "--episodes", "6", env=environment)
    assert "is there already" in again.stdout
    shown = genplan("data", "show", "genplan/LocS10N1/bot-6-v0", env=environment)
    assert shown.returncode == 0, shown.stderr
    for text in ("6, 6 of them successful", "10000–10005", "forward", "target 6", "fits LocS10N1", "yes"):
        assert text in shown.stdout


def test_mistakes_are_told_in_plain_words(tmp_path):
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path)}
    for arguments, message, code in (
        (("demos", "MazeS4G3"), "did you mean MazeS4G", 1),
        (("demos", "MazeS4G1", "--seed", "1234"), "of the test seeds 1234–1483", 1),
        (("demos", "MazeS4G1", "--expert", "nobody"), "there is no planner 'nobody'", 1),
        (("demos", "MazeS4G1", "--workers", "0", "--episodes", "60"), "workers is 0, expected at least 1", 1),
        (("demos", "MazeS4G1", "--episods", "3"), "--episodes", 2),
        (("data", "show", "genplan/none-v0"), "there is no dataset 'genplan/none-v0'", 1),
        (("demos", "none.py:task"), "there is no file 'none.py'", 1),
    ):
        answer = genplan(*arguments, env=environment)
        assert answer.returncode == code, (arguments, answer)
        assert message in answer.stderr
        assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("preset", [["--planner.preset", "paper"], ["--planner.preset=paper"]])
def test_a_preset_brings_all_its_settings(preset, monkeypatch):
    planner, training = asked(monkeypatch, "MazeS7G1", *preset, "--planner.heads", "8")
    assert (planner.preset, planner.width, planner.horizon, planner.heads) == ("paper", 128, 20, 8)
    assert training.batch == 64
    planner, training = asked(monkeypatch, "MazeS4G1", "--training.batch", "32")
    assert (planner.preset, planner.width, training.batch) == ("default", 64, 32)


def asked(monkeypatch, *arguments):
    """What `genplan train` would train with."""
    begun = []

    def begin(folder, task, planner, training, data):
        begun.append((planner, training))
        raise UserError("enough")

    monkeypatch.setattr("genplan.runs.begin", begin)
    monkeypatch.setattr("sys.argv", ["genplan", "train", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    return begun[0]
