"""Jobs: whatever happens to a process, every job has its event, and nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from genplan.errors import UserError
from genplan.jobs import Job, JobEvent, LocalExecutor, file_lock


def square(number, report):
    report(0.5)
    return number * number, os.getpid()


def fail(kind, report):
    if kind == "exit":
        os._exit(3)
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "bug":
        raise TypeError("a mistake")
    raise UserError("7 found, expected 8") if kind == "user" else OSError("no such file")


def unpicklable(report):
    return lambda: None


def nap(seconds, report):
    report(0.25)
    time.sleep(seconds)
    return time.monotonic()


def span(seconds, report):
    start = time.monotonic()
    time.sleep(seconds)
    return start, time.monotonic()


def threads_and_signals(report):
    import torch

    return torch.get_num_threads(), signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def nested(report):
    return [event.result[0] for event in LocalExecutor(2).run([Job(str(n), square, (n,)) for n in range(3)])]


def write_pid(path, report):
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


def final(events):
    return {event.job.key: event for event in events if event.type != "progress"}


def test_results_do_not_depend_on_workers():
    jobs = [Job(f"square {number}", square, (number,)) for number in range(12)]
    expected = {job.key: number * number for number, job in enumerate(jobs)}
    for workers in (1, 2, 3):
        events = list(LocalExecutor(workers).run(jobs))
        assert {key: event.result[0] for key, event in final(events).items()} == expected
        processes = {event.result[1] for event in final(events).values()}
        if workers == 1:
            assert processes == {os.getpid()}
        else:
            assert len(processes) <= workers  # a process takes one job after another
            assert os.getpid() not in processes


def test_progress_comes_before_the_end():
    events = list(LocalExecutor(1, lambda job, fraction: False).run([Job("a", square, (3,)), Job("b", square, (4,))]))
    assert [(event.job.key, event.type, event.fraction) for event in events] == [
        ("a", "progress", 0.5), ("a", "done", 1.0), ("b", "progress", 0.5), ("b", "done", 1.0),
    ]  # fmt: skip


def test_failures_belong_to_their_jobs(capfd):
    kinds = ("user", "exit", "file", "killed", "bug")
    jobs = [job for kind in kinds for job in (Job(kind, fail, (kind,)), Job(f"after {kind}", square, (2,)))]
    events = final(LocalExecutor(2).run([*jobs, Job("unpicklable", unpicklable)]))
    assert len(events) == 11
    assert all(event.type == ("done" if key.startswith("after") else "failed") for key, event in events.items())
    assert events["user"].reason == "7 found, expected 8"
    assert events["file"].reason == "no such file"
    assert events["exit"].reason == "its process ended with code 3"
    assert events["killed"].reason == "its process ended with code -9"
    assert events["bug"].reason.startswith("TypeError: a mistake (")
    assert "pickle" in events["unpicklable"].reason
    assert 'raise TypeError("a mistake")' in capfd.readouterr().err  # the place of a mistake is shown


def test_inline_failures():
    (event,) = LocalExecutor(1).run([Job("a", fail, ("user",))])
    assert event == JobEvent(event.job, "failed", reason="7 found, expected 8")
    with pytest.raises(TypeError, match="a mistake"):
        list(LocalExecutor(1).run([Job("a", fail, ("bug",))]))
    with pytest.raises(UserError, match="workers is 0, expected at least 1"):
        LocalExecutor(0)


def test_a_group_is_never_run_twice_at_a_time():
    jobs = [Job(f"{group}{number}", span, (0.2,), group) for group in ("a", "b") for number in range(3)]
    events = final(LocalExecutor(2).run(jobs))
    for group in ("a", "b"):
        spans = sorted(event.result for event in events.values() if event.job.group == group)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    # Together they do overlap, or groups would be all that is tested.
    a, b = (sorted(event.result for event in events.values() if event.job.group == group) for group in ("a", "b"))
    assert any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)


def test_after_the_deadline_nothing_begins_and_what_may_be_killed_is():
    jobs = [Job("short", nap, (1.0,)), Job("long", nap, (60.0,)), Job("never", nap, (0.0,))]

    def interruptible(job, fraction):
        assert fraction in (0.0, 0.25)
        return job.key == "long" and fraction > 0

    begun = set()
    start = time.monotonic()

    class Clock:
        """The deadline is past as soon as both jobs have begun."""

        def __le__(self, now):
            return len(begun) == 2

    events = []
    for event in LocalExecutor(2, interruptible).run(jobs, deadline=Clock()):
        begun.add(event.job.key)
        events.append(event)
    assert set(final(events)) == {"short"}  # it was finished; the long one was killed without an event
    assert {event.job.key for event in events} == {"short", "long"}
    assert time.monotonic() - start < 50
    assert list(LocalExecutor(2).run(jobs, deadline=time.monotonic() - 1)) == []
    assert list(LocalExecutor(1).run(jobs, deadline=time.monotonic() - 1)) == []


def test_workers_have_one_thread_and_leave_ctrl_c_to_their_parent():
    (event,) = final(LocalExecutor(2).run([Job("a", threads_and_signals)])).values()
    assert event.result == (1, True)


def test_jobs_within_a_worker_run_in_it():
    (event,) = final(LocalExecutor(2).run([Job("a", nested)])).values()
    assert event.result == [0, 1, 4]


def is_running(process):
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_workers_end_with_a_killed_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from genplan.jobs import Job, LocalExecutor\n"
        "from tests.test_jobs import write_pid\n"
        "if __name__ == '__main__':\n"
        f"    jobs = [Job(str(n), write_pid, (f'{tmp_path}/{{n}}.pid',)) for n in range(2)]\n"
        "    list(LocalExecutor(2).run(jobs))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen([sys.executable, str(script)], env=environment)
    paths = [tmp_path / f"{number}.pid" for number in range(2)]
    assert wait_for(lambda: all(path.exists() and path.read_text() for path in paths))
    process.kill()
    process.wait()
    assert wait_for(lambda: not any(is_running(int(path.read_text())) for path in paths), 10)


def test_workers_end_when_nobody_listens_any_more(tmp_path):
    run = LocalExecutor(2).run([Job("a", square, (1,)), Job("b", write_pid, (str(tmp_path / "pid"),))])
    next(run)
    assert wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    run.close()
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_script_without_a_guard_is_told_so(tmp_path):
    """Workers import the script that started them; without a guard each would begin all jobs again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from genplan.jobs import Job, LocalExecutor\n"
        "print([event.reason for event in LocalExecutor(2).run([Job('a', time.sleep, (1,))])])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert "its process ended with code 1 before it could begin" in done.stdout
    assert "around its calls, or workers=1" in done.stdout


def test_a_lock_is_held_by_one(tmp_path):
    command = [
        sys.executable, "-c",
        "import sys, pathlib; from genplan.jobs import file_lock\n"
        "with file_lock(pathlib.Path(sys.argv[1]), 'x is being filled', wait=sys.argv[2] == 'wait'): print('held')",
    ]  # fmt: skip
    path = tmp_path / "folder" / "lock"
    with file_lock(path, "x is being filled"):
        refused = subprocess.run([*command, str(path), "no"], capture_output=True, text=True)
        assert "x is being filled by another process; wait for it, or stop it first" in refused.stderr
        patient = subprocess.Popen([*command, str(path), "wait"], stdout=subprocess.PIPE, text=True)
        time.sleep(1.0)
        assert patient.poll() is None
    assert patient.communicate(timeout=60)[0] == "held\n"
