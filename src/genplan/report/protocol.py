"""The protocol of the benchmark in words; every number in it is read from the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from genplan import config
from genplan.bench.cell import DEMONSTRATIONS, EXPLORATION, Cell
from genplan.planners import METHODS
from genplan.tasks.paper import ROWS
from genplan.types import TEST_SEEDS


def protocol() -> str:
    """What all methods have in common, what differs, and how to read the tables."""
    cells = [Cell(method, row.name) for row in ROWS.values() for method in METHODS]
    planners = {cell: cell.training().planner for cell in cells}

    def setting(name: str) -> str:
        return _common((cell, config.get(planner, name)) for cell, planner in planners.items())

    adaptive = next(cell for cell in cells if ROWS[cell.row].split == "AP")
    transforms = ", ".join(transform["name"] for transform in adaptive.training().transforms)
    outcomes = sorted({cell.method for cell, planner in planners.items() if config.get(planner, "outcome_memory")})
    memory = "all" if all(config.get(planner, "visit_memory") for planner in planners.values()) else "most"
    return f"""<p>Every method learns from the same {DEMONSTRATIONS:,} demonstrations of the BabyAI bot with the same
training budget of {_budgets()} and encodes grid and mission with the same encoder. The last {setting("context_length")}
observations, the current one counted, are shown; {memory} methods also receive the states visited in the episode and
the actions tried there. Actions are sampled at temperature {setting("temperature")}, and {setting("action_steps")} of
each plan is executed; the paper executes whole plans. All are evaluated on the same {len(TEST_SEEDS)} seeds
({TEST_SEEDS[0]}–{TEST_SEEDS[-1]}) within the paper's step limits. Settings that differ between tasks were chosen on
validation seeds with GenPlan-M. <b>pretrained</b> is the planner that comes with genplan; except in the adaptive rows,
its training has a budget of its own.</p>
<p>In the adaptive rows all methods are trained on demonstrations of {ROWS[adaptive.row].train_task} only, a room with
one object, with the data transforms {transforms}, and explore at test time (coefficient {EXPLORATION}): where their
actions lead to nothing new, they try others. {", ".join(outcomes)} predict states and also record within an episode
which actions had another outcome than predicted (outcome memory). The paper's numbers were obtained without any of
this.</p>
<p class="soft">Success in per cent of episodes, with Wilson's 95 % interval; below, SPL (success weighted by path
length) against the path of the expert · against the shortest path; <i>in italics, the paper's number</i>. ◆: receives
the positions of the goals from the simulator. random: the best of three random policies that ignore observations;
untrained: GenPlan-M with randomly initialized weights.</p>"""


def _budgets() -> str:
    """CPU-minutes, the most frequent first; the tasks of the others."""
    minutes = {cell.paper_row.train_task: cell.train_task.budget_minutes for cell in _row_cells()}
    return _common_by(minutes.items(), str, " CPU-minutes")


def _row_cells() -> list[Cell]:
    return [Cell("GenPlan-M", row) for row in ROWS]


def _common(values: Iterable[tuple[Cell, Any]]) -> str:
    """The most frequent value; and, in brackets, where it is another. None: the method has no such setting."""
    known = {(cell.method, ROWS[cell.row].train_task): value for cell, value in values if value is not None}
    return _common_by(known.items(), lambda key: f"{key[0]} on {key[1]}")


def _common_by(values: Iterable[tuple[Any, Any]], label: Callable[[Any], str], unit: str = "") -> str:
    known = dict(values)
    (most, _), *_ = Counter(known.values()).most_common(1)
    others: dict[Any, list[str]] = {}
    for key, value in known.items():
        if value != most:
            others.setdefault(value, []).append(label(key))
    exceptions = "; ".join(f"{value:g} for {', '.join(keys)}" for value, keys in others.items())
    return f"{most:g}{unit}" + (f" ({exceptions})" if exceptions else "")
