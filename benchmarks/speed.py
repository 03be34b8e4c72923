"""CPU-seconds of what users wait for; or, of two checkouts taking turns, the ratios of one to the other.

python benchmarks/speed.py [--rounds 5] [--against OTHER_CHECKOUT]

The machine's moods last for tenths of a second to minutes: ratios are medians over rounds, in each of which both
checkouts run the same probe right after the other, in processes of their own, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROBES = ("training step", "one plan", "250 plans", "250 episodes", "a batch of windows")


def cpu_seconds(function: Callable[[int], object], repeats: int) -> float:
    """Of one call: the median."""
    function(0)
    taken = []
    for number in range(repeats):
        start_time = time.process_time()
        function(number + 1)
        taken.append(time.process_time() - start_time)
    return statistics.median(taken)


def run_probe(name: str) -> float:
    import torch

    import genplan
    from genplan import planners, tasks
    from genplan.collect import collect_episode
    from genplan.data.transforms import transform_from_json
    from genplan.data.windows import Windows
    from genplan.flow import Rng
    from genplan.presets import default_config
    from genplan.rollout import EnvBatch, play
    from genplan.tasks.grid import SYMMETRY

    torch.set_num_threads(1)
    task = tasks.get("MazeS4G1")
    if name in ("training step", "a batch of windows"):
        env, expert = task.make_env(), task.expert()
        episodes = [collect_episode(expert, task, env, seed) for seed in range(10_000, 10_100)]
        planner = planners.build("GenPlan-M", task.spec, default_config("MazeS4G1")[0]).train()
        found, transforms = [episode for episode in episodes if episode is not None], [transform_from_json(SYMMETRY)]
        windows = Windows(task.spec, found, planner.needs, transforms=transforms)
        optimizer = torch.optim.AdamW(planner.parameters(), fused=True)
        if name == "a batch of windows":
            return cpu_seconds(lambda number: windows.sample(128, Rng.of(number), 8), 200)

        def step(number: int) -> None:
            torch.manual_seed(number)
            loss = planner.loss(windows.sample(128, Rng.of(number), 8), Rng.of(number)).total
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(planner.parameters(), 1.0)
            optimizer.step()

        return cpu_seconds(step, 15)
    shipped = genplan.load("pretrained:MazeS4G1").planner
    if name == "250 episodes":
        return cpu_seconds(lambda number: play(shipped, task, range(2000, 2250), seed=number), 1)
    size, repeats = (1, 60) if name == "one plan" else (250, 5)
    rows = torch.arange(size)
    observations = EnvBatch(task, range(2000, 2000 + size)).observations()
    memory = shipped.observe(shipped.reset(observations), torch.zeros_like(rows), observations, rows)
    return cpu_seconds(lambda number: shipped.plan(observations, memory, Rng.of(number, rows), rows), repeats)


def measure(checkout: Path, probe: str) -> float:
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    command = [sys.executable, str(checkout / "benchmarks" / "speed.py"), "--probe", probe]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--probe", choices=PROBES, help="run this one here and print its seconds")
    chosen = parser.parse_args()
    if chosen.probe:
        print(json.dumps(run_probe(chosen.probe)))
        return
    own = Path(__file__).resolve().parent.parent
    for probe in PROBES:
        pairs = []
        for _ in range(chosen.rounds):
            pairs.append(
                [measure(folder, probe) for folder in (own, chosen.against or own)][: 2 if chosen.against else 1]
            )
        line = f"{probe}: {1e3 * statistics.median(pair[0] for pair in pairs):.2f} CPU-ms"
        if chosen.against:
            ratios = [mine / other for mine, other in pairs]
            line += (
                f", {statistics.median(ratios):.3f} × that of {chosen.against} ({min(ratios):.3f} … {max(ratios):.3f})"
            )
        print(line, flush=True)


if __name__ == "__main__":
    main()
