"""Who may see the live page: whoever has the token, on this machine. Everybody else gets an empty answer.

A browser shows the token once, in the address, and gets a cookie for it. Any website can have a browser send requests
to this machine: they lack the cookie (SameSite=Strict), or name another host, or lack the header that orders need.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, final
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ORDER_HEADER = b"x-envfleet"
"""Orders need it: forms and pictures of other websites cannot send it, and scripts would have to ask, in vain."""

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@final
class Guard:
    """Lets requests through to `app` that come from this machine's owner.

    Args:
        app: what is guarded.
        token: what they must know.
        port: where the server listens.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}
        self._cookie = f"envfleet-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope.get("headers", ()))
        given = parse_qs(scope.get("query_string", b"")).get(b"token", [b""])[0] if scope.get("path") == "/" else b""
        if scope["type"] != "http" or headers.get(b"host") not in self._hosts:
            await _refuse(scope, send)
        elif given and self._is_token(given):
            value = f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict".encode()
            await _answer(send, 303, [(b"location", b"/"), (b"set-cookie", value)])
        elif not self._knows(headers) or (scope["method"] == "POST" and ORDER_HEADER not in headers):
            await _refuse(scope, send)
        else:
            await self._app(scope, receive, _with_headers(send))

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        bearer = headers.get(b"authorization", b"")
        if bearer.startswith(b"Bearer "):
            return self._is_token(bearer.removeprefix(b"Bearer "))
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value.encode("latin-1", "replace"))

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self._token)


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await _answer(send, 403, [])


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    every = [*headers, (b"content-length", b"0"), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": every})
    await send({"type": "http.response.body", "body": b""})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_HEADERS]
        await send(message)

    return sending
