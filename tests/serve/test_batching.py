"""The batcher: requests with equal keys share a batch, plans have priority, and no request waits without limit."""

import threading

import pytest

from genplan.serve import batching
from genplan.serve.batching import Batcher, BusyError


def blocked():
    """A batch that has started, and continues when it is released."""
    started, release = threading.Event(), threading.Event()

    def function(requests):
        started.set()
        release.wait(10)
        return requests
        yield

    return started, release, function


def double(requests):
    """Twice each request, and the size of its batch."""
    return [(request * 2, len(requests)) for request in requests]
    yield


def test_priority_requests_run_between_the_steps_of_long_ones():
    started, release, order = threading.Event(), threading.Event(), []

    def slow(requests):
        started.set()
        release.wait(10)
        yield
        order.append("slow")
        return requests

    def quick(requests):
        order.append("quick")
        return requests
        yield

    batcher = Batcher()
    slow_response = batcher.submit("slow", slow, 1, priority=False)
    started.wait(10)
    quick_response = batcher.submit("quick", quick, 2, priority=True)
    release.set()
    assert slow_response.result(10) == 1
    assert quick_response.result(10) == 2
    assert order == ["quick", "slow"]
    batcher.close()


def test_requests_with_equal_keys_share_a_batch_and_a_failure_is_passed_on():
    started, release, first = blocked()

    def broken(requests):
        raise ValueError("odd")
        yield

    batcher = Batcher()
    batcher.submit("first", first, 0, priority=True)
    started.wait(10)
    responses = [batcher.submit("same", double, number, priority=True) for number in range(5)]
    failed = batcher.submit("bad", broken, 1, priority=True)
    release.set()
    assert [response.result(10) for response in responses] == [(2 * number, 5) for number in range(5)]
    with pytest.raises(ValueError, match="odd"):
        failed.result(10)
    assert batcher.submit("same", double, 3, priority=True).result(10) == (6, 1)
    batcher.close()


def test_a_full_queue_and_a_long_run_are_refused(monkeypatch):
    monkeypatch.setattr(batching, "MAX_QUEUE", 2)
    monkeypatch.setattr(batching, "TIMEOUT_SECONDS", 0.5)
    started, release, first = blocked()

    def endless(requests):
        while True:
            yield

    batcher = Batcher()
    batcher.submit("first", first, 0, priority=True)
    started.wait(10)
    late = batcher.submit("endless", endless, 0, priority=False)
    batcher.submit("other", double, 0, priority=False)
    with pytest.raises(BusyError, match="2 requests are waiting"):
        batcher.submit("one more", double, 0, priority=False)
    release.set()
    with pytest.raises(BusyError, match="took longer"):
        late.result(10)
    batcher.close()


def test_a_busy_batcher_waits_for_the_clients_of_the_last_batch(monkeypatch):
    monkeypatch.setattr(batching, "BATCH_WINDOW_SECONDS", 5.0)
    batcher = Batcher()
    batcher._last_batch_size = 3
    responses = [batcher.submit("same", double, number, priority=True) for number in range(2)]
    assert not responses[0].done()
    responses.append(batcher.submit("same", double, 2, priority=True))
    assert [response.result(10) for response in responses] == [(0, 3), (2, 3), (4, 3)]
    batcher.close()


def test_a_steady_stream_of_plans_does_not_starve_an_episode():
    batcher = Batcher()

    def slow(requests):
        for _ in range(3):
            yield
        return requests

    stop = threading.Event()

    def plan_repeatedly(key):
        while not stop.is_set():
            batcher.submit(key, double, 1, priority=True).result(10)

    clients = [threading.Thread(target=plan_repeatedly, args=(key,)) for key in ("one", "other")]
    for client in clients:
        client.start()
    assert batcher.submit("episode", slow, 7, priority=False).result(10) == 7
    stop.set()
    for client in clients:
        client.join()
    batcher.close()


def test_cancelled_requests_are_dropped_and_expired_ones_are_refused(monkeypatch):
    monkeypatch.setattr(batching, "TIMEOUT_SECONDS", 0.05)
    started, release, first = blocked()
    batcher = Batcher()
    response = batcher.submit("first", first, 0, priority=True)
    started.wait(10)
    cancelled = batcher.submit("cancelled", double, 1, priority=True)
    expired = batcher.submit("expired", double, 1, priority=True)
    assert cancelled.cancel()
    assert not response.cancel()  # it has started: too late
    threading.Event().wait(0.1)
    release.set()
    assert response.result(10) == 0
    with pytest.raises(BusyError, match="try again"):
        expired.result(10)
    assert batcher.submit("next", double, 2, priority=True).result(10) == (4, 1)
    batcher.close()
