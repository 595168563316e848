"""The web application: the API's routes, the pages' routes, static files, and the guard around all of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import cast
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from arrowmq.console.api import ALL  # noqa: F401 - the modules declare their endpoints
from arrowmq.console.api.declare import ENDPOINTS, Endpoint, serve
from arrowmq.console.api.openapi import description
from arrowmq.console.api.session import Login, log_in
from arrowmq.console.console import Console
from arrowmq.console.doors.guard import Guard
from arrowmq.console.doors.sessions import COOKIE
from arrowmq.console.errors import Problem, problem_of
from arrowmq.console.pages.render import View, prepare
from arrowmq.console.pages.routes import PAGES, Page

log = logging.getLogger(__name__)

STATIC_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def build_app(console: Console) -> ASGIApp:
    prepare()
    routes = [
        Route("/login", _login_page(console), methods=["GET", "POST"]),
        Route("/logout", _logout(console), methods=["POST"]),
        Route("/static/{name}", _static, methods=["GET"]),
        Route("/favicon.ico", _favicon, methods=["GET"]),
        Route("/api/openapi.json", _openapi, methods=["GET"]),
        *(Route(each.path, _api(console, each), methods=[each.method]) for each in ENDPOINTS),
        *(Route(path, _page(console, page), methods=["GET"]) for path, page in PAGES.items()),
    ]
    app = Starlette(
        routes=_merged(routes),
        exception_handlers={HTTPException: _http_problem(console), Exception: _unexpected(console)},
    )
    return Guard(app, console.options, console.sessions)


def _merged(routes: list[Route]) -> list[Route]:
    """Routes of more fixed parts first, so that `/api/messages/{id}/life` is not taken for an id."""
    return sorted(routes, key=lambda route: (route.path.count("{"), -route.path.count("/")))


def _api(console: Console, each: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await serve(console, each, request)

    return answer


def _page(console: Console, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        view = View.of(console, request)
        console.gatherer.asked()
        try:
            return await page(view)
        except Exception as error:
            problem = problem_of(error)
            return view.render("error.html", problem.status, problem=problem)

    return answer


def _http_problem(console: Console) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        failure = cast(HTTPException, error)
        sentences = {404: "there is no such page", 405: "that cannot be done here: another method is needed"}
        sentence = sentences.get(failure.status_code, failure.detail)
        headers = dict(failure.headers or {})
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": sentence}, failure.status_code, headers)
        answer = View.of(console, request).render(
            "error.html", failure.status_code, problem=Problem(failure.status_code, sentence)
        )
        answer.headers.update(headers)
        return answer

    return answer


def _unexpected(console: Console) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        log.error("a request failed path=%s", request.url.path, exc_info=error)
        sentence = "the console failed over this; its log says how"
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": sentence}, 500)
        return View.of(console, request).render("error.html", 500, problem=Problem(500, sentence))

    return answer


# -- the few routes that are neither page nor API


def _login_page(console: Console) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        view = View.of(console, request)
        target = _own_path(request.query_params.get("next", "/"))
        if request.method == "GET":
            return view.render("login.html", target=target)
        try:
            given = msgspec.json.decode(await request.body(), type=Login)
            visitor = await log_in(view.call, given)
        except msgspec.MsgspecError as wrong:
            return JSONResponse({"error": f"the body is not as it must be: {wrong}"}, 400)
        except Exception as error:
            problem = problem_of(error)
            console.audit.note("?", view.call.address, "log in", {}, problem.status, problem.sentence)
            return JSONResponse({"error": problem.sentence}, problem.status)
        console.audit.note(visitor.who, view.call.address, "log in", {}, 200, "done")
        done = JSONResponse({"done": target})
        is_secure = request.url.scheme == "https"
        done.set_cookie(COOKIE, visitor.session, httponly=True, samesite="strict", secure=is_secure, path="/")
        return done

    return answer


def _own_path(text: str) -> str:
    """Where to go after the log-in: never to another site."""
    parts = urlsplit(text)
    if parts.scheme or parts.netloc or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    return text


def _logout(console: Console) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        console.sessions.close(request.cookies.get(COOKIE, ""))
        done = JSONResponse({"done": "/login"})
        done.delete_cookie(COOKIE, path="/")
        return done

    return answer


async def _static(request: Request) -> Response:
    name: str = request.path_params["name"]
    kind = STATIC_TYPES.get(name.rpartition(".")[2])
    file = files("arrowmq.console").joinpath("static").joinpath(name)
    if kind is None or "/" in name or "\\" in name or not file.is_file():
        raise HTTPException(404)
    return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "public, max-age=300"})


async def _favicon(request: Request) -> Response:
    del request
    return RedirectResponse("/static/icon.svg", 308)


async def _openapi(request: Request) -> Response:
    del request
    return Response(description(), media_type="application/json")
