"""`genplan bench run` and `genplan report` on the command line."""

import re
import subprocess
import sys

import pytest

from genplan import cli
from genplan.bench import Cell, ResultStore
from tests.bench.samples import OWN_PLANNER, make_result


def test_own_planners_are_in_the_table_and_on_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", "data")
    (tmp_path / "mine.py").write_text(OWN_PLANNER)
    command = ["bench", "run", "tiny", "--planner", "mine.py:Mine", "--methods", "expert", "BC",
               "--results", "cells.jsonl", "--runs", "runs"]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "genplan", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BC · MazeS4N3G1 · 10 demonstrations, success " in done.stdout
    results = ResultStore(tmp_path / "cells.jsonl").results
    assert sorted(one.cell.method for one in results) == ["BC", "expert", "mine.py:Mine"]
    again = call(monkeypatch, capsys, *command)
    assert "3 cells, 3 of them in cells.jsonl" in again
    (own,) = (one for one in results if one.cell.method == "mine.py:Mine")
    assert re.search(rf"mine.py:Mine +{100 * sum(own.episodes['success']) / 4:.1f} ", again)  # in the table
    call(monkeypatch, capsys, "report", "--results", "cells.jsonl", "--out", "page.html")
    assert "mine.py:Mine" in (tmp_path / "page.html").read_text()


def call(monkeypatch, capsys, *arguments):
    """What a command prints."""
    monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "run", "tiny", "--planner", "none.py:Mine"], "there is no file 'none.py'"),
        (["bench", "run", "tiny", "--results", "file/cells.jsonl"], "'file' cannot be used"),
        (
            ["bench", "run", "tiny", "--results", "cells.jsonl", "--runs", "file/runs"],
            "'file/runs' cannot be used .Not a directory",
        ),
        (["report", "--results", "cells.jsonl", "--out", "folder"], "'folder' cannot be used .Is a directory"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    ResultStore(tmp_path / "cells.jsonl").add(make_result(Cell("expert", "MazeS4G1", episodes=1), [1]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert re.search(message, capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["cells.jsonl", "file", "folder"]
