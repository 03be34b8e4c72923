"""A dynamic batcher: planning requests that can share a forward pass are answered together.

One thread does all planning. Plans have priority; episodes continue between them, one step at a time, so that neither
waits long for the other. Clients that were batched together tend to send their next requests together, so the thread
waits a short time for all of them; a single client never waits.
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

MAX_BATCH = 32
MAX_QUEUE = 256
MAX_ACTIVE = 4  # batches without priority that run at the same time
TIMEOUT_SECONDS = 60.0
BATCH_WINDOW_SECONDS = 0.05  # how long to wait for the clients of the last batch to send again

Work = Generator[None, None, Sequence[Any]]
BatchFunction = Callable[[Sequence[Any]], Work]
"""Requests -> responses, in the same order; yields wherever other batches may run in between."""


class BusyError(UserError):
    """The queue is full, or a request took too long."""


@dataclass
class PendingRequest:
    key: Hashable  # requests with equal keys can share a batch
    function: BatchFunction
    request: Any
    priority: bool
    deadline: float
    response: Future[Any] = field(default_factory=Future)


class Batcher:
    def __init__(self) -> None:
        self._queue: deque[PendingRequest] = deque()
        self._changed = threading.Condition()
        self._active: list[tuple[list[PendingRequest], Work]] = []
        self._last_batch_size = 1  # of the last batch with priority
        self._open = True
        self._thread = threading.Thread(target=self._loop, name="planning", daemon=True)
        self._thread.start()

    def submit(self, key: Hashable, function: BatchFunction, request: Any, priority: bool) -> Future[Any]:
        pending = PendingRequest(key, function, request, priority, time.monotonic() + TIMEOUT_SECONDS)
        with self._changed:
            if len(self._queue) >= MAX_QUEUE:
                raise BusyError(f"{MAX_QUEUE} requests are waiting already; try again in a moment")
            self._queue.append(pending)
            self._changed.notify()
        return pending.response

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._active or not self._open)
                if self._last_batch_size > 1 and self._queue:
                    self._changed.wait_for(
                        lambda: len(self._queue) >= self._last_batch_size or not self._open, BATCH_WINDOW_SECONDS
                    )
                if not self._open:
                    return
                batch = self._next_batch()
            if batch:
                priority = batch[0].priority
                self._last_batch_size = len(batch) if priority else 1
                self._run(batch, batch[0].function([pending.request for pending in batch]), until_done=priority)
            # Also after a batch with priority: a steady stream of plans must not starve an episode.
            if self._active and (not batch or batch[0].priority):
                self._run(*self._active.pop(0))

    def _next_batch(self) -> list[PendingRequest]:
        """Requests that share the key of the first one with priority, or of the first one if there is capacity."""
        late = BusyError(f"the request waited for {TIMEOUT_SECONDS:.0f} s without being started; try again")
        expired = [pending for pending in self._queue if time.monotonic() > pending.deadline]
        for pending in self._take(expired):
            pending.response.set_exception(late)
        first = next((pending for pending in self._queue if pending.priority), None)
        if first is None and self._queue and len(self._active) < MAX_ACTIVE:
            first = self._queue[0]
        if first is None:
            return []
        return self._take([pending for pending in self._queue if pending.key == first.key][:MAX_BATCH])

    def _take(self, chosen: list[PendingRequest]) -> list[PendingRequest]:
        """Take requests out of the queue; those among them that were not cancelled."""
        for pending in chosen:
            self._queue.remove(pending)
        return [pending for pending in chosen if pending.response.set_running_or_notify_cancel()]

    def _run(self, batch: list[PendingRequest], work: Work, until_done: bool = False) -> None:
        """Run a batch up to its next yield, or to its end."""
        try:
            next(work)
            while until_done:
                next(work)
            if time.monotonic() > max(pending.deadline for pending in batch):
                work.close()
                raise BusyError(f"the request took longer than {TIMEOUT_SECONDS:.0f} s; ask for less")
            self._active.append((batch, work))
        except StopIteration as done:
            for pending, response in zip(batch, done.value, strict=False):
                pending.response.set_result(response)
            for pending in batch[len(done.value) :]:
                pending.response.set_exception(RuntimeError("the batch ended without a response to this request"))
        except Exception as error:
            for pending in batch:
                pending.response.set_exception(error)
