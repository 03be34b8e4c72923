"""The server under load: 20 clients planning at once against a single one, in one run.

python benchmarks/serve.py [--seconds 30]

Starts a server of its own. Prints errors, plans per second of both, their ratio, and the median latency; and, where a
Chromium is found, the time from a click to the first frame of a plan. See also benchmarks/fuzz.py.
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


def send_plans(deadline: float, first_seed: int, maze: dict[str, object]) -> tuple[list[float], int]:
    """Plan repeatedly, each time with another seed: seconds of each request, and errors."""
    latencies, errors = [], 0
    with httpx.Client(base_url=ADDRESS, timeout=60) as client:
        while time.monotonic() < deadline:
            start_time = time.monotonic()
            body = {"planner": "pretrained:MazeS4G1", "maze": maze, "seed": first_seed + len(latencies)}
            errors += client.post("/api/plan", json=body).status_code != 200
            latencies.append(time.monotonic() - start_time)
    return latencies, errors


def load(num_clients: int, seconds: float, maze: dict[str, object]) -> tuple[float, list[float], int]:
    """Plans per second, seconds of each request, and errors."""
    deadline = time.monotonic() + seconds
    first_seeds = range(0, num_clients * 100_000, 100_000)
    with concurrent.futures.ThreadPoolExecutor(num_clients) as pool:
        results = list(pool.map(send_plans, [deadline] * num_clients, first_seeds, [maze] * num_clients))
    latencies = [latency for measured, _ in results for latency in measured]
    return len(latencies) / seconds, latencies, sum(errors for _, errors in results)


def first_frames(clicks: int = 10) -> list[int] | None:
    """Milliseconds from a click on Plan to the first frame on the page, the first click included."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    milliseconds = []
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"]).new_page()
        page.goto(ADDRESS)
        page.wait_for_selector("body[data-ready]")
        for _ in range(clicks):
            page.evaluate("delete document.body.dataset.firstFrame")
            page.click("#plan")
            page.wait_for_selector("body[data-first-frame]")
            milliseconds.append(int(page.evaluate("document.body.dataset.firstFrame")))
    return milliseconds


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
        single, latencies, errors = load(1, seconds, maze)
        batched, batched_latencies, batched_errors = load(20, seconds, maze)
    finally:
        server.terminate()
        server.wait()
    if frames:
        rest = statistics.median(frames[1:])
        print(f"from click to first frame: {frames[0]} ms at first, then {rest:.0f} ms (median of {len(frames) - 1})")
    for label, rate, measured, failed in (
        ("1 client", single, latencies, errors),
        ("20 clients", batched, batched_latencies, batched_errors),
    ):
        print(f"{label}: {rate:.1f} plans/s, median {1000 * statistics.median(measured):.0f} ms, {failed} errors")
    print(f"ratio: {batched / single:.2f}")


if __name__ == "__main__":
    main()
