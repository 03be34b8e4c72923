"""The command that checks what a user has added."""

from __future__ import annotations

import time

from rich.console import Console
from tyro.conf import Positional

STYLES = {"broken": "red", "ok": "green", "skipped": "dim"}  # the worst of several first


def check(name: Positional[str] = "", task: str | None = None) -> int:
    """Check a task, planner, method, codec or metric of your own against the rules that all of them keep.

    Args:
        name: file.py:Name, or the name of a task, method or codec that ships (by default all methods).
        task: The task on which a planner or metric is checked (by default MazeS4G1).
    """
    from genplan import conformance
    from genplan.planners import METHODS

    console, num_broken = Console(soft_wrap=True), 0
    for chosen in [name] if name else METHODS:
        start_time, by_rule = time.perf_counter(), {}  # type: tuple[float, dict[str, list[conformance.Finding]]]
        for finding in conformance.check(chosen, task):
            by_rule.setdefault(finding.rule, []).append(finding)
        worst = [min(findings, key=lambda one: list(STYLES).index(one.outcome)) for findings in by_rule.values()]
        for one in worst:  # one line per rule, or per method if there are several
            if name or one.outcome == "broken":
                console.print(str(one), style=STYLES[one.outcome], markup=False, highlight=False)
        broken = sum(one.outcome == "broken" for one in worst)
        cases, seconds = max(map(len, by_rule.values())), time.perf_counter() - start_time
        verdict = f"{broken} of {len(worst)} rules are broken" if broken else f"all {len(worst)} rules are kept"
        console.print(f"{chosen}: {verdict}" + (f" in {cases} cases" if cases > 1 else "") + f" ({seconds:.0f} s)")
        num_broken += broken
    return 1 if num_broken else 0
