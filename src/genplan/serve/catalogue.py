"""Planners and runs by name: those that come with genplan, and run folders under the served one. Nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

from genplan import checkpoint, planners, tasks
from genplan import config as settings
from genplan.envs import ENVS
from genplan.envs.babyai import BABYAI_WORDS, babyai_spec
from genplan.errors import UserError
from genplan.files import MAX_LOG, NUMBER, parse_json, read_bytes
from genplan.planners.base import LearnedPlanner
from genplan.presets import TrainConfig
from genplan.serve import schema
from genplan.spec import PlanSpec

MAX_DEPTH = 3  # folders below the served one in which runs are looked for
MAZE_FIELDS = babyai_spec(3, 3).fields.keys()  # whatever the size
WEIGHTS, LOG = "model.safetensors", "log.jsonl"
CURVES = ("loss/actions", "loss/states", "loss/goals", "accuracy/actions", "val/loss", "eval/success")
RENAMED_CURVES = {"right/actions": "accuracy/actions", "held out/loss": "val/loss",
                  "validation/success": "eval/success"}  # in the logs of earlier versions  # fmt: skip
Played = Literal["maze", "PushT", ""]  # what a planner can be tried on here
NOUNS = {"maze": "mazes", "PushT": "PushT"}


class MissingError(UserError):
    """A planner, task or run that does not exist."""


def played_on(spec: PlanSpec) -> Played:
    """Where planners of this spec can be tried."""
    pusht = tasks.get("PushT").spec
    if (spec.fields, spec.actions) == (pusht.fields, pusht.actions):
        return "PushT"
    return "maze" if spec.fields.keys() == MAZE_FIELDS else ""


class Catalogue:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._paths: dict[str, Path] = {}  # planners that existed when the folders were last read
        self._loaded: dict[Path, tuple[int, LearnedPlanner]] = {}  # with the time of their weights
        self._lock = threading.Lock()

    def runs(self) -> dict[str, Path]:
        """Run folders under the served one, by their path in it."""
        runs: dict[str, Path] = {}
        for depth in range(1, MAX_DEPTH + 1):
            for path in sorted(self.folder.glob("/".join(["*"] * depth) + "/config.json")):
                found = (path, path.parent / LOG)
                inside = all(
                    one.resolve().is_relative_to(self.folder) for one in found
                )  # not through a link that leads out
                if inside and all(one.is_file() for one in found):
                    runs[path.parent.relative_to(self.folder).as_posix()] = path.parent
        return runs

    def paths(self) -> dict[str, Path]:
        """The folders of all planners by name."""
        trained = {name: path for name, path in self.runs().items() if (path / WEIGHTS).is_file()}
        return {f"pretrained:{name}": path for name, path in checkpoint.pretrained().items()} | trained

    def load(self, name: str, played: Played = "maze") -> LearnedPlanner:
        """A planner by name, for what it is tried on; one in training is loaded again when its weights changed."""
        if name not in self._paths or not (self._paths[name] / WEIGHTS).is_file():
            self._paths = self.paths()  # not at every request: reading folders takes too long
        if (path := self._paths.get(name)) is None:
            raise MissingError(f"there is no planner '{name[:80]}'; known are {', '.join(self._paths)}")
        modified = (path / WEIGHTS).stat().st_mtime_ns
        with self._lock:
            if path not in self._loaded or self._loaded[path][0] != modified:
                _read_config(path)
                self._loaded[path] = (modified, checkpoint.load_planner(path)[0])
            planner = self._loaded[path][1]
        if not (found := played_on(planner.spec)):
            raise UserError(f"'{name}' observes {', '.join(planner.spec.fields)}, expected what mazes or PushT "
                            "show: only mazes and PushT are played here; follow its training on the page, and see its "
                            "plans with: genplan plan RUN --task file.py:task --gif x.gif")  # fmt: skip
        if found != played:
            raise UserError(f"'{name}' is a planner of {NOUNS[found]}, expected one of {NOUNS[played]}")
        return planner

    def describe(self) -> schema.CatalogueResponse:
        described = [self._describe(name, path) for name, path in self.paths().items()]
        return schema.CatalogueResponse(
            planners=[planner for planner in described if planner is not None],
            tasks=[schema.TaskResponse.model_validate(entry, from_attributes=True) for entry in ENVS.values()],
            vocabulary=list(BABYAI_WORDS[1:]),  # without padding
            runs=list(self.runs()),
        )

    @staticmethod
    def _describe(name: str, path: Path) -> schema.PlannerResponse | None:
        """None if the folder cannot be read: of another version, or broken. Loading the planner says why."""
        try:
            config = _read_config(path)
            planner = checkpoint.read_planner_config(config)
            return schema.PlannerResponse(
                name=name,
                method=config["method"],
                task=config["task"],
                plays=played_on(PlanSpec.from_json(config["spec"])),
                horizon=settings.get(planner, "horizon", 1),
                action_steps=settings.get(planner, "action_steps", 1),
                defaults={option: settings.get(planner, option) for option in schema.Options.model_fields},
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
        steps = settings.from_dict(TrainConfig, config["training"]).steps
        step, curves = 0, dict[str, list[tuple[int, float]]]()
        for text in read_bytes(runs[name] / LOG, MAX_LOG).decode(errors="replace").splitlines():
            try:
                line = parse_json(text, LOG, finite=False)
            except UserError:  # being written at this moment, or none of ours
                continue
            if not checkpoint.STEP.holds(line.get("step")):
                continue
            at: int = line["step"]
            step = max(step, at)
            for logged, value in line.items():
                curve = RENAMED_CURVES.get(logged, logged)
                if curve in CURVES and at > after and NUMBER.holds(value):
                    curves.setdefault(curve, []).append((at, value))
        return schema.RunResponse(name=name, step=step, steps=steps, task=config["task"], curves=curves)


def _read_config(path: Path) -> dict[str, Any]:
    """The config of a planner whose method comes with genplan: no folder may name a file that the server runs."""
    config = checkpoint.read_config(path)
    if config["method"] not in planners.METHODS:
        raise UserError(
            f"{path.name} was trained with the method '{config['method'][:80]}', expected one that comes with genplan: "
            f"{', '.join(planners.METHODS)}"
        )
    return config
