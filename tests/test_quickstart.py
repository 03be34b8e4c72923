"""The main job and its report, at a tiny size; and the films."""

import json
import re

import pytest
from genplan.page import curve
from genplan.quickstart import main_job
from PIL import Image
from rich.console import Console

import genplan
from genplan import film


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    root = tmp_path_factory.mktemp("quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(root / "minari"))
        console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
        assert main_job(console, root / "run", steps=60, episodes=1, demonstrations=25) == 0
        assert main_job(console, root / "run", steps=60, episodes=1, demonstrations=25) == 0  # goes on: nothing to do
        yield root / "run", console.export_text()


def test_it_says_what_it_does_and_writes_a_self_contained_page(quick):
    folder, said = quick
    for text in ("1 of 4", "2 of 4", "3 of 4", "4 of 4", "is there already", "from step 60 to 60", "blind walk", "bot"):
        assert text in said
    page = (folder / "report.html").read_text()
    assert not re.search(r"(src|href)=[\"']https?:", page)
    assert page.count("data:image/gif;base64,") == 2
    assert page.count("<svg") >= 2
    assert "prefers-color-scheme: dark" in page
    found = json.loads((folder / "results.json").read_text())
    assert found["bot"]["success"] == 1
    assert found["episodes"] == 1


def test_films(quick, tmp_path):
    folder, _ = quick
    pilot = genplan.load(folder)
    frames, outcome = film.episode(pilot, 2000, execute=5, limit=7)
    assert (len(frames), outcome) == (8, "its first 7 steps") or outcome.startswith("solved in")
    film.write_gif(tmp_path / "x.gif", frames)
    assert Image.open(tmp_path / "x.gif").n_frames >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.gif"]


def test_a_curve_is_drawn_from_any_numbers():
    assert curve("flat", [(0, 1.0), (1, 1.0)]).count("<path") == 1
    assert "NaN" not in curve("one", [(3, 2.0)])
