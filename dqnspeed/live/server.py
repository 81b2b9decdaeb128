"""A web server for one page, which only this machine and holders of a token can read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import math
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dqnspeed.config.options import ConfigError

if TYPE_CHECKING:
    from aiohttp import web

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HOST, PORT, PORTS = "127.0.0.1", 8890, 50  # the first port that is free is taken
LOCAL_NAMES = HOST, "localhost", "[::1]"  # what a browser on this machine, or at the end of a tunnel, calls it
MAX_REQUEST = 1024  # bytes of a message from a browser
FLUSH_S = 2.0  # for the last facts to reach slow browsers
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; media-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def read_page() -> str:
    """Text of the page that shows a game."""
    return Path(__file__).with_name("page.html").read_text(encoding="utf-8")


class PageServer:
    """Serves a page in a thread of its own, and sends facts and pictures to the browsers that show it.

    The server listens on 127.0.0.1 only. Each request needs the token of :attr:`url` and a local ``Host``, so no other
    user and no other web site can read it. It serves no files.

    Args:
        page: text of the page.
        on_message: called in the server's thread with each message of a browser; returns facts for all browsers.

    Attributes:
        url: address of the page, with its token.
        line: a line with the address, for the terminal.
        watched: set while a browser shows the page.

    Raises:
        ConfigError: no port is free, or a port cannot be opened.
    """

    def __init__(self, page: str, on_message: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}):
        self._page, self._on_message, self._token = page, on_message, secrets.token_urlsafe(16)
        self._facts = dict[str, Any]()
        self._connections = set[_Connection]()
        self.watched = threading.Event()
        self._visited, self._visited_at = threading.Event(), -math.inf
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        started = Future[int]()
        self._thread = threading.Thread(target=self._run, args=(started,), name="live-page", daemon=True)
        self._thread.start()
        port = started.result()
        self.url = f"http://{HOST}:{port}/?token={self._token}"
        moved = f" (port {PORT} is in use)" if port != PORT else ""
        self.line = f"live page: {self.url}{moved}"

    def set_page(self, page: str) -> None:
        """Serve another text from now on."""
        self._page = page
        self._visited.clear()

    def was_visited(self, seconds: float) -> bool:
        """Whether a browser has loaded the page within the last ``seconds``."""
        return time.monotonic() - self._visited_at < seconds

    def wait_for_visit(self, seconds: float) -> None:
        """Wait until a browser has loaded the present page, at most so long."""
        self._visited.wait(seconds)

    def send_facts(self, **facts: Any) -> None:
        """Send facts to every browser, and to each that comes later; a fact replaces the one of the same name."""
        self._call(self._send, facts)

    def show(self, picture: bytes) -> None:
        """Send a picture to every browser; a slow browser gets the newest only."""
        self._call(self._show, picture)

    def close(self, **facts: Any) -> None:
        """Send the last facts and end the server."""
        if self._thread.is_alive():
            self.send_facts(**facts)
            self._call(self._stop.set)
            self._thread.join(5 * FLUSH_S)

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    # In the server's thread

    def _run(self, started: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(started))
        except Exception as error:
            if not started.done():
                started.set_exception(error)
        finally:
            self.watched.clear()
            self._loop.close()
            self._on_message = lambda _: {}  # the library may keep this server, which is not to keep a game

    async def _serve(self, started: Future[int]) -> None:
        from aiohttp import web

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            refusal = self._refusal(request)
            return await handler(request) if refusal is None else web.Response(status=403, text=f"{refusal}\n")

        app = web.Application(middlewares=[guard], client_max_size=MAX_REQUEST)
        app.add_routes([web.get("/", self._get_page), web.get("/socket", self._get_socket)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=FLUSH_S)
        await runner.setup()
        try:
            started.set_result(await _listen(runner))
            await self._stop.wait()
            await self._flush()
        finally:
            await runner.cleanup()

    async def _flush(self) -> None:
        """Wait until the browsers have all facts, and close their connections."""
        await asyncio.gather(*(connection.end() for connection in [*self._connections]), return_exceptions=True)

    def _refusal(self, request: web.Request) -> str | None:
        """The reason to refuse a request: no token, or another ``Host``, as a hostile page has."""
        name = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdigit() else request.host
        origin = request.headers.get("Origin", "")
        given = request.query.get("token", "").encode()
        if name not in LOCAL_NAMES or origin not in ("", f"http://{request.host}"):
            return "This page is read at http://127.0.0.1 or http://localhost."
        if not hmac.compare_digest(given, self._token.encode()):
            return "The address needs the token that the command has printed."
        return None

    async def _get_page(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        text = self._page
        page = web.Response(text=text, content_type="text/html", headers=HEADERS)
        with contextlib.suppress(ConnectionError):  # the browser has left
            await page.prepare(request)
            await page.write_eof()
            self._visited_at = time.monotonic()
            if text is self._page:
                self._visited.set()
        return page

    async def _get_socket(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import WSMsgType, web

        socket = web.WebSocketResponse(heartbeat=20, max_msg_size=MAX_REQUEST, compress=False)
        await socket.prepare(request)
        connection = _Connection(request, socket, dict(self._facts))
        self._connections.add(connection)
        self.watched.set()
        sender = asyncio.ensure_future(connection.send())
        try:
            async for message in socket:
                with contextlib.suppress(ValueError, RecursionError):
                    given = json.loads(message.data) if message.type is WSMsgType.TEXT else None
                    if isinstance(given, dict):
                        self._send(self._on_message(given))
        finally:
            sender.cancel()
            self._connections.discard(connection)
            if not self._connections:
                self.watched.clear()
        return socket

    def _send(self, facts: Mapping[str, Any]) -> None:
        self._facts.update(facts)
        for connection in self._connections:
            connection.add(facts, None)

    def _show(self, picture: bytes) -> None:
        for connection in self._connections:
            connection.add({}, picture)


class _Connection:
    """A browser, and what it has not been sent yet."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse, facts: dict[str, Any]):
        self._request, self._socket, self._all_sent = request, socket, asyncio.Event()
        self._facts = facts
        self._picture: bytes | None = None
        self._news = asyncio.Event()
        self._news.set()

    def add(self, facts: Mapping[str, Any], picture: bytes | None) -> None:
        self._facts.update(facts)
        self._picture = picture or self._picture
        self._all_sent.clear()
        self._news.set()

    async def send(self) -> None:
        """Send what is new; a browser that cannot follow makes this wait, and pictures that come meanwhile are lost."""
        with contextlib.suppress(ConnectionError):
            while True:
                await self._news.wait()
                self._news.clear()
                facts, self._facts = self._facts, {}
                picture, self._picture = self._picture, None
                if facts:
                    await self._socket.send_str(json.dumps(facts))
                if picture is not None:
                    await self._socket.send_bytes(picture)
                if not self._news.is_set():
                    self._all_sent.set()

    async def end(self) -> None:
        """Close the connection when all is sent, and at once if the browser has stopped reading."""
        try:
            await asyncio.wait_for(self._all_sent.wait(), FLUSH_S)
            await asyncio.wait_for(self._socket.close(code=1001), FLUSH_S)
        except asyncio.TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()


async def _listen(runner: web.AppRunner) -> int:
    """Listen on the first free port and return it."""
    from aiohttp import web

    for port in range(PORT, PORT + PORTS):
        try:
            await web.TCPSite(runner, HOST, port).start()
            return port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(f"port {port}: cannot be opened ({error.strerror}).") from error
    raise ConfigError(f"ports {PORT} to {PORT + PORTS - 1}: are in use. Close an older page.")
