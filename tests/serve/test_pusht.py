"""PushT: its states, plans and episodes on the page, and what is refused."""

import numpy as np
import pytest

from genplan import tasks
from genplan.envs import ROBOTS
from genplan.serve import planning
from genplan.serve import pusht as served_pusht
from genplan.types import Plan
from tests.serve.test_planning import finish

START = [100.0, 400.0, 256.0, 300.0, 1.5]
MAZE = {"rows": ["############", "##>>..DGAR##", "##..KY######", "############"], "mission": "go to the red ball"}


def ask(client, path, code=200, **body):
    response = client.post(f"/api/pusht/{path}", json=body)
    assert response.status_code == code, response.text
    return response.json()


def test_a_seed_has_the_first_state_of_its_episode(client, pusht):
    found = ask(client, "start", seed=2000)
    assert found["max_steps"] == 300
    agent_x, agent_y, x, y, angle = found["start"]
    observed = tasks.get("PushT").make_env().reset(seed=2000)[0]
    assert np.abs(observed[18:] - [agent_x, agent_y]).max() < 0.01
    episode = ask(client, "episode", planner=pusht, start=found["start"], max_steps=1)
    assert episode["start"] == pytest.approx([agent_x, agent_y, x, y, angle], abs=0.01)


def test_plans_are_drawn_with_their_candidates_energies_and_frames(client, pusht):
    body = {"planner": pusht, "start": START, "seed": 5}
    found = ask(client, "plan", **body, samples=4, options={"num_candidates": 3, "iterations": 2})
    assert len(found["candidates"]) == 12
    assert all(len(one["actions"]) == 8 for one in found["candidates"])
    energies = [one["energy"] for one in found["candidates"]]
    assert found["selected"] < 3  # the first plan that was drawn is what an episode begins with
    assert energies[found["selected"]] == min(energies[:3])
    assert len(found["frames"]) == 3
    assert found["frames"][-1] == found["candidates"][found["selected"]]["actions"]
    again = ask(client, "plan", **body, samples=4, options={"num_candidates": 3, "iterations": 2})
    assert again["candidates"] == found["candidates"]
    seeds = [ask(client, "plan", **{**body, "seed": seed})["candidates"][0]["actions"] for seed in range(12)]
    assert len({str(actions) for actions in seeds}) > 1


@pytest.mark.parametrize("method", ["VQ-BeT", "Regression"])
def test_methods_without_denoising_steps_have_chunks_alone(client, pusht, method):
    found = ask(client, "plan", planner=f"pusht/{method}", start=START, samples=3)
    assert [one["energy"] for one in found["candidates"]] == [None] * 3
    assert (found["selected"], found["frames"]) == (0, [])


@pytest.mark.parametrize("method", ["GenPlan-M", "VQ-BeT"])
def test_an_episode_executes_the_plan_that_was_shown(client, pusht, method):
    body = {"planner": f"pusht/{method}", "start": START, "seed": 3}
    found = ask(client, "episode", **body, max_steps=20, action_steps=3)
    assert found["start"] == pytest.approx(START, abs=0.01)
    assert len(found["steps"]) == 20
    assert len(found["plans"]) == 7
    assert [(step["plan"], step["plan_step"]) for step in found["steps"][:4]] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert all(0 <= step["coverage"] <= 1 for step in found["steps"])
    shown = ask(client, "plan", **body, samples=2)
    assert found["plans"][0] == shown["candidates"][shown["selected"]]
    assert ask(client, "episode", **body, max_steps=20, action_steps=3)["steps"] == found["steps"]


def test_coverage_and_success_are_those_of_the_state():
    place = (400.0, 100.0, 256.0, 256.0, np.pi / 4)

    class Resting:
        privileged, action_steps = False, 2

        def reset(self, *arguments): ...

        def plan(self, observations, memory, rng, ids, *arguments):
            return Plan(observations["observation"][:, None, 18:].repeat(1, 2, 1)), None

        def observe(self, *arguments): ...

    requests = [
        planning.ResolvedRequest(Resting(), served_pusht.pusht_task(start, 3), 0) for start in (place, tuple(START))
    ]
    solved, begun = finish(served_pusht.play_episodes(requests))
    assert [step.coverage for step in solved.steps] == pytest.approx([1.0] * 3, abs=0.01)
    assert solved.success
    assert not begun.success
    assert begun.steps[-1].state == pytest.approx(tuple(START), abs=0.01)


@pytest.mark.parametrize(
    ("path", "changed", "words"),
    [
        ("plan", {"start": [100, 400, 256, 513, 0]}, "start.3: Input should be less than or equal to 512, found 513"),
        ("plan", {"start": [100, 400, 256, -1, 0]}, "greater than or equal to 0, found -1"),
        ("plan", {"start": [100, 400, 256, 300, 1e9]}, "start.4"),
        ("plan", {"start": [100, 400, 256, 300]}, "start.4: Field required"),
        ("plan", {"start": ["here", 400, 256, 300, 0]}, "valid number, unable to parse string as a number, found here"),
        ("plan", {"samples": 9}, "samples: Input should be less than or equal to 8, found 9"),
        ("plan", {"options": {"order": "chain"}}, "the order 'chain' needs"),
        ("plan", {"planner": "pretrained:MazeS4G1"}, "is a planner of mazes, expected one of PushT"),
        ("episode", {"max_steps": 301}, "max_steps: Input should be less than or equal to 300, found 301"),
        ("episode", {"action_steps": 0}, "action_steps"),
        ("episode", {"slip": 0.5}, "slip"),
    ],
)
def test_bad_requests_are_explained_in_one_line(client, pusht, path, changed, words):
    detail = ask(client, path, 422, **{"planner": pusht, "start": START, **changed})["detail"]
    assert words in detail
    assert "\n" not in detail


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(client, pusht, number):
    body = f'{{"planner": "{pusht}", "start": [1, 2, 3, 4, {number}]}}'
    response = client.post("/api/pusht/plan", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert "start.4" in response.json()["detail"]


def test_planners_are_tried_where_they_belong(client, pusht):
    plays = {planner["name"]: planner["plays"] for planner in client.get("/api/catalogue").json()["planners"]}
    assert (plays[pusht], plays["pretrained:MazeS4G1"]) == ("PushT", "maze")
    refused = client.post("/api/plan", json={"planner": pusht, "maze": MAZE})
    assert refused.status_code == 422
    assert "is a planner of PushT, expected one of mazes" in refused.json()["detail"]
    assert "there is no planner" in ask(client, "plan", 404, planner="expert", start=START)["detail"]


def test_without_the_extra_one_is_advised_and_mazes_are_played(client, pusht, monkeypatch):
    monkeypatch.setitem(ROBOTS, "PushT", type(ROBOTS["PushT"])("PushT", "genplan.nowhere:Env", 300, "gym-pusht", ""))
    for path, body in (("start", {}), ("plan", {"planner": pusht, "start": START})):
        detail = ask(client, path, 422, **body)["detail"]
        assert detail.startswith("the task PushT needs gym-pusht")
        assert detail.endswith("pip install 'genplan[robots]'")
    assert client.post("/api/plan", json={"planner": "pretrained:MazeS4G1", "maze": MAZE}).status_code == 200
