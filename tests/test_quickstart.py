"""The main job and its report, at a tiny size."""

import json
import re
import sys

import pytest
from rich.console import Console

import genplan
from genplan.cli import quickstart as command
from genplan.render import frames
from genplan.report.html import line_chart


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The run folder, and what was printed by two calls: the second finds everything done."""
    root = tmp_path_factory.mktemp("quick")
    console = Console(record=True, width=100, file=(root / "printed").open("w"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(root / "minari"))
        patch.setattr(sys.modules["genplan.cli.quickstart"], "Console", lambda: console)
        for _ in range(2):
            assert command(root / "run", steps=60, episodes=1, demonstrations=25) == 0
        yield root / "run", console.export_text()
    console.file.close()


def test_it_says_what_it_does_and_writes_a_self_contained_page(quick):
    folder, printed = quick
    for text in ("1 of 4", "2 of 4", "3 of 4", "4 of 4", "exists already", "from step 60 to 60", "random policy",
                 "expert"):  # fmt: skip
        assert text in printed
    page = (folder / "report.html").read_text()
    assert not re.search(r"(src|href)=[\"']https?:", page)
    assert page.count("data:image/gif;base64,") == 2
    assert page.count("<svg") >= 2
    assert "prefers-color-scheme: dark" in page
    record = json.loads((folder / "results.json").read_text())
    assert record["baselines"]["expert"]["metrics"]["success"]["value"] == 1
    assert record["num_episodes"] == 1


def test_its_planner_is_loaded_and_filmed(quick):
    folder, _ = quick
    policy = genplan.load(folder)
    assert policy.planner.order == "chain"
    pictures, outcome = frames.episode_frames(policy.planner, policy.task, 2000, action_steps=5, limit=7)
    assert (len(pictures), outcome) == (8, "its first 7 steps") or outcome.startswith("solved in")


def test_a_curve_is_drawn_from_any_numbers():
    assert line_chart("flat", {"": [(0, 1.0), (1, 1.0)]}, (1.0, 1.0), (0, 1)).count("<path") == 1
    assert "NaN" not in line_chart("one", {"": [(3, 2.0)]}, (0.0, 2.0), (3, 3))
