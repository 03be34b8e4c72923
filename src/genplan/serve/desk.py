"""Where planning requests of all visitors meet: equal ones are planned together, in one batch.

One thread does all planning. Plans that somebody waits for come first; episodes go on between them, a step at a time,
so that neither keeps the other waiting for long. Visitors who were planned together tend to
ask again together: a moment's wait for all of them is worth more than a small batch at once. A single visitor never
waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from genplan.errors import UserError

MOST_TOGETHER = 32
MOST_WAITING = 256
PATIENCE = 60.0  # seconds
GATHER = 0.05  # seconds that a busy desk waits for those who were planned together last time to come again

Batch = Callable[[Sequence[Any]], Generator[None, None, Sequence[Any]]]
"""Requests -> answers, in the same order; yields where others may come in between."""


class BusyError(UserError):
    """Too much to do, or it took too long."""


@dataclass
class Job:
    key: Hashable  # jobs with equal keys can be done together
    batch: Batch
    request: Any
    urgent: bool
    until: float
    answer: Future[tuple[Any, int]] = field(default_factory=Future)


class Desk:
    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._running: list[tuple[list[Job], Generator[None, None, Sequence[Any]]]] = []
        self._together = 1  # plans in the last batch
        self._open = True
        self._thread = threading.Thread(target=self._work, name="planning", daemon=True)
        self._thread.start()

    def ask(self, key: Hashable, batch: Batch, request: Any, urgent: bool) -> Future[tuple[Any, int]]:
        """An answer, and how many were planned together."""
        job = Job(key, batch, request, urgent, time.monotonic() + PATIENCE)
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                raise BusyError(f"{MOST_WAITING} requests are waiting already; try again in a moment")
            self._waiting.append(job)
            self._changed.notify()
        return job.answer

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._open and not self._waiting and not self._running:
                    self._changed.wait()
                if self._together > 1 and self._waiting:
                    self._changed.wait_for(lambda: len(self._waiting) >= self._together or not self._open, GATHER)
                if not self._open:
                    return
                self._dismiss()
                jobs = self._next()
            if jobs:
                self._together = len(jobs) if jobs[0].urgent else 1
                self._begin(jobs)
            # After a batch of plans too: those who keep planning shall not keep an episode from going on.
            if self._running and (not jobs or jobs[0].urgent):
                self._advance(self._running.pop(0))

    def _dismiss(self) -> None:
        """Those who have waited for too long."""
        now = time.monotonic()
        for job in [job for job in self._waiting if now > job.until]:
            self._waiting.remove(job)
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(BusyError(f"nothing could be done about this for {PATIENCE:.0f} s; try again"))

    def _next(self) -> list[Job]:
        """Those that can be done together with the first urgent one, or with the first one if nothing runs yet."""
        first = next((job for job in self._waiting if job.urgent), None)
        if first is None and self._waiting and len(self._running) < 4:
            first = self._waiting[0]
        if first is None:
            return []
        jobs = [job for job in self._waiting if job.key == first.key][:MOST_TOGETHER]
        for job in jobs:
            self._waiting.remove(job)
        return [job for job in jobs if job.answer.set_running_or_notify_cancel()]  # who has left is not answered

    def _begin(self, jobs: list[Job]) -> None:
        self._advance((jobs, jobs[0].batch([job.request for job in jobs])), to_the_end=jobs[0].urgent)

    def _advance(
        self, running: tuple[list[Job], Generator[None, None, Sequence[Any]]], to_the_end: bool = False
    ) -> None:
        jobs, work = running
        try:
            next(work)
            while to_the_end:
                next(work)
        except StopIteration as done:
            for job, answer in zip(jobs, done.value, strict=True):
                job.answer.set_result((answer, len(jobs)))
        except Exception as error:
            for job in jobs:
                job.answer.set_exception(error)
        else:
            if time.monotonic() > max(job.until for job in jobs):
                for job in jobs:
                    job.answer.set_exception(BusyError(f"this took longer than {PATIENCE:.0f} s; ask for less"))
                work.close()
            else:
                self._running.append(running)
