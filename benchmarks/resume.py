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

from genplan import checkpoint, runs
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.presets import TrainConfig, default_config

CODE = "import sys; from pathlib import Path; from genplan import runs; runs.resume_run(Path(sys.argv[1])).fit()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    kills = parser.parse_args().kills
    planner = override(default_config()[0], hidden_size=32, num_layers=1, encoder_iterations=2, dropout=0.1)
    training = TrainConfig(
        steps=60 * kills, batch_size=32, windows_per_scene=4, log_every=5, validate_every=40, save_every=7
    )
    data = collect(CollectConfig("LocS10N1", 40), workers=1).name
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch) / "whole", Path(scratch) / "broken"
        runs.create_run(whole, "LocS10N1", "GenPlan-M", planner, training, data).fit()
        runs.create_run(broken, "LocS10N1", "GenPlan-M", planner, training, data)
        for number in range(kills):
            process = subprocess.Popen([sys.executable, "-c", CODE, str(broken)])
            time.sleep(rng.uniform(2.0, 7.0))  # from before the first step to far into the run
            process.send_signal(signal.SIGKILL)
            process.wait()
            saved = broken / "last.safetensors"
            step = checkpoint.load_tensors(saved)[1]["step"] if saved.exists() else 0
            print(f"killed {number + 1} times; the checkpoint is at step {step}", flush=True)
        runs.resume_run(broken).fit()
        ends = [checkpoint.load_tensors(folder / "last.safetensors")[0] for folder in (whole, broken)]
    equal = all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    print("the final weights are", "the same, bit for bit" if equal else "DIFFERENT")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
