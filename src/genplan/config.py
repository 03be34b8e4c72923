"""Settings as nested frozen dataclasses, and as plain data: checked against their annotations, found by leaf name.

Annotations may be int, float, bool, str, Literal, tuple[T, ...], T | None, and dataclasses of these. The names of all
settings of a configuration, nested ones included, differ: `override` and `get` find a setting wherever it is nested.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from genplan.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def to_dict(config: DataclassInstance) -> dict[str, Any]:
    """All settings, nested, as JSON has them."""
    return dict(json.loads(json.dumps(dataclasses.asdict(config))))


def from_dict(cls: type[Config], data: Any, prefix: str = "") -> Config:
    """The reverse: missing settings take their defaults; unknown ones, and values of another type, are refused."""
    if not isinstance(data, Mapping):
        raise UserError(f"{prefix.removesuffix('.') or 'the configuration'} is {data!r}, expected settings by name")
    annotations = _annotations(cls)
    if unknown := [name for name in data if name not in annotations]:
        raise _unknown(f"{prefix}{unknown[0]}", [f"{prefix}{name}" for name in annotations])
    values = {name: _value(annotations[name], value, f"{prefix}{name}") for name, value in data.items()}
    try:
        return cls(**values)
    except TypeError as error:  # a setting without a default
        raise UserError(f"{prefix or 'the configuration '}lacks settings ({error})") from error


def override(config: Config, strict: bool = True, **settings: Any) -> Config:
    """The same configuration with some settings changed, each found by its name wherever it is nested.

    strict  refuse names that the configuration does not have; otherwise they are ignored
    """
    if strict and (unknown := [name for name in settings if name not in leaves(config)]):
        raise _unknown(unknown[0], leaves(config))
    changes: dict[str, Any] = {}
    for name, annotation in _annotations(type(config)).items():
        if _is_group(annotation):
            changes[name] = override(getattr(config, name), strict=False, **settings)
        elif name in settings:
            changes[name] = _value(annotation, settings[name], name)
    return dataclasses.replace(config, **changes)


def leaves(config: DataclassInstance) -> dict[str, Any]:
    """All settings by name, in order, without the groups that they are nested in."""
    found: dict[str, Any] = {}
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        found |= leaves(value) if _is_group(type(value)) else {one.name: value}
    return found


def get(config: DataclassInstance, name: str, default: Any = None) -> Any:
    """A setting by its name, wherever it is nested."""
    return leaves(config).get(name, default)


def _value(annotation: Any, value: Any, name: str) -> Any:
    """The value as its annotation has it: lists become tuples, whole numbers floats; anything else is refused."""
    if _is_group(annotation):
        return value if isinstance(value, annotation) else from_dict(annotation, value, f"{name}.")
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        return None if value is None else _value(inner, value, name)
    if origin is Literal:
        if not any(value == one and type(value) is type(one) for one in arguments):
            raise UserError(f"{name} is {value!r}, expected one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple and arguments[-1] is Ellipsis:
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} is {value!r}, expected a list")
        return tuple(_value(arguments[0], part, name) for part in value)
    if annotation not in TYPE_NAMES:
        raise TypeError(f"setting {name} is annotated as {annotation}, which has no plain form")
    if annotation is float and type(value) is int:
        return float(value)
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        raise UserError(f"{name} is {value!r}, expected {TYPE_NAMES[annotation]}")
    return value


def _annotations(cls: type[DataclassInstance]) -> dict[str, Any]:
    try:
        annotations = get_type_hints(cls)
        return {one.name: annotations[one.name] for one in dataclasses.fields(cls) if one.init}
    except (NameError, TypeError) as error:
        raise UserError(f"{cls.__name__} is not a dataclass of settings: {error}; expected @dataclass(frozen=True) "
                        "with plain types, imported at the top of its file") from error  # fmt: skip


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _unknown(name: str, known: Iterable[str]) -> UserError:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return UserError(f"there is no setting '{name}'; {hint}known are: {', '.join(known)}")
