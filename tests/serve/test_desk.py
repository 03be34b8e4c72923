"""The desk: equal requests together, urgent ones first, and nobody waits for ever."""

import threading

import pytest

from genplan.serve import desk
from genplan.serve.desk import BusyError, Desk


def held_up():
    """A batch that has begun, and goes on when it is told to."""
    begun, go_on = threading.Event(), threading.Event()

    def first(requests):
        begun.set()
        go_on.wait(10)
        return requests
        yield

    return begun, go_on, first


def whole(requests):
    return [request * 2 for request in requests]
    yield


def test_urgent_requests_come_between_the_steps_of_long_ones():
    began, go_on, order = threading.Event(), threading.Event(), []

    def slowly(requests):
        began.set()
        go_on.wait(10)
        yield
        order.append("slow")
        return requests

    def quickly(requests):
        order.append("quick")
        return requests
        yield

    place = Desk()
    slow = place.ask("slow", slowly, 1, urgent=False)
    began.wait(10)
    quick = place.ask("quick", quickly, 2, urgent=True)
    go_on.set()
    assert slow.result(10) == (1, 1)
    assert quick.result(10) == (2, 1)
    assert order == ["quick", "slow"]
    place.close()


def test_equal_requests_are_done_together_and_a_failure_is_told():
    begun, go_on, first = held_up()

    def broken(requests):
        raise ValueError("odd")
        yield

    place = Desk()
    place.ask("first", first, 0, urgent=True)
    begun.wait(10)
    together = [place.ask("same", whole, number, urgent=True) for number in range(5)]
    bad = place.ask("bad", broken, 1, urgent=True)
    go_on.set()
    assert [answer.result(10) for answer in together] == [(2 * number, 5) for number in range(5)]
    with pytest.raises(ValueError, match="odd"):
        bad.result(10)
    assert place.ask("same", whole, 3, urgent=True).result(10) == (6, 1)
    place.close()


def test_it_does_not_promise_more_than_it_can(monkeypatch):
    monkeypatch.setattr(desk, "MOST_WAITING", 2)
    monkeypatch.setattr(desk, "PATIENCE", 0.5)
    begun, go_on, first = held_up()

    def endless(requests):
        while True:
            yield

    place = Desk()
    place.ask("first", first, 0, urgent=True)
    begun.wait(10)
    late = place.ask("endless", endless, 0, urgent=False)
    place.ask("other", whole, 0, urgent=False)
    with pytest.raises(BusyError, match="2 requests are waiting"):
        place.ask("one more", whole, 0, urgent=False)
    go_on.set()
    with pytest.raises(BusyError, match="took longer"):
        late.result(10)
    place.close()


def test_a_busy_desk_waits_a_moment_for_those_who_came_together(monkeypatch):
    monkeypatch.setattr(desk, "GATHER", 5.0)
    place = Desk()
    place._together = 3
    answers = [place.ask("same", whole, number, urgent=True) for number in range(2)]
    assert not answers[0].done()
    answers.append(place.ask("same", whole, 2, urgent=True))
    assert [answer.result(10) for answer in answers] == [(0, 3), (2, 3), (4, 3)]
    place.close()


def test_plans_that_keep_coming_do_not_keep_an_episode_from_ending():
    place = Desk()

    def slowly(requests):
        for _ in range(3):
            yield
        return requests

    stop = threading.Event()

    def plan_for_ever(key):
        while not stop.is_set():
            place.ask(key, whole, 1, urgent=True).result(10)

    visitors = [threading.Thread(target=plan_for_ever, args=(key,)) for key in ("one", "other")]
    for visitor in visitors:
        visitor.start()
    assert place.ask("episode", slowly, 7, urgent=False).result(10) == (7, 1)
    stop.set()
    for visitor in visitors:
        visitor.join()
    place.close()


def test_who_leaves_harms_nobody_and_who_waits_too_long_is_told(monkeypatch):
    monkeypatch.setattr(desk, "PATIENCE", 0.05)
    begun, go_on, first = held_up()
    place = Desk()
    answer = place.ask("first", first, 0, urgent=True)
    begun.wait(10)
    gone, patient = place.ask("gone", whole, 1, urgent=True), place.ask("patient", whole, 1, urgent=True)
    assert gone.cancel()
    assert not answer.cancel()  # it is being planned: too late
    threading.Event().wait(0.1)
    go_on.set()
    assert answer.result(10) == (0, 1)
    with pytest.raises(BusyError, match="try again"):
        patient.result(10)
    assert place.ask("next", whole, 2, urgent=True).result(10) == (4, 1)
    place.close()
