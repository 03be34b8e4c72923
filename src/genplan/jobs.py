"""Jobs: work that is described as data, done elsewhere, and reported as events; and locks that only one process holds.

A job may be done twice without harm and continues where it stopped: what it needs is in its arguments, what it has done
is in a folder or in its result. The caller of `Executor.run` is the only one that writes results. An engine such as Ray
or SLURM is one more class with that method.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from genplan.errors import UserError, error_location

Report = Callable[[float], None]
"""Called by a job with the fraction that is done, from 0 to 1."""


@dataclass(frozen=True)
class Job:
    """A call of `function(*arguments, report=…)`; arguments and result are plain data that can be pickled."""

    key: str
    function: Callable[..., Any]  # at the top level of a module
    arguments: tuple[Any, ...] = ()
    group: str | None = None  # jobs of one group never run at the same time


@dataclass(frozen=True)
class JobEvent:
    """A job progressed, was done, or failed."""

    job: Job
    type: Literal["progress", "done", "failed"]
    fraction: float = 0.0
    result: Any = None
    reason: str = ""


class Executor(Protocol):
    """Anything that runs jobs."""

    def run(self, jobs: Iterable[Job], deadline: float | None = None) -> Iterator[JobEvent]:
        """Events of the jobs, in the order in which they happen.

        After `deadline` (in seconds of `time.monotonic`) no job begins. A job that never began, or was stopped then,
        has no event `done` or `failed`: it is for the next time.
        """


class LocalExecutor:
    """Processes of this machine that take one job after another, at most `workers` at a time.

    A single worker is this process itself, unless jobs may be interrupted; so are those within a worker, which cannot
    have its own. There are no events of progress then.

    interruptible   (job, fraction done) -> whether it may be killed after the deadline; never by default
    """

    def __init__(self, workers: int = 2, interruptible: Callable[[Job, float], bool] | None = None) -> None:
        if workers < 1:
            raise UserError(f"workers is {workers}, expected at least 1")
        self.workers, self.interruptible = workers, interruptible or (lambda job, fraction: False)
        alone = workers == 1 and interruptible is None
        self.inline = alone or bool(multiprocessing.current_process().daemon)

    def run(self, jobs: Iterable[Job], deadline: float | None = None) -> Iterator[JobEvent]:
        waiting, idle, busy = list(jobs), list[_Worker](), dict[Connection, _Worker]()
        try:
            while waiting or busy:
                if deadline is not None and time.monotonic() >= deadline:
                    waiting.clear()
                    for worker in [one for one in busy.values() if self.interruptible(one.job, one.fraction)]:
                        busy.pop(worker.pipe).kill()
                if self.inline and waiting:
                    job = waiting.pop(0)
                    yield JobEvent(job, **_outcome(job, lambda fraction: None))
                    continue
                self._assign(waiting, idle, busy)
                for pipe in cast("list[Connection]", wait(list(busy), timeout=0.5)):
                    worker = busy[pipe]
                    event = worker.receive()
                    if event is None:
                        continue
                    if event.type != "progress":
                        idle.append(busy.pop(pipe))
                    yield event
        finally:
            for worker in (*idle, *busy.values()):
                worker.kill()

    def _assign(self, waiting: list[Job], idle: list[_Worker], busy: dict[Connection, _Worker]) -> None:
        """Begin the first jobs whose group is not busy, as long as there are workers."""
        while len(busy) < self.workers:
            groups = {worker.job.group for worker in busy.values()} - {None}
            index = next((index for index, job in enumerate(waiting) if job.group not in groups), None)
            if index is None:
                return
            while idle and not idle[-1].process.is_alive():
                idle.pop().kill()
            worker = idle.pop() if idle else _Worker()
            busy[worker.pipe] = worker
            worker.begin(waiting.pop(index))


class _Worker:
    """One process, seen from its parent."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve_jobs, args=(theirs, os.getpid()), daemon=True)
        with _ctrl_c_waits():
            self.process.start()
        theirs.close()
        self.has_started = False

    def begin(self, job: Job) -> None:
        self.job, self.fraction = job, 0.0
        with contextlib.suppress(BrokenPipeError):  # it died meanwhile: `receive` finds out
            self.pipe.send(job)

    def receive(self) -> JobEvent | None:
        """The next event; None if the process has just started."""
        try:
            news = self.pipe.recv()
            self.has_started = True
        except (EOFError, OSError):
            self.process.join()
            news = {"type": "failed", "reason": f"its process ended with code {self.process.exitcode}"}
            if not self.has_started:  # it imports the script that started it, and that may start everything over again
                news["reason"] += (" before it could begin; a script that starts jobs needs 'if __name__ == "
                                   "\"__main__\":' around its calls, or workers=1")  # fmt: skip
        if news is None:
            return None
        event = JobEvent(self.job, **{"fraction": self.fraction, **news})
        self.fraction = event.fraction
        return event

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C comes afterwards; and a process that is started meanwhile is deaf to it from its first moment on."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(job: Job, report: Report) -> dict[str, Any]:
    """Do a job; the last event about it, without the job."""
    try:
        return {"type": "done", "fraction": 1.0, "result": job.function(*job.arguments, report=report)}
    except (UserError, OSError) as error:
        return {"type": "failed", "reason": str(error)}


def _serve_jobs(pipe: Connection, parent: int) -> None:
    """The life of a worker: one thread, deaf to Ctrl-C; it ends with its parent, also if that one was killed."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    def report(fraction: float) -> None:
        pipe.send({"type": "progress", "fraction": float(fraction)})

    threading.Thread(target=end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has ended
        pipe.send(None)
        while True:
            data = pipe.recv_bytes()
            try:
                pipe.send(_outcome(pickle.loads(data), report))
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:  # a mistake in the job's code; it must not end the jobs after it
                if b".py:" not in data:  # of ours; one in a file that the user named is said in one line
                    traceback.print_exc()
                pipe.send({"type": "failed", "reason": error_location(error)})


@contextlib.contextmanager
def file_lock(path: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Hold the lock `path`; if another process does, wait for it, or refuse because `what` is being done already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Neither through a link nor waiting for the other end of a pipe: the folder may be somebody else's.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        lock = os.open(path, flags, 0o644)
    except OSError as error:
        raise UserError(f"{path} cannot be locked ({error.strerror}), expected a file; remove it") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            raise UserError(f"{what} by another process; wait for it, or stop it first") from error
        yield
    finally:
        os.close(lock)
