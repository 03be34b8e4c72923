"""The page under load: 20 visitors planning at once against one after the other, in one run.

python benchmarks/serve.py [--seconds 30]

Starts a server of its own. Prints errors, plans per second of both, their ratio, and how long a single visitor waits.
For the fuzzing of the API see results/serve.md.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import statistics
import subprocess
import sys
import time

import httpx

PORT = 8391
ADDRESS = f"http://127.0.0.1:{PORT}"


def visit(until: float, first_seed: int, maze: dict[str, object]) -> tuple[list[float], int]:
    """Plan again and again, each time with other chance: seconds of each request, and errors."""
    taken, errors = [], 0
    with httpx.Client(base_url=ADDRESS, timeout=60) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            body = {"planner": "pretrained:MazeS4G1", "maze": maze, "seed": first_seed + len(taken)}
            errors += client.post("/api/plan", json=body).status_code != 200
            taken.append(time.monotonic() - began)
    return taken, errors


def load(visitors: int, seconds: float, maze: dict[str, object]) -> tuple[float, list[float], int]:
    until = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(visitors) as pool:
        found = list(pool.map(visit, [until] * visitors, range(0, visitors * 100_000, 100_000), [maze] * visitors))
    taken = [second for seconds_, _ in found for second in seconds_]
    return len(taken) / seconds, taken, sum(errors for _, errors in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    seconds = parser.parse_args().seconds
    command = [sys.executable, "-m", "genplan", "serve", "--port", str(PORT), "--no-open-browser"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=ADDRESS, timeout=60, transport=httpx.HTTPTransport(retries=20)) as client:
            for _ in range(100):
                try:
                    maze = client.post("/api/maze", json={"task": "MazeS4G1", "seed": 1234}).json()["maze"]
                    break
                except httpx.TransportError:
                    time.sleep(0.3)
            body = {"planner": "pretrained:MazeS4G1", "maze": maze}
            for _ in range(5):
                client.post("/api/plan", json=body)
        alone, waits, wrong = load(1, seconds, maze)
        together, long_waits, errors = load(20, seconds, maze)
    finally:
        server.terminate()
        server.wait()
    print(f"one visitor: {alone:.1f} plans/s, median {1000 * statistics.median(waits):.0f} ms, {wrong} errors")
    print(f"20 visitors: {together:.1f} plans/s, median {1000 * statistics.median(long_waits):.0f} ms, {errors} errors")
    print(f"ratio: {together / alone:.2f}")


if __name__ == "__main__":
    main()
