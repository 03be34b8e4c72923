"""The page of the benchmark, from results that were never measured."""

import dataclasses

import pytest

from genplan import report, tasks
from genplan.bench import Cell, ResultStore
from genplan.errors import UserError
from genplan.report.protocol import protocol
from tests.bench.samples import make_result


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = ResultStore(tmp_path / "cells.jsonl")
    store.add(make_result(Cell("expert", "MazeS4G1"), [1] * 20, steps=5))
    for kind in ("uniform", "demos"):
        store.add(make_result(Cell(f"random:{kind}", "MazeS4G1"), [0, 1] * 10))
    shortest = {"references": {"shortest": [4] * 20}}
    for number in (30, 100, 1000):
        store.add(make_result(Cell("GenPlan-M", "MazeS4G1", demonstrations=number), [1] * 20, **shortest))
    store.add(make_result(Cell("GenPlan-M", "MazeS4G1", seed=1), [1] * 18 + [0] * 2, **shortest))
    store.add(make_result(Cell("BC", "MazeS4G1"), [0] * 15 + [1] * 5, **shortest))
    store.add(make_result(Cell("mine.py:<Mine>", "MazeS4G1"), [0] * 20, privileged=True))
    store.add(make_result(Cell("BC", "MazeS4G2"), [0] * 20, settings={}))  # with settings that no version has
    store.add(make_result(Cell("expert", "MazeS4G1", episodes=4), [0] * 4, steps=5))  # a short look does not count
    store.add(make_result(Cell("GenPlan-U", "MazeS4G1", preset="paper"), [1] * 10 + [0] * 10))
    store.add(make_result(Cell("DT", "MazeS4G1"), [0] * 20, settings={}))
    store.add(make_result(Cell("pretrained:MazeS4G1", "MazeS4G1"), [1] * 19 + [0], **shortest))
    other = make_result(Cell("expert", "MazeS4G1"), [1] * 20, steps=5)
    store.add(dataclasses.replace(other, cell=Cell("pretrained:Gone", "MazeS4G1"), settings={"digest": "0"}))
    return store


def test_the_page_shows_what_there_is_and_names_what_is_not(store, tmp_path):
    text = report.benchmark_page(store.path, tmp_path / "page.html").read_text()
    for expected in ("<b>100.0</b>", "<i>62</i>", "+75.0 ▲", "<i>52.4</i>", "0.500 · 0.400", "20 episodes",
                     "GenPlan-M, MazeS4G1</th><td>2</td><td>100.0, 90.0<br>", "mine.py:&lt;Mine&gt; ◆",
                     "demonstrations</figcaption>", "Not measured yet", "<li>expert: MazeS4G1, DoorsOrder, ",
                     "50.0<br>", "0.0 †", "other settings than this version", "<li>DT ◆: MazeS4G1, ", "pretrained",
                     "MazeS4G1, seed 1234: solved in", "MazeS4G1, seed 1253: ", "pretrained:Gone",
                     "In mean success GenPlan-M is better than BC and mine.py", "In mean SPL (shortest) GenPlan-M is",
                     "mean SPL (shortest)", "250 seeds"):  # fmt: skip
        assert expected in text, expected
    assert "than DT" not in text  # with other settings: shown, not compared
    assert "http" not in text.replace("http-equiv", "")


def test_a_page_needs_results(tmp_path):
    with pytest.raises(UserError, match="bench run main"):
        report.benchmark_page(tmp_path / "none.jsonl", tmp_path / "page.html")


def test_the_protocol_is_read_from_the_settings(monkeypatch):
    text = " ".join(protocol().split())
    assert "15 CPU-minutes (40 for MazeS7G1, MazeS7G2; 30 for BlockUnlock, KeyCorridorS3R3)" in text
    assert "temperature 0.5," in text
    others = ", ".join(f"{method} on LocS10N1" for method in ("LEAP", "LEAP-noGC", "LEAP-step", "LEAP-H"))
    assert f"The last 2 (1 for {others}) observations" in text
    assert "seeds (1234–1483)" in text
    get = tasks.get
    monkeypatch.setattr(tasks, "get", lambda name: dataclasses.replace(get(name), budget_minutes=7.0))
    assert "budget of 7 CPU-minutes and" in " ".join(protocol().split())
