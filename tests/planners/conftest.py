import pytest

from genplan import tasks
from genplan.data.demos import collect_episode
from genplan.planners.reference import Bot


@pytest.fixture(scope="session")
def room():
    """Thirty demonstrations of the empty room, in memory."""
    task = tasks.get("LocS10N1")
    env, bot = task.make(), Bot()
    return task, [collect_episode(bot, task, env, seed) for seed in range(10_000, 10_030)]
