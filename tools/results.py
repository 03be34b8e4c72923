"""Write docs/results.md from the cards of the planners that are shipped, with a picture of a solved episode each.

python tools/results.py
"""

from __future__ import annotations

import json
from pathlib import Path

import genplan
from genplan import film
from genplan.export import shipped
from genplan.tasks.table import ROWS, TEST_SEEDS

DOCS = Path(__file__).parent.parent / "docs"
HEAD = """# Results

Rows of the paper's TP and IC tables, solved by the planners that come with genplan: `default` preset, 1,000
demonstrations of the stock bot each, judged on the test seeds 1234–1483 (250 episodes) within the paper's step limits.
This file is written by `python tools/results.py` from the cards that `genplan export` wrote; `genplan eval
pretrained:ROW` measures a line again, and `genplan reproduce pretrained:ROW` trains it again.

Success in per cent with Wilson's 95 % interval; SPL against the bot's steps; stalling is the share of steps that change
nothing; CPU-minutes of training on one thread. *Paper*: the better of its GenPlan-M and GenPlan-U. *Walk*: the best of
three blind walks that see nothing.

| row | success | SPL | stalling | steps | CPU-min | paper | walk | bot's steps |
|---|---|---|---|---|---|---|---|---|
"""


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


def main() -> None:
    text, pictures = HEAD, []
    cards = {name: json.loads((path / "card.json").read_text()) for name, path in shipped().items()}
    for row in ROWS.values():
        if row.family == "AP" or row.name not in cards:
            continue
        card = cards[row.name]
        found = card["results"]
        low, high = found["success_interval"]
        paper = max(row.paper["GenPlan-M"], row.paper["GenPlan-U"])
        text += (
            f"| {row.name} | **{100 * found['success']:.1f}** ({100 * low:.1f}–{100 * high:.1f}) | {found['spl']:.3f} "
            f"| {100 * found['stall']:.1f} % | {found['mean_steps']:.1f} | {card['cpu_seconds'] / 60:.0f} | {paper:g} "
            f"| {max(row.walks.values())} | {found['bot']['mean_steps']:.1f} |\n"
        )
        pictures.append(still(row.name, row.name))
    notes = DOCS / "results-notes.md"
    text += "\n" + (notes.read_text() if notes.exists() else "") + "\n## An episode of each\n\n" + "\n".join(pictures)
    (DOCS / "results.md").write_text(text)
    print(f"{DOCS / 'results.md'}: {len(pictures)} rows")


if __name__ == "__main__":
    main()
