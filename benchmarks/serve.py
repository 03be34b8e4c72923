"""The page under load: 20 visitors planning at once against one after the other, in one run.

python benchmarks/serve.py [--seconds 30]

Starts a server of its own. Prints errors, plans per second of both, their ratio, and how long a single visitor waits;
and, where a Chromium is found, the time from a click to the first frame of a plan. See also benchmarks/fuzz.py.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import shutil
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


def first_frames(clicks: int = 10) -> list[int] | None:
    """Milliseconds from a click on Plan to the first frame on the page, the first click included."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"]).new_page()
        page.goto(ADDRESS)
        page.wait_for_selector("body[data-ready]")
        for _ in range(clicks):
            page.evaluate("delete document.body.dataset.firstFrame")
            page.click("#plan")
            page.wait_for_selector("body[data-first-frame]")
            found.append(int(page.evaluate("document.body.dataset.firstFrame")))
    return found


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
            frames = first_frames()
            for _ in range(5):
                client.post("/api/plan", json={"planner": "pretrained:MazeS4G1", "maze": maze})
        alone, waits, wrong = load(1, seconds, maze)
        together, long_waits, errors = load(20, seconds, maze)
    finally:
        server.terminate()
        server.wait()
    if frames:
        rest = statistics.median(frames[1:])
        print(f"from click to first frame: {frames[0]} ms at first, then {rest:.0f} ms (median of {len(frames) - 1})")
    print(f"one visitor: {alone:.1f} plans/s, median {1000 * statistics.median(waits):.0f} ms, {wrong} errors")
    print(f"20 visitors: {together:.1f} plans/s, median {1000 * statistics.median(long_waits):.0f} ms, {errors} errors")
    print(f"ratio: {together / alone:.2f}")


if __name__ == "__main__":
    main()
