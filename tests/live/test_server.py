"""The server of the live page: who may read it, and what browsers get."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import psutil
import pytest
from conftest import run_async

from dqnspeed.config.options import ConfigError
from dqnspeed.live import server as server_module
from dqnspeed.live.server import HOST, PageServer

PAGE = "<p>a page</p>"


@pytest.fixture
def wishes() -> queue.Queue[Any]:
    return queue.Queue()


@pytest.fixture
def server(wishes: queue.Queue[Any]) -> Iterator[PageServer]:
    def take(wish: Any) -> dict[str, Any]:
        wishes.put(wish)
        return {"wished": wish} if "next" in wish else {}

    with contextlib.closing(PageServer(PAGE, take)) as made:
        yield made


def get(url: str, **headers: str) -> tuple[int, str, Any]:
    """Status, text and headers of a response."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def visit(server: PageServer, talk: Callable[[aiohttp.ClientWebSocketResponse], Any], **headers: str) -> Any:
    """The result of ``talk`` with the socket that a browser would open."""

    async def connect() -> Any:
        url = server.url.replace("/?", "/socket?")
        async with aiohttp.ClientSession() as session, session.ws_connect(url, headers=headers) as opened:
            return await asyncio.wait_for(talk(opened), 20)

    return run_async(connect())


async def facts_until(opened: aiohttp.ClientWebSocketResponse, name: str) -> dict[str, Any]:
    """All facts that come until the one called ``name``."""
    found = dict[str, Any]()
    while name not in found:
        message = await opened.receive()
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        if message.type is aiohttp.WSMsgType.TEXT:
            found |= json.loads(message.data)
    return found


def test_the_page_needs_its_token_and_forbids_other_sources(server: PageServer) -> None:
    status, text, headers = get(server.url)
    assert (status, text) == (200, PAGE)
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
    address, _, token = server.url.partition("?token=")
    assert len(token) >= 16
    for asked in ("", "?token=", f"?token={token}x", f"?token={token[:-1]}", "socket", "socket?token=x"):
        status, text, _ = get(address + asked)
        assert status == 403 and PAGE not in text and token not in text
    assert get(f"{address}page.html?token={token}")[0] == 404
    assert get(f"{address}../../etc/passwd?token={token}")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8890", "127.0.0.1.evil.example", "[::2]:80", "0.0.0.0"])
def test_another_host_is_refused(host: str, server: PageServer) -> None:
    assert get(server.url, Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:1", "[::1]:80"])
def test_the_end_of_a_tunnel_is_served(host: str, server: PageServer) -> None:
    assert get(server.url, Host=host)[0] == 200


def test_the_page_is_read_only(server: PageServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        request = urllib.request.Request(server.url, data=b"{}", method=method)
        with pytest.raises(urllib.error.HTTPError, match="405") as refused:
            urllib.request.urlopen(request, timeout=10)
        refused.value.close()


def test_a_foreign_page_cannot_open_the_socket(server: PageServer) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        visit(server, lambda opened: opened.receive(), Origin="http://evil.example")
    assert refused.value.status == 403


def test_only_this_machine_is_served(server: PageServer) -> None:
    port = int(server.url.split(":")[2].partition("/")[0])
    listening = [each.laddr for each in psutil.Process().net_connections() if each.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == port] == [HOST]


def test_a_port_in_use_is_said(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as taken:
        monkeypatch.setattr(server_module, "PORT", taken.getsockname()[1])
        with contextlib.closing(PageServer(PAGE)) as other:
            assert other.line == f"live page: {other.url} (port {taken.getsockname()[1]} is in use)"
        monkeypatch.setattr(server_module, "PORTS", 1)
        with pytest.raises(ConfigError, match=r"^ports \d+ to \d+: are in use\. Close an older page\.$"):
            PageServer(PAGE)


def test_a_browser_gets_all_facts_and_the_newest_picture(server: PageServer, wishes: queue.Queue[Any]) -> None:
    server.send_facts(title="a run", steps=1)
    server.send_facts(steps=2)

    async def talk(opened: aiohttp.ClientWebSocketResponse) -> None:
        assert await facts_until(opened, "steps") == {"title": "a run", "steps": 2}
        assert server.watched.is_set()
        server.show(b"picture")
        server.send_facts(steps=3)
        messages = [await opened.receive(), await opened.receive()]
        assert {json.loads(each.data)["steps"] if isinstance(each.data, str) else each.data for each in messages} == {
            b"picture", 3,
        }  # fmt: skip
        for wish in ('{"next": true}', "no json", "[1]", '{"saliency": false}'):
            await opened.send_str(wish)
        assert (await facts_until(opened, "wished"))["wished"] == {"next": True}
        await opened.send_bytes(b"\x00")

    assert not server.watched.is_set()
    visit(server, talk)
    assert [wishes.get(timeout=10), wishes.get(timeout=10)] == [{"next": True}, {"saliency": False}]
    deadline = time.monotonic() + 10
    while server.watched.is_set() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not server.watched.is_set()


def test_a_slow_browser_loses_pictures_and_no_facts(server: PageServer) -> None:
    async def talk(opened: aiohttp.ClientWebSocketResponse) -> tuple[int, int]:
        for number in range(200):  # more than all buffers between the two hold
            server.show(bytes([number]) * 1_000_000)
            server.send_facts(**{f"fact{number}": number})
        await asyncio.sleep(0.5)
        server.send_facts(last=True)
        pictures, facts = list[bytes](), dict[str, Any]()
        while "last" not in facts:
            message = await opened.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                facts |= json.loads(message.data)
            else:
                pictures.append(message.data)
        return len(pictures), sum(name.startswith("fact") for name in facts)

    pictures, facts = visit(server, talk)
    assert pictures < 150 and facts == 200


def test_the_last_facts_reach_a_browser_and_the_server_ends() -> None:
    server = PageServer(PAGE)

    async def talk(opened: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
        closing = asyncio.get_running_loop().run_in_executor(None, lambda: server.close(ended="It has ended."))
        found = await facts_until(opened, "ended")
        assert (await opened.receive()).type is aiohttp.WSMsgType.CLOSE
        await opened.close()
        await closing
        return found

    assert visit(server, talk) == {"ended": "It has ended."}
    server.send_facts(more=1)
    server.show(b"")
    server.close()  # a second time does nothing
    with contextlib.suppress(urllib.error.URLError):
        assert get(server.url)[0] != 200  # a page of another process may have taken the port


def test_a_closed_page_that_nobody_watched_ends_at_once() -> None:
    server = PageServer(PAGE)
    server.close(ended="")
    assert not server._thread.is_alive()


def test_a_visit_is_noticed_and_waited_for(server: PageServer) -> None:
    assert not server.was_visited(60)
    get(server.url)
    server.wait_for_visit(60)
    assert server.was_visited(60)
    server.set_page("another")
    visits = list[str]()
    threading.Timer(0.2, lambda: visits.append(get(server.url)[1])).start()
    server.wait_for_visit(600)
    while not visits:
        time.sleep(0.01)
    assert visits == ["another"]


def test_a_browser_that_has_stopped_reading_does_not_hold_up_the_end() -> None:
    server = PageServer(PAGE)
    port, token = re.findall(r":(\d+)/\?token=(.+)", server.url)[0]
    with socket.create_connection((HOST, int(port))) as asleep:
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
        asked = (
            f"GET /socket?token={token} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket"
        )
        asleep.sendall(f"{asked}\r\n{key}\r\n\r\n".encode())
        assert server.watched.wait(30)
        for _ in range(20):
            server.show(bytes(4_000_000))
            time.sleep(0.05)
        server.close(ended="The end.")
        assert not server.watched.is_set()
