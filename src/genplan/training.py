"""Training: optimizer, averaged weights, learning rate, logs, exact resume.

Everything random about step k comes from (seed, k), so a run that was stopped and resumed is bit for bit the run that
was never stopped (on the same machine with the same number of threads).
"""

from __future__ import annotations

import copy
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from genplan import checkpoint
from genplan.data.windows import TaskMixture, Windows
from genplan.errors import UserError
from genplan.files import MAX_LOG, read_bytes, write_atomically
from genplan.flow import Rng
from genplan.jobs import file_lock
from genplan.planners.base import LearnedPlanner
from genplan.presets import TrainConfig
from genplan.types import Batch

VALIDATION_BATCHES, LAST = 4, "last.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq")  # of AdamW
# Labels of random draws are part of the results of every trained planner: never change them.
TRAIN, VALIDATION = "train", "validation"
EvaluateFn = Callable[[LearnedPlanner, int], Mapping[str, float]]
"""(planner, number of episodes) -> its metrics on validation seeds."""


def learning_rate_at(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then cosine decay to zero."""
    warm = min(1.0, (step + 1) / max(config.warmup_steps, 1))
    return config.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / config.steps))


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Ctrl-C is answered at the end: half a step that is saved as a whole one would not resume exactly."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt


def run_lock(folder: Path) -> AbstractContextManager[None]:
    """One training in a folder at a time; the lock ends with the process that holds it, however that ends."""
    return file_lock(folder / ".lock", f"{folder} is being trained in")


class EMA:
    """Exponential moving average of weights, in tensors of its own (never the live ones)."""

    def __init__(self, module: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: torch.nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))  # young averages follow quickly
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                self.tensors[name].lerp_(tensor.detach(), 1 - decay)
            else:
                self.tensors[name].copy_(tensor)

    def model(self, planner: LearnedPlanner) -> LearnedPlanner:
        """A copy of the planner with the averaged weights."""
        averaged = copy.deepcopy(planner)
        averaged.load_state_dict(self.tensors)
        return averaged.eval()


@dataclass(frozen=True)
class Progress:
    """How far a training is, and its metrics since the last report."""

    step: int
    steps: int
    metrics: Mapping[str, float]


class Trainer:
    """A training in a folder: new or resumed, run step by step, saved on the way."""

    def __init__(
        self, folder: Path, planner: LearnedPlanner, windows: Windows | TaskMixture, held_out: Windows | TaskMixture,
        config: TrainConfig, evaluate_fn: EvaluateFn, run: str = "",
    ) -> None:  # fmt: skip
        """`run` is the name that config.json gives the run; files of another are not loaded."""
        torch.set_num_threads(config.threads)
        self.folder, self.planner, self.config, self.evaluate_fn = folder, planner, config, evaluate_fn
        self.windows, self.held_out, self.run = windows, held_out, run
        self.fabric = Fabric(accelerator="auto", devices=1, precision=config.precision)
        optimizer = torch.optim.AdamW(
            planner.parameters(), config.learning_rate, (0.9, 0.95), weight_decay=config.weight_decay, fused=True
        )
        self.model, self.optimizer = self.fabric.setup(planner, optimizer)
        self.model.mark_forward_method("loss")
        self.ema = EMA(planner, config.ema_decay)
        self.step, self.best_loss = 0, math.inf
        self.cpu_seconds, self._clock = 0.0, time.process_time()  # over all sessions; since when they are not counted
        if (folder / LAST).exists():
            self._load()
        self._on_disk = self._stamp()
        self._trim_log()
        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=self.step + 1)

    def training_step(self) -> dict[str, float]:
        """One step of the optimizer; its metrics."""
        config, step = self.config, self.step
        torch.manual_seed(config.seed * 1_000_003 + step)  # dropout
        batch, rng = self._draw(self.windows, config.seed, TRAIN, step)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_at(config, step)
        self.planner.train()
        losses = self.model.loss(batch, rng)
        if not bool(torch.isfinite(losses.total)):
            raise UserError(f"the loss is {losses.total.item()} at step {step}; the last good checkpoint is in "
                            f"{self.folder}. Train with a lower learning rate, or look at the data with 'genplan data "
                            "show'")  # fmt: skip
        self.optimizer.zero_grad()
        self.fabric.backward(losses.total)
        self.fabric.clip_gradients(self.model, self.optimizer, max_norm=config.max_grad_norm, error_if_nonfinite=False)
        self.optimizer.step()
        self.planner.after_step(losses)  # what it changes is part of the average
        self.ema.update(self.planner, step)
        self.step += 1
        return {"loss": losses.total.item(), **{name: value.item() for name, value in losses.metrics.items()}}

    def _draw(self, windows: Windows | TaskMixture, seed: int, label: str, number: int) -> tuple[Batch, Rng]:
        """A batch, and chance for the model: the same keys as for the data, where the model is."""
        rng, device, per_scene = Rng.of(seed).fold(label, number), self.fabric.device, self.config.windows_per_scene
        batch = windows.sample(self.config.batch_size, rng, per_scene, augment=label == TRAIN)
        return batch.to(device), Rng.of(seed, device=device).fold(label, number)

    def fit(self, on_progress: Callable[[Progress], None] | None = None) -> None:
        """Train to the end, saving on the way; Ctrl-C saves too. The folder is locked meanwhile."""
        with run_lock(self.folder):
            if self._stamp() != self._on_disk:
                raise UserError(f"another process trained in {self.folder} meanwhile; run the same command again")
            self._fit(on_progress)

    def _fit(self, on_progress: Callable[[Progress], None] | None) -> None:
        config = self.config
        self._clock = time.process_time()
        seen: dict[str, list[float]] = {}
        try:
            while self.step < config.steps:
                with _interrupts_deferred():
                    self._advance(seen, on_progress)
        except KeyboardInterrupt:
            self.save()
            raise
        finally:
            self.writer.flush()

    def _advance(self, seen: dict[str, list[float]], on_progress: Callable[[Progress], None] | None) -> None:
        """One step, and all that is due after it; `seen` collects its metrics until they are logged."""
        for name, value in self.training_step().items():
            seen.setdefault(name, []).append(value)
        config, last = self.config, self.step == self.config.steps
        if last or self.step % config.log_every == 0:
            metrics = {name: sum(values) / len(values) for name, values in seen.items()}
            seen.clear()
            self._log({"learning_rate": learning_rate_at(config, self.step - 1), **metrics})
            if on_progress is not None:
                on_progress(Progress(self.step, config.steps, metrics))
        if last or self.step % config.validate_every == 0:
            self._validate()
        if config.evaluate_every and (last or self.step % config.evaluate_every == 0):
            scores = self.evaluate_fn(self.ema.model(self.planner), config.evaluate_episodes)
            self._log({f"eval/{name}": value for name, value in scores.items()})
        if last or self.step % config.save_every == 0:
            self.save()

    @torch.no_grad()
    def _validate(self) -> None:
        """The loss on held-out demonstrations, always the same windows and the same noise."""
        ema_model = self.ema.model(self.planner)
        metrics: dict[str, float] = {}
        for number in range(VALIDATION_BATCHES):
            batch, rng = self._draw(self.held_out, 0, VALIDATION, number)
            losses = ema_model.loss(batch, rng)
            found = {"loss": losses.total, **losses.metrics}
            if batch.spec.actions.n is None:
                found["clipped_actions"] = ema_model.clipped_share(batch)
            for name, value in found.items():
                metrics[f"val/{name}"] = metrics.get(f"val/{name}", 0.0) + value.item() / VALIDATION_BATCHES
        self._log(metrics)
        self.planner.after_validation({name.removeprefix("val/"): value for name, value in metrics.items()})
        if metrics["val/loss"] <= self.best_loss:
            self.best_loss = metrics["val/loss"]
            metadata = {"step": self.step, "validation": metrics}
            checkpoint.save_tensors(self.folder / "best.safetensors", self.ema.tensors, metadata, self.run)

    def _weights(self) -> dict[str, Tensor]:
        """Live and averaged weights as they are saved; not copies."""
        live = {f"live/{name}": tensor for name, tensor in self.planner.state_dict().items()}
        return live | {f"ema/{name}": tensor for name, tensor in self.ema.tensors.items()}

    def save(self) -> None:
        now = time.process_time()
        self.cpu_seconds, self._clock = self.cpu_seconds + now - self._clock, now
        tensors, states = self._weights(), self.optimizer.state_dict()["state"]
        for number, (name, _) in enumerate(self.planner.named_parameters()):  # in the order of the optimizer's state
            state = states.get(number, {})
            tensors |= {f"{moment}/{name}": state[moment] for moment in (*MOMENTS, "step") if moment in state}
        metadata = {"step": self.step, "best": self.best_loss, "cpu_seconds": self.cpu_seconds}
        for name in ("model", *([f"model-{self.step:06d}"] if self.config.keep_checkpoints else [])):
            path = self.folder / f"{name}.safetensors"
            checkpoint.save_tensors(path, self.ema.tensors, {"step": self.step}, self.run)
        # Last: a run that was killed before this goes on from the checkpoint before, and writes the others again.
        checkpoint.save_tensors(self.folder / LAST, tensors, metadata, self.run)
        self._on_disk = self._stamp()

    def _stamp(self) -> tuple[int, int] | None:
        """Of the last checkpoint on disk: which file it is, and of when."""
        path = self.folder / LAST
        return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None

    def _load(self) -> None:
        path = self.folder / LAST
        tensors, metadata = checkpoint.load_tensors(path, self.run)
        own, state = self._weights(), self.optimizer.state_dict()
        for number, (name, parameter) in enumerate(self.planner.named_parameters()):
            if f"exp_avg/{name}" in tensors:  # a parameter without a gradient has none
                moments = {moment: torch.zeros_like(parameter) for moment in MOMENTS}
                state["state"][number] = {"step": torch.zeros(()), **moments}
                own |= {f"{moment}/{name}": tensor for moment, tensor in state["state"][number].items()}
        checkpoint.copy_into(own, tensors, path)
        self.optimizer.load_state_dict(state)
        self.step, self.cpu_seconds = metadata["step"], metadata["cpu_seconds"]
        self.best_loss = math.inf if metadata["best"] is None else metadata["best"]

    def _log(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, self.step)
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps({"step": self.step, **metrics}) + "\n")

    def _trim_log(self) -> None:
        """Remove lines of steps after the checkpoint: they will be written again."""

        def is_kept(line: str) -> bool:
            try:
                return float(json.loads(line)["step"]) <= self.step
            except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
                return False  # the line that was being written when the run was killed, or none of ours

        path = self.folder / "log.jsonl"
        if path.exists():
            kept = filter(is_kept, read_bytes(path, MAX_LOG).decode(errors="replace").splitlines())
            write_atomically(path, "".join(f"{line}\n" for line in kept).encode())
