"""Claims are measured again where they are stale, and those that no longer hold are named."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest

from genplan import verify
from genplan.bench.ledger import Claim, ledger_text, read_ledger
from genplan.cli import main
from genplan.errors import UserError
from genplan.jobs import LocalExecutor
from genplan.verify import Measurements, code_digest, differences, measure, parse_command

RESULTS = Path(__file__).parents[1] / "results"
COMMAND = "genplan eval pretrained:LocS10N1 --seed 1240 --episodes 2 --threads 1"


@pytest.fixture(scope="module")
def found():
    return measure(COMMAND, lambda fraction: None)


@pytest.fixture
def claims(found):
    first = Claim("measured", found["metrics"], COMMAND, "1240–1241", 2, minutes=0.1, at_least={"success": 0.5})
    second = dataclasses.replace(first, command="genplan eval pretrained:LocS10N1 --seed 1242 --episodes 1")
    return {"eval/one": first, "eval/two": second}


def run(claims, measurements):
    return list(measurements.measure(claims, executor=LocalExecutor(1)))


def test_what_is_measured(found):
    metrics = found["metrics"]
    assert metrics["success"] == [1.0, pytest.approx(0.342, abs=1e-3), 1.0]
    assert metrics["spl"][1] <= metrics["spl"][0] <= metrics["spl"][2]
    assert {"spl_shortest", "random_success", "expert_steps", "first_steps"} <= set(metrics)


def test_commands_that_can_be_measured():
    assert parse_command("genplan eval pretrained:A") == ("pretrained:A", None, range(1234, 1484))
    assert parse_command(COMMAND + " --task MazeClose") == ("pretrained:LocS10N1", "MazeClose", range(1240, 1242))
    for other in (
        "make run",
        "genplan eval",
        *(f"genplan eval a {flag}" for flag in ("--json x", "--task", "--seed x")),
    ):
        with pytest.raises(UserError, match="expected genplan eval PLANNER"):
            parse_command(other)


def test_measuring_goes_on_where_it_was_stopped(claims, tmp_path, monkeypatch):
    path = tmp_path / "runs" / "verify.jsonl"
    measurements = Measurements(path)
    assert list(measurements.stale(claims)) == ["eval/one", "eval/two"]
    run({"eval/one": claims["eval/one"]}, measurements)
    with path.open("a") as file:
        file.write('{"claim": "eval/two", "comm')  # a kill
    measurements = Measurements(path)
    assert list(measurements.stale(claims)) == ["eval/two"]
    run(measurements.stale(claims), measurements)
    assert [json.loads(line)["claim"] for line in path.read_text().splitlines()[::2]] == ["eval/one", "eval/two"]
    assert Measurements(path).stale(claims) == {}
    again = Measurements(path)
    assert list(again.stale(claims, everything=True)) == ["eval/one", "eval/two"]
    run({"eval/one": claims["eval/one"]}, again)
    assert list(Measurements(path).stale(claims, everything=True)) == ["eval/two"]  # all once more, and it goes on
    assert Measurements(path).stale(claims) == {}
    monkeypatch.setattr(verify, "code_digest", lambda planner: "another")
    assert list(Measurements(path).stale(claims)) == ["eval/one", "eval/two"]


def test_the_digest_is_of_code_and_weights():
    assert (
        code_digest("pretrained:LocS10N1") == code_digest("pretrained:LocS10N1") != code_digest("pretrained:MazeS4G1")
    )
    package = Path(verify.__file__).parent
    assert all((package / name).exists() for name in verify.SOURCES)


def test_values_hold_within_their_interval():
    claim = Claim("measured", {"spl": [0.9, 0.85, 0.95], "steps": [4.0]}, at_least={"spl": 0.87})
    same = {"spl": [0.9, 0.85, 0.95], "steps": [4.0]}
    assert differences(claim, same) == ([], True)
    assert differences(claim, {**same, "spl": [0.88, 0.8, 0.95]}) == ([], False)
    assert differences(claim, {**same, "spl": [0.96, 0.9, 1.0]})[0] == ["spl is 0.96, claimed is 0.9 (0.85 to 0.95)"]
    assert differences(claim, {**same, "spl": [0.86, 0.8, 0.9]})[0] == ["spl is 0.86, expected at least 0.87"]
    assert differences(claim, {"spl": same["spl"]})[0] == ["steps is missing, claimed is 4.0"]


def genplan(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["genplan", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


@pytest.fixture
def folder(tmp_path, claims, monkeypatch):
    """A clone with nothing but results, whose only measured claims are small."""
    for name in ("cells.jsonl", "controls.jsonl", "ablations.jsonl", "all-card.json"):
        (tmp_path / "results").mkdir(exist_ok=True)
        shutil.copy(RESULTS / name, tmp_path / "results" / name)
    monkeypatch.chdir(tmp_path)
    others = {name: claim for name, claim in read_ledger(RESULTS / "claims.toml").items() if claim.kind != "measured"}
    shipped = {name: dataclasses.replace(claim, kind="record", command="") for name, claim in
               read_ledger(RESULTS / "claims.toml").items() if claim.kind == "measured"}  # fmt: skip
    (tmp_path / "results" / "claims.toml").write_text(
        ledger_text({"eval/one": claims["eval/one"], **shipped, **others})
    )
    return tmp_path


def test_the_command(folder, claims, monkeypatch, capfd):
    assert genplan(monkeypatch, "verify", "--write") == 0  # lists the figures of cards
    assert "0 do not hold; 0 faults" in capfd.readouterr().out
    assert genplan(monkeypatch, "verify", "--workers", "1") == 0
    assert "eval/one: the same to the digit" in capfd.readouterr().out
    assert genplan(monkeypatch, "verify") == 0
    assert "1 of 1 measured claims were measured here with this code" in capfd.readouterr().out
    ledger = folder / "results" / "claims.toml"
    wrong = dataclasses.replace(claims["eval/one"], metrics={"success": [0.1, 0.0, 0.2]}, at_least={"success": 0.05})
    ledger.write_text(ledger_text({**read_ledger(ledger), "eval/one": wrong}))
    assert genplan(monkeypatch, "verify") == 1
    assert "does not hold: eval/one: success is 1.0, claimed is 0.1 (0.0 to 0.2)" in capfd.readouterr().out
    assert genplan(monkeypatch, "verify", "--write") == 0  # the ledger takes it over
    assert read_ledger(ledger)["eval/one"].metrics == claims["eval/one"].metrics
    assert genplan(monkeypatch, "verify", "--all", "--write") == 1
    assert "one after the other" in capfd.readouterr().err
    assert genplan(monkeypatch, "verify", "--ledger", "none.toml") == 1
    assert "there is no ledger none.toml" in capfd.readouterr().err


def test_a_claim_that_cannot_be_measured_does_not_hold(folder, claims, monkeypatch, capfd):
    ledger = folder / "results" / "claims.toml"
    gone = dataclasses.replace(claims["eval/one"], command="genplan eval pretrained:LocS10N1 --task Gone")
    ledger.write_text(ledger_text({**read_ledger(ledger), "eval/one": gone}))
    genplan(monkeypatch, "verify", "--write")
    capfd.readouterr()
    assert genplan(monkeypatch, "verify", "--workers", "1") == 1
    assert "does not hold: eval/one: there is no task 'Gone'" in capfd.readouterr().out
