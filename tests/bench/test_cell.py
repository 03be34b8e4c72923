"""Cells: their settings, and what makes one differ from another."""

import shutil

import pytest

from genplan import checkpoint, config
from genplan.bench import Cell, select, suites
from genplan.errors import UserError


def test_unknown_rows_and_methods_are_refused():
    with pytest.raises(UserError, match="no row 'MazeS9'"):
        Cell("BC", "MazeS9").settings()
    with pytest.raises(UserError, match="no method 'Mine'"):
        Cell("untrained:Mine", "MazeS4N3G1").settings()


def test_the_version_of_privileged_goals_is_a_setting_of_privileged_methods():
    assert Cell("DT", "KeyCorridorS3R3").settings()["oracle_version"] == 2
    assert "oracle_version" not in Cell("DT-noGC", "KeyCorridorS3R3").settings()
    assert "oracle_version" not in Cell("BC", "KeyCorridorS3R3").settings()
    assert "oracle_version" not in Cell("DT", "MazeS4G1").settings()  # there it has always been the same
    assert "oracle_version" in Cell("untrained:DT", "KeyCorridorS3R3").settings()
    assert "oracle_version" in Cell("mine.py:Mine", "KeyCorridorS3R3").settings()  # it might be privileged
    assert "oracle_version" not in Cell("pretrained:KeyCorridorS3R3", "KeyCorridorS3R3").settings()
    assert "oracle_version" not in Cell("expert", "KeyCorridorS3R3").settings()


def test_rows_of_one_training_share_it():
    one, other = Cell("LEAP-H", "LocS10N10G2"), Cell("LEAP-H", "SeqS5R2Un")
    assert one.training_hash == other.training_hash
    assert one.settings() != other.settings()
    assert Cell("LEAP-H", "LocS10N10G2", seed=1).training_hash != one.training_hash
    assert Cell("LEAP-H", "LocS10N10G2", demonstrations=30).training_hash != one.training_hash


def test_settings_follow_the_row():
    assert config.get(Cell("LEAP-H", "LocS10N10G2").training().planner, "entropy_bound") == 0.7
    assert config.get(Cell("LEAP-H", "MazeS4G1").training().planner, "entropy_bound") == 0.3
    assert config.get(Cell("LEAP", "MazeS4G1").training().planner, "entropy_bound") == 0
    assert Cell("LEAP-H", "SeqS5R2Un").options() == {"iterations": 40, "exploration": 0.5}
    assert Cell("LEAP", "MazeS7G1").options() == {"iterations": 50}
    assert Cell("GenPlan-U", "SeqS5R2Un").options() == {"exploration": 0.5}
    assert Cell("BC", "MazeS4G1").options() == {}
    assert Cell("GenPlan-M", "MazeS4G1", preset="paper").options() == {}
    assert Cell("expert", "SeqS5R2Un").options() == {}


def test_presets_and_budgets():
    paper = Cell("GenPlan-U", "MazeS4G1", preset="paper").training()
    assert config.get(paper.planner, "source") == "uniform"
    assert paper.training.steps == 5000
    assert paper.transforms == []
    with pytest.raises(UserError, match="GenPlan-M and GenPlan-U, found BC"):
        Cell("BC", "MazeS4G1", preset="paper").training()
    assert Cell("BC", "KeyCorridorS3R3").training().training.steps == 45_000  # 30 minutes
    assert Cell("GenPlan-U", "DoorsOrder").training().training.steps == 6_000  # 15
    assert Cell("BC", "MazeS4G1", steps=6, seed=2).training().training.steps == 6
    assert [one["name"] for one in Cell("BC", "SeqS5R2Un").training().transforms] == [
        "stitch", "map_randomization", "symmetry", "color_permutation", "either_order"]  # fmt: skip


def test_an_untrained_cell_has_the_settings_of_its_method():
    control, trained = Cell("untrained:GenPlan-M", "MazeS4N3G1"), Cell("GenPlan-M", "MazeS4N3G1")
    assert control.base_method == trained.method
    assert control.settings() == {key: trained.settings()[key] for key in ("planner", "options")}


def test_other_code_or_weights_make_another_cell(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Mine: ...\na = 1")
    before = Cell(f"{path}:Mine", "MazeS4G1").settings()
    path.write_text("class Mine: ...\na = 2")
    assert Cell(f"{path}:Mine", "MazeS4G1").settings() != before
    shutil.copytree(checkpoint.pretrained()["MazeS4G1"], tmp_path / "planner")
    cell = Cell(str(tmp_path / "planner"), "MazeS4G1")
    before = cell.settings()
    config = checkpoint.read_config(tmp_path / "planner")
    config["planner"]["sampler"]["temperature"] = 0.25
    (tmp_path / "planner" / "config.json").unlink()
    checkpoint.write_config(tmp_path / "planner", config)
    assert cell.settings() != before
    assert "digest" in Cell("pretrained:MazeS4G1", "MazeS4G1").settings()
    assert "digest" not in Cell("expert", "MazeS4G1").settings()


OWN_METHOD = """
from genplan.planners.behavior_cloning import BehaviorCloning

class Mine(BehaviorCloning):
    '''A method that learns.'''
"""


def test_a_method_from_a_file_is_trained(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN_METHOD)
    cell = Cell(f"{path}:Mine", "MazeS4N3G1")
    assert cell.is_trained
    assert cell.options() == {"exploration": 0.5}
    settings, training = cell.settings(), cell.training_hash
    assert set(settings) == {"planner", "options", "training", "transforms", "digest"}
    assert cell.training().training.steps == 7500  # the cost of a step is not known: as many as the task has by itself
    path.write_text(OWN_METHOD + "\n# another version\n")
    assert cell.settings()["digest"] != settings["digest"]
    assert cell.training_hash != training
    (first, *_) = select("tiny", methods=["BC", "expert"], planner=f"{path}:Mine")
    assert (first.steps, first.demonstrations, first.episodes) == (6, 10, 4)  # as the others of the suite


def test_suites_can_be_narrowed_and_extended():
    cells = select("main", rows=["DoorsOrder"], methods=["BC", "bot"], planner="mine.py:Mine")  # by its old name, too
    assert [(cell.method, cell.row) for cell in cells] == [
        ("mine.py:Mine", "DoorsOrder"), ("expert", "DoorsOrder"), ("BC", "DoorsOrder")]  # fmt: skip
    with pytest.raises(UserError, match="no suite 'man'"):
        select("man")
    with pytest.raises(UserError, match="no row 'SeqS5R2Un'"):
        select("main", rows=["SeqS5R2Un"])
    assert len({cell.row for cell in suites()["main"]}) == 8
    for cells in suites().values():
        assert len(set(cells)) == len(cells)


@pytest.mark.parametrize(("method", "plain"), [("BC-step", "BC"), ("LEAP-step", "LEAP-noGC")])
def test_methods_with_a_step_model_stand_beside_those_without(method, plain):
    for suite in ("adaptive", "main"):
        cells = suites()[suite]
        assert {cell.row for cell in cells if cell.method == method} == {c.row for c in cells if c.method == plain}
        methods = [cell.method for cell in cells]
        assert methods.index(method) > methods.index("DT-noGC")
    assert "exploration" in Cell(plain, "SeqS5R2Un").options()
    assert "exploration" not in Cell(method, "SeqS5R2Un").options()  # it adapts
    assert Cell(method, "MazeS4G1").training().training == Cell(plain, "MazeS4G1").training().training
