"""Run folder <-> planner: safetensors and readable JSON, each file written atomically.

    config.json           what was trained, on what, how; sealed by a digest of its content
    codec.safetensors     the fitted action codec, if it has anything to fit, with its errors
    last.safetensors      everything needed to continue: live and averaged weights, optimizer moments, the step
    model.safetensors     the planner itself: the averaged weights as last saved, its codec among them
    best.safetensors      the averaged weights with the lowest validation loss
    card.json             of an exported planner: its origin and results, sealed; with the digest of its weights
    log.jsonl             one line per logged step; the same for TensorBoard in tensorboard/

A run's random numbers are keyed by (seed, step), so no generator state is needed to continue exactly. A folder is data:
nothing in it is run, and a task or method from a file must be named by the caller (`allowed`). Every tensor file has a
digest of its tensors, metadata and format, and says which file of which run it is. Folders of formats 1 and 2 are read
through `genplan.migrations`; format 3 is written.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from genplan import config as settings
from genplan import files, migrations, planners
from genplan.errors import ChangedFileWarning, CheckpointError, UserError
from genplan.files import NUMBER, OBJECT, TEXT, TEXTS, Rule, check, short, whole
from genplan.models.codecs import CODECS
from genplan.planners.base import LearnedPlanner
from genplan.spec import PlanSpec

FORMAT = 3
MAX_FILE = 2**33  # bytes of a tensor file
MAX_NUMBERS = 2**28  # of a network, 1 GiB
STEP = whole(0, 10**9)
METADATA: Mapping[str, Mapping[str, Rule]] = {  # of the tensor files
    "last": {"step": STEP, "best": files.MAYBE_NUMBER, "cpu_seconds": NUMBER},
    "model": {"step": STEP},
    "best": {"step": STEP, "validation": files.NUMBERS},
    "codec": {"errors": files.NUMBERS},
}
DATASET = {"name": TEXT, "digest": TEXT, "episodes": whole()}
CONFIG: Mapping[str, Rule] = {
    "format": whole(1, FORMAT), "run": TEXT, "method": TEXT, "task": TEXT, "files": TEXTS, "spec": OBJECT,
    "planner": OBJECT, "training": OBJECT, "transforms": files.OBJECTS, "dataset": OBJECT, "versions": TEXTS,
    "commit": TEXT,
}  # fmt: skip
RESULTS = Rule("results with num_episodes and metrics", lambda value: OBJECT.holds(value)
               and whole(1).holds(value.get("num_episodes")) and OBJECT.holds(value.get("metrics")))  # fmt: skip
CARD: Mapping[str, Rule] = {
    "format": whole(1, FORMAT), "method": TEXT, "task": TEXT, "dataset": OBJECT, "steps": STEP, "cpu_seconds": NUMBER,
    "commit": TEXT, "weights": TEXT, "parameters": whole(), "results": RESULTS,
}  # fmt: skip
DAMAGES = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)  # while older formats are read


# --- tensors ---------------------------------------------------------------------------------------------------------


def digest(tensors: Mapping[str, Tensor]) -> str:
    content = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return content.hexdigest()


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Whatever goes wrong in data of any format is said in one line."""
    try:
        yield
    except CheckpointError:
        raise
    except (UserError, *DAMAGES) as error:
        reason = short(error) if isinstance(error, UserError) else f"{type(error).__name__}: {short(error)}"
        raise CheckpointError(f"{path} cannot be used ({reason}); use another copy or train again") from error


def _seal(version: str, metadata: str, weights: str) -> str:
    """Of a whole tensor file; before format 3, of its tensors alone."""
    return hashlib.sha256(f"{version} {metadata} {weights}".encode()).hexdigest() if version == "3" else weights


def _rules(path: Path) -> tuple[str, Mapping[str, Rule]]:
    """Which file of a run it is, by its name, and what its metadata must be."""
    if (kind := path.stem.partition("-")[0]) not in METADATA:  # model-000250 is a model
        raise CheckpointError(f"{path} is no file of a run, expected {', '.join(METADATA)} and .safetensors")
    return kind, {"kind": Rule(f"'{kind}'", lambda found: found == kind), "run": TEXT, **METADATA[kind]}


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], run: str) -> None:
    """Write a file of the run `run`, as its config names it."""
    # Tensors of no dimension have no bytes to view.
    whole_ones = {name: one.detach().cpu().contiguous().reshape(one.shape or (1,)) for name, one in tensors.items()}
    kind, rules = _rules(path)
    text = json.dumps(check(files.plain({**metadata, "kind": kind, "run": run}), rules, path), sort_keys=True)
    header = {"format": str(FORMAT), "metadata": text, "digest": _seal(str(FORMAT), text, digest(whole_ones))}
    files.write_atomically(path, save(whole_ones, metadata=header))


def load_tensors(path: Path, run: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and metadata with their digest as `weights`; anything but a whole, unchanged file is refused.

    run  the run that it must belong to, as its config names it; None: any
    """
    if not os.path.lexists(path):
        raise CheckpointError(f"there is no {path.name} in {path.parent}; is it a run folder?")
    files.check_regular(path, MAX_FILE)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # whatever a parser says of a file that may hold anything
        raise CheckpointError(f"{path} is not a whole checkpoint ({short(error)}); use another copy or train "
                              "again") from error  # fmt: skip
    version = header.get("format", "")
    if version not in ("1", "2", "3"):
        raise CheckpointError(f"{path} has format {short(version, 20) or None}, expected 1 to {FORMAT}; update genplan")
    key = "about" if version == "1" else "metadata"
    if set(header) != {"format", "digest", key}:
        raise CheckpointError(f"{path} has the header {short(sorted(header))}, expected format, digest and {key}")
    weights = digest(tensors)
    if (found := _seal(version, header[key], weights)) != header["digest"]:
        expected = short(header["digest"], 12)
        raise CheckpointError(f"{path} was changed: its content is {found[:12]}, expected {expected}; use another copy")
    metadata = files.parse_json(header[key], f"the metadata of {path}", finite=version == "3")
    with _refused(path):
        if version != "3":
            metadata = {**migrations.migrate_metadata(metadata), "kind": _rules(path)[0], "run": ""}
        tensors = migrations.migrate_weights(tensors, int(version))
    metadata = check(metadata, _rules(path)[1], f"the metadata of {path}")
    if run not in (None, metadata["run"]):
        raise CheckpointError(f"{path} is of the run {metadata['run'][:12] or 'of an earlier format'}, expected "
                              f"{str(run)[:12]}, that of config.json; use files of one run")  # fmt: skip
    return tensors, {**metadata, "weights": weights}


@torch.no_grad()
def copy_into(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], location: Path) -> None:
    """Copy tensors into those of a planner, name by name: all of them, and no others."""
    if missing := sorted(set(own) - set(tensors)):
        raise CheckpointError(f"{location} lacks {len(missing)} tensors, such as {missing[0]}; expected {len(own)}")
    if extra := sorted(set(tensors) - set(own)):
        found = short(extra[0], 80)
        raise CheckpointError(f"{location} has the unknown tensor {found}; config.json belongs to another model")
    for name, tensor in own.items():
        if (given := tensors[name]).shape != (tensor.shape or (1,)):  # tensors of no dimension are stored with one
            shapes = f"{tuple(given.shape)}, expected {tuple(tensor.shape)}"
            raise CheckpointError(f"{location}: {name} has shape {shapes}; config.json belongs to another model")
        given = given.reshape(tensor.shape)
        if given.is_complex() or given.is_floating_point() != tensor.is_floating_point():
            raise CheckpointError(f"{location}: {name} has the type {given.dtype}, expected {tensor.dtype}")
        # What is not finite in an untrained planner either are statistics that are not fitted.
        if given.is_floating_point() and bool((~given.isfinite() & tensor.isfinite().to(given.device)).any()):
            raise CheckpointError(f"{location}: {name} is not finite, expected finite weights; use another copy")
        tensor.copy_(given)


# --- folders ---------------------------------------------------------------------------------------------------------


def pretrained() -> dict[str, Path]:
    """The planners that come with genplan, by name."""
    folder = Path(str(resources.files("genplan"))) / "pretrained"
    return {path.parent.relative_to(folder).as_posix(): path.parent for path in sorted(folder.glob("**/card.json"))}


def run_dir(name: str | Path) -> Path:
    """The folder of a trained planner: `pretrained:TASK`, or a run folder itself."""
    if not str(name).startswith("pretrained:"):
        return Path(name)
    known = {f"pretrained:{task}": folder for task, folder in pretrained().items()}
    if str(name) not in known:
        raise UserError(f"there is no planner '{name}'; known are {', '.join(known) or 'none'}")
    return known[str(name)]


def is_run(name: str) -> bool:
    """Whether `run_dir` is meant: a trained planner, not a reference or a method."""
    return name.startswith("pretrained:") or (Path(name) / "config.json").exists()


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a run, in today's format: data, of which `allowed` says what may be run."""
    path = folder / "config.json"
    if not os.path.lexists(path):
        raise CheckpointError(f"there is no config.json in {folder}; expected a run folder made by 'genplan train'")
    config = files.read_json(path)
    if (version := config.get("format")) not in range(1, FORMAT + 1):
        raise CheckpointError(f"{path} has format {short(version, 20)}, expected 1 to {FORMAT}; update genplan")
    config = files.unseal(config, path) if version == FORMAT else {"run": "", "files": {}, **config}
    with _refused(path):
        if version == 1:
            config = migrations.migrate_config(config)
        check(config, CONFIG, path)
        check(config["dataset"], DATASET, f"{path}, dataset,")
        PlanSpec.from_json(config["spec"])
    return {**config, "format": FORMAT}


def write_config(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Write a run's config.json; a run is named after the config that it begins with, unless it has a name."""
    named = {"run": files.content_digest(config), **config}
    files.write_sealed(folder / "config.json", named)
    return named


def read_card(folder: Path) -> dict[str, Any]:
    """The card of an exported planner, in today's format."""
    path = folder / "card.json"
    if not os.path.lexists(path):
        raise UserError(f"'{folder}' has no card.json; expected an exported planner, such as pretrained:MazeS4G1")
    card = files.read_json(path)
    with _refused(path):
        card = files.unseal(card, path) if card.get("format") == FORMAT else migrations.migrate_card(card)
    return {**check(card, CARD, path), "format": FORMAT}


# --- code of the user's own ------------------------------------------------------------------------------------------


def file_identity(name: str) -> str:
    """Of what `file.py:Name` names, the content of the file; other names as they are; several joined by +."""
    parts = name.split("+")
    for number, part in enumerate(parts):
        path, _, attribute = part.rpartition(":")
        if ".py:" in part and Path(path).is_file():
            parts[number] = f"{hashlib.sha256(Path(path).read_bytes()).hexdigest()}:{attribute}"
    return "+".join(parts)


def allowed(config: Mapping[str, Any], key: str, given: str | None, folder: Path, exact: bool = False) -> str:
    """The `task` or `method` of a run that may be run: what comes with genplan, or what the caller named.

    A file that only the folder names is never run. exact  refuse another file than the run began with, not only warn
    """
    name: str = config[key]
    if ".py:" not in name:
        if (exact or key == "method") and given not in (None, name):
            raise UserError(f"{folder} was trained with the {key} {name}, found {given}; leave it out")
        return name
    if given is None:
        raise UserError(f"{folder} was trained with the {key} '{name}', a file, and no file is run because a folder "
                        f"names it; if you trust yours, name it: --{key} {name}")  # fmt: skip
    expected, found = config["files"].get(key, ""), file_identity(given)
    if exact and expected and found != expected:
        raise UserError(f"{given} is not what {folder} began with, or was changed since; going on would not be exact: "
                        "put the old file back, or train in another --out")  # fmt: skip
    known, named = ({part.partition(":")[0] for part in one.split("+")} for one in (expected, found))
    if expected and ".py:" in given and not named <= known:
        warnings.warn(f"{given} is not the {key} that {folder} was trained with, or was changed since",
                      ChangedFileWarning, stacklevel=2)  # fmt: skip
    return given


def own_codec(planner: Mapping[str, Any]) -> str | None:
    """The `file.py:Class` of the action codec that a planner's settings name, if they name one."""
    name = group.get("codec") if isinstance(group := planner.get("codec"), Mapping) else None
    return name if isinstance(name, str) and ".py:" in name else None


def check_codec(config: Mapping[str, Any], folder: Path, exact: bool = False) -> None:
    """The same for the codec, which the caller names with `planners.use_codec`."""
    if (name := own_codec(config["planner"])) is not None:
        allowed({**config, "codec": name}, "codec", name if name in CODECS else None, folder, exact)


# --- planners --------------------------------------------------------------------------------------------------------


class _Allocations(TorchFunctionMode):
    """Counts the numbers that a network is made of, and refuses before there are more than `most`."""

    SIZED = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func in self.SIZED:
            size = options.get("size", args)
            self.left -= math.prod(size if all(isinstance(one, int) for one in size) else size[0])
        elif func is torch.Tensor.clone:  # of layers
            self.left -= args[0].numel()
        if self.left < 0:
            raise CheckpointError("config.json describes a larger network than expected; use another copy")
        return func(*args, **options)


def read_planner_config(config: Mapping[str, Any]) -> Any:
    """The planner's settings in a run's config: its method's `Config`."""
    return settings.from_dict(planners.config_class(config["method"]), config["planner"])


def untrained(config: Mapping[str, Any], seed: int = 0, most: int = MAX_NUMBERS) -> LearnedPlanner:
    """The planner of a run before it was trained: the control of every result. `most` numbers are allocated."""
    try:
        chosen, spec = read_planner_config(config), PlanSpec.from_json(config["spec"])
        with _Allocations(most):
            return planners.build(config["method"], spec, chosen, seed)
    except UserError:
        raise
    except Exception as error:  # settings that are right one by one, and no network together
        raise CheckpointError(f"config.json describes no {config['method']} planner ({type(error).__name__}: "
                              f"{short(error)}); use another copy") from error  # fmt: skip


def load_planner(folder: Path, method: str | None = None) -> tuple[LearnedPlanner, dict[str, Any]]:
    """The planner of a run, and its config; `method`: the file.py:Class that it was trained with, if it was."""
    config, path = read_config(folder), folder / "model.safetensors"
    config["method"] = allowed(config, "method", method, folder)
    check_codec(config, folder)
    tensors, metadata = load_tensors(path, config["run"])
    if os.path.lexists(folder / "card.json") and (expected := read_card(folder)["weights"]) != metadata["weights"][:16]:
        found = metadata["weights"][:16]
        raise CheckpointError(f"{path} has the weights {found}, expected {expected} as its card says")
    planner = untrained(config, most=2 * sum(tensor.numel() for tensor in tensors.values()) + 2**20)
    copy_into(planner.state_dict(), tensors, path)
    return planner.eval(), config
