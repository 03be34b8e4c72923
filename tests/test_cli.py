"""The command line, as a user types it."""

import os
import subprocess
import sys

import pytest

from genplan import cli, planners
from genplan.cli.train import choose_transforms
from genplan.errors import UserError
from genplan.presets import default_config, default_transforms


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
    assert "exists already" in again.stdout
    shown = genplan("data", "show", "genplan/LocS10N1/bot-6-v0", env=environment)
    assert shown.returncode == 0, shown.stderr
    for text in ("6, 6 of them successful", "10000–10005", "forward", "target 6", "fits LocS10N1", "yes", "return 0."):
        assert text in shown.stdout


MISTAKES = [
    (("demos", "MazeS4G3"), "did you mean MazeS4G", 1),
    (("demos", "MazeS4G1", "--seed", "1234"), "of the test seeds 1234–1483", 1),
    (("demos", "MazeS4G1", "--expert", "nobody"), "there is no planner 'nobody'", 1),
    (("demos", "MazeS4G1", "--workers", "0", "--episodes", "60"), "workers is 0, expected at least 1", 1),
    (("demos", "MazeS4G1", "--episods", "3"), "--episodes", 2),
    (("data", "show", "genplan/none-v0"), "there is no dataset 'genplan/none-v0'", 1),
    (("demos", "none.py:task"), "there is no file 'none.py'", 1),
    (("train",), "name a task to train", 1),
    (("train", "--resume", "nothing"), "there is no config.json", 1),
    (("train", "LocS10N1", "--resume", "nothing"), "there is no config.json", 1),
    (("train", "--resume", "nothing", "--training.seed", "3"), "leave out all flags but task and method", 1),
    (("train", "LocS10N1", "--planner.hidden-size", "30"), "multiple of the 4 heads", 1),
    (("train", "LocS10N1", "--method", "GenPlan"), "there is no method 'GenPlan'; known are GenPlan-M, ", 1),
    (("train", "LocS10N1", "--method", "none.py:Mine"), "there is no file 'none.py'", 1),
    (("train", "LocS10N1", "--transforms", "mirror"), "no transform 'mirror'; known are", 1),
    (("train", "LocS10N1", "--planner.widht", "30"), "Unrecognized", 2),
    (("train", "LocS10N1", "--method", "BC", "--preset", "paper"), "is for GenPlan-M and GenPlan-U, found BC", 1),
    (("eval", "nothing"), "is not a run folder", 1),
    (
        ("eval", "bot", "--task", "LocS10N1", "--untrained"),
        "there is no trained network that could be left untrained",
        1,
    ),
    (("eval", "bot", "--task", "LocS10N1", "--episodes", "0"), "episodes is 0", 1),
    (("eval", "bot", "--task", "LocS10N1", "--slip", "2"), "slip is 2.0, expected 0 to 1", 1),
    (("eval", "bot", "--task", "LocS10N1", "--iterations", "3"), "can be set for trained planners", 1),
    (("plan", "nothing"), "there is no config.json", 1),
    (("bench", "run", "huge"), "there is no suite 'huge'; known are", 1),
    (("reproduce", "nothing"), "has no card.json", 1),
]


@pytest.mark.parametrize(("arguments", "message", "code"), MISTAKES, ids=[" ".join(one[0]) for one in MISTAKES])
def test_mistakes_are_explained(tmp_path, monkeypatch, capsys, arguments, message, code):
    """Without a traceback, before anything is written."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert message in said
    assert code == 2 or said.startswith("genplan: ")
    assert list(tmp_path.iterdir()) == []


def test_no_mistake_is_a_traceback(tmp_path):
    answer = genplan("demos", "MazeS4G3", env={**os.environ, "MINARI_DATASETS_PATH": str(tmp_path)})
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("genplan: there is no task 'MazeS4G3'")


class AskedError(UserError):
    """Raised instead of training."""


@pytest.fixture
def asked(monkeypatch):
    """What `genplan train` would train with: (method, planner, training, transforms) of the arguments."""
    begun = []

    def create_run(folder, task, method, planner, training, dataset, transforms):
        begun.append((method, planner, training, transforms))
        raise AskedError("enough")

    monkeypatch.setattr("genplan.runs.create_run", create_run)
    monkeypatch.setattr(sys.modules["genplan.cli.train"], "collect_demos", lambda *arguments: None)

    def ask(*arguments):
        with pytest.raises(AskedError):
            cli.train(list(arguments))
        return begun.pop()

    return ask


@pytest.mark.parametrize("preset", [["--preset", "paper"], ["--preset=paper"]])
def test_a_preset_brings_all_its_settings(preset, asked):
    _, planner, training, transforms = asked("MazeS7G1", *preset, "--planner.num-heads", "8")
    assert (planner.preset, planner.network.hidden_size, planner.horizon) == ("paper", 128, 20)
    assert planner.network.num_heads == 8
    assert (training.batch_size, transforms) == (64, [])
    _, planner, training, transforms = asked("MazeS4G1", "--training.batch-size", "32")
    assert (planner.preset, planner.network.hidden_size, training.batch_size) == ("default", 64, 32)
    assert transforms == default_transforms("MazeS4G1")


@pytest.mark.parametrize("method", [name for name, one in planners.METHODS.items() if not one.continuous])
def test_every_method_has_its_settings_as_flags(method, asked, capsys):
    found, planner, training, _ = asked("MazeS4G1", "--method", method, "--planner.temperature", "0.25")
    expected, expected_training = default_config("MazeS4G1", method)
    assert found == method
    assert planner == type(expected)(**{**vars(expected), **_temperature(planner)})
    assert training == expected_training
    with pytest.raises(SystemExit):
        cli.train(["MazeS4G1", "--method", method, "--help"])
    said = capsys.readouterr().out
    assert "--planner.context-length" in said
    assert ("--planner.horizon" in said) == hasattr(expected, "horizon")
    assert "--planner.source" not in said  # chosen by the method


def _temperature(planner):
    """The part of a configuration that holds its temperature."""
    return {name: value for name, value in vars(planner).items() if name in ("temperature", "sampler")}


def test_settings_are_named_with_or_without_their_group(asked):
    assert asked("MazeS4G1", "--planner.network.hidden-size", "32")[1].network.hidden_size == 32
    assert asked("MazeS4G1", "--planner.hidden-size", "32")[1].network.hidden_size == 32


def test_transforms_are_chosen_by_name(asked):
    recipe = default_transforms("LocS10N1")
    assert [one["name"] for one in recipe] == [
        "stitch",
        "map_randomization",
        "symmetry",
        "color_permutation",
        "either_order",
    ]
    assert [one["name"] for one in asked("LocS10N1", "--transforms", "symmetry")[3]] == ["symmetry"]
    assert asked("LocS10N1", "--transforms", "none")[3] == []
    assert choose_transforms(recipe, "color_permutation,stitch") == [recipe[0], recipe[3]]
