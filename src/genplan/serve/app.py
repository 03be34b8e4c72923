"""The server: the JSON API of `api.py`, and the page's own files.

It binds to localhost by default, knows only pretrained planners and runs under the served folder, and bounds everything
that comes in. Errors that a user can fix are 4xx with one sentence that says what was found and what to do.
"""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware.trustedhost import TrustedHostMiddleware

from genplan import __version__
from genplan.errors import UserError
from genplan.files import short
from genplan.serve import schema
from genplan.serve.api import Services, router
from genplan.serve.batching import BusyError
from genplan.serve.catalogue import Catalogue, MissingError

LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def make_app(folder: Path, hosts: list[str] | None = None) -> FastAPI:
    services = Services(Catalogue(folder))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        services.batcher.close()

    app = FastAPI(
        title="genplan",
        version=__version__,
        description="Plans and their denoising. Mazes are text: two characters per cell, see docs/serve.md.",
        docs_url=None,  # they would load scripts from other hosts; the schema itself is at /openapi.json
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.services = services
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts or LOCAL_HOSTS)
    app.middleware("http")(limit_body)
    app.add_exception_handler(UserError, user_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.include_router(router)
    static = Path(str(resources.files("genplan"))) / "serve" / "static"
    app.mount("/", StaticFiles(directory=static, html=True), name="page")
    return app


async def limit_body(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Bodies are small, and nothing is loaded from other hosts."""
    if request.method in ("POST", "PUT", "PATCH"):
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > schema.MAX_BODY:
                detail = f"the request has more than {schema.MAX_BODY} bytes; send a smaller maze"
                return JSONResponse({"detail": detail}, 413)
        request._body = body  # the stream can be read once only
    response = await call_next(request)
    response.headers["Content-Security-Policy"] = CONTENT_POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.url.path.startswith("/api/"):
        response.headers["Cache-Control"] = "no-store"
    return response


def user_error(_: Request, error: Exception) -> Response:
    code = 429 if isinstance(error, BusyError) else 404 if isinstance(error, MissingError) else 422
    return JSONResponse({"detail": str(error)}, code)


def validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    found = f", found {short(first['input'], 80)}" if isinstance(first["input"], int | float | str) else ""
    return JSONResponse({"detail": f"{location}: {first['msg']}{found}"}, 422)


def serve(folder: Path, host: str, port: int, open_browser: bool) -> None:
    """Serve until stopped."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise UserError(f"the page cannot be at {host}:{port} ({error}); choose another --port, from 1 to 65535, or "
                        "--host") from error  # fmt: skip
    print(f"the page is at http://{host}:{port}/ (stop with Ctrl-C)", flush=True)
    torch.set_num_threads(1)  # leaves a core to the web server
    hosts = None if host in ("127.0.0.1", "localhost", "::1") else ["*"]
    if open_browser:
        threading.Timer(1.0, webbrowser.open, [f"http://{'localhost' if hosts is None else host}:{port}/"]).start()
    uvicorn.Server(uvicorn.Config(make_app(folder, hosts), log_level="warning")).run([listening])
