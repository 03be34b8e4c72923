"""Results that were never measured."""

import dataclasses

from genplan.bench import Cell, CellResult


def make_result(cell: Cell, success: list[int], steps: int = 10, minutes: float = 1.0, **changes) -> CellResult:
    number = len(success)
    training = {"hash": cell.name, "cpu_minutes": minutes, "steps": 5} if cell.is_trained else {}
    result = CellResult(
        cell=cell, settings=cell.settings(), first_seed=1234,
        episodes={"success": success, "steps": [steps] * number, "stalling": [0] * number},
        weights={"stalling": [steps] * number}, training=training, seconds=2.0, planner_seconds=1.0, cpu_seconds=2.0,
        num_plans=10, commit="abc", when="2026-01-02T03:04:05Z",
    )  # fmt: skip
    return dataclasses.replace(result, **changes)


OWN_PLANNER = """
import torch
from genplan.types import Plan

class Mine:
    privileged = False
    action_steps = None
    def reset(self, observations, oracle=None): return None
    def plan(self, observations, memory, rng, ids, oracle=None): return (Plan(torch.full((len(ids), 1), 2)), memory)
    def observe(self, memory, actions, observations, ids): return memory
"""
