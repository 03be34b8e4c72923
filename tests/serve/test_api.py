"""The API: its responses, and that no request breaks the server."""

import concurrent.futures
import io
from importlib import resources

import httpx
import pytest
from PIL import Image

PLANNER = "pretrained:MazeS4G1"


def test_the_catalogue_lists_planners_tasks_vocabulary_and_runs(client):
    found = client.get("/api/catalogue").json()
    names = [planner["name"] for planner in found["planners"]]
    assert PLANNER in names
    assert "runs/mine" in names
    assert not any("broken" in name or "link" in name or name in ("empty", "foreign") for name in names)
    assert {task["name"] for task in found["tasks"]} >= {"MazeS4G1", "KeyCorridorS3R3"}
    assert "ball" in found["vocabulary"]
    assert found["runs"][0] == "broken"
    assert found["runs"][-1] == "runs/mine"
    long = next(planner for planner in found["planners"] if "goes-on" in planner["name"])
    assert long["defaults"]["iterations"] == 64  # more than the page can ask for
    assert long["has_trace"]
    assert client.get("/api/run", params={"name": "empty"}).status_code == 422


def test_a_plan_comes_with_its_denoising(client, maze):
    body = {"planner": PLANNER, "maze": maze, "options": {"iterations": 4, "num_candidates": 3}, "seed": 5}
    found = client.post("/api/plan", json=body).json()
    assert len(found["candidates"]) == 3
    energies = [candidate["energy"] for candidate in found["candidates"]]
    assert energies[found["selected"]] == min(energies)
    frames = found["candidates"][found["selected"]]["frames"]
    assert len(frames) == 5
    assert all(action is None for action in frames[0]["actions"])
    assert all(action is not None for action in frames[-1]["actions"])
    masked = [frame["actions"].count(None) for frame in frames]
    assert masked == sorted(masked, reverse=True)
    assert frames[-1]["energy"] <= frames[0]["energy"]
    for candidate in found["candidates"]:
        executed, states = candidate["executed"], candidate["frames"][-1]["states"]
        assert executed[0] == states[0]
        assert len(executed) == min(len(states), 1 + (candidate["arrival"] or len(states)))
    assert (
        client.post("/api/plan", json=body).json()["candidates"] == found["candidates"]
    )  # random draws depend on the seed


def test_an_episode_has_executed_and_planned_states(client, maze):
    body = {"planner": PLANNER, "maze": maze, "action_steps": 3, "max_steps": 100}
    found = client.post("/api/episode", json=body).json()
    assert found["success"]
    assert len(found["steps"]) >= found["expert_steps"] - 5
    assert sum(step["expected"] == step["pose"] for step in found["steps"]) > len(found["steps"]) / 2
    assert all(step["plan"] < len(found["plans"]) for step in found["steps"])
    assert client.post("/api/episode", json=body).json()["steps"] == found["steps"]
    first, last = found["plans"][0], found["plans"][-1]
    assert first["executed"][1:4] == [step["pose"] for step in found["steps"][:3]]
    assert last["arrival"] == sum(step["plan"] == len(found["plans"]) - 1 for step in found["steps"])
    slippery = client.post("/api/episode", json={**body, "slip": 0.5}).json()
    assert slippery["steps"] != found["steps"]
    gif = client.post("/api/gif", json=body)
    assert Image.open(io.BytesIO(gif.content)).n_frames == len(found["steps"]) + 1


@pytest.mark.parametrize("name", ["expert", "bot"])
def test_the_expert_plays_too_and_doors_open(client, name):
    rows = ["############", "##>>..DGAR##", "##..KY######", "############"]
    body = {"planner": name, "maze": {"rows": rows, "mission": "go to the red ball"}}
    found = client.post("/api/episode", json=body).json()
    assert found["success"]
    assert [change["code"] for step in found["steps"] for change in step["changes"]] == ["OG"]


def test_a_landscape_is_low_where_the_plan_goes(client, maze):
    body = {"planner": PLANNER, "maze": maze}
    energy = client.post("/api/landscape", json=body).json()["energy"]
    assert len(energy) == len(maze["rows"])
    plan = client.post("/api/plan", json=body).json()
    x, y, _ = plan["candidates"][0]["frames"][-1]["states"][1]
    flat = [value for row in energy for value in row if value is not None]
    assert energy[y][x] < sorted(flat)[len(flat) // 2]
    assert energy[0][0] is None
    given = client.post("/api/landscape", json={**body, "goal": [1, 1]}).json()["energy"]
    assert given != energy


def test_a_training_has_curves(client):
    found = client.get("/api/run", params={"name": "runs/mine"}).json()
    assert found["step"] == 150
    assert [step for step, _ in found["curves"]["loss/actions"]] == [50, 100, 150]
    later = client.get("/api/run", params={"name": "runs/mine", "after": 100}).json()
    assert [step for step, _ in later["curves"]["loss/actions"]] == [150]


def test_impossible_mazes_are_explained(client, maze):
    assert client.post("/api/check", json=maze).json() == {"possible": True, "reason": ""}
    nothing = client.post("/api/check", json={**maze, "mission": "go to the grey box"}).json()
    assert not nothing["possible"]
    assert "0 of them" in nothing["reason"]
    locked = ["##########", "##>>LYAR##", "##..######", "##########"]
    found = client.post("/api/check", json={"rows": locked, "mission": "go to the red ball"}).json()
    assert "out of reach" in found["reason"]


HUGE = {"rows": ["#" * 50] * 25, "mission": "go to the red ball"}


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        ("/api/plan", {"planner": "../../etc/passwd", "maze": HUGE}, 422, "agents"),
        ("/api/landscape", {"planner": "pretrained:../MazeS4G1"}, 422, "maze"),
        ("/api/maze", {"task": "../../x"}, 404, "there is no task"),
        ("/api/maze", {"task": "MazeS4G1", "seed": -1}, 422, "seed"),
        ("/api/check", {"rows": ["##"] * 200, "mission": "go"}, 422, "rows"),
        ("/api/check", {"rows": ["#" * 400] * 5, "mission": "go"}, 422, "rows"),
        ("/api/check", {"rows": ["######\n######"] * 20, "mission": "go"}, 422, "rows"),
        ("/api/plan", {"planner": "x", "maze": HUGE, "options": {"num_candidates": 1000}}, 422, "num_candidates"),
        ("/api/plan", {"planner": "x", "maze": HUGE, "surprise": 1}, 422, "surprise"),
    ],
)
def test_bad_requests_are_explained(client, path, body, code, words):
    response = client.post(path, json=body)
    assert response.status_code == code
    assert words in response.json()["detail"]


def test_only_named_planners_are_loaded_and_nothing_in_a_run_folder_is_executed(client, maze, served):
    for name in ("../outside/secret", "link", "broken", "foreign", "/etc", "runs/../runs/mine", "pretrained:nobody"):
        response = client.post("/api/plan", json={"planner": name, "maze": maze})
        assert response.status_code in (404, 422), name
    assert not (served / "executed").exists()
    expert = client.post("/api/plan", json={"planner": "expert", "maze": maze})
    assert expert.status_code == 422
    unknown = client.post("/api/plan", json={"planner": PLANNER, "maze": {**maze, "mission": "go to the red dragon"}})
    assert unknown.status_code == 422


def test_hostile_bodies_and_hosts_are_refused_and_it_keeps_serving(client, maze):
    assert client.post("/api/check", content=b"{" * 100).status_code == 422
    assert client.post("/api/check", content=b"\xff\xfe\x00").status_code in (400, 422)
    assert client.post("/api/check", content=b" " * 100_000).status_code == 413
    assert client.get("/api/catalogue", headers={"Host": "evil.example"}).status_code == 400
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fschema.py", "/static/../../config.py"):
        assert client.get(path).status_code == 404
    assert client.post("/api/check", json=maze).status_code == 200


def test_the_page_loads_nothing_from_other_hosts(client):
    page = client.get("/")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    modules = sorted(path.name for path in (resources.files("genplan") / "serve" / "static").iterdir())
    texts = [client.get(f"/{name}") for name in ["", *modules]]
    assert all(text.status_code == 200 for text in texts)
    assert sum(len(text.content) for text in texts) < 150_000
    assert not any("https://" in text.text for text in texts)


def test_requests_of_several_clients_share_a_batch(address, maze):
    body = {"planner": PLANNER, "maze": maze}

    def ask(seed):
        with httpx.Client(base_url=address, timeout=60) as own:
            return own.post("/api/plan", json={**body, "seed": seed}).json()

    alone = ask(3)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        found = list(pool.map(ask, range(24)))
    assert max(response["batch_size"] for response in found) > 1
    # A plan does not depend on the batch.
    assert found[3]["candidates"][0]["frames"][-1]["actions"] == alone["candidates"][0]["frames"][-1]["actions"]
