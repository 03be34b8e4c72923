"""Run folder <-> planner: safetensors and readable JSON, each file written atomically.

    config.json           what was trained, on what, how; with a format version
    last.safetensors      everything needed to go on: live and averaged weights, optimiser moments, the step
    model.safetensors     the planner itself: the averaged weights as last saved
    best.safetensors      the averaged weights with the lowest loss on held-out demonstrations
    log.jsonl             one line per logged step; the same for TensorBoard in tensorboard/

A run's chance is keyed by (seed, step), so no generator state is needed to continue exactly. Loading never runs code:
there is no pickle anywhere. Every tensor file carries a digest of its content, and one that does not match is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from genplan.errors import UserError

FORMAT = 1


class CheckpointError(UserError):
    """A run folder that cannot be used."""


def write_atomically(path: Path, content: bytes) -> None:
    """The file is there whole, or as it was before; also after a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names no file by itself


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


def digest(tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return content.hexdigest()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Tensors of no dimension have no bytes to view; safetensors stores them as they are.
    plain = {name: tensor.reshape(1) if tensor.ndim == 0 else tensor for name, tensor in plain.items()}
    information = {"format": str(FORMAT), "digest": digest(plain), "about": json.dumps(dict(about))}
    write_atomically(path, save(plain, metadata=information))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and what was said about them; anything but a whole, untouched file is refused."""
    if not path.is_file():
        raise CheckpointError(f"there is no {path.name} in {path.parent}; is it a run folder?")
    try:
        with safe_open(path, framework="pt") as file:
            information = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a whole checkpoint ({error}); use another copy or train again") from error
    if int(information.get("format", 0)) != FORMAT:
        raise CheckpointError(f"{path} has format {information.get('format')}, expected {FORMAT}; update genplan")
    if (found := digest(tensors)) != information.get("digest"):
        expected = str(information.get("digest"))[:12]
        raise CheckpointError(f"{path} was changed: its content is {found[:12]}, expected {expected}; use another copy")
    return tensors, json.loads(information["about"])


def read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"there is no config.json in {folder}; expected a run folder made by 'genplan train'")
    try:
        config = json.loads(path.read_text())
        version = config["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); use another copy or train again") from error
    if version != FORMAT:
        raise CheckpointError(f"{path} has format {version}, expected {FORMAT}; update genplan")
    return dict(config)


def fill(module: torch.nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Put tensors into a module, name by name."""
    own = module.state_dict()
    if missing := sorted(set(own) - set(tensors)):
        raise CheckpointError(f"{where} lacks {len(missing)} tensors, such as {missing[0]}; expected {len(own)}")
    for name, tensor in own.items():
        given = tensors[name]
        if given.numel() != tensor.numel():
            shapes = f"{tuple(given.shape)}, expected {tuple(tensor.shape)}"
            raise CheckpointError(f"{where}: {name} has shape {shapes}; config.json belongs to another model")
        tensor.copy_(given.reshape(tensor.shape))
