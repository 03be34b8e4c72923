"""Action codes compared: what they lose of held-out demonstrations, how much is used of them, CPU-seconds to fit them.

genplan data import pusht PATH && genplan data import kitchen PATH
python benchmarks/codecs.py [--tasks PushT Kitchen] [--planner-steps N] [--seed 0]

Codecs are fitted as in a run, on its training episodes. Errors are means over all chunks of the held-out episodes and
over dimensions, in % of a dimension's range: of demonstrated actions, relative to what is observed, and of the action
space. They are without the offset that a planner predicts. With --planner-steps, GenPlan-M is trained for as many steps
with each codec, on one thread: then the errors of the true codes without and with the offset that it predicts, and the
metrics of 50 validation seeds. Prints Markdown.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genplan import presets, runs, tasks
from genplan.config import override
from genplan.data import store
from genplan.data.windows import split_episodes
from genplan.evaluate import evaluate
from genplan.flow import Rng
from genplan.models.codecs import ActionCodec, demonstrated_actions, make_codec
from genplan.models.settings import CodecConfig
from genplan.planners.base import LearnedPlanner
from genplan.training import Trainer
from genplan.types import VALIDATION_SEEDS, Episode, Task

CHUNK, EPISODES, HELD_OUT_BATCHES = 8, 50, 8
CODECS: Mapping[str, CodecConfig] = {
    "residual, 3 × 32": CodecConfig("residual"),
    "learned, 3 × 32": CodecConfig("learned"),
    "fsq, 3 tokens of 5 × 6": CodecConfig("fsq"),
    "residual, 4 × 25": CodecConfig("residual", levels=4, codes=25),
    "learned, 4 × 25": CodecConfig("learned", levels=4, codes=25),
    "fsq, 4 tokens of 5 × 5": CodecConfig("fsq", levels=4, codes=25),
    "bins, 2 per dimension": CodecConfig("bins", bins=2),
    "bins, 64 per dimension": CodecConfig("bins"),
}
SHOWN_TO_PLANNERS = ("residual, 3 × 32", "learned, 3 × 32", "fsq, 3 tokens of 5 × 6", "bins, 64 per dimension")


def held_out_chunks(task: Task, episodes: Sequence[Episode]) -> tuple[Tensor, Tensor | None]:
    """All chunks [N, chunk, A], and what each is relative to [N, A]."""
    actions = [torch.from_numpy(one.actions).unfold(0, CHUNK, 1).movedim(-1, 1) for one in episodes]
    if task.spec.actions.origin is None:
        return torch.cat(actions), None
    name, first = task.spec.actions.origin
    observed = [
        torch.from_numpy(one.observations[name])[: len(part)] for one, part in zip(episodes, actions, strict=True)
    ]
    return torch.cat(actions), torch.cat(observed)[:, first : first + len(task.spec.actions.low)]


def ranges(task: Task, train: Sequence[Episode]) -> tuple[Tensor, Tensor]:
    """Of demonstrated actions, relative to their origin, and of the action space: [A] each."""
    flat, actions = demonstrated_actions(task.spec, train, CHUNK, CHUNK).flatten(0, 1), task.spec.actions
    return flat.amax(0) - flat.amin(0), torch.tensor(actions.high) - torch.tensor(actions.low)


def percent(error: Tensor, of: Sequence[Tensor]) -> list[str]:
    return [f"{100 * float((error / one).mean()):.2f}" for one in of]


def usage(tokens: Tensor, size: int) -> tuple[float, float]:
    """Of tokens [N, positions]: the share of the codes that is used, and the perplexity, means over positions."""
    counts = torch.stack([torch.bincount(column, minlength=size) for column in tokens.T]).double()
    share = counts / counts.sum(1, keepdim=True)
    perplexity = torch.exp(-(share * share.clamp(min=1e-12).log()).sum(1))
    return float((counts > 0).double().mean()), float(perplexity.mean())


def per_position(codec: ActionCodec, tokens: Tensor) -> Tensor:
    """Of plans [B, H / chunk, *codes]: where codes stand for single actions, those of all steps are alike."""
    return tokens.flatten(0, 1).reshape(-1, math.prod(codec.stream.shape))


def codec_row(task: Task, train: Sequence[Episode], held_out: Sequence[Episode], config: CodecConfig) -> list[str]:
    codec = make_codec(task.spec.actions, config)
    demonstrated = demonstrated_actions(task.spec, train, CHUNK, codec.chunk)
    start_time = time.process_time()
    codec.fit(demonstrated)
    seconds = time.process_time() - start_time
    chunks, origin = held_out_chunks(task, held_out)
    tokens = codec.encode(chunks, origin)
    error = (codec.decode(tokens, origin) - chunks).abs()
    bits = tokens[0].numel() * math.log2(codec.stream.size)
    used, perplexity = usage(per_position(codec, codec.encode(*held_out_chunks(task, train))), codec.stream.size)
    shown = f"{perplexity:.1f} of {codec.stream.size}"
    return [f"{bits:.1f}", *percent(error, ranges(task, train)), f"{used:.0%}", shown, f"{seconds:.1f}"]


def planner_row(task: Task, train: Sequence[Episode], config: CodecConfig, steps: int, seed: int) -> list[str]:
    planner_config, training = presets.default_config(task.name, "GenPlan-M")
    planner_config = override(planner_config, **dataclasses.asdict(config))
    training = dataclasses.replace(training, steps=steps, seed=seed, threads=1, evaluate_every=0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = runs.create_run(Path(folder) / "run", task.name, "GenPlan-M", planner_config, training)
        trainer.fit()
        planner, seconds = trainer.ema.model(trainer.planner), trainer.cpu_seconds
        found = [one for error in chunk_errors(planner, trainer) for one in percent(error, ranges(task, train))]
    scores = evaluate(planner, task, VALIDATION_SEEDS[:EPISODES], baseline=None).planner.metrics
    return [*found, *(format(score.value, ".3f") for score in scores.values() if score is not None), f"{seconds:.0f}"]


@torch.inference_mode()
def chunk_errors(planner: LearnedPlanner, trainer: Trainer) -> list[Tensor]:
    """Of held-out chunks, with their own codes and goals, [N, A]: without and with the offset; always the same windows.

    Unlike the chunks of the other table, they have the transforms of the task that stand in the place of episodes.
    """
    errors: list[list[Tensor]] = [[], []]
    for number in range(HELD_OUT_BATCHES):
        batch = trainer.held_out.sample(trainer.config.batch_size, Rng.of(0, number), augment=False)
        tokens, _ = planner.plan_tokens(batch)
        for history, found in zip((None, batch.history), errors, strict=True):  # without history there is no offset
            actions = planner.decode(tokens["actions"], batch.current, history, tokens.get("goals"))
            found.append((actions - batch.actions).abs()[batch.valid["actions"]])
    return [torch.cat(one) for one in errors]


def table(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [["codec", *columns], ["---"] * (len(columns) + 1), *([name, *row] for name, row in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["PushT", "Kitchen"])
    parser.add_argument("--planner-steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.tasks:
        task = tasks.get(name)
        train, held_out = split_episodes(store.read(runs.default_dataset(name), task).episodes)
        of = ["error, % of demonstrated", "error, % of space"]
        if arguments.planner_steps is None:
            columns = ["bits per chunk", *of, "codes used", "perplexity", "CPU-seconds"]
            rows = {key: codec_row(task, train, held_out, one) for key, one in CODECS.items()}
        else:
            labels: Any = [
                metric if isinstance(metric, str) else metric.label or metric.name for metric in task.metrics
            ]
            columns = [*of, *(f"{one}, with offset" for one in of), *labels, "CPU-seconds"]
            rows = {key: planner_row(task, train, CODECS[key], arguments.planner_steps, arguments.seed)
                    for key in SHOWN_TO_PLANNERS}  # fmt: skip
        print(f"\n{name}, {len(train)} episodes, {len(held_out)} held out\n\n{table(columns, rows)}", flush=True)


if __name__ == "__main__":
    main()
