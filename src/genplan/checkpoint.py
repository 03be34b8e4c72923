"""Run folder <-> planner: safetensors and readable JSON, each file written atomically.

    config.json           what was trained, on what, how; with a format version
    codec.safetensors     the fitted action codec, if it has anything to fit, with its errors
    last.safetensors      everything needed to continue: live and averaged weights, optimizer moments, the step
    model.safetensors     the planner itself: the averaged weights as last saved, its codec among them
    best.safetensors      the averaged weights with the lowest validation loss
    log.jsonl             one line per logged step; the same for TensorBoard in tensorboard/

A run's random numbers are keyed by (seed, step), so no generator state is needed to continue exactly. Loading never
runs code of the folder: there is no pickle anywhere. Every tensor file carries a digest of its content, and one that
does not match is refused. Folders of format 1 are read through `genplan.migrations`; format 2 is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from genplan import config as settings
from genplan import migrations, planners
from genplan.errors import CheckpointError, UserError
from genplan.files import write_atomically
from genplan.planners.base import LearnedPlanner
from genplan.spec import PlanSpec

FORMAT = 2
KEYS: Mapping[str, type[Any]] = {  # of config.json
    "method": str, "task": str, "spec": dict, "planner": dict, "training": dict, "transforms": list, "dataset": dict,
}  # fmt: skip


def digest(tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return content.hexdigest()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    # Tensors of no dimension have no bytes to view.
    plain = {name: one.detach().cpu().contiguous().reshape(one.shape or (1,)) for name, one in tensors.items()}
    header = {"format": str(FORMAT), "digest": digest(plain), "metadata": json.dumps(dict(metadata))}
    write_atomically(path, save(plain, metadata=header))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata; anything but a whole, unchanged file is refused."""
    if not path.is_file():
        raise CheckpointError(f"there is no {path.name} in {path.parent}; is it a run folder?")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a whole checkpoint ({error}); use another copy or train again") from error
    if (version := header.get("format", "")) not in ("1", "2"):
        raise CheckpointError(f"{path} has format {version or None}, expected 1 to {FORMAT}; update genplan")
    if (found := digest(tensors)) != header.get("digest"):
        expected = str(header.get("digest"))[:12]
        raise CheckpointError(f"{path} was changed: its content is {found[:12]}, expected {expected}; use another copy")
    try:
        key, read = ("metadata", dict[str, Any]) if version == "2" else ("about", migrations.migrate_metadata)
        metadata = read(json.loads(header[key]))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} has no readable metadata ({error}); use another copy") from error
    return migrations.migrate_weights(tensors, int(version)), metadata


@torch.no_grad()
def copy_into(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], location: Path) -> None:
    """Copy tensors into those of a planner, name by name."""
    if missing := sorted(set(own) - set(tensors)):
        raise CheckpointError(f"{location} lacks {len(missing)} tensors, such as {missing[0]}; expected {len(own)}")
    for name, tensor in own.items():
        given = tensors[name]
        if given.shape != (tensor.shape or (1,)):  # tensors of no dimension are stored with one
            shapes = f"{tuple(given.shape)}, expected {tuple(tensor.shape)}"
            raise CheckpointError(f"{location}: {name} has shape {shapes}; config.json belongs to another model")
        tensor.copy_(given.reshape(tensor.shape))


def pretrained() -> dict[str, Path]:
    """The planners that come with genplan, by name."""
    folder = Path(str(resources.files("genplan"))) / "pretrained"
    return {path.parent.relative_to(folder).as_posix(): path.parent for path in sorted(folder.glob("**/card.json"))}


def run_dir(name: str | Path) -> Path:
    """The folder of a trained planner: `pretrained:TASK`, or a run folder itself."""
    text = str(name)
    if not text.startswith("pretrained:"):
        return Path(name)
    known = {f"pretrained:{task}": folder for task, folder in pretrained().items()}
    if text not in known:
        raise UserError(f"there is no planner '{text}'; known are {', '.join(known) or 'none'}")
    return known[text]


def is_run(name: str) -> bool:
    """Whether `run_dir` is meant: a trained planner, not a reference or a method."""
    return name.startswith("pretrained:") or (Path(name) / "config.json").is_file()


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a run, in format 2."""
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"there is no config.json in {folder}; expected a run folder made by 'genplan train'")
    try:
        config = json.loads(path.read_text())
        version = config["format"]
        if version == 1:
            config = migrations.migrate_config(config)
    except UserError as error:
        raise CheckpointError(f"{path} cannot be used: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error}); use another copy or train "
                              "again") from error  # fmt: skip
    if version not in (1, FORMAT):
        raise CheckpointError(f"{path} has format {version}, expected 1 to {FORMAT}; update genplan")
    for key, kind in KEYS.items():
        if not isinstance(config.get(key), kind):
            found = json.dumps(config.get(key))[:40]
            raise CheckpointError(f"{path} has '{key}': {found}, expected a {kind.__name__}; use another copy")
    return dict(config)


def read_planner_config(config: Mapping[str, Any]) -> Any:
    """The planner's settings in a run's config: its method's `Config`."""
    return settings.from_dict(planners.config_class(config["method"]), config["planner"])


def untrained(config: Mapping[str, Any], seed: int = 0) -> LearnedPlanner:
    """The planner of a run before it was trained: the control of every result."""
    return planners.build(config["method"], PlanSpec.from_json(config["spec"]), read_planner_config(config), seed)


def load_planner(folder: Path) -> tuple[LearnedPlanner, dict[str, Any]]:
    """The planner of a run, and its config."""
    config = read_config(folder)
    planner = untrained(config)
    path = folder / "model.safetensors"
    tensors, _ = load_tensors(path)
    copy_into(planner.state_dict(), tensors, path)
    return planner.eval(), config
