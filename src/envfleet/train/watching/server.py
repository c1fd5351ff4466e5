"""The live page's server: a small ASGI application on this machine's own address, for whoever has the token."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from envfleet._optional import needs
from envfleet.train.folders.locking import is_in_use
from envfleet.train.sharing import pages
from envfleet.train.watching.guard import Guard
from envfleet.train.watching.runs import Runs, WatchedRun
from envfleet.train.watching.signals import ORDERS, LiveFolder

with needs("watch"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Route

_NOT_FOUND = Response(status_code=404)
_ASSETS = {
    "uPlot.iife.min.js": "text/javascript",
    "charts.js": "text/javascript",
    "watch.js": "text/javascript",
    "uPlot.min.css": "text/css",
    "look.css": "text/css",
    "watch.css": "text/css",
}
_SAVED_SECONDS = 20.0
"""How long a film waits for the training to save what is to be filmed."""


@final
class _Films:
    """Films that were asked for: `envfleet showcase` in a process of its own, one at a time for a run."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def said(self, run: WatchedRun) -> str:
        """How it stands with a run's film."""
        return self._said.get(run.key, "")

    def begin(self, run: WatchedRun) -> None:
        """Film a run, unless that is being done."""
        task = self._tasks.get(run.key)
        if task is None or task.done():
            self._said[run.key] = "filming"
            self._tasks[run.key] = asyncio.create_task(self._film(run))

    async def _film(self, run: WatchedRun) -> None:
        if is_in_use(run.path):
            await _saved(run)
        LiveFolder(run.path).ask()
        target = run.path / ".live" / "film.mp4"
        command = ("-m", "envfleet", "showcase", str(run.path), "--episodes", "1", "--output", str(target))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        _, errors = await process.communicate()
        lines = errors.decode(errors="replace").strip().splitlines()
        why = lines[-1][:300] if lines else "it ended with an error"
        self._said[run.key] = "" if process.returncode == 0 else f"No film: {why}"


async def _saved(run: WatchedRun) -> None:
    """Have the training save its weights, and wait for that."""
    actor = run.path / "actor.safetensors"
    before = actor.stat().st_mtime_ns if actor.exists() else 0
    LiveFolder(run.path).order("save")
    for _ in range(int(_SAVED_SECONDS / 0.1)):
        await asyncio.sleep(0.1)
        if actor.exists() and actor.stat().st_mtime_ns != before:
            return


@final
class _Pages:
    """What is answered at which address."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._runs, self._films = Runs(roots), _Films()

    def page(self, _: Request) -> Response:
        return Response(pages.asset("watch.html"), media_type="text/html")

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        return Response(pages.asset(name), media_type=_ASSETS[name]) if name in _ASSETS else _NOT_FOUND

    def listed(self, _: Request) -> Response:
        return JSONResponse([{**run.summary(), "filming": self._films.said(run)} for run in self._runs.all()])

    def metrics(self, request: Request) -> Response:
        run = self._asked(request)
        if run is None:
            return _NOT_FOUND
        version = f'"{run.version()}"'
        if request.headers.get("if-none-match") == version:
            return Response(status_code=304, headers={"etag": version})
        return JSONResponse(run.metrics(), headers={"etag": version})

    def live(self, request: Request) -> Response:
        run = self._asked(request)
        return _NOT_FOUND if run is None else JSONResponse(run.live())

    def frame(self, request: Request) -> Response:
        run = self._asked(request)
        path = None if run is None else run.file(".live", f"frame-{request.path_params['env']}.jpg")
        return _NOT_FOUND if path is None else Response(path.read_bytes(), media_type="image/jpeg")

    def film(self, request: Request) -> Response:
        run = self._asked(request)
        path = None if run is None else run.file(".live", "film.mp4") or run.file("showcase.mp4")
        return _NOT_FOUND if path is None else FileResponse(path, media_type="video/mp4")

    async def order(self, request: Request) -> Response:
        run, name = self._asked(request), request.path_params["order"]
        if run is None or name not in (*ORDERS, "film"):
            return _NOT_FOUND
        if name == "film":
            self._films.begin(run)
        elif not is_in_use(run.path):
            return JSONResponse({"error": "Nobody trains there now."}, status_code=409)
        else:
            LiveFolder(run.path).order(name)
        return JSONResponse({"done": name})

    def _asked(self, request: Request) -> WatchedRun | None:
        return self._runs.find(request.path_params["key"])


def make_app(roots: Sequence[Path]) -> Starlette:
    """The application without its guard."""
    answers, here = _Pages(roots), "/api/runs/{key}"
    return Starlette(
        routes=[
            Route("/", answers.page),
            Route("/favicon.ico", lambda _: Response(status_code=204)),  # which browsers ask for unasked
            Route("/assets/{name}", answers.asset),
            Route("/api/runs", answers.listed),
            Route(here + "/metrics", answers.metrics),
            Route(here + "/live", answers.live),
            Route(here + "/frames/{env:int}", answers.frame),
            Route(here + "/film", answers.film),
            Route(here + "/{order}", answers.order, methods=["POST"]),
        ]
    )


def serve(roots: Sequence[Path], port: int, say: Callable[[str], None], *, until_stdin_closes: bool = False) -> None:
    """Serve the page until Ctrl-C, or for a child process until its parent has gone.

    Args:
        roots: folders of runs, or runs.
        port: where to listen, on this machine only; 0 for any that is free.
        say: is told the address.
        until_stdin_closes: end when standard input does.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # whoever opens the address at once waits until it is served, and is not refused
    except OSError as error:
        listener.close()
        raise OSError(f"Port {port} cannot be listened on ({error.strerror}): choose another one.") from error
    bound, token = listener.getsockname()[1], secrets.token_urlsafe(32)
    app: Any = Guard(make_app(roots), token, bound)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", server_header=False)
    server = uvicorn.Server(config)
    if until_stdin_closes:
        threading.Thread(target=_end_with_stdin, args=(server,), daemon=True).start()
    with listener:
        say(f"http://127.0.0.1:{bound}/?token={token}")
        server.run(sockets=[listener])


def _end_with_stdin(server: Any) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True
