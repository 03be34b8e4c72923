"""Planners and runs by name: those that come with genplan, and run folders under the served directory. Nothing else."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from genplan import checkpoint, runs, tasks
from genplan.errors import UserError
from genplan.export import shipped
from genplan.planners.genplan import GenPlan
from genplan.planners.learned import Learned
from genplan.serve import schema

DEPTH = 3  # folders below the served directory in which runs are looked for
SHOWN = ("loss/actions", "loss/states", "loss/goals", "right/actions", "held out/loss", "validation/success")


class MissingError(UserError):
    """Something named is not there."""


class Catalogue:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._seen: dict[str, Path] = {}  # planners found when the folders were last read
        self._loaded: dict[Path, tuple[int, Learned, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def runs(self) -> dict[str, Path]:
        """Run folders under the served directory, by their path in it."""
        found: dict[str, Path] = {}
        for depth in range(1, DEPTH + 1):
            for path in sorted(self.folder.glob("/".join(["*"] * depth) + "/config.json")):
                inside = path.resolve().is_relative_to(self.folder)  # not through a link that leads out
                if inside and (path.parent / "log.jsonl").is_file():
                    found[path.parent.relative_to(self.folder).as_posix()] = path.parent
        return found

    def places(self) -> dict[str, Path]:
        """All planners by name."""
        own = {name: path for name, path in self.runs().items() if (path / "model.safetensors").is_file()}
        return {f"pretrained:{name}": path for name, path in shipped().items()} | own

    def load(self, name: str) -> tuple[Learned, dict[str, Any]]:
        """A planner by name; one that is being trained is read again when it has learnt more."""
        path = self._find(name)
        when = (path / "model.safetensors").stat().st_mtime_ns
        with self._lock:
            if path not in self._loaded or self._loaded[path][0] != when:
                self._loaded[path] = (when, *runs.load(path))
            _, planner, config = self._loaded[path]
        return planner, config

    def _find(self, name: str) -> Path:
        if name not in self._seen or not (self._seen[name] / "model.safetensors").is_file():
            self._seen = self.places()  # reading folders takes longer than a request may
        if name not in self._seen:
            raise MissingError(f"there is no planner '{name[:80]}'; known are {', '.join(self._seen)}")
        return self._seen[name]

    def describe(self) -> schema.Catalogue:
        planners = [found for name, path in self.places().items() if (found := self._described(name, path))]
        worlds = [
            schema.TaskAnswer(name=world.name, size=world.size, max_steps=world.max_steps, what=world.solved)
            for world in tasks.WORLDS.values()
        ]
        words = list(tasks.get("MazeS4G1").spec.words[1:])
        return schema.Catalogue(planners=planners, tasks=worlds, words=words, runs=list(self.runs()))

    @staticmethod
    def _described(name: str, path: Path) -> schema.PlannerAnswer | None:
        try:
            config = checkpoint.read_config(path)
            settings = runs.settings_of(config)
            known = {field: getattr(settings, field, None) for field in schema.Defaults.model_fields}
            return schema.PlannerAnswer(
                name=name,
                method=config["method"],
                task=config["task"],
                horizon=settings.horizon,
                execute=settings.execute,
                defaults=schema.Defaults(**known),
                moving=runs.PLANNERS[type(settings)] is GenPlan,
            )
        except (UserError, KeyError, TypeError, ValueError):  # of another version, or broken: choosing it tells why
            return None

    def progress(self, name: str, after: int) -> schema.RunAnswer:
        """How far a training is, and its curves from a step on."""
        known = self.runs()
        if name not in known:
            raise MissingError(f"there is no run '{name[:80]}' here; known are {', '.join(known) or 'none'}")
        config = checkpoint.read_config(known[name])
        if "training" not in config or "task" not in config:
            raise UserError(
                f"config.json of the run '{name[:80]}' tells no training; expected one made by genplan train"
            )
        curves: dict[str, list[tuple[int, float]]] = {}
        step = 0
        for text in (known[name] / "log.jsonl").read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # being written just now
                continue
            if not isinstance(line, dict) or "step" not in line:
                continue
            step = max(step, line["step"])
            for curve in SHOWN:
                if curve in line and line["step"] > after:
                    curves.setdefault(curve, []).append((line["step"], line[curve]))
        return schema.RunAnswer(
            name=name, step=step, steps=config["training"]["steps"], task=config["task"], curves=curves
        )
