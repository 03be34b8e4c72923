import pytest

from genplan import tasks
from genplan.collect import collect_episode


@pytest.fixture(scope="session")
def room():
    """Thirty demonstrations of the empty room, in memory."""
    task = tasks.get("LocS10N1")
    env, expert = task.make_env(), task.expert()
    return task, [collect_episode(expert, task, env, seed) for seed in range(10_000, 10_030)]
