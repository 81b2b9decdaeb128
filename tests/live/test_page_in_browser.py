"""The live page in a real browser."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import make_run

from dqnspeed.agents.agent import Agent
from dqnspeed.agents.choice import ActionChoice
from dqnspeed.live import viewer as viewer_module
from dqnspeed.live.server import HOST, PageServer, read_page
from dqnspeed.live.viewer import Viewer, show_games

CURVES = {"time": [5.0, 10.0, 15.0], "return": [None, -20.5, 3], "steps_per_second": [900, 1100, 1200.5],
          "loss": [0.1, 0.05, None]}  # fmt: skip


class Tunnel:
    """Forwards connections to a port of this machine, and can break them, as a tunnel of SSH does."""

    def __init__(self, port: int):
        self._to, self._ends = port, list[socket.socket]()
        self.takes_connections = True
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def break_connections(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()
        self.break_connections()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                if not self.takes_connections:
                    near.close()
                    continue
                far = socket.create_connection((HOST, self._to))
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)


@pytest.fixture(scope="module")
def agent() -> Agent:
    """An agent of Breakout with random weights, whose games end soon."""
    return Agent(make_run("env=breakout", "model=small", "env.max_episode_frames=4000"), device="cpu")


@pytest.fixture
def server(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    """A page that shows the games of the agent."""
    monkeypatch.setattr(viewer_module, "SALIENCY_EVERY_S", 0.1)
    ended = threading.Event()
    with contextlib.closing(Viewer(agent, ActionChoice(0, drawn=False, epsilon=0.5), 0, fps=10)) as viewer:
        made = PageServer(read_page(), viewer.on_message)
        made.send_facts(title="breakout <b>by dqn</b>", env="breakout", algo="dqn", **viewer.facts)
        playing = threading.Thread(target=lambda: [*show_games(viewer, made, ended.is_set)])
        playing.start()
        yield made
        ended.set()
        made.close()
        playing.join()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page at the size of a laptop; afterwards no message of the console is allowed."""
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    said = list[str]()
    shown.on("pageerror", lambda error: said.append(str(error)))
    yield shown
    shown.close()
    assert said == []


def wait_for_text(page: Any, selector: str, words: str) -> None:
    """Wait until an element shows these words."""
    expression = "([selector, words]) => document.querySelector(selector).textContent.includes(words)"
    page.wait_for_function(expression, arg=[selector, words], timeout=20_000)


def test_a_moving_game_is_shown_with_all_that_belongs_to_it(page: Any, server: PageServer) -> None:
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.url)
    wait_for_text(page, "h1", "breakout <b>by dqn</b>")  # as text
    page.wait_for_selector("#game[src]")
    first = page.get_attribute("#game", "src")
    page.wait_for_function("first => document.querySelector('#game').src !== first", arg=first)
    assert page.eval_on_selector("#game", "one => one.naturalWidth") == 160
    assert page.eval_on_selector("#seen", "one => one.naturalWidth") == 4 * 84
    assert page.locator("#values tr").count() == 4
    assert page.locator("#values tr:nth-child(2) td:first-child").text_content() == "FIRE"
    page.wait_for_selector("#values tr.chosen")
    assert page.text_content("#outputs") == "Action values"
    server.send_facts(steps=12345, seconds=75.0, left="limit in 0:08:45", curves=CURVES)
    wait_for_text(page, "#status", "Training: 12,345 steps, 1 min 15 s, limit in 0:08:45.")
    assert page.locator("#curves svg").count() == 3
    assert page.locator("#curve-return svg").get_attribute("aria-label") == "Mean return of training games: 3"
    origin = server.url.partition("/?")[0]
    assert all(url.startswith((origin, origin.replace("http", "ws"), "blob:", "data:")) for url in asked)


def test_the_next_game_begins_by_button_and_by_key(page: Any, server: PageServer) -> None:
    page.goto(server.url)
    page.wait_for_selector("#game[src]")

    def number() -> int:
        return int(page.text_content("#number").removeprefix("game "))

    for begin in (lambda: page.click("#next"), lambda: page.keyboard.press("n")):
        before = number()
        begin()
        page.wait_for_function(
            "before => Number(document.querySelector('#number').textContent.slice(5)) > before",
            arg=before,
            timeout=10_000,
        )
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") in ("next", "saliency")


def test_saliency_reddens_what_the_network_sees(page: Any, server: PageServer) -> None:
    page.goto(server.url)
    page.wait_for_selector("#seen[src]")
    red = """() => {
      const image = document.querySelector("#seen"), canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
      if (!canvas.width) return -1; // it is being replaced
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
      let most = 0;
      for (let i = 0; i < data.length; i += 4) most = Math.max(most, data[i] - data[i + 1]);
      return most;
    }"""
    page.wait_for_function(f"() => ({red})() === 0", timeout=20_000)
    page.wait_for_selector("#why:not([hidden])")
    page.keyboard.press("s")
    page.wait_for_function("document.querySelector('#saliency').checked")
    page.wait_for_function(f"() => ({red})() > 80", timeout=20_000)
    page.reload()
    page.wait_for_function("document.querySelector('#saliency').checked")
    page.uncheck("#saliency")
    page.wait_for_function(f"() => ({red})() === 0", timeout=20_000)


def test_a_broken_connection_comes_back(page: Any, server: PageServer) -> None:
    port = int(server.url.split(":")[2].partition("/")[0])
    with contextlib.closing(Tunnel(port)) as tunnel:
        page.goto(server.url.replace(str(port), str(tunnel.port), 1).replace(HOST, "localhost"))
        page.wait_for_selector("#game[src]")
        tunnel.takes_connections = False
        tunnel.break_connections()
        wait_for_text(page, "#status", "The connection is lost. Trying again")
        tunnel.takes_connections = True
        server.send_facts(steps=77, seconds=1, left="?")
        wait_for_text(page, "#status", "Training: 77 steps")
        before = page.get_attribute("#game", "src")
        page.wait_for_function("before => document.querySelector('#game').src !== before", arg=before)


def test_the_end_is_said_and_nothing_is_tried_again(page: Any, server: PageServer) -> None:
    page.goto(server.url)
    page.wait_for_selector("#game[src]")
    server.close(ended="The training has ended: it solved the game.")
    wait_for_text(page, "#status", "The training has ended: it solved the game.")
    time.sleep(1.5)
    assert "solved" in page.text_content("#status")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_and_can_be_read(width: int, scheme: str, page: Any, server: PageServer) -> None:
    page.set_viewport_size({"width": width, "height": 780})
    page.emulate_media(color_scheme=scheme)
    server.send_facts(steps=12345, seconds=75.0, left="limit in 0:08:45", curves=CURVES, problem="A problem.")
    page.goto(server.url)
    page.wait_for_selector("#game[src]")
    page.wait_for_selector("#curves svg")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for selector in ("#game", "#seen", "#values", "#curves", "#next"):
        box = page.locator(selector).bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width + 1, selector
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (sum(map(int, ink[4:-1].split(","))) > sum(map(int, paper[4:-1].split(",")))) == (scheme == "dark")
