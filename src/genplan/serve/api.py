"""The routes of the API, as plain functions of a request and the services of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from genplan.envs import ENVS, make_env
from genplan.envs.layouts import layout_text
from genplan.errors import LayoutError, UserError
from genplan.planners.base import LearnedPlanner
from genplan.serve import planning, pusht, schema
from genplan.serve.batching import Batcher
from genplan.serve.catalogue import Catalogue, MissingError, Played
from genplan.tasks.grid import bot_expert
from genplan.types import Task

EXPERT_NAMES = ("expert", "bot")
PROBLEMS = {
    400: "the request cannot be read",
    404: "no such planner, task or run",
    413: "the request is too large",
    422: "the request is invalid; the detail says why",
    429: "too many or too long requests; the detail says what to ask for",
}


@dataclass(frozen=True)
class Services:
    catalogue: Catalogue
    batcher: Batcher = field(default_factory=Batcher)
    gif_slot: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))  # one at a time: they take memory


def get_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Injected = Annotated[Services, Depends(get_services)]
responses: dict[int | str, dict[str, Any]] = {
    code: {"model": schema.Problem, "description": text} for code, text in PROBLEMS.items()
}
router = APIRouter(prefix="/api", responses=responses)


@router.get("/catalogue")
def catalogue(services: Injected) -> schema.CatalogueResponse:
    """Planners, tasks, the vocabulary of missions, and runs in the served folder."""
    return services.catalogue.describe()


@router.post("/maze")
def maze(body: schema.MazeRequest) -> schema.MazeResponse:
    """A task's maze for a seed."""
    if body.task not in ENVS:
        raise MissingError(f"there is no task '{body.task}'; known are {', '.join(ENVS)}")
    observation, _ = make_env(body.task).reset(seed=body.seed)
    rows = layout_text(observation["image"], observation["pose"]).split("\n")
    maze = schema.Maze(rows=rows, mission=observation["mission"])
    return schema.MazeResponse(maze=maze, max_steps=ENVS[body.task].max_steps)


@router.post("/check")
def check(body: schema.Maze) -> schema.CheckResponse:
    """Whether a maze can be built and its mission be done; if not, why."""
    try:
        planning.maze_task(body)
    except LayoutError as error:
        return schema.CheckResponse(possible=False, reason=str(error))
    return schema.CheckResponse(possible=True)


@router.post("/plan")
async def plan(body: schema.PlanRequest, services: Injected) -> schema.PlanResponse:
    """A plan with every step of its denoising, and all its candidates."""
    if body.planner in EXPERT_NAMES:
        raise UserError("the expert does not denoise; run an episode with it instead")
    request, key = resolve(services, body)
    future = services.batcher.submit(("plan", key), planning.make_plans, request, priority=True)
    response: schema.PlanResponse = await asyncio.wrap_future(future)
    return response


@router.post("/episode")
async def episode(body: schema.EpisodeRequest, services: Injected) -> schema.EpisodeResponse:
    """A whole episode with replanning: executed and planned states, and how many steps the expert needs."""
    request, key = resolve(services, body, body.max_steps)
    limit = body.action_steps or request.action_steps or schema.MAX_ACTION_STEPS
    request = replace(request, action_steps=min(limit, schema.MAX_ACTION_STEPS), slip=body.slip)
    key = ("episode", key, request.action_steps, body.slip, body.max_steps)
    future = services.batcher.submit(key, planning.play_episodes, request, priority=False)
    response: schema.EpisodeResponse = await asyncio.wrap_future(future)
    return response


@router.post("/gif", response_class=Response, responses={200: {"content": {"image/gif": {}}}})
async def gif(body: schema.EpisodeRequest, services: Injected) -> Response:
    """The same episode as an animated GIF."""
    response = await episode(body, services)
    async with services.gif_slot:
        data = await asyncio.to_thread(planning.episode_gif, planning.maze_task(body.maze), response)
    return Response(data, media_type="image/gif")


@router.post("/landscape")
def landscape(body: schema.LandscapeRequest, services: Injected) -> schema.LandscapeResponse:
    """The energy of moving to each cell from the agent's position, given a sub-goal."""
    task = planning.maze_task(body.maze)
    planner = services.catalogue.load(body.planner).for_spec(task.spec)
    return planning.landscape(planner, task, body.goal)


@router.post("/pusht/start")
def pusht_start(body: schema.StartRequest) -> schema.StartResponse:
    """PushT's first state for a seed."""
    return pusht.first_state(body.seed)


@router.post("/pusht/plan")
async def pusht_plan(body: schema.PushTPlanRequest, services: Injected) -> schema.PushTPlanResponse:
    """Chunks of actions that the planner considers in a state of PushT, and the one that it would execute."""
    request, key = resolve_pusht(services, body)
    key = ("PushT plan", key, body.samples)
    future = services.batcher.submit(key, partial(pusht.make_plans, samples=body.samples), request, priority=True)
    response: schema.PushTPlanResponse = await asyncio.wrap_future(future)
    return response


@router.post("/pusht/episode")
async def pusht_episode(body: schema.PushTEpisodeRequest, services: Injected) -> schema.PushTEpisodeResponse:
    """A whole episode of PushT from a state, with replanning."""
    request, key = resolve_pusht(services, body, body.max_steps)
    request = replace(request, action_steps=body.action_steps or request.action_steps)
    key = ("PushT episode", key, request.action_steps, body.max_steps)
    future = services.batcher.submit(key, pusht.play_episodes, request, priority=False)
    response: schema.PushTEpisodeResponse = await asyncio.wrap_future(future)
    return response


@router.get("/run")
def run(
    services: Injected,
    name: Annotated[str, Query(max_length=200, description="a run of the catalogue")],
    after: Annotated[int, Query(ge=-1, le=10**9, description="only what was logged after this step")] = -1,
) -> schema.RunResponse:
    """The progress of a training, and its curves."""
    return services.catalogue.progress(name, after)


def resolve(
    services: Services, body: schema.PlanRequest, max_steps: int = 400
) -> tuple[planning.ResolvedRequest, Hashable]:
    """The planner and the maze of a request, and the key of requests that it can share a batch with."""
    task = planning.maze_task(body.maze, max_steps)
    if body.planner in EXPERT_NAMES:
        return planning.ResolvedRequest(bot_expert(), task, body.seed), ("expert", body.seed, id(body))
    planner, key = learned(services, body, task, "maze")
    return planning.ResolvedRequest(planner, task, body.seed, planner.action_steps), key


def resolve_pusht(
    services: Services, body: schema.PushTRequest, max_steps: int = 300
) -> tuple[planning.ResolvedRequest, Hashable]:
    """The same of a request for PushT."""
    task = pusht.pusht_task(body.start, max_steps)
    planner, key = learned(services, body, task, "PushT")
    return planning.ResolvedRequest(planner, task, body.seed, planner.action_steps), key


def learned(
    services: Services, body: schema.PlanRequest | schema.PushTRequest, task: Task, played: Played
) -> tuple[LearnedPlanner, Hashable]:
    """The learned planner of a request, with its options, and the key of requests that it can serve at once."""
    loaded = services.catalogue.load(body.planner, played)
    planner = loaded.with_options(**body.options.model_dump(exclude_none=True)).for_spec(task.spec)
    return planner, (body.planner, id(loaded), body.options.model_dump_json(), task.spec.geometry)
