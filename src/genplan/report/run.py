"""The page of one run: how it was trained, what it scores, how it acts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from genplan import metrics
from genplan.evaluate import Evaluation, Score
from genplan.files import write_atomically
from genplan.report.html import images, line_chart, page, table
from genplan.types import Metric, Task

CURVES = {
    "loss/actions": "loss of actions, nats per token",
    "loss/states": "loss of states, nats per token",
    "accuracy/actions": "correct actions among the corrupted",
    "val/loss": "loss on held-out demonstrations",
}


def run_page(
    path: Path,
    title: str,
    config: Mapping[str, Any],
    evaluation: Evaluation,
    log: Sequence[Mapping[str, Any]],
    animations: Sequence[tuple[str, bytes]],
    cpu_seconds: float,
) -> Path:
    """Write the page of a run.

    config      of the run folder; log: its lines
    animations  captions, and GIFs
    """
    curves = [
        line_chart(label, points)
        for name, label in CURVES.items()
        if len(points := [(line["step"], line[name]) for line in log if name in line]) > 1
    ]
    data = config["dataset"]
    seeds = [rollout.seed for rollout in evaluation.rollouts]
    summary = (
        f"{escape(config['method'])}, trained on {data['episodes']} demonstrations ({escape(data['name'])}, digest "
        f"{escape(data['digest'])}) in {cpu_seconds / 60:.1f} CPU-minutes; evaluated on {len(seeds)} episodes that are "
        f"not among them, seeds {seeds[0]}–{seeds[-1]}, with a random policy and the expert on the same seeds."
    )
    scores = {"this planner": evaluation.planner, "random policy": evaluation.random, "expert": evaluation.expert}
    settings = "\n".join(f"{part}: {json.dumps(config[part], indent=1)}" for part in ("planner", "training"))
    body = (
        f"<h1>{escape(title)}</h1><p>{summary}</p>"
        f"{score_table(evaluation.task, {name: score for name, score in scores.items() if score is not None})}"
        '<p class="soft">With 95 % intervals. SPL: success weighted by path length, against the expert\'s path and '
        "against the shortest. Stalling: share of steps that change nothing that is observed.</p>"
        f"<h2>Episodes</h2>{images(animations)}"
        f'<h2>Training</h2><div class="grid">{"".join(curves)}</div>'
        f"<h2>Settings</h2><pre>{escape(settings)}</pre>"
    )
    write_atomically(path, page(title, body).encode())
    return path


def score_table(task: Task, scores: Mapping[str, Score]) -> str:
    """A row per planner, a column per metric of the task that any of them has."""
    columns = [
        metric
        for metric in metrics.resolve(task)
        if any(score.metrics.get(metric.name) is not None for score in scores.values())
    ]
    rows = [
        (escape(name), *(_entry(metric, score) for metric in columns), f"{score.seconds:.1f}")
        for name, score in scores.items()
    ]
    return table(("", *(escape(metric.label or metric.name) for metric in columns), "seconds"), rows)


def _entry(metric: Metric, score: Score) -> str:
    summary = score.metrics.get(metric.name)
    if summary is None:
        return "–"
    value, low, high = (format(number, metric.format) for number in (summary.value, summary.low, summary.high))
    return f'{value}<br><span class="soft">{low}–{high}</span>'
