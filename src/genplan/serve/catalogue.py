"""Planners and runs by name: those that come with genplan, and run folders under the served one. Nothing else."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from genplan import checkpoint, planners
from genplan import config as settings
from genplan.envs import ENVS
from genplan.envs.grid import BABYAI_WORDS
from genplan.errors import UserError
from genplan.planners.base import LearnedPlanner
from genplan.serve import schema

MAX_DEPTH = 3  # folders below the served one in which runs are looked for
WEIGHTS, LOG = "model.safetensors", "log.jsonl"
CURVES = ("loss/actions", "loss/states", "loss/goals", "accuracy/actions", "val/loss", "eval/success")
# Names in the logs of earlier versions.
RENAMED_CURVES = {
    "right/actions": "accuracy/actions",
    "held out/loss": "val/loss",
    "validation/success": "eval/success",
}


class MissingError(UserError):
    """A planner, task or run that does not exist."""


class Catalogue:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._paths: dict[str, Path] = {}  # planners that existed when the folders were last read
        self._loaded: dict[Path, tuple[int, LearnedPlanner, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def runs(self) -> dict[str, Path]:
        """Run folders under the served one, by their path in it."""
        runs: dict[str, Path] = {}
        for depth in range(1, MAX_DEPTH + 1):
            for path in sorted(self.folder.glob("/".join(["*"] * depth) + "/config.json")):
                inside = path.resolve().is_relative_to(self.folder)  # not through a link that leads out
                if inside and (path.parent / LOG).is_file():
                    runs[path.parent.relative_to(self.folder).as_posix()] = path.parent
        return runs

    def paths(self) -> dict[str, Path]:
        """The folders of all planners by name."""
        trained = {name: path for name, path in self.runs().items() if (path / WEIGHTS).is_file()}
        return {f"pretrained:{name}": path for name, path in checkpoint.pretrained().items()} | trained

    def load(self, name: str) -> tuple[LearnedPlanner, dict[str, Any]]:
        """A planner by name, with its config; one that is being trained is loaded again when its weights changed."""
        path = self._find(name)
        modified = (path / WEIGHTS).stat().st_mtime_ns
        with self._lock:
            if path not in self._loaded or self._loaded[path][0] != modified:
                _read_config(path)
                self._loaded[path] = (modified, *checkpoint.load_planner(path))
            _, planner, config = self._loaded[path]
        return planner, config

    def _find(self, name: str) -> Path:
        if name not in self._paths or not (self._paths[name] / WEIGHTS).is_file():
            self._paths = self.paths()  # not at every request: reading folders takes too long
        if name not in self._paths:
            raise MissingError(f"there is no planner '{name[:80]}'; known are {', '.join(self._paths)}")
        return self._paths[name]

    def describe(self) -> schema.CatalogueResponse:
        described = [self._describe(name, path) for name, path in self.paths().items()]
        tasks = [
            schema.TaskResponse(
                name=entry.name, size=entry.size, max_steps=entry.max_steps, description=entry.description
            )
            for entry in ENVS.values()
        ]
        return schema.CatalogueResponse(
            planners=[planner for planner in described if planner is not None],
            tasks=tasks,
            vocabulary=list(BABYAI_WORDS[1:]),  # without padding
            runs=list(self.runs()),
        )

    @staticmethod
    def _describe(name: str, path: Path) -> schema.PlannerResponse | None:
        """None if the folder cannot be read: of another version, or broken. Loading the planner says why."""
        try:
            config = _read_config(path)
            planner = checkpoint.read_planner_config(config)
            defaults = {option: settings.get(planner, option, None) for option in schema.Defaults.model_fields}
            return schema.PlannerResponse(
                name=name,
                method=config["method"],
                task=config["task"],
                horizon=settings.get(planner, "horizon", 1),
                action_steps=settings.get(planner, "action_steps", 1),
                defaults=schema.Defaults(**defaults),
                has_trace=planners.planner_class(config["method"]).keeps_trace,
            )
        except (UserError, KeyError, TypeError, ValueError):
            return None

    def progress(self, name: str, after: int) -> schema.RunResponse:
        """The progress of a training, and its curves after a step."""
        runs = self.runs()
        if name not in runs:
            raise MissingError(f"there is no run '{name[:80]}' here; known are {', '.join(runs) or 'none'}")
        config = checkpoint.read_config(runs[name])
        if "training" not in config or "task" not in config:
            raise UserError(
                f"config.json of the run '{name[:80]}' has no training or no task; expected one made by genplan train"
            )
        curves: dict[str, list[tuple[int, float]]] = {}
        step = 0
        for text in (runs[name] / LOG).read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # being written at this moment
                continue
            if not isinstance(line, dict) or "step" not in line:
                continue
            step = max(step, line["step"])
            for logged, value in line.items():
                curve = RENAMED_CURVES.get(logged, logged)
                if curve in CURVES and line["step"] > after:
                    curves.setdefault(curve, []).append((line["step"], value))
        return schema.RunResponse(
            name=name, step=step, steps=config["training"]["steps"], task=config["task"], curves=curves
        )


def _read_config(path: Path) -> dict[str, Any]:
    """The config of a planner whose method comes with genplan: no folder may name a file that the server runs."""
    config = checkpoint.read_config(path)
    if config["method"] not in planners.METHODS:
        raise UserError(
            f"{path.name} was trained with the method '{config['method'][:80]}', expected one that comes with genplan: "
            f"{', '.join(planners.METHODS)}"
        )
    return config
