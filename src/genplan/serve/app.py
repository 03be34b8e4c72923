"""The server of the page: a small JSON API over the desk, and the page's own files.

It binds to localhost unless told otherwise, knows only shipped planners and runs under the served folder, and bounds
whatever comes in. Errors of the user's making are 4xx with one sentence that says what was found and what to do.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware.trustedhost import TrustedHostMiddleware

from genplan import __version__, tasks
from genplan.errors import LayoutError, UserError
from genplan.planners.reference import Bot
from genplan.serve import planning, schema
from genplan.serve.catalogue import Catalogue, MissingError
from genplan.serve.desk import BusyError, Desk
from genplan.serve.film import film_of
from genplan.tasks.layouts import layout_text

PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": schema.Problem, "description": what}
    for code, what in (
        (400, "the request cannot be read"),
        (404, "no such planner, task or run"),
        (413, "the request is too large"),
        (422, "the request makes no sense; the detail says why"),
        (429, "too much to do; the detail says what to ask for"),
    )
}
POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def make_app(folder: Path, hosts: list[str] | None = None) -> FastAPI:
    catalogue, desk = Catalogue(folder), Desk()
    one_film = asyncio.Semaphore(1)  # at a time: films take memory

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(
        title="genplan",
        version=__version__,
        description="Watch a plan take shape. Mazes are text: two characters per cell, see docs/serve.md.",
        docs_url=None,  # they would load scripts from other hosts; the schema itself is at /openapi.json
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEMS,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts or ["localhost", "127.0.0.1", "[::1]", "testserver"])
    app.middleware("http")(guard)
    for kind, handler in ((UserError, told), (RequestValidationError, unreadable)):
        app.add_exception_handler(kind, handler)

    async def ask(key: Any, batch: Any, wanted: planning.Wanted, urgent: bool) -> Any:
        found: Future[tuple[Any, int]] = desk.ask(key, batch, wanted, urgent)
        answer, _ = await asyncio.wrap_future(found)
        return answer

    def resolve(body: schema.PlanRequest, max_steps: int = 400) -> tuple[planning.Wanted, Any]:
        """The request's planner and maze, and what it can be done together with."""
        task = planning.task_of(body.maze, max_steps)
        if body.planner == "bot":
            return planning.Wanted(Bot(), task, body.seed), ("bot", body.seed, id(body))
        planner, _ = catalogue.load(body.planner)
        chosen = planning.with_options(planner, body.options)
        key = (body.planner, id(planner), body.options.model_dump_json(), task.spec.map_shape)
        return planning.Wanted(chosen.on(task.spec), task, body.seed, chosen.config.execute), key

    @app.get("/api/catalogue")
    def catalogue_() -> schema.Catalogue:
        """Planners, tasks, the words of missions, and trainings in the served folder."""
        return catalogue.describe()

    @app.post("/api/maze")
    def maze(body: schema.MazeRequest) -> schema.MazeAnswer:
        """A task's maze for a seed."""
        if body.task not in tasks.WORLDS:
            raise MissingError(f"there is no task '{body.task}'; known are {', '.join(tasks.WORLDS)}")
        env = tasks.make_world(body.task)
        seen, _ = env.reset(seed=body.seed)
        rows = layout_text(seen["image"], seen["pose"]).split("\n")
        made = schema.Maze(rows=rows, mission=seen["mission"])
        return schema.MazeAnswer(maze=made, max_steps=tasks.WORLDS[body.task].max_steps)

    @app.post("/api/check")
    def check(body: schema.Maze) -> schema.CheckAnswer:
        """Whether a maze and its mission are possible; if not, why."""
        try:
            planning.task_of(body)
        except LayoutError as error:
            return schema.CheckAnswer(possible=False, reason=str(error))
        return schema.CheckAnswer(possible=True)

    @app.post("/api/plan")
    async def plan(body: schema.PlanRequest) -> schema.PlanAnswer:
        """A plan with every step of its denoising, and all its candidates."""
        if body.planner == "bot":
            raise UserError("the bot does not denoise; run an episode with it instead")
        wanted, key = resolve(body)
        answer: schema.PlanAnswer = await ask(("plan", key), planning.plans, wanted, True)
        return answer

    async def played(body: schema.EpisodeRequest) -> schema.EpisodeAnswer:
        wanted, key = resolve(body, body.max_steps)
        execute = min(body.execute or wanted.execute, 50)
        wanted = planning.Wanted(wanted.planner, wanted.task, body.seed, execute, body.slip)
        together = ("episode", key, execute, body.slip, body.max_steps)
        answer: schema.EpisodeAnswer = await ask(together, planning.episodes, wanted, False)
        return answer

    @app.post("/api/episode")
    async def episode(body: schema.EpisodeRequest) -> schema.EpisodeAnswer:
        """A whole episode with replanning: what was done, what was expected, and how many steps the bot needs."""
        return await played(body)

    @app.post("/api/film", response_class=Response, responses={200: {"content": {"image/gif": {}}}})
    async def film(body: schema.EpisodeRequest) -> Response:
        """The same episode as an animated GIF."""
        answer = await played(body)
        task = planning.task_of(body.maze)
        async with one_film:
            data = await asyncio.to_thread(film_of, task, answer)
        return Response(data, media_type="image/gif")

    @app.post("/api/landscape")
    def landscape(body: schema.LandscapeRequest) -> schema.LandscapeAnswer:
        """The energy of moving to each cell, from where the agent stands, given a sub-goal."""
        task = planning.task_of(body.maze)
        planner, _ = catalogue.load(body.planner)
        return planning.landscape(planner.on(task.spec), task, body.goal)

    @app.get("/api/run")
    def run(
        name: str = Query(max_length=200, description="a run of the catalogue"),
        after: int = Query(-1, ge=-1, le=10**9, description="only what came after this step"),
    ) -> schema.RunAnswer:
        """How far a training is, and its curves."""
        return catalogue.progress(name, after)

    static = Path(str(resources.files("genplan"))) / "serve" / "static"
    app.mount("/", StaticFiles(directory=static, html=True), name="page")
    return app


async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Bodies are small, and nothing is loaded from elsewhere."""
    if request.method in ("POST", "PUT", "PATCH"):
        size = 0
        body = io.BytesIO()
        async for piece in request.stream():
            size += len(piece)
            if size > schema.MAX_BODY:
                detail = f"the request has more than {schema.MAX_BODY} bytes; send a smaller maze"
                return JSONResponse({"detail": detail}, 413)
            body.write(piece)
        request._body = body.getvalue()  # what was read is handed on
    response = await call_next(request)
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.url.path.startswith("/api/"):
        response.headers["Cache-Control"] = "no-store"
    return response


def told(_: Request, error: Exception) -> Response:
    text = str(error)
    code = 429 if isinstance(error, BusyError) else 404 if isinstance(error, MissingError) else 422
    return JSONResponse({"detail": text}, code)


def unreadable(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, 422)


def serve(folder: Path, host: str, port: int, open_browser: bool) -> None:
    """Serve until stopped."""
    import threading
    import webbrowser

    import torch
    import uvicorn

    torch.set_num_threads(1)  # the other core is for talking to visitors
    hosts = None if host in ("127.0.0.1", "localhost", "::1") else ["*"]
    config = uvicorn.Config(make_app(folder, hosts), host=host, port=port, log_level="warning")
    if open_browser:
        threading.Timer(1.0, webbrowser.open, [f"http://{'localhost' if hosts is None else host}:{port}/"]).start()
    uvicorn.Server(config).run()
