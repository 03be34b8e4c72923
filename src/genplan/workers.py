"""Processes that work beside this one, and die with it; and locks that no two of them hold."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from genplan.errors import UserError


def serve(parent: int) -> None:
    """In a worker: one thread, no say in Ctrl-C, and no life after the parent's (also if that was killed)."""
    import signal

    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def only_one(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock `path`; if another process does, wait for it, or say that `what` is being done already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise UserError(f"{what} by another process; wait for it, or stop it first") from error
        yield
