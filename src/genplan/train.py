"""fit(planner, data): optimiser, averaged weights, schedule, logs, exact resume.

Everything random about step k comes from (seed, k), so a run that was stopped and resumed is bit for bit the run that
was never stopped (on the same machine with the same number of threads).
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from genplan import checkpoint
from genplan.config import TrainConfig
from genplan.data.windows import Mixture, Windows
from genplan.errors import UserError
from genplan.flow import Rng

VALIDATION_BATCHES = 4


def rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then cosine decay to zero."""
    warm = min(1.0, (step + 1) / max(config.warmup, 1))
    return config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / config.steps))


class Average:
    """Exponential moving average of weights, in tensors of its own (never the live ones)."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))  # young averages follow quickly
        for name, tensor in module.state_dict().items():
            self.tensors[name].lerp_(tensor.detach(), 1 - decay)

    def lent(self, module: nn.Module) -> nn.Module:
        """A copy of the module with the averaged weights."""
        other = copy.deepcopy(module)
        other.load_state_dict(self.tensors)
        return other.eval()


@dataclass
class Progress:
    """What a training tells of itself while it runs."""

    step: int
    steps: int
    metrics: Mapping[str, float]


class Run:
    """A training in a folder: made or resumed, run step by step, saved on the way."""

    def __init__(
        self,
        folder: Path,
        planner: nn.Module,
        windows: Windows | Mixture,
        held_out: Windows | Mixture,
        config: TrainConfig,
        play: Callable[[nn.Module, int], dict[str, float]] | None = None,
    ) -> None:
        torch.set_num_threads(config.threads)
        self.folder, self.config, self.windows, self.held_out = folder, config, windows, held_out
        self.play = play  # (planner, episodes) -> what it scores on validation seeds
        self.fabric = Fabric(accelerator="auto", devices=1, precision=config.precision)  # type: ignore[arg-type]
        self.planner = planner
        names, parameters = zip(*planner.named_parameters(), strict=True)
        self.names: Sequence[str] = names
        optimiser = torch.optim.AdamW(
            parameters, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay, fused=True
        )
        self.model, self.optimiser = self.fabric.setup(planner, optimiser)
        self.model.mark_forward_method("loss")
        self.average = Average(planner, config.average)
        self.step = 0
        self.best = math.inf
        self.seconds = 0.0  # of CPU, over all sessions
        if (folder / "last.safetensors").exists():
            self._load()
        self._trim_log()
        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=self.step + 1)

    # --- one step ----------------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        """One step of training; its metrics."""
        config, step = self.config, self.step
        torch.manual_seed(config.seed * 1_000_003 + step)  # dropout
        rng = Rng.of(config.seed).fold("train", step)
        batch = self.windows.draw(
            config.batch,
            rng,
            config.per_map,
            augment=config.augment,
            recolour=config.recolour,
            clutter=config.clutter,
        )
        for group in self.optimiser.param_groups:
            group["lr"] = rate(config, step)
        self.planner.train()
        losses = self.model.loss(batch, rng)
        if not bool(torch.isfinite(losses.total)):
            raise UserError(
                f"the loss is {losses.total.item()} at step {step}; the last good checkpoint is in {self.folder}. "
                "Train with a lower learning rate, or look at the data with 'genplan data show'"
            )
        self.optimiser.zero_grad()
        self.fabric.backward(losses.total)
        self.fabric.clip_gradients(self.model, self.optimiser, max_norm=config.clip, error_if_nonfinite=False)
        self.optimiser.step()
        self.average.update(self.planner, step)
        self.step += 1
        return {"loss": losses.total.item(), **{name: value.item() for name, value in losses.metrics.items()}}

    def fit(self, tell: Callable[[Progress], None] | None = None) -> None:
        """Train to the end, saving on the way; Ctrl-C saves too."""
        config = self.config
        mark = time.process_time()
        seen: dict[str, list[float]] = {}
        try:
            while self.step < config.steps:
                for name, value in self.advance().items():
                    seen.setdefault(name, []).append(value)
                if self.step % config.log_every == 0 or self.step == config.steps:
                    metrics = {name: sum(values) / len(values) for name, values in seen.items()}
                    seen = {}
                    self._log({"step": self.step, "rate": rate(config, self.step - 1), **metrics})
                    if tell is not None:
                        tell(Progress(self.step, config.steps, metrics))
                last = self.step == config.steps
                if self.step % config.validate_every == 0 or last:
                    self._validate()
                if config.evaluate_every and self.play and (self.step % config.evaluate_every == 0 or last):
                    found = self.play(self.average.lent(self.planner), config.evaluate_episodes)
                    self._log({"step": self.step, **{f"validation/{name}": value for name, value in found.items()}})
                if self.step % config.save_every == 0 or last:
                    self.seconds += time.process_time() - mark
                    mark = time.process_time()
                    self.save()
        except KeyboardInterrupt:
            self.seconds += time.process_time() - mark
            self.save()
            raise
        finally:
            self.board.flush()

    @torch.no_grad()
    def _validate(self) -> None:
        """The loss on held-out demonstrations, always the same windows and the same noise."""
        judge = self.average.lent(self.planner)
        found: dict[str, float] = {}
        for number in range(VALIDATION_BATCHES):
            rng = Rng.of(0).fold("validation", number)
            size = self.config.batch
            losses = judge.loss(self.held_out.draw(size, rng, self.config.per_map, augment=False), rng)  # type: ignore[operator]
            for name, value in {"loss": losses.total, **losses.metrics}.items():
                found[f"held out/{name}"] = found.get(f"held out/{name}", 0.0) + value.item() / VALIDATION_BATCHES
        self._log({"step": self.step, **found})
        if found["held out/loss"] <= self.best:
            self.best = found["held out/loss"]
            about = {"step": self.step, "held out": found}
            checkpoint.save_tensors(self.folder / "best.safetensors", self.average.tensors, about)

    # --- files -------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        tensors: dict[str, Tensor] = {}
        for name, tensor in self.planner.state_dict().items():
            tensors[f"live/{name}"] = tensor
        for name, tensor in self.average.tensors.items():
            tensors[f"average/{name}"] = tensor
        for number, name in enumerate(self.names):
            state = self.optimiser.state_dict()["state"].get(number, {})
            for moment in ("exp_avg", "exp_avg_sq", "step"):
                if moment in state:
                    tensors[f"{moment}/{name}"] = state[moment]
        about = {"step": self.step, "best": self.best, "seconds": self.seconds}
        checkpoint.save_tensors(self.folder / "last.safetensors", tensors, about)
        checkpoint.save_tensors(self.folder / "model.safetensors", self.average.tensors, {"step": self.step})
        if self.config.keep:
            kept = self.folder / f"model-{self.step:06d}.safetensors"
            checkpoint.save_tensors(kept, self.average.tensors, {"step": self.step})

    def _load(self) -> None:
        path = self.folder / "last.safetensors"
        tensors, about = checkpoint.load_tensors(path)

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

        with torch.no_grad():
            checkpoint.fill(self.planner, part("live/"), path)
            for name, tensor in part("average/").items():
                self.average.tensors[name].copy_(tensor.reshape(self.average.tensors[name].shape))
        state = self.optimiser.state_dict()
        shapes = dict(self.planner.named_parameters())
        for number, name in enumerate(self.names):
            if f"exp_avg/{name}" in tensors:
                state["state"][number] = {
                    "step": tensors[f"step/{name}"].reshape(()),
                    **{m: tensors[f"{m}/{name}"].reshape(shapes[name].shape) for m in ("exp_avg", "exp_avg_sq")},
                }
        self.optimiser.load_state_dict(state)
        self.step, self.best, self.seconds = about["step"], about["best"], about["seconds"]

    def _log(self, line: Mapping[str, Any]) -> None:
        for name, value in line.items():
            if name != "step":
                self.board.add_scalar(name, value, line["step"])
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")

    def _trim_log(self) -> None:
        """Lines of steps after the checkpoint will be written again."""
        path = self.folder / "log.jsonl"
        if path.exists():
            kept = [line for line in path.read_text().splitlines() if _step_of(line) <= self.step]
            checkpoint.write_atomically(path, "".join(f"{line}\n" for line in kept).encode())


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # the line that was being written when the run was killed
