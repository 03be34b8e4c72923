"""`genplan bench run tiny`, killed with -9 at random moments, ends with the same cells as an undisturbed run.

python benchmarks/kills.py [--kills 10]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
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

        def begin(which: str) -> subprocess.Popen[bytes]:
            """With demonstrations of its own: their collection is killed too."""
            options = ["--results", f"{which}.jsonl", "--runs", f"runs-{which}"]
            command = [sys.executable, "-m", "genplan", "bench", "run", "tiny", *options]
            environment = {**os.environ, "MINARI_DATASETS_PATH": str(folder / f"data-{which}")}
            return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)

        def finish(which: str) -> None:
            if begin(which).wait():
                sys.exit(f"the {which} run failed")

        began = time.monotonic()
        finish("calm")
        whole = time.monotonic() - began
        chance, done, ended, same = random.Random(0), 0, 0, True

        def compare() -> bool:
            """Whether a run that came to its end has the same cells, though it was killed; then it is forgotten."""
            found = cells(folder / "calm.jsonl") == cells(folder / "killed.jsonl")
            (folder / "killed.jsonl").unlink()
            shutil.rmtree(folder / "runs-killed")
            shutil.rmtree(folder / "data-killed")
            return found

        while done < kills:
            process = begin("killed")
            time.sleep(chance.uniform(0, 0.8 * whole))
            if process.poll() is None:
                process.kill()
                process.wait()
                done += 1
                there = (folder / "killed.jsonl").read_text().count("\n") if (folder / "killed.jsonl").exists() else 0
                print(f"kill {done}, with {there} cells there", flush=True)
            else:
                ended, same = ended + 1, same and compare()
        finish("killed")
        ended, same = ended + 1, same and compare()
        told = f"{kills} kills while it was running, on the way to {ended} whole runs"
        print(f"{told}; an undisturbed one takes {whole:.0f} s: cells {'the same' if same else 'DIFFER'}")
        sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
