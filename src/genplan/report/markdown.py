"""The tables of README and docs, rendered from the ledger of claims into the blocks that are marked there.

A block lies between the lines `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from genplan.bench.claims import cell_id
from genplan.bench.ledger import Claim, Claims
from genplan.bench.suites import CONTROLS, RANDOM_CONTROLS, suites
from genplan.bench.table import COMPARED, REFERENCE, column_title, label, ordered, privileged_methods, value_texts
from genplan.errors import UserError
from genplan.render.numbers import format_interval, format_number
from genplan.tasks.paper import ROWS, Row

BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
ADAPTIVE = "eval/LocS10N1"  # the planner of the adaptive rows
SCORES = tuple(map(column_title, COMPARED))


def render_tables(claims: Claims) -> dict[str, str]:
    """Tables by name."""
    try:
        return {
            "headline": _headline(claims), "pretrained": _pretrained(claims), "all": _all_tasks(claims),
            "adaptive": _adaptive(claims),
            "methods": _methods(claims, "TP+IC"), "methods-adaptive": _methods(claims, "AP"),
            "demonstrations": _demonstrations(claims), "study-memory": _study(claims, "memory"),
            "study-subgoals": _study(claims, "subgoals"),
        }  # fmt: skip
    except KeyError as error:
        reason = f"the ledger has no claim {error}, which a table shows; genplan verify --write adds it"
        raise UserError(reason) from error


def fill_blocks(text: str, tables: Mapping[str, str]) -> str:
    """The text with a table in each of its marked blocks."""

    def fill(block: re.Match[str]) -> str:
        begin, name, _, end = block.groups()
        if name not in tables:
            raise UserError(f"there is no table '{name}'; known are {', '.join(tables)}")
        return f"{begin}\n{tables[name]}\n{end}"

    return BLOCK.sub(fill, text)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, *rows)).replace("\n", f"\n|{'---|' * len(head)}\n", 1)


def _scores(claim: Claim) -> list[str]:
    """Success with its interval, and SPL against both references."""
    success, *path = value_texts(claim.value)
    _, low, high = claim.metrics["success"]
    return [f"{success} ({format_interval(low, high, '.1%')})", *path]


def _compared(claim: Claim | None) -> str:
    return "" if claim is None else " ".join(value_texts(claim.value))


def _share(claim: Claim | None, metric: str) -> str:
    return format_number(None if claim is None else claim.value(metric), ".1%", "")


def _paper(claims: Claims, row: Row) -> str:
    return f"{claims[f'paper/{row.name}'].value('best'):g}"


def _best_random(claims: Claims, row: Row) -> str:
    found = [claims.get(f"cell/{name}/{row.name}") for name in RANDOM_CONTROLS]
    return max((_share(claim, "success") for claim in found), key=lambda text: float(text or 0))


def _headline(claims: Claims) -> str:
    """README's first screen: the planners that come with genplan beside the paper and the random policy."""
    rows = []
    for row in ROWS.values():
        name = f"{ADAPTIVE}/{row.name}" if row.split == "AP" else f"eval/{row.name}"
        if (claim := claims.get(name)) is not None:
            path, holds = (claim.value(metric) for metric in ("spl_shortest", "plan_agreement"))
            rows.append((
                row.name + " ◇" * (row.split == "AP"), _share(claim, "success"), format_number(path, ".3f", "–"),
                _share(claim, "plan_agreement") if holds is not None else "–", _paper(claims, row),
                _best_random(claims, row),
            ))  # fmt: skip
    head = ("unseen mazes, solved in %", "genplan", "SPL (shortest)", "plans that hold", "the paper", "random policy")
    return _table(head, rows)


def _pretrained(claims: Claims) -> str:
    """The planners of single rows, with controls; minutes of training by their cards."""
    rows = []
    for row in ROWS.values():
        if row.split != "AP" and (claim := claims.get(f"eval/{row.name}")) is not None:
            steps, expert_steps = (format_number(claim.value(name), ".1f") for name in ("steps", "expert_steps"))
            rows.append((
                row.name, *_scores(claim), f"{_share(claim, 'stalling')} %", steps,
                f"{claims[f'card/{row.name}'].minutes:.0f}", _paper(claims, row), _best_random(claims, row),
                _share(claims.get(f"untrained/{row.name}"), "success"), expert_steps,
            ))  # fmt: skip
    extra = ("stalling", "steps", "CPU-min", "paper", "random", "untrained", "expert steps")
    return _table(("row", *SCORES, *extra), rows)


def _adaptive(claims: Claims) -> str:
    """The planner of the task that the adaptive rows are trained on."""
    rows = [(row.name, *_scores(claim), _paper(claims, row), _best_random(claims, row)) for row in ROWS.values()
            if (claim := claims.get(f"{ADAPTIVE}/{row.name}")) is not None]  # fmt: skip
    return _table(("row", *SCORES, "paper", "random"), rows)


def _methods(claims: Claims, splits: str) -> str:
    """All methods of the benchmark: success, SPL, SPL against the shortest path; with their means."""
    rows = [row.name for row in ROWS.values() if row.split in splits and f"cell/{REFERENCE}/{row.name}" in claims]
    present = {name.split("/")[1] for row in rows for name in claims if re.fullmatch(rf"cell/[^/]+/{row}", name)}
    methods = [one for one in ordered(present) if one not in CONTROLS]
    lines = [(row, *(_compared(claims.get(f"cell/{one}/{row}")) for one in methods)) for row in rows]
    lines.append(("mean", *(_compared(claims.get(f"mean/{one}/{splits}")) for one in methods)))
    privileged = privileged_methods()
    return _table(["row", *(label(one) + " ◆" * (one in privileged) for one in methods)], lines)


def _demonstrations(claims: Claims) -> str:
    cells = [cell for cell in suites()["demonstrations"] if cell_id(cell, cell.method) in claims]
    numbers = sorted({cell.demonstrations for cell in cells})
    found = {(cell.row, cell.method, cell.demonstrations): claims[cell_id(cell, cell.method)] for cell in cells}
    rows = [(f"{row}, {method}", *(_compared(found.get((row, method, number))) for number in numbers))
            for row, method in dict.fromkeys((cell.row, cell.method) for cell in cells)]  # fmt: skip
    return _table(("", *map(str, numbers)), rows)


def _all_tasks(claims: Claims) -> str:
    """One planner for all rows, and the planners of single rows."""
    rows = [(row, *_scores(claims[f"all/{row}"]), ", ".join(value_texts(claims[f"eval/{row}"].value, COMPARED[:2])))
            for row in ROWS if f"all/{row}" in claims]  # fmt: skip
    return _table(("row", *SCORES, "the row's own planner: success (%), SPL"), rows)


def _study(claims: Claims, name: str) -> str:
    """Short trainings that differ in one thing."""
    rows = [(*key.split("/", 3)[2:], *_scores(claim), f"{_share(claim, 'stalling')} %")
            for key, claim in claims.items() if key.startswith(f"study/{name}/")]  # fmt: skip
    return _table(("row", "variant", *SCORES, "stalling"), rows)
