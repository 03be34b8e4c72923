"""Format 1 -> format 2: run configs, weights, cards and benchmark results of before, under today's names.

Files on disk stay as they are; what is read from them passes through here. Plain data in, plain data out. Names on the
right of the tables, and all defaults, are those of format 1 and never change.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from genplan.errors import UserError
from genplan.files import read_json

T = TypeVar("T")
Table = Mapping[str, "str | Mapping[str, str]"]  # name today -> name in format 1, or a group of such

# fmt: off
PLANNER_NAMES = {
    "bot": "expert", "shortest": "bot:full-view", "clumsy": "bot:noisy", "walk:uniform": "random:uniform",
    "walk:demos": "random:demos", "walk:lively": "random:forward",
}
METHODS = ("GenPlan-M", "GenPlan-U", "BC", "DT", "DT-noGC", "LEAP", "LEAP-noGC", "LEAP-H")
# (pattern, replacement) for the names of weights in state dicts of format 1, applied in this order by re.sub.
WEIGHTS = (
    (r"^encoder\.mission\.", "encoder.scene.mission."), (r"^encoder\.map\.", "encoder.scene.grid."),
    (r"^encoder\.nothing$", "encoder.null_embedding"), (r"^denoiser\.place\.", "denoiser.location_proj."),
    (r"^denoiser\.blank$", "denoiser.mask_embedding"), (r"^denoiser\.to_place\.", "denoiser.location_head."),
    (r"^denoiser\.to_(state|goal|action)\.", r"denoiser.\1_head."), (r"^denoiser\.heading\.", "denoiser.direction."),
    (r"^denoiser\.kind\.", "denoiser.token_type."),
    (r"^denoiser\.features\.", "denoiser.step_fields.encoders.carrying.embeddings."),
    (r"^denoiser\.look_around\.", "denoiser.scene_kv_proj."), (r"^denoiser\.look_back\.", "denoiser.history_kv_proj."),
    (r"^denoiser\.tried\.", "denoiser.action_counts."), (r"^denoiser\.remember\.", "denoiser.visited_mlp."),
    (r"^denoiser\.layers\.(\d+)\.into\.", r"denoiser.layers.\1.query_and_ffn_in."),
    (r"^trail\.place\.", "visited.location."), (r"^trail\.remember\.", "visited.visited_mlp."),
    (r"^trail\.nothing$", "visited.null_embedding"), (r"^trail\.look\.", "visited.attention."),
    (r"^trail\.tried\.", "visited.action_counts."), (r"^place\.", "step.location."),
    (r"^(step\.location|visited\.location|goal)\.heading\.", r"\1.direction."),
    (r"^before\.weight$", "previous_action.table.weight"), (r"^action\.weight$", "action.table.weight"),
    (r"^features\.", "current.encoders.carrying.embeddings."), (r"^memory\.", "gru."),
)

ENCODER = {
    "hidden_size": "width", "num_heads": "heads", "encoder_iterations": "passes", "position_embedding": "positions",
    "dropout": "dropout",
}
NETWORK = {**ENCODER, "num_layers": "layers"}
MEMORY = {
    "context_length": "context", "visit_memory": "trail", "failed_action_prob": "vain_share",
    "exploration": "curiosity",
}
DENOISING = {
    "horizon": "horizon", "action_steps": "execute", "subgoal_types": "goal_kinds", "full_noise_prob": "noise_share",
    "horizon_discount": "nearness", "entropy_bound": "entropy_bound",
}
SAMPLER = {
    "iterations": "iterations", "order": "order", "goals_first": "goals_first", "temperature": "temperature",
    "top_p": "top_p", "eta": "eta", "num_candidates": "candidates",
}
# Settings that a method never used are left out.
PLANNERS: Mapping[str, Table] = {
    "GenPlan": {
        "network": NETWORK, "memory": MEMORY, "sampler": SAMPLER, **DENOISING, "source": "source", "preset": "preset",
        "conditioning_prob": "given_share", "outcome_memory": "surprise",
    },
    "BC": {"network": ENCODER, "memory": MEMORY, "temperature": "temperature"},
    "DT": {
        "network": NETWORK, "memory": MEMORY, "subgoal_types": "goal_kinds", "privileged_goals": "goals",
        "temperature": "temperature",
    },
    "LEAP": {
        "network": NETWORK, "memory": MEMORY, **DENOISING, "privileged_goals": "goals",
        "single_mask_prob": "single_share", "iterations": "iterations", "temperature": "temperature",
    },
}
COMMON: Mapping[str, Any] = {
    "horizon": 10, "context": 1, "trail": False, "vain_share": 0.25, "width": 64, "heads": 4, "layers": 3, "passes": 24,
    "positions": False, "dropout": 0.0, "goal_kinds": ["target"], "execute": 1, "curiosity": 0.0, "temperature": 0.5,
}
FLOW = {"noise_share": 0.5, "nearness": 0.0, "entropy_bound": 0.0, "iterations": 10}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "GenPlan": {
        **COMMON, **FLOW, "source": "mask", "preset": "default", "given_share": 0.2, "order": "confidence",
        "goals_first": True, "top_p": 1.0, "eta": 0.0, "candidates": 1, "surprise": True,
    },
    "BC": {**COMMON, "horizon": 1},
    "DT": {**COMMON, "horizon": 1, "goals": True},
    "LEAP": {**COMMON, **FLOW, "goals": True, "single_share": 0.0},
}
# Settings that were left out of digests at these values.
OMITTED = {"curiosity": 0.0, "nearness": 0.0, "single_share": 0.0, "surprise": True}

TRAINING = {
    "steps": "steps", "batch_size": "batch", "windows_per_scene": "per_map", "learning_rate": "learning_rate",
    "warmup_steps": "warmup", "weight_decay": "weight_decay", "max_grad_norm": "clip", "ema_decay": "average",
    "goal_proximity_exponent": "haste", "seed": "seed", "threads": "threads", "precision": "precision",
    "log_every": "log_every", "validate_every": "validate_every", "save_every": "save_every",
    "keep_checkpoints": "keep", "evaluate_every": "evaluate_every", "evaluate_episodes": "evaluate_episodes",
}
TRAINING_DEFAULTS: Mapping[str, Any] = {
    "steps": 5000, "batch": 128, "per_map": 8, "learning_rate": 2e-3, "warmup": 200, "weight_decay": 0.05, "clip": 1.0,
    "average": 0.999, "haste": 0.7, "seed": 0, "threads": 1, "precision": "32-true", "log_every": 50,
    "validate_every": 500, "save_every": 250, "keep": False, "evaluate_every": 0, "evaluate_episodes": 50,
    "augment": True, "recolour": False, "clutter": 0, "stitch": 0, "join": "",
}
GRID_ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle")
# What data transforms need of the spec of format 1; the same in all rows of the benchmark.
GRID_SPEC: Mapping[str, Any] = {
    "map_shape": (10, 10), "num_headings": 4, "mirrored_actions": [1, 0, 2, 3, 4, 5],
    "mirrored_words": {"left": "right", "right": "left"},
    "palette": {"words": ["red", "green", "blue", "purple", "yellow", "grey"], "channel": 1, "feature": 1,
                "kinds": [4, 5, 6, 7]},
}
# fmt: on


def planner_name(name: str) -> str:
    """Today's name of a planner that is named as before."""
    return PLANNER_NAMES.get(name, name)


# --- runs ------------------------------------------------------------------------------------------------------------


def migrate_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a run of format 1 in format 2."""
    method, training = config["method"], {**TRAINING_DEFAULTS, **config["training"]}
    if method not in METHODS:
        raise UserError(f"config.json has the method '{method}', expected one of {', '.join(METHODS)}")
    defaults = {"planner": DEFAULTS[_class_of(method)], "training": TRAINING_DEFAULTS}
    for what, known in defaults.items():
        if unknown := sorted(set(config[what]) - set(known)):
            expected = ", ".join(known)
            raise UserError(f"config.json has the unknown key '{unknown[0]}' for the {what}; expected: {expected}")
    return {
        **config, "format": 2, "spec": migrate_spec(config["spec"]), "planner": _planner(method, config["planner"]),
        "training": _renamed(TRAINING, training), "transforms": _transforms(training, config["spec"]),
    }  # fmt: skip


def migrate_weights(tensors: Mapping[str, T], format: int) -> dict[str, T]:
    """Tensors of a file of that format under today's names; in last.safetensors they have a prefix and a slash."""
    if format >= 2:
        return dict(tensors)
    renamed: dict[str, T] = {}
    for old, tensor in tensors.items():
        prefix, slash, name = old.rpartition("/")
        for pattern, replacement in WEIGHTS:
            name = re.sub(pattern, replacement, name)
        new = ("ema" if prefix == "average" else prefix) + slash + name
        if new in renamed:
            raise ValueError(f"two tensors of format 1 are named {new}, the second was {old}")
        renamed[new] = tensor
    return renamed


def migrate_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What is noted in a tensor file of format 1."""
    names = {"seconds": "cpu_seconds", "held out": "validation"}
    return {names.get(name, name): value for name, value in metadata.items()}


def run_digest_v1(folder: Path) -> str | None:
    """What results of version 1 know a trained planner by: weights and settings. None for runs of later formats."""
    config = read_json(folder / "config.json")
    if config["format"] != 1:
        return None
    settings = {**DEFAULTS[_class_of(config["method"])], **config["planner"]}
    used = {name: value for name, value in settings.items() if name not in OMITTED or value != OMITTED[name]}
    weights = (folder / "model.safetensors").read_bytes()
    return hashlib.sha256(weights + json.dumps(used, sort_keys=True).encode()).hexdigest()[:16]


def _class_of(method: str) -> str:
    return method.removeprefix("untrained:").split("-")[0]


def _planner(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    name = _class_of(method)
    return _renamed(PLANNERS[name], {**DEFAULTS[name], **settings})


def _renamed(table: Table, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {new: _value(old, settings[old]) if isinstance(old, str) else _renamed(old, settings)
            for new, old in table.items()}  # fmt: skip


def _value(old: str, value: Any) -> Any:
    return value + 1 if old == "context" else value  # past steps only were counted, now the current one too


def migrate_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a run or dataset of format 1, as `PlanSpec.from_json` reads it."""
    shape, features, words = spec.get("map_shape"), spec.get("features", []), spec.get("words", [])
    headings, num_goals = spec.get("num_headings", 1), spec.get("num_goals", 0)
    if shape is not None and (len(shape) != 2 or not all(isinstance(one, int) for one in shape)):
        raise ValueError(f"map_shape is {shape}, expected two whole numbers")
    fields: dict[str, Any] = {"state": {"kind": "category", "sizes": [spec["num_states"]]}}
    states: dict[str, Any] = {"size": spec["num_states"], "observed": "state"}
    goals: dict[str, Any] = {"size": spec.get("goal_size", 0), "shape": [num_goals]}
    if shape is not None:
        fields["grid"] = {"kind": "grid", "shape": list(shape), "sizes": list(spec["map_channels"])}
        states |= {"points_at": "grid", "directions": headings}
        if goals["size"] == shape[0] * shape[1]:
            goals["points_at"] = "grid"
    if words:
        fields["mission"] = {"kind": "words", "shape": [spec["max_words"]], "vocabulary": list(words)}
    if features:
        fields["carrying"] = {"kind": "category", "shape": [len(features)], "sizes": list(features)}
    names = list(GRID_ACTIONS) if shape is not None and spec["num_actions"] == len(GRID_ACTIONS) else []
    streams = {"states": states, **({"goals": goals} if num_goals else {})}
    return {"fields": fields, "actions": {"n": spec["num_actions"], "names": names}, "streams": streams}


def _transforms(training: Mapping[str, Any], spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Data transforms, which were settings of the training with parameters in the spec."""
    transforms: list[dict[str, Any]] = []
    if number := training["stitch"]:
        transforms.append({"name": "stitch", "num_episodes": number, "conjunction": training["join"]})
    if spec.get("map_shape") is None:
        return transforms
    if training["clutter"]:
        transforms.append({"name": "map_randomization", "max_objects": training["clutter"]})
    if training["augment"] and spec.get("mirrored_actions") and spec.get("num_headings") == 4:
        actions, words = list(spec["mirrored_actions"]), dict(spec.get("mirrored_words", {}))
        transforms.append({"name": "symmetry", "reflected_actions": actions, "reflected_words": words})
    if training["recolour"] and (palette := spec.get("palette")) is not None:
        feature = palette.get("feature")
        transforms.append({
            "name": "color_permutation", "words": list(palette["words"]), "channel": palette["channel"],
            "types": list(palette.get("kinds", [])), "feature": None if feature is None else ["carrying", feature],
        })  # fmt: skip
    return transforms


# --- cards -----------------------------------------------------------------------------------------------------------


def migrate_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card of an exported planner; a card of format 2 as it is."""
    return dict(card) if card.get("format", 1) >= 2 else {**card, "format": 2, "results": _record(card["results"])}


def _record(result: Mapping[str, Any]) -> dict[str, Any]:
    if "worlds" in result:  # of a planner that was trained on several tasks: means, and each of them
        return {**_score(result), "tasks": {name: _record(one) for name, one in result["worlds"].items()}}
    copied = ("task", "planner", "method", "preset", "config_hash", "commit", "plans_per_second")
    baselines = {"random": result.get("walk"), "expert": result.get("bot")}
    return {
        **{name: result[name] for name in copied if name in result},
        "first_seed": result["seed"], "action_steps": result["execute"], **_score(result),
        "baselines": {name: _score(one) for name, one in baselines.items() if one is not None},
    }  # fmt: skip


def _score(score: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {"success": "success", "spl": "spl", "steps": "mean_steps", "cells_visited": "cells", "stalling": "stall"}
    times = {"num_plans": "plans", "seconds": "seconds", "planner_seconds": "planner_seconds"}
    summaries = {new: None if score[old] is None else {"value": score[old], "low": None, "high": None}
                 for new, old in metrics.items() if old in score}  # fmt: skip
    if (success := summaries["success"]) is not None and "success_interval" in score:
        success["low"], success["high"] = score["success_interval"]
    seconds = {new: score[old] for new, old in times.items() if old in score}
    return {"num_episodes": score["episodes"], "metrics": summaries, **seconds}


# --- benchmark results -----------------------------------------------------------------------------------------------


def migrate_cell(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of results/cells.jsonl of version 1 in version 2. KeyError: it lacks something."""
    config = line["config"]
    cell = {**config["cell"], "method": planner_name(config["cell"]["method"])}
    return {
        "version": 2, "cell": cell, "settings": _cell_settings(cell["method"], config),
        "first_seed": line["first_seed"],
        "metrics": {"success": line["success"], "steps": line["steps"], "stalling": line["stalled"]},
        "weights": {"stalling": line["steps"]}, "references": {}, "training": line["training"],
        "privileged": line.get("told", False), "seconds": line["seconds"], "planner_seconds": line["planner_seconds"],
        "cpu_seconds": line.get("cpu_seconds", 0.0), "num_plans": line["plans"], "commit": line["commit"],
        "when": line["when"],
    }  # fmt: skip


def _cell_settings(method: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What decided the result; unknown settings keep their names, so that they equal none of today's."""
    settings: dict[str, Any] = {}
    if "planner" in config:
        unknown = _unknown(config["planner"], DEFAULTS[_class_of(method)])
        settings["planner"] = {**_planner(method, config["planner"]), **unknown}
        names, options = _names(PLANNERS[_class_of(method)]), config.get("options", {})
        settings["options"] = {names.get(old, old): _value(old, value) for old, value in options.items()}
    if "training" in config:
        training = {**TRAINING_DEFAULTS, **config["training"]}
        settings["training"] = {**_renamed(TRAINING, training), **_unknown(training, TRAINING_DEFAULTS)}
        settings["transforms"] = _transforms(training, GRID_SPEC)
    renamed = {"digest": "content", "oracle_version": "telling"}
    return settings | {new: config[old] for new, old in renamed.items() if old in config}


def _unknown(found: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in known}


def _names(table: Table) -> dict[str, str]:
    """Names of settings in format 1 -> names today."""
    names: dict[str, str] = {}
    for new, old in table.items():
        names |= {old: new} if isinstance(old, str) else _names(old)
    return names
