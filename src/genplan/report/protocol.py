"""The protocol of the benchmark in words; every number in it is read from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mode

from genplan import config
from genplan.bench.cell import DEMONSTRATIONS, EXPLORATION, Cell
from genplan.bench.suites import suites
from genplan.tasks.paper import ROWS
from genplan.types import TEST_SEEDS


def protocol() -> str:
    """What all methods have in common, what differs, and how to read the tables."""
    compared = dict.fromkeys(cell.method for name in ("main", "adaptive") for cell in suites()[name] if cell.is_trained)
    planners = {cell: cell.training().planner for cell in (Cell(method, row) for row in ROWS for method in compared)}

    def setting(name: str) -> str:
        found = ((cell, config.get(planner, name)) for cell, planner in planners.items())
        return _most({f"{cell.method} on {cell.train_task.name}": one for cell, one in found if one is not None})

    budgets = _most({cell.train_task.name: cell.train_task.budget_minutes for cell in planners}, " CPU-minutes")
    adaptive = next(cell for cell in planners if cell.table_row.split == "AP")
    transforms = ", ".join(transform["name"] for transform in adaptive.training().transforms)
    outcomes = sorted({cell.method for cell, planner in planners.items() if config.get(planner, "outcome_memory")})
    memory = "all" if all(config.get(planner, "visit_memory") for planner in planners.values()) else "most"
    return f"""<p>Every method learns from the same {DEMONSTRATIONS:,} demonstrations of the BabyAI bot with the same
training budget of {budgets} and encodes grid and mission with the same encoder. The last {setting("context_length")}
observations, the current one counted, are shown; {memory} methods also receive the states visited in the episode and
the actions tried there. Actions are sampled at temperature {setting("temperature")}, and {setting("action_steps")} of
each plan is executed; the paper executes whole plans. All are evaluated on the same {len(TEST_SEEDS)} seeds
({TEST_SEEDS[0]}–{TEST_SEEDS[-1]}) within the paper's step limits. Settings that differ between tasks were chosen on
validation seeds with GenPlan-M. <b>pretrained</b> is the planner that comes with genplan; except in the adaptive rows,
its training has a budget of its own.</p>
<p>In the adaptive rows all methods are trained on demonstrations of {adaptive.train_task.name} only, a room with
one object, with the data transforms {transforms}, and explore at test time (coefficient {EXPLORATION}): where their
actions lead to nothing new, they try others. {", ".join(outcomes)} predict states and also record within an episode
which actions had another outcome than predicted (outcome memory). The paper's numbers were obtained without any of
this.</p>
<p class="soft">Success in per cent of episodes, with Wilson's 95 % interval; below, SPL (success weighted by path
length) against the path of the expert · against the shortest path; <i>in italics, the paper's number</i>. ◆: receives
the positions of the goals from the simulator. random: the best of three random policies that ignore observations;
untrained: GenPlan-M with randomly initialized weights.</p>"""


def _most(values: Mapping[str, float], unit: str = "") -> str:
    """The most frequent value; and, in brackets, where it is another."""
    most = mode(values.values())
    others = [one for one in dict.fromkeys(values.values()) if one != most]
    where = [f"{one:g} for {', '.join(name for name, value in values.items() if value == one)}" for one in others]
    return f"{most:g}{unit}" + (f" ({'; '.join(where)})" if where else "")
