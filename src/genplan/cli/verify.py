"""The command on claims: measure them again, and say which no longer hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import arg

from genplan.errors import UserError

if TYPE_CHECKING:
    from genplan.bench.ledger import Claims
    from genplan.verify import Measurements


def verify(
    everything: Annotated[bool, arg(name="all")] = False,
    write: bool = False,
    workers: int = 2,
    ledger: Path = Path("results/claims.toml"),
    measured: Path = Path("runs/verify.jsonl"),
) -> int:
    """Measure the claims of the ledger again, where code or planners changed or nothing was measured here yet.

    Then check all others: what follows from cells and cards, bars, and the figures of README, docs and cards. Stop at
    any time; the same command continues. The exit code is 1 if a claim does not hold.

    Args:
        everything: Measure all of them, also those that were measured here with the code of today.
        write: Measure nothing; take what was measured here, cells and cards over into the ledger, the tables of the
            documents, and the list of their figures (figures.toml, beside the ledger).
        workers: Claims measured at a time, one thread each.
        ledger: The file of claims.
        measured: Where measurements are kept.
    """
    from genplan import report, verify
    from genplan.bench import ResultStore
    from genplan.bench.ledger import ledger_text, read_ledger
    from genplan.files import write_atomically
    from genplan.jobs import file_lock

    if everything and write:
        raise UserError("--all measures and --write does not; use one after the other")
    console, claims, folder = Console(soft_wrap=True), read_ledger(ledger), ledger.parent
    figures, store = folder / "figures.toml", ResultStore(folder / "cells.jsonl")
    with file_lock(measured.with_name(f".{measured.name}.lock"), "claims are being measured"):
        measurements = verify.Measurements(measured)
        failed = {} if write else _measure(console, claims, measurements, everything, workers)
        if write:
            claims = verify.updated(claims, store, measurements)
            write_atomically(ledger, ledger_text(claims).encode())
            report.write_documents(folder.parent, figures, claims)
            console.print(f"{ledger}, {figures} and the tables of the documents written")
        wrong = failed | verify.problems(claims, store, measurements)
    documents = report.check_documents(folder.parent, figures, claims)
    for line in (*(f"does not hold: {name}: {one}" for name, reasons in wrong.items() for one in reasons), *documents):
        console.print(line, style="red", markup=False)
    counts = ", ".join(f"{n} {kind}" for kind, n in Counter(claim.kind for claim in claims.values()).items())
    console.print(f"{len(claims)} claims ({counts}): {len(wrong)} do not hold; {len(documents)} faults in documents")
    return 1 if wrong or documents else 0


def _measure(
    console: Console, claims: Claims, measurements: Measurements, everything: bool, workers: int
) -> dict[str, list[str]]:
    """Measure what is stale, with a bar of CPU-seconds; claims that could not be measured, with the reason."""
    from genplan import verify
    from genplan.console import progress

    stale = measurements.stale(claims, everything)
    number = sum(claim.kind == "measured" for claim in claims.values())
    console.print(f"{number - len(stale)} of {number} measured claims were measured here with this code", markup=False)
    seconds = {name: max(round(60 * claim.minutes), 1) for name, claim in stale.items()}
    done, shown, failed = dict.fromkeys(stale, 0.0), 0, dict[str, list[str]]()
    with progress(console, "measuring", max(sum(seconds.values()), 1), "CPU-s") as advance:
        for event in measurements.measure(stale, workers):
            name = event.job.key
            done[name] = event.fraction * seconds[name] if event.type == "progress" else seconds[name]
            total = round(sum(done.values()))
            advance(total - shown)
            shown = total
            if event.type == "failed":
                failed[name] = [event.reason]
            elif event.type == "done":
                wrong, same = verify.differences(claims[name], event.result["metrics"])
                how = "differs" if wrong else "the same to the digit" if same else "within its intervals"
                console.print(f"{name}: {how} ({event.result['minutes']} CPU-minutes)", markup=False)
    return failed
