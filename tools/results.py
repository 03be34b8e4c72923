"""Write docs/results.md: from the cards of the planners that are shipped, with a picture of a solved episode each, and
from the benchmark's cells.

python tools/results.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from genplan.bench.board import Board
from genplan.bench.comparison import score
from genplan.tasks.table import ROWS, TEST_SEEDS, WALKS, Row

import genplan
from genplan import film
from genplan.bench import Cell, Results, suites
from genplan.evaluate import Score
from genplan.export import shipped
from genplan.report.tables import shown_name

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS.parent / "results"
HEAD = """# Results

Rows of the paper's TP and IC tables, solved by the planners that come with genplan: `default` preset, 1,000
demonstrations of the stock bot each, judged on the test seeds 1234–1483 (250 episodes) within the paper's step limits.
This file is written by `python tools/results.py` from the cards that `genplan export` wrote; `genplan eval
pretrained:ROW` measures a line again, and `genplan reproduce pretrained:ROW` trains it again.

Success in per cent with Wilson's 95 % interval; SPL against the bot's steps; stalling is the share of steps that change
nothing; CPU-minutes of training on one thread. *Paper*: the better of its GenPlan-M and GenPlan-U. *Walk*: the best of
three blind walks that see nothing. *Untrained*: the same planner with a network that has learnt nothing
(`python benchmarks/controls.py`).

| row | success | SPL | stalling | steps | CPU-min | paper | walk | untrained | bot's steps |
|---|---|---|---|---|---|---|---|---|---|
"""
ADAPTIVE = """
## Never demonstrated

The planner of LocS10N1 on the paper's adaptive rows. All its demonstrations are of one object in one room; it learnt
from them stitched together, in maps with made-up walls and unknown things, and it is curious
([planner.md](planner.md)); the paper's planner was not. From the benchmark's cells (`genplan bench run adaptive
--methods pretrained:LocS10N1`); walk and untrained from there, too.

| row | success | SPL | paper | walk | untrained |
|---|---|---|---|---|---|
"""
TOGETHER = """
## One planner for all rows

`genplan train all` learns from the demonstrations of all eight rows together: {steps:,} steps, {minutes:.0f}
CPU-minutes, a third of what the eight took, and {parameters:,} weights. It holds the bars of all rows, and in all but
KeyCorridorS3R3 its success is that of the row's own planner within chance. There it is behind, so it does not come with
the package.

| row | success | SPL | its own planner |
|---|---|---|---|
"""
COMPARED = """
## Under one protocol

Every method with the same demonstrations, encoder, memory and training budget, on the same 250 test seeds
([bench.md](bench.md)): success in per cent, and SPL. ◆: the simulator tells this method where the goals are. Cells that
were measured with other settings than today's, or not at all, are empty; a mean is over all rows that have a figure of
GenPlan-M, and is empty where a method lacks one of them. Intervals, paired differences and the paper's numbers are on
the page `results/report.html` (`genplan report`).
"""
FEWER = """
## Fewer demonstrations

The same budget of training, on fewer demonstrations: success in per cent, and SPL, on the 250 test seeds (`genplan
bench run demonstrations`).
"""
STUDIES = {
    "memory": """
## Is memory needed?

Short trainings that differ in what is remembered alone (`python benchmarks/ablations.py memory`); {steps:,} steps each,
250 validation seeds.
""",
    "subgoals": """
## Which sub-goals are worth predicting?

Short trainings that differ in the goals of the plan alone (`python benchmarks/ablations.py subgoals`); {steps:,} steps
each, 250 validation seeds.
""",
}


def still(name: str, row: str) -> str:
    """The first solved test episode as one picture: the maze at its start, and the way that was taken."""
    pilot = genplan.load(f"pretrained:{name}", ROWS[row].world)
    for seed in TEST_SEEDS:
        env = pilot.task.new_env()
        seen = pilot.task.observe(env, env.reset(seed=seed)[0])
        base = film.picture(seen["map"], pilot.planner.spec.pose(int(seen["state"])))
        mission, states, success, over = (
            pilot.planner.spec.decode_mission(seen["mission"]),
            [int(seen["state"])],
            False,
            False,
        )
        pilot.start()
        while not over:
            plan = pilot.plan(seen, keep_trace=False)
            for action in plan.actions[: pilot.planner.config.execute].tolist():
                raw, reward, terminated, truncated, info = env.step(action)
                seen = pilot.task.observe(env, raw)
                pilot.observe(action, seen)
                states.append(int(seen["state"]))
                success = pilot.task.succeeded(float(reward), terminated, info)
                over = terminated or truncated or len(states) > pilot.task.max_steps
                if over:
                    break
        if success:
            picture = film.overlay(base, pilot.planner.spec, states)
            path = DOCS / "pictures" / f"{row}.png"
            path.parent.mkdir(exist_ok=True)
            picture.quantize(64).save(path, optimize=True)
            return f"**{row}**, seed {seed}: “{mission}”, {len(states) - 1} steps\n\n![{row}](pictures/{row}.png)\n"
    raise SystemExit(f"{name} solves no test episode of {row}")


def lines(name: str) -> list[dict[str, Any]]:
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def percent(found: dict[str, Any]) -> str:
    low, high = found["success_interval"]
    return f"{100 * found['success']:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def blind(results: Results, row: Row) -> str:
    """The best blind walk, as measured; nothing where it was not."""
    walks = [results.find(Cell(f"walk:{kind}", row.name)) for kind in WALKS]
    found = [100 * score(walk, None).success for walk in walks if walk]
    return f"{max(found):.1f}" if found else ""


def adaptive(results: Results) -> str:
    text = ""
    for row in (row for row in ROWS.values() if row.family == "AP"):
        bot = results.find(Cell("bot", row.name))
        if cell := results.find(Cell("pretrained:LocS10N1", row.name)):
            control = results.find(Cell("untrained:GenPlan-M", row.name))
            found = score(cell, bot)
            text += (
                f"| {row.name} | {percent(vars(found))} | {found.spl or 0:.3f} "
                f"| {max(row.paper['GenPlan-M'], row.paper['GenPlan-U']):g} | {blind(results, row)} "
                f"| {f'{100 * score(control, bot).success:.1f}' if control else ''} |\n"
            )
    return text and ADAPTIVE + text


def compared(results: Results) -> str:
    """All methods of the benchmark, world by world."""
    board, text = Board(results), COMPARED
    for families in (("TP", "IC"), ("AP",)):
        rows = [row for row in ROWS.values() if row.family in families and _fresh(board, "GenPlan-M", row)]
        methods = [method for method in board.methods(rows) if any(_fresh(board, method, row) for row in rows)]
        text += (
            f"\n| row | {' | '.join(shown_name(board, method) for method in methods)} |\n|---|{'---|' * len(methods)}\n"
        )
        found = {method: [_fresh(board, method, row) for row in rows] for method in methods}
        for place, row in enumerate(rows):
            text += f"| {row.name} | {' | '.join(_pair([found[method][place]]) for method in methods)} |\n"
        text += f"| mean | {' | '.join(_pair(found[method]) for method in methods)} |\n"
    return text


def fewer(results: Results) -> str:
    """Success against the number of demonstrations, as far as it was measured."""
    board, text = Board(results), ""
    cells = [
        cell for cell in suites()["demonstrations"] if _fresh(board, cell.method, ROWS[cell.row], cell.demonstrations)
    ]
    numbers = sorted({cell.demonstrations for cell in cells})
    for row, method in dict.fromkeys((cell.row, cell.method) for cell in cells):
        found = [_fresh(board, method, ROWS[row], number) for number in numbers]
        text += f"| {row}, {method} | {' | '.join(_pair([score]) for score in found)} |\n"
    return text and f"{FEWER}\n| | {' | '.join(map(str, numbers))} |\n|---|{'---|' * len(numbers)}\n{text}"


def _fresh(board: Board, method: str, row: Row, demonstrations: int = 1000) -> Score | None:
    line = board.line(method, row.name, demonstrations=demonstrations)
    return None if line is None or board.mark(line) else board.score(line)


def _pair(found: Sequence[Score | None]) -> str:
    known = [each for each in found if each is not None and each.spl is not None]
    if not known or len(known) < len(found):
        return ""
    return f"{100 * fmean(each.success for each in known):.1f} {fmean(each.spl or 0.0 for each in known):.3f}"


def together(cards: dict[str, dict[str, Any]]) -> str:
    card = json.loads((RESULTS / "all-card.json").read_text())
    text = TOGETHER.format(steps=card["steps"], minutes=card["cpu_seconds"] / 60, parameters=card["parameters"])
    for world, found in card["results"]["worlds"].items():
        own = cards[world]["results"]
        beside = f"{100 * own['success']:.1f}, {own['spl']:.3f}"
        text += f"| {world} | {percent(found)} | {found['spl']:.3f} | {beside} |\n"
    return text


def study(name: str) -> str:
    found = [line for line in lines("ablations.jsonl") if line["study"] == name]
    if not found:
        return ""
    text = STUDIES[name].format(steps=found[0]["steps"])
    text += "\n| row | variant | success | SPL | stalling |\n|---|---|---|---|---|\n"
    for line in found:
        text += (
            f"| {line['row']} | {line['variant']} | {percent(line)} | {line['spl']:.3f} "
            f"| {100 * line['stall']:.1f} % |\n"
        )
    return text


def main() -> None:
    text, pictures, results = HEAD, [], Results(RESULTS / "cells.jsonl")
    cards = {name: json.loads((path / "card.json").read_text()) for name, path in shipped().items()}
    controls = {line["weights"]: line for line in lines("controls.jsonl") if line["untrained"]}
    for row in ROWS.values():
        if row.family == "AP" or row.name not in cards:
            continue
        card = cards[row.name]
        found = card["results"]
        paper = max(row.paper["GenPlan-M"], row.paper["GenPlan-U"])
        control = controls.get(card["weights"])
        untrained = f"{100 * control['success']:.1f}" if control else ""
        text += (
            f"| {row.name} | {percent(found)} | {found['spl']:.3f} | {100 * found['stall']:.1f} % "
            f"| {found['mean_steps']:.1f} | {card['cpu_seconds'] / 60:.0f} | {paper:g} | {blind(results, row)} "
            f"| {untrained} | {found['bot']['mean_steps']:.1f} |\n"
        )
        pictures.append(still(row.name, row.name))
    text += together(cards) + adaptive(results) + compared(results) + fewer(results)
    text += study("memory") + study("subgoals")
    (DOCS / "results.md").write_text(text + "\n## An episode of each\n\n" + "\n".join(pictures))
    print(f"{DOCS / 'results.md'}: {len(pictures)} rows")


if __name__ == "__main__":
    main()
