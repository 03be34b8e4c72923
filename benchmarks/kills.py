"""`genplan bench run tiny`, killed with -9 at random moments, ends with the same cells as an undisturbed run.

python benchmarks/kills.py [--kills 10]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def cells(path: Path) -> list[tuple[object, ...]]:
    """What was measured, without the clock."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = ("method", "row", "config_hash", "success", "steps", "stalled", "plans")
    return sorted(tuple(json.dumps(line[key]) for key in kept) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder / "data")}

        def command(which: str) -> list[str]:
            options = ["--results", f"{which}.jsonl", "--runs", f"runs-{which}"]
            return [sys.executable, "-m", "genplan", "bench", "run", "tiny", *options]

        began = time.monotonic()
        subprocess.run(command("calm"), cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        whole = time.monotonic() - began
        chance = random.Random(0)
        for number in range(kills):
            process = subprocess.Popen(command("killed"), cwd=folder, env=environment, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, 0.8 * whole))
            was_running = process.poll() is None
            process.kill()
            process.wait()
            print(f"kill {number + 1}: {'running' if was_running else 'had ended'}", flush=True)
        subprocess.run(command("killed"), cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        same = cells(folder / "calm.jsonl") == cells(folder / "killed.jsonl")
        print(f"{kills} kills, an undisturbed run takes {whole:.0f} s: cells {'the same' if same else 'DIFFER'}")
        sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
