"""Every figure of README, docs and cards is in the ledger, and every claim of it that needs no measurement holds."""

import dataclasses
import random
from pathlib import Path

import pytest

from genplan.bench import ResultStore
from genplan.bench.claims import derive
from genplan.bench.ledger import Claim, ledger_text, read_ledger
from genplan.errors import UserError
from genplan.report import check_documents, write_documents
from genplan.report.figures import FACT, UNTIED, check_document, documents, read_figures, reference_text, scan
from genplan.report.markdown import fill_blocks, render_tables
from genplan.verify import Measurements, parse_command, problems, updated

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
CLAIMS = read_ledger(RESULTS / "claims.toml")
LISTED = read_figures(RESULTS / "figures.toml")
TABLES = render_tables(CLAIMS)
DOCUMENTS = documents(ROOT)


@pytest.fixture(scope="module")
def store():
    return ResultStore(RESULTS / "cells.jsonl")


def check(name, text, claims=CLAIMS):
    return check_document(name, text, LISTED[name], claims, TABLES)


def test_documents_say_what_the_ledger_says():
    """After a change of documents, cells or cards: genplan verify --write, then name the claims of new figures."""
    assert not check_documents(ROOT, RESULTS / "figures.toml", CLAIMS)


def test_claims_hold_that_need_no_measurement(store, tmp_path):
    """After new cells or cards: genplan verify --write"""
    assert problems(CLAIMS, store, Measurements(tmp_path / "none.jsonl")) == {}


def test_writing_again_changes_nothing(store, tmp_path):
    text = ledger_text(updated(CLAIMS, store, Measurements(tmp_path / "none.jsonl")))
    assert text == (RESULTS / "claims.toml").read_text()


def test_the_pretrained_planners_are_all_measured():
    planners = {parse_command(claim.command)[0] for claim in CLAIMS.values() if claim.kind == "measured"}
    assert planners == {f"pretrained:{path.parent.name}" for path in ROOT.glob("src/genplan/pretrained/*/card.json")}
    for name, claim in CLAIMS.items():
        if claim.kind == "measured":
            assert claim.episodes == len(parse_command(claim.command)[2]) == 250, name


def test_cards_agree_with_what_is_measured():
    """Cards are as they were written; today's value may differ by rounding, within its interval."""
    for name in (path.parent.name for path in ROOT.glob("src/genplan/pretrained/*/card.json")):
        for metric in ("success", "spl", "random_success", "expert_steps"):
            _, low, high = CLAIMS[f"eval/{name}"].metrics[metric]
            assert low <= CLAIMS[f"card/{name}"].value(metric) <= high, (name, metric)


def test_cells_of_pretrained_planners_agree_with_what_is_measured():
    cells = {name: claim for name, claim in CLAIMS.items() if name.startswith("cell/pretrained/")}
    assert len(cells) == 13
    for name, cell in cells.items():
        row = name.rpartition("/")[2]
        measured = CLAIMS.get(f"eval/{row}") or CLAIMS[f"eval/LocS10N1/{row}"]
        for metric in ("success", "spl", "spl_shortest"):
            _, low, high = cell.metrics[metric]
            assert low <= measured.value(metric) <= high, (name, metric)


def test_no_digit_can_change_unnoticed():
    """Digits drawn from all documents, half of them from README, docs without history, and cards."""
    rng = random.Random(0)
    texts = {name: (ROOT / name).read_text() for name in DOCUMENTS}
    places = [(name, place) for name in DOCUMENTS for place, letter in enumerate(texts[name]) if letter.isdecimal()]
    short = [one for one in places if one[0] in LISTED and (LISTED[one[0]].figures or one[0].endswith("card.json"))]
    for name, place in rng.sample(places, 500) + rng.sample(short, 500):
        other = rng.choice([digit for digit in "0123456789" if digit != texts[name][place]])
        changed = texts[name][:place] + other + texts[name][place + 1 :]
        assert check(name, changed), f"{name}: {changed[place - 30 : place + 20]!r}"


def test_tied_figures_equal_their_claims_to_the_last_digit():
    tied = [one for document in LISTED.values() for one in document.figures if one[1] != FACT]
    assert len(tied) > 120
    for figure, reference in tied:
        other = f"{figure[:-1]}{(int(figure[-1]) + 1) % 10}"
        assert reference_text(CLAIMS, reference, figure) == figure
        assert reference_text(CLAIMS, reference, other) != other


def test_a_claim_that_changes_is_found_in_documents():
    claims = {**CLAIMS, "eval/MazeS7G2": dataclasses.replace(CLAIMS["eval/MazeS7G2"], metrics={"first_steps": [24.0]})}
    found = check_document(
        "docs/results.md", (ROOT / "docs/results.md").read_text(), LISTED["docs/results.md"], claims, TABLES
    )
    [fault] = [one for one in found if "'23'" in one]
    assert "is '23', 'eval/MazeS7G2: first_steps' is 24" in fault


def test_what_counts_as_a_figure():
    text = (
        "In MazeS4G1 it has 97.3 % (0.95–1,000) of `5`.\n```console\n$ genplan 7\n8 of 9\n```\n```python\nx = 6\n```\n"
    )
    figures, digest = scan("README.md", text)
    assert figures == ["97.3", "0.95", "1,000", "8", "9"]
    for code in ("S4", "`5`", "genplan 7", "x = 6"):
        changed = scan("README.md", text.replace(code, code.translate(str.maketrans("4567", "2222"))))
        assert changed[0] == figures
        assert changed[1] != digest
    assert scan("docs/log.md", text)[0] == []
    assert scan("docs/log.md", text) != scan("docs/log.md", text.replace("8", "7"))


def test_new_figures_need_a_claim_or_are_facts(tmp_path):
    figures = tmp_path / "results" / "figures.toml"
    (tmp_path / "README.md").write_text("SPL 0.956 in 250 mazes\n")
    write_documents(tmp_path, figures, CLAIMS)
    assert read_figures(figures)["README.md"].figures == [("0.956", UNTIED), ("250", UNTIED)]
    assert len(check_documents(tmp_path, figures, CLAIMS)) == 2
    figures.write_text(
        figures.read_text().replace("956 = ?", "956 = eval/MazeS4G2: spl").replace("250 = ?", "250 = fact")
    )
    assert check_documents(tmp_path, figures, CLAIMS) == []
    (tmp_path / "README.md").write_text("success 100 %, SPL 0.956 in 250 mazes\n")
    [fault] = check_documents(tmp_path, figures, CLAIMS)
    assert fault == "README.md: figure 1 is '100', the list has ''"
    write_documents(tmp_path, figures, CLAIMS)
    assert read_figures(figures)["README.md"].figures[0] == ("100", UNTIED)  # the others keep their claims
    assert len(check_documents(tmp_path, figures, CLAIMS)) == 1
    figures.write_text(figures.read_text().replace("100 = ?", "100 = eval/Gone: spl"))
    assert "no claim of the ledger" in check_documents(tmp_path, figures, CLAIMS)[0]
    figures.write_text("a = 1\n")
    with pytest.raises(UserError, match="not a list of figures"):
        read_figures(figures)


def test_tables_are_put_into_marked_blocks():
    text = fill_blocks("# A\n\n<!-- table: methods -->\nold\n<!-- end -->\n\ntext\n", TABLES)
    assert text.startswith("# A\n\n<!-- table: methods -->\n\n| row | GenPlan-M |")
    assert text.endswith("|\n\n<!-- end -->\n\ntext\n")
    assert fill_blocks(text, TABLES) == text
    with pytest.raises(UserError, match="no table 'others'"):
        fill_blocks("<!-- table: others -->\n<!-- end -->", TABLES)
    with pytest.raises(UserError, match="no claim 'card/MazeS4G1'"):
        render_tables({name: claim for name, claim in CLAIMS.items() if name != "card/MazeS4G1"})


def test_derived_claims_follow_from_cells(store):
    derived = derive(store)
    assert derived["mean/GenPlan-M/AP"].value("success") == pytest.approx(0.972)
    assert derived["cell/GenPlan-M/SeqS5R2Un"].value("success") == 0.892
    assert derived["paper/MazeS4G1"].metrics["best"] == [62]
    assert "mean/GenPlan-U/TP+IC" not in derived  # it was not run in all of these rows


@pytest.mark.parametrize(("text", "message"), [
    ("[", "is not TOML"),
    ("a = 1", "'a' is not a claim"),
    ('a = {kind = "measured"}', "'metrics'"),
    ('a = {kind = "guess", metrics = {spl = 1}}', "expected a kind of measured, cell"),
    ('a = {kind = "record", metrics = {spl = [1, 2]}}', "one or three numbers"),
    ('a = {kind = "record", metrics = {spl = 1}, at_least = {success = 1}}', "bars of these metrics"),
    ('a = {kind = "record", metrics = {spl = "x"}}', "is not a claim"),
    ('a = {kind = "record", metrics = {spl = 1}, color = 2}', "unexpected keyword"),
])  # fmt: skip
def test_a_broken_ledger_is_refused(tmp_path, text, message):
    (tmp_path / "claims.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_ledger(tmp_path / "claims.toml")


def test_a_ledger_is_read_as_it_was_written(tmp_path):
    claim = Claim("record", {"a b": [1.5], "spl": [0.5, 0.25, 1.0]}, 'say "x"', minutes=0.5, at_most={"spl": 0.5})
    (tmp_path / "claims.toml").write_text(ledger_text({"one/two, three ⊖": claim}))
    assert read_ledger(tmp_path / "claims.toml") == {"one/two, three ⊖": claim}
