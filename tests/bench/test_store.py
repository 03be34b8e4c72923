"""The file of results: never mixed, lost or changed; lines of version 1 are read as they were meant."""

import dataclasses
import json
from pathlib import Path

import pytest

from genplan.bench import Cell, CellResult, ResultStore, run_cells
from genplan.bench.store import is_current
from genplan.errors import UserError
from tests.bench.samples import OWN_PLANNER, make_result

RESULTS = Path(__file__).parents[2] / "results" / "cells.jsonl"
OLD_LINE = {
    "method": "bot", "row": "MazeS4G1", "seed": 0, "demonstrations": None, "preset": None, "config_hash": "0" * 16,
    "config": {"cell": {"method": "bot", "row": "MazeS4G1", "seed": 0, "demonstrations": 1000, "preset": "default",
                        "steps": None, "episodes": 1}},
    "commit": "abc", "when": "2026-01-02T03:04:05Z", "training": {}, "seconds": 2.0, "planner_seconds": 1.0,
    "plans": 10, "first_seed": 1234, "success": [1], "steps": [10], "stalled": [2],
}  # fmt: skip


def test_lines_of_version_1_are_current_where_they_were():
    """Which of the lines had the settings of today: 57 of 271, of controls and of planners that came with genplan."""
    expected = json.loads(Path(__file__).with_name("current_v1.json").read_text())
    lines = [line for line in RESULTS.read_text().splitlines() if json.loads(line).get("version", 1) == 1]
    current = [int(is_current(CellResult.from_json(json.loads(line)))) for line in lines]
    assert (sum(current), len(current)) == (57, 271)
    assert current == expected


def test_a_line_of_version_1_is_read_in_todays_words():
    result = CellResult.from_json(OLD_LINE)
    assert result.cell == Cell("expert", "MazeS4G1", episodes=1)
    assert result.episodes == {"success": [1], "steps": [10], "stalling": [2]}
    assert result.weights == {"stalling": [10]}
    assert (result.num_plans, result.privileged, result.seeds) == (10, False, range(1234, 1235))
    assert is_current(result)


def test_what_is_written_is_what_is_read(tmp_path):
    store = ResultStore(tmp_path / "cells.jsonl")
    result = make_result(Cell("BC", "MazeS4G1", steps=250), [1, 0], references={"shortest": [3, None]}, privileged=True)
    store.add(result)
    assert ResultStore(store.path).results == [result] == store.results


def test_settings_are_part_of_a_cell(tmp_path):
    store = ResultStore(tmp_path / "cells.jsonl")
    cell = Cell("GenPlan-M", "MazeS4G1", steps=250)
    store.add(make_result(cell, [1, 0]))
    assert ResultStore(store.path).find(cell) is not None
    for other in (Cell("GenPlan-M", "MazeS4G1", steps=500), Cell("GenPlan-M", "MazeS4G1", seed=1, steps=250),
                  Cell("BC", "MazeS4G1", steps=250), Cell("GenPlan-M", "MazeS4G2", steps=250)):  # fmt: skip
        assert store.find(other) is None


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("training", "learning_rate", 1e-3),
        ("planner", "full_noise_prob", 0.125),
        ("planner", "no_longer_there", 1),
        ("options", "exploration", 0.2),
        ("options", "iterations", 3),
    ],
)
def test_a_result_with_other_settings_is_stale(part, name, value):
    result = make_result(Cell("GenPlan-M", "SeqS5R2Un"), [1, 0])
    assert is_current(result)
    settings = {**result.settings, part: {**result.settings[part], name: value}}
    assert not is_current(dataclasses.replace(result, settings=settings))


def test_a_result_with_other_transforms_is_stale():
    result = make_result(Cell("GenPlan-M", "SeqS5R2Un"), [1, 0])
    transforms = result.settings["transforms"]
    for other in (transforms[1:], [{**transforms[0], "num_episodes": 1}, *transforms[1:]], []):
        assert not is_current(dataclasses.replace(result, settings={**result.settings, "transforms": other}))
    unordered = {**result.settings, "transforms": transforms[::-1]}
    assert is_current(dataclasses.replace(result, settings=unordered))


def test_results_of_rows_and_methods_that_are_gone_are_stale():
    result = make_result(Cell("expert", "MazeS4G1"), [1])
    assert not is_current(dataclasses.replace(result, cell=Cell("expert", "MazeS9")))
    trained = make_result(Cell("BC", "MazeS4G1"), [1])
    assert not is_current(dataclasses.replace(trained, cell=Cell("Gone", "MazeS4G1")))


def test_own_planners_are_known_by_their_file_which_is_not_run(tmp_path):
    path, ran = tmp_path / "mine.py", tmp_path / "ran"
    path.write_text(OWN_PLANNER + f"\nopen({str(ran)!r}, 'w').close()\n")
    result = make_result(Cell(f"{path}:Mine", "MazeS4G1"), [1])
    ran.unlink()
    assert is_current(result)
    assert not ran.exists()
    path.write_text(OWN_PLANNER)
    assert not is_current(result)
    path.unlink()  # somebody else's planner
    assert is_current(result)


def test_a_cut_off_last_line_is_removed_and_others_stay_as_they_are(tmp_path):
    path = tmp_path / "cells.jsonl"
    whole = json.dumps(OLD_LINE)
    path.write_text(f'{whole}\n{{"method": "random')
    store = ResultStore(path)
    assert len(store.results) == 1
    assert path.read_text() != f"{whole}\n"  # reading alone leaves the file as it is: somebody may be writing it
    assert not list(run_cells([Cell("expert", "MazeS4G1", episodes=1)], store, tmp_path / "runs"))
    assert path.read_text() == f"{whole}\n"  # not rewritten in today's version


WHOLE = make_result(Cell("expert", "MazeS4G1", episodes=1), [1]).to_json()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense\n", "line 1 is not JSON"),
        (b"3\n", "line 1 is not a benchmark cell .it is not an object"),
        (b'{"study": "memory"}\n', "line 1 is not a benchmark cell .it has no 'config'"),
        (b'{"version": 2}\n', "line 1 is not a benchmark cell .it has no 'cell'"),
        (b"\xff\xfe\n", "cannot be read"),
        (json.dumps({**OLD_LINE, "config": None}).encode() + b"\n", "line 1 is not a benchmark cell"),
        (json.dumps({**OLD_LINE, "steps": []}).encode() + b"\n", "numbers of episodes are"),
        (json.dumps({**WHOLE, "training": 3}).encode() + b"\n", "its 'training' is 3"),
        (json.dumps({**WHOLE, "cell": {"method": "BC", "world": "x"}}).encode() + b"\n", "'world'"),
        (json.dumps({**WHOLE, "surprise": 1}).encode() + b"\n", "'surprise'"),
        (json.dumps({**WHOLE, "metrics": {"success": [1]}}).encode() + b"\n", "no metric 'steps'"),
        (json.dumps({**WHOLE, "metrics": {"success": [1], "steps": ["a"]}}).encode() + b"\n", "its 'steps' is"),
        (b'{"version": 2, "cell": {"method": "BC", "row": "a"}, "settings": {}, "first_seed": 1, "metrics": '
         b'{"success": [1], "steps": [NaN]}}\n', "its 'steps' is not finite"),
        (json.dumps({**WHOLE, "metrics": {"success": [], "steps": []}, "weights": {}}).encode() + b"\n", "numbers of"),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "cells.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        ResultStore(path)
    with pytest.raises(UserError, match="cannot be read"):
        ResultStore(tmp_path)
