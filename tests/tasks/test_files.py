"""One's own code by name, and tasks out of Gymnasium's environments."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from genplan import tasks
from genplan.errors import UserError
from genplan.metrics import resolve
from genplan.rollout import EnvBatch, play
from genplan.tasks.experts import ExpertPlanner
from genplan.tasks.files import error_location, import_object, task_from_gym, user_code_errors


def test_objects_by_name(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("number = 3\n\ndef broken():\n    return 1 / 0\n")
    assert import_object(f"{mine}:number") == 3
    for name, message in (
        (f"{mine}:Other", "has no 'Other'; it has: number, broken"),
        (f"{tmp_path}/none.py:X", "there is no file"),
    ):
        with pytest.raises(UserError, match=message):
            import_object(name)
    with pytest.raises(UserError, match=r"expected a genplan\.types\.Task"):
        tasks.get(f"{mine}:number")
    with pytest.raises(UserError, match=r"failed: ZeroDivisionError: division by zero .*mine\.py, line 4"):  # noqa: SIM117
        with user_code_errors(f"{mine}:broken"):
            import_object(f"{mine}:broken")()
    with pytest.raises(ZeroDivisionError), user_code_errors("expert"):
        import_object(f"{mine}:broken")()
    mine.write_text("def :")
    with pytest.raises(UserError, match=r"cannot be run: SyntaxError.*line 1"):
        import_object(f"{mine}:number")
    mine.write_text("import nowhere_at_all")
    with pytest.raises(UserError, match=r"ModuleNotFoundError.*mine\.py, line 1"):
        import_object(f"{mine}:number")
    with pytest.raises(ValueError, match="elsewhere") as caught:
        raise ValueError("elsewhere")
    assert "test_files.py" in error_location(caught.value)


def test_unknown_names():
    with pytest.raises(UserError, match="did you mean MazeS4G"):
        tasks.get("MazeS4G")
    with pytest.raises(UserError, match=r"known are MazeS4G1.*or file\.py:task"):
        tasks.get("?")


def constant(action):
    return lambda: ExpertPlanner(lambda env: lambda last: action)


@pytest.mark.parametrize(
    ("gym_id", "field", "kind", "states", "headline", "action"),
    [
        ("FrozenLake-v1", "state", "category", 16, "success", 2),
        ("Taxi-v3", "state", "category", 500, "success", 0),
        ("CartPole-v1", "observation", "vector", None, "return", 1),
        ("Pendulum-v1", "observation", "vector", None, "return", np.array([0.5])),
    ],
)
def test_registered_environments(gym_id, field, kind, states, headline, action):
    if gym_id not in gymnasium.registry:
        gym_id = next(name for name in gymnasium.registry if name.startswith("Taxi"))
    task = task_from_gym(gym_id, expert=constant(action))
    assert task.name == gym_id
    assert [(name, one.kind) for name, one in task.spec.fields.items()] == [(field, kind)]
    assert (task.spec.states.size if task.spec.states else None) == states
    assert resolve(task)[0].name == headline
    results = play(task.expert(), task, range(3))
    for result in results:
        assert 1 <= result.num_steps <= task.max_steps
        assert len(result.observations[field]) == result.num_steps + 1
        assert result.terminated != result.truncated
        assert result.actions.dtype == task.spec.actions.dtype
        assert result.actions.shape == (result.num_steps, *task.spec.actions.shape)
    assert EnvBatch(task, [0]).observations()[field].dtype == (torch.int64 if states else torch.float32)


class Mixed(gymnasium.Env):
    observation_space = spaces.Dict({
        "room": spaces.Discrete(3), "counts": spaces.MultiDiscrete([2, 4]), "speed": spaces.Box(-1, 1, (2,)),
    })  # fmt: skip
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"room": 0, "counts": np.array([0, 0]), "speed": np.zeros(2)}, {}

    def step(self, action):
        return {"room": 1, "counts": np.array([1, 3]), "speed": np.ones(2)}, 1.0, True, False, {}


class Picture(Mixed):
    observation_space = spaces.Box(0, 1, (4, 4))


def test_spaces_of_several_parts_and_spaces_that_do_not_fit():
    for name, cls in (("genplan-test/Mixed-v0", Mixed), ("genplan-test/Picture-v0", Picture)):
        if name not in gymnasium.registry:
            gymnasium.register(name, cls)
    with pytest.raises(UserError, match="has no limit of steps"):
        task_from_gym("genplan-test/Mixed-v0")
    task = task_from_gym("genplan-test/Mixed-v0", max_steps=5, name="mixed", disable_env_checker=True)
    assert {name: one.kind for name, one in task.spec.fields.items()} == {
        "room": "category", "counts": "category", "speed": "vector",
    }  # fmt: skip
    assert task.spec.states.observed == "room"
    batch = EnvBatch(task, [0])
    assert batch.observations()["speed"].dtype == torch.float32
    with pytest.raises(UserError, match=r"it observes Box.*write a Task"):
        task_from_gym("genplan-test/Picture-v0", max_steps=5)
    with pytest.raises(UserError, match="expected the id of a Gymnasium environment"):
        task_from_gym("Nowhere-v9")
    won = task_from_gym("CartPole-v1", success=lambda reward, terminated, info: True, max_steps=3)
    assert resolve(won)[0].name == "success"
    assert won.max_steps == 3
