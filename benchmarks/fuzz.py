"""The page's API under fire: schemathesis writes requests by the OpenAPI schema, and none may end in a server error.

python benchmarks/fuzz.py [--requests 250] [--seed 0]

Needs `pip install schemathesis`. Starts a server of its own. Random text is soon refused, so two of three requests get
real names, and mazes that are real or have a few cells changed: those reach the planner. About eight times `--requests`
are sent, one operation after another.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

PORT = 8393
PLANNERS = ("pretrained:MazeS4G1", "pretrained:KeyCorridorS3R3", "bot", "../../etc/passwd")
MAZE = """\
####################
##..KB##>>........##
##....##..........##
##....LB......AR..##
##....##..........##
####################
##..OG....DP......##
##BY......##......##
##........##......##
####################"""
CODES = ("##", "..", "AR", "KB", "LB", "DP", "BY", ">>", "??", "€€")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def realistic(body: dict[str, Any]) -> dict[str, Any]:
    """The same request, made likelier to be understood; by its own content, so that it can be sent again."""
    chance = random.Random(json.dumps(body, sort_keys=True, default=str))
    if chance.random() < 1 / 3:
        return body
    rows = MAZE.split("\n")
    for _ in range(chance.choice((0, 0, 1, 3))):
        y, x = chance.randrange(10), chance.randrange(10)
        rows[y] = rows[y][: 2 * x] + chance.choice(CODES) + rows[y][2 * x + 2 :]
    maze = {"rows": rows, "mission": chance.choice(("go to the red ball", "open the blue door", "fly"))}
    replaced = {"planner": chance.choice(PLANNERS), "maze": maze, "task": "MazeClose", **maze}
    return {**body, **{name: value for name, value in replaced.items() if name in body}}


def hooks() -> None:
    """What schemathesis calls."""
    import schemathesis

    @schemathesis.hook
    def map_body(context: Any, body: Any) -> Any:
        return realistic(body) if isinstance(body, dict) else body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    command = [sys.executable, "-m", "genplan", "serve", "--port", str(PORT), "--no-open-browser"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        fire = ["schemathesis", "run", f"http://127.0.0.1:{PORT}/openapi.json", "--wait-for-schema", "60"]
        fire += ["--phases", "examples,coverage,fuzzing", "-n", str(chosen.requests), "--checks", CHECKS]
        fire += ["--continue-on-failure", "--seed", str(chosen.seed), "--request-timeout", "90"]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz", "PYTHONPATH": str(Path(__file__).parent)}
        code = subprocess.run(fire, env=environment).returncode
        print(f"the server {'is still there' if server.poll() is None else 'HAS ENDED'}")
        sys.exit(code or server.poll() is not None)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
else:
    hooks()
