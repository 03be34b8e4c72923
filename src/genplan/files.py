"""Files that are there whole, or as they were before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(path: Path, data: bytes) -> None:
    """Write the whole file or nothing; also if the machine crashes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names no file by itself


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())
