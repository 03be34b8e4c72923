"""Files that are there whole, or as they were before; and JSON from disk, which is believed nothing.

What is read here comes from a folder that somebody else may have made: only regular files of a bounded size are opened,
and JSON must be UTF-8 with unique keys, finite numbers of ordinary size and printable text. Sealed JSON carries the
digest of its own content.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from genplan.errors import CheckpointError

MAX_JSON = 2**20  # bytes: a run's config has some thousand
MAX_LOG = 2**28
MAX_TEXT = 2000  # characters of one text in it
MAX_DEPTH = 50
MAX_WHOLE = 2**53  # whole numbers beyond are not exact everywhere
SEAL = "digest"


def write_atomically(path: Path, data: bytes) -> None:
    """Write the whole file or nothing; also if the machine crashes. A link of that name is replaced, not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names no file by itself


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


def content_digest(data: Mapping[str, Any]) -> str:
    """Of plain data, however it is laid out as JSON."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def plain(data: Any) -> Any:
    """As JSON has it; numbers that are not finite, which JSON does not have, become null."""
    return json.loads(json.dumps(data), parse_constant=lambda _: None)


def write_sealed(path: Path, data: Mapping[str, Any]) -> None:
    write_json(path, {**data, SEAL: content_digest(data)})


def unseal(data: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """What `write_sealed` was given; refused if anything was changed since."""
    content = {name: value for name, value in data.items() if name != SEAL}
    if (found := content_digest(content)) != data.get(SEAL):
        expected = str(data.get(SEAL))[:12]
        raise CheckpointError(f"{path} was changed: its content is {found[:12]}, expected {expected}; use another copy")
    return content


def check_regular(path: Path, most: int) -> None:
    """Refuse, before it is opened, what is no regular file (a folder, pipe, device or dangling link) or too large."""
    try:
        found = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); use another copy") from error
    if not stat.S_ISREG(found.st_mode):
        raise CheckpointError(f"{path} is {stat.filemode(found.st_mode)}, expected a regular file; use another copy")
    if found.st_size > most:
        raise CheckpointError(f"{path} has {found.st_size} bytes, expected at most {most}; use another copy")


def read_bytes(path: Path, most: int = MAX_JSON) -> bytes:
    check_regular(path, most)
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); use another copy") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    return parse_json(read_bytes(path), path)


def parse_json(data: bytes | str, where: Path | str, finite: bool = True) -> dict[str, Any]:
    """A JSON object; anything that is not plainly one is refused with one line.

    finite  refuse NaN and Infinity too, which older files hold
    """

    def number(text: str) -> float:
        if finite and not math.isfinite(float(text)):
            raise ValueError(f"a number is {text[:20]}")
        return float(text)

    try:
        text = data.decode() if isinstance(data, bytes) else data
        found = json.loads(text, object_pairs_hook=_unique, parse_int=_whole, parse_float=number, parse_constant=number)
        _check_texts(found)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} cannot be read ({type(error).__name__}: {short(error)}); use another copy or "
                              "train again") from error  # fmt: skip
    if not isinstance(found, dict):
        raise CheckpointError(f"{where} cannot be read: it holds a {type(found).__name__}, expected names with values")
    return found


def short(message: object, most: int = 400) -> str:
    """A message of one line, cut where it is longer than anybody reads."""
    text = " ".join(str(message).split())
    return text if len(text) <= most else f"{text[:most]} …"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > MAX_WHOLE:
        raise ValueError(f"a whole number is {text[:20]}…")
    return int(text)


def _check_texts(data: Any, depth: int = 0) -> None:
    """Texts end up in messages, on terminals and in names of files."""
    if depth > MAX_DEPTH:
        raise ValueError(f"values are nested more than {MAX_DEPTH} deep")
    if isinstance(data, str):
        if len(data) > MAX_TEXT or not data.isprintable():
            raise ValueError(f"a text is {data[:40]!a}, expected up to {MAX_TEXT} printable characters")
    elif isinstance(data, list | dict):
        for one in (*data, *data.values()) if isinstance(data, dict) else data:
            _check_texts(one, depth + 1)


# --- what a value must be --------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    expected: str
    holds: Callable[[Any], bool]


def whole(least: int = 0, most: int = 2**40) -> Rule:
    return Rule(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


NUMBER = Rule("a finite number", lambda value: type(value) in (int, float) and math.isfinite(value))
MAYBE_NUMBER = Rule("a finite number or null", lambda value: value is None or NUMBER.holds(value))
TEXT = Rule("a text", lambda value: isinstance(value, str))
OBJECT = Rule("names with values", lambda value: isinstance(value, dict))
OBJECTS = Rule("a list of names with values", lambda value: isinstance(value, list) and all(map(OBJECT.holds, value)))
TEXTS = Rule("names with texts", lambda value: OBJECT.holds(value) and all(map(TEXT.holds, value.values())))
NUMBERS = Rule("names with finite numbers or null",
               lambda value: OBJECT.holds(value) and all(map(MAYBE_NUMBER.holds, value.values())))  # fmt: skip


def check(data: Mapping[str, Any], rules: Mapping[str, Rule], where: Path | str) -> dict[str, Any]:
    """The data, which has exactly the keys of the rules, with values that follow them."""
    if unknown := sorted(set(data) - set(rules)):
        raise CheckpointError(f"{where} has the unknown key '{unknown[0]}', expected {', '.join(rules)}; use another "
                              "copy, or update genplan")  # fmt: skip
    for name, rule in rules.items():
        if name not in data:
            raise CheckpointError(f"{where} has no '{name}', expected {rule.expected}; use another copy")
        if not rule.holds(data[name]):
            found = short(json.dumps(data[name]), 40)
            raise CheckpointError(f"{where} has '{name}': {found}, expected {rule.expected}; use another copy")
    return dict(data)
