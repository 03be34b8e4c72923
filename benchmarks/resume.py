"""Kill a short training with -9 at random moments; it must resume every time and end with the same bits.

python benchmarks/resume.py [--kills 20]
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from genplan.data.demos import Recipe, collect

from genplan import checkpoint, runs
from genplan.config import GenPlanConfig, TrainConfig

CODE = "import sys; from pathlib import Path; from genplan import runs; runs.resume(Path(sys.argv[1])).fit()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    kills = parser.parse_args().kills
    planner = GenPlanConfig(width=32, layers=1, passes=2, dropout=0.1)
    training = TrainConfig(
        steps=60 * kills, batch=32, per_map=4, threads=1, log_every=5, validate_every=40, save_every=7
    )
    data = collect(Recipe("LocS10N1", 40), workers=1).name
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch) / "whole", Path(scratch) / "broken"
        runs.begin(whole, "LocS10N1", planner, training, data).fit()
        runs.begin(broken, "LocS10N1", planner, training, data)
        for number in range(kills):
            process = subprocess.Popen([sys.executable, "-c", CODE, str(broken)])
            time.sleep(chance.uniform(2.0, 7.0))  # from before the first step to far into the run
            process.send_signal(signal.SIGKILL)
            process.wait()
            there = (broken / "last.safetensors").exists()
            step = checkpoint.load_tensors(broken / "last.safetensors")[1]["step"] if there else 0
            print(f"killed {number + 1} times; the checkpoint is at step {step}", flush=True)
        runs.resume(broken).fit()
        ends = [checkpoint.load_tensors(folder / "last.safetensors")[0] for folder in (whole, broken)]
    equal = all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    print("the final weights are", "the same, bit for bit" if equal else "DIFFERENT")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
