"""The page of one run: how it was trained, what it scores, how it acts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from genplan.evaluate import Evaluation
from genplan.files import write_atomically
from genplan.metrics import resolve
from genplan.report.html import gifs, line_chart, page, score_table

CURVES = {
    "loss/actions": "loss of actions, nats per token",
    "loss/states": "loss of states, nats per token",
    "accuracy/actions": "correct actions among the corrupted",
    "val/loss": "loss on held-out demonstrations",
}


def run_page(
    folder: Path, title: str, config: Mapping[str, Any], evaluation: Evaluation,
    animations: Sequence[tuple[str, bytes]], cpu_seconds: float,
) -> Path:  # fmt: skip
    """Write report.html in a run folder; `config` is the run's, `animations` are GIFs with their captions."""
    path, data, seeds = folder / "report.html", config["dataset"], [rollout.seed for rollout in evaluation.rollouts]
    settings = "\n".join(f"{part}: {json.dumps(config[part], indent=1)}" for part in ("planner", "training"))
    found = {name: score.metrics for name, score in evaluation.scores.items()}
    seconds = [f"{score.seconds:.1f}" for score in evaluation.scores.values()]
    scores = score_table(found, resolve(evaluation.task), {"seconds": seconds})
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    body = (
        f"<h1>{escape(title)}</h1><p>{escape(config['method'])}, trained on {data['episodes']} demonstrations "
        f"({escape(data['name'])}, digest {escape(data['digest'])}) in {cpu_seconds / 60:.1f} CPU-minutes; evaluated "
        f"on {len(seeds)} episodes that are not among them, seeds {seeds[0]}–{seeds[-1]}, with a random policy and the "
        f"expert on the same seeds.</p>{scores}"
        '<p class="soft">With 95 % intervals. SPL: success weighted by path length, against the expert\'s path and '
        "against the shortest. Stalling: share of steps that change nothing that is observed.</p>"
        f'<h2>Episodes</h2>{gifs(animations)}<h2>Training</h2><div class="grid">{_curves(log)}</div>'
        f"<h2>Settings</h2><pre>{escape(settings)}</pre>"
    )
    write_atomically(path, page(title, body).encode())
    return path


def _curves(log: Sequence[Mapping[str, Any]]) -> str:
    charts = []
    for name, label in CURVES.items():
        points = [(line["step"], line[name]) for line in log if name in line]
        if len(points) > 1:
            (steps, values), title = zip(*points, strict=True), f"{label}, against training steps"
            y_ticks = (min(0.0, *values), max(values))
            charts.append(line_chart(title, {"": points}, y_ticks, (steps[0], steps[-1])))
    return "".join(charts)
