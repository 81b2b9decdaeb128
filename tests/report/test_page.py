"""The page in a real browser, and while a sweep runs."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Command

from dqnspeed.report import command as report
from dqnspeed.report.figures import Figure, Series, thin_out
from dqnspeed.report.page import plotly_figure, render_page
from dqnspeed.report.progress import progress_of
from dqnspeed.report.runs import read_run
from dqnspeed.training.folder_lock import locked_folder

LIMIT = 6_000_000  # bytes of a page with twenty runs
LABELS = ["baseline", "baseline num_envs=2", "process", "tweaked_process </script><b>%{x}"]
SEEDS = range(5)
FILM = b"\0\0\0 ftypisom"  # what an MP4 file begins with


def write_run(folder: Path, label: str, seed: int, reports: int, ended: bool = True) -> Path:
    """A run on Pong that is solved the sooner the longer its label is, one report each two seconds."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"num_envs": 1, "stop": {"max_minutes": 60}}))
    lines = []
    for number in range(1, reports + 1):
        mean = -21 + 38 * number / reports + math.sin(number + seed)
        lines.append({"step": 100 * number, "time": 2.0 * number, "episode/return_mean_100": mean,
                      "episode/length": 900 + seed, "train/epsilon": 1 / number, "train/updates": number,
                      "perf/steps_per_second": 50.0 + seed + number % 3, "perf/samples_per_step": 32.0,
                      "time/acting": 0.5 * number, "time/updating": 1.4 * number})  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "episodes.csv").write_text(
        "episode,begun,return,length,env,agent_step,time,video\n1,1,-21,900,0,90,1.8,\n"
    )
    begun = {"label": label, "kind": ["changes the algorithm"], "seed": seed, "env": "PongNoFrameskip-v4",
             "reward_bound": 17.0, "overrides": [f"seed={seed}"]}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(begun))
    if ended:
        summary = {**begun, "solved": True, "stopped_by": "reward_bound", "steps_per_second": 50.0 + seed,
                   "updates_per_second": 50.0, "samples_per_step": 32.0, "return_mean_100": 17.0,
                   "time_to_solve_s": 2.0 * reports, "wall_time_s": 2.0 * reports}  # fmt: skip
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of twenty long runs, with a film."""
    folder = tmp_path_factory.mktemp("sweep")
    for number, (label, seed) in enumerate((label, seed) for label in LABELS for seed in SEEDS):
        write_run(folder / str(number), label, seed, reports=600 - 40 * LABELS.index(label) + 10 * seed)
    (folder / "0" / "videos").mkdir()
    (folder / "0" / "videos" / "play_best_seed0_episode_000001_return_21.mp4").write_bytes(FILM + bytes(300_000))
    (folder / "7" / "videos").mkdir()
    (folder / "7" / "videos" / "episode_000100_return_-3.mp4").write_bytes(FILM + bytes(900_000))
    found = report.read_report(report.ReportConfig(), [folder])
    (folder / "report.html").write_text(render_page(found, folder), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Any]:
    """The page, at the size of a laptop; afterwards no other request and no message of the console is allowed."""
    shown = browser.new_page(viewport={"width": 1366, "height": 900}, color_scheme="light")
    said, asked = list[str](), list[str]()
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("request", lambda request: asked.append(request.url[:80]))
    shown.goto(written.as_uri())
    yield shown
    shown.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [written.as_uri()]


def test_a_page_of_twenty_runs_is_small(written: Path) -> None:
    assert written.stat().st_size < LIMIT


def test_a_page_of_twenty_runs_shows_every_run(opened: Any) -> None:
    assert opened.locator(".js-plotly-plot").count() == opened.locator("figure .plot").count() >= 8
    table = opened.locator("section", has=opened.locator("#record")).locator("tbody tr")
    assert table.count() == 20
    assert opened.locator("#summary ~ .scroll tbody th").all_inner_texts() == LABELS
    names = "plot => new Set(plot.data.filter(trace => trace.hovertemplate).map(trace => plot.id + trace.meta)).size"
    assert opened.locator("#return_by_time").evaluate(names) == len(LABELS)
    seeds = "plot => plot.data.filter(trace => /seed \\d/.test(trace.hovertemplate)).length"
    assert opened.locator("#return_by_time").evaluate(seeds) == 20
    assert opened.locator("video").count() == 1 and opened.locator("figcaption a").count() == 1


def test_a_point_tells_its_values_to_the_mouse_and_to_the_keys(opened: Any) -> None:
    plot = opened.locator("#steps_per_second")
    plot.scroll_into_view_if_needed()
    plot.locator(".points .point").first.hover(force=True)
    hover = plot.locator(".hoverlayer .hovertext")
    hover.first.wait_for()
    assert "agent steps/s" in hover.first.text_content() and "baseline" in hover.first.text_content()
    plot = opened.locator("#return_by_time")
    plot.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        opened.keyboard.press(key)
    plot.locator(".hoverlayer .hovertext").first.wait_for()
    told = plot.locator(".hoverlayer .hovertext").first.text_content()
    assert "mean return at" in told and "minutes of training" in told and "mean of 5 seeds" in told
    assert opened.locator("#said").text_content()


def test_rungs_are_hidden_in_all_plots_by_one_box(opened: Any) -> None:
    shown = "plot => new Set(plot.data.filter(trace => trace.visible !== false).map(trace => trace.meta)).size"
    opened.get_by_label("process", exact=True).focus()
    opened.keyboard.press("Space")
    for name in ("#return_by_time", "#steps_per_second", "#samples_per_step"):
        assert opened.locator(name).evaluate(shown) == 3
    opened.get_by_role("button", name="None").click()
    assert opened.locator("#return_by_time").evaluate(shown) == 0
    opened.get_by_role("button", name="All").click()
    assert opened.locator("#return_by_time").evaluate(shown) == 4


def test_the_page_fits_a_phone_and_is_dark_where_that_is_wanted(opened: Any) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = opened.evaluate(paper)
    opened.get_by_role("button", name="Dark").click()
    dark = opened.evaluate(paper)
    assert dark != light
    ink = "getComputedStyle(document.querySelector('.xtick text')).fill"
    assert opened.evaluate(ink) == opened.evaluate("getComputedStyle(document.body).color")
    opened.get_by_role("button", name="Light").click()
    opened.emulate_media(color_scheme="dark")
    assert opened.evaluate(paper) == light  # what the button says counts
    opened.set_viewport_size({"width": 390, "height": 844})
    deadline = time.monotonic() + 20
    while opened.locator("#return_by_time .main-svg").first.bounding_box()["width"] > 390:
        assert time.monotonic() < deadline
        opened.wait_for_timeout(50)
    assert opened.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize(("bound", "shown"), [(475.0, False), (210.0, True), (17.0, True), (-300.0, False)])
def test_an_axis_is_that_of_the_curves_and_not_of_a_bound_far_away(bound: float, shown: bool) -> None:
    curve = Series("baseline", "mean", 0, [0.0, 1.0], [50.0, 180.0], [40.0, 150.0], [60.0, 200.0])
    layout = plotly_figure(Figure("returns", "Returns", "minutes", "mean return", "", [curve], bound))["layout"]
    assert ("shapes" in layout) == shown
    assert layout["annotations"][0]["text"] == f"solved at {bound:g}{'' if shown else ', beyond this axis'}"


def test_thinning_keeps_the_ends_and_the_extremes() -> None:
    y = [math.sin(number / 50) for number in range(10_000)]
    y[1234], y[7777] = 50.0, -50.0
    kept = thin_out(range(10_000), y, 100)
    assert len(kept) <= 100 and kept == sorted(set(kept)) and {0, 1234, 7777, 9999} <= set(kept)
    assert thin_out([1, 2, 3], [1, 2, 3], 100) == [0, 1, 2]


@pytest.mark.parametrize("reports", [0, 1, 2])
def test_a_curve_with_a_point_or_none_is_drawn_as_it_is(reports: int, tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / str(seed), "baseline", seed, reports)
    found = report.read_report(report.ReportConfig(), [tmp_path])
    assert "<h1>Pong: baseline, 2 runs</h1>" in render_page(found, tmp_path)


def half_done(sweep: Path) -> None:
    """Write a sweep of four jobs: one has ended, one is training, and two are to come."""
    write_run(sweep / "0", "baseline", 0, reports=100)
    write_run(sweep / "1", "baseline", 1, reports=25, ended=False)
    (sweep / "multirun.yaml").write_text("{hydra: {sweeper: {params: null}}}")
    jobs = [{"folder": str(number), "overrides": []} for number in range(4)]
    (sweep / "sweep.json").write_text(json.dumps({"line": {"overrides": []}, "jobs": jobs}))


def test_a_sweep_tells_how_many_of_its_runs_have_ended(tmp_path: Path) -> None:
    half_done(tmp_path)
    runs = [read_run(tmp_path / name) for name in "01"]
    progress = progress_of([tmp_path], runs)
    assert (progress.jobs, progress.ended, progress.is_done) == (4, 1, False)
    assert progress.sentence() == "1 of 4 runs have ended; the others are running or to come."
    for file in tmp_path.rglob("*"):
        os.utime(file, (1e9, 1e9))
    progress = progress_of([tmp_path], [read_run(tmp_path / name) for name in "01"])
    assert progress.is_done and progress.sentence() == "1 of 4 runs have ended; 1 was killed, 2 were not run."
    write_run(tmp_path / "2", "baseline", 2, reports=10)
    progress = progress_of([tmp_path / "0", tmp_path / "2"], [read_run(tmp_path / name) for name in "02"])
    assert progress.is_done and progress.sentence() == ""


def test_the_jobs_that_a_killed_sweep_did_not_come_to_were_not_run(tmp_path: Path) -> None:
    half_done(tmp_path)
    (tmp_path / "1" / ".lock").touch()
    runs = [read_run(tmp_path / name) for name in "01"]
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    program = [sys.executable, "-c", hold, str(tmp_path / ".lock")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sweep:
        assert sweep.stdout is not None and sweep.stdout.readline()
        progress = progress_of([tmp_path], runs)
        assert progress.sentence() == "1 of 4 runs have ended; the others are running or to come."
        sweep.kill()
    progress = progress_of([tmp_path], runs)
    assert progress.is_done and progress.sentence() == "1 of 4 runs have ended; 1 was killed, 2 were not run."
    with locked_folder(tmp_path, resumed=True):  # a report of this process
        assert not progress_of([tmp_path], runs).is_done


def test_a_sweep_goes_on_between_two_of_its_jobs_and_before_the_first(tmp_path: Path) -> None:
    half_done(tmp_path)
    shutil.rmtree(tmp_path / "1")
    ended = [read_run(tmp_path / "0")]
    assert not progress_of([tmp_path], ended).is_done
    for file in tmp_path.rglob("*"):
        os.utime(file, (1e9, 1e9))
    assert progress_of([tmp_path], [read_run(tmp_path / "0")]).is_done
    shutil.rmtree(tmp_path / "0")
    assert progress_of([tmp_path], []).is_done
    (tmp_path / "multirun.yaml").touch()
    assert not progress_of([tmp_path], []).is_done


@pytest.fixture
def watch(run_here: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``dqnspeed.report FOLDER watch=true``, which looks every 0.05 s."""
    monkeypatch.setattr(report, "REFRESH_S", 0.05)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return functools.partial(run_here, report, "watch=true")


@contextlib.contextmanager
def ending_once_shown(sweep: Path) -> Iterator[None]:
    """Half a sweep in ``sweep``, whose second run ends as ``later`` once the page shows it."""
    half_done(sweep)
    ended = sweep.with_name(f"{sweep.name}_ended")
    write_run(ended, "later", 1, reports=25)
    (sweep / "multirun.yaml").unlink()

    def end() -> None:
        deadline = time.monotonic() + 30
        while not (sweep / "report.html").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert '<meta http-equiv="refresh" content="0.05">' in (sweep / "report.html").read_text()
        (ended / "summary.json").replace(sweep / "1" / "summary.json")

    ending = threading.Thread(target=end)
    ending.start()
    yield
    ending.join()


def test_a_sweep_is_watched_until_it_has_ended(tmp_path: Path, watch: Command) -> None:
    with ending_once_shown(tmp_path):
        _, out, errors = watch(tmp_path, "baseline=later")
    assert "baseline=later: there is no such rung" not in errors, "the rung came at last"
    assert "1 of 2 runs have ended; the others are running or to come." in errors
    assert re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+ and file:\S+/report\.html show the page\.", errors)
    page = (tmp_path / "report.html").read_text().partition("<main>")[0]
    assert "baseline" in out and "have ended" not in page and 'http-equiv="refresh"' not in page


def test_a_sweep_is_watched_without_a_server(tmp_path: Path, watch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with ending_once_shown(tmp_path):
        _, _, errors = watch(tmp_path)
    sentence = "watch=true: needs aiohttp. pip install 'dqnspeed[live]' installs it. Only the file is updated.\n"
    assert errors.startswith(f"dqnspeed: {sentence}") and "http:" not in errors


def test_a_sweep_without_runs_is_watched(tmp_path: Path, watch: Command) -> None:
    half_done(tmp_path)
    for run in "01":
        shutil.rmtree(tmp_path / run)

    def begin() -> None:
        for run in range(4):
            write_run(tmp_path / str(run), "baseline", run, reports=5)

    threading.Timer(0.5, begin).start()
    _, out, _ = watch(tmp_path)
    assert "baseline" in out and (tmp_path / "report.html").exists()

    for run in range(4):
        shutil.rmtree(tmp_path / str(run))
    os.utime(tmp_path / "multirun.yaml", (1e9, 1e9))
    code, _, errors = watch(tmp_path)
    assert code == 1 and "holds no run" in errors


def test_a_received_folder_leads_a_report_to_no_file_of_somebody_else(tmp_path: Path, run_here: Command) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(FILM + b"what nobody is to see")
    run = write_run(tmp_path / "run", "baseline", 0, reports=5)
    (run / "videos").mkdir()
    (run / "videos" / "play_1_return_999.mp4").symlink_to(secret)
    (run / "videos" / "play_2_return_99.mp4").write_text("no film")
    other = write_run(tmp_path / "other", "baseline", 1, reports=5)
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "play_1_return_999.mp4").write_bytes(secret.read_bytes())
    (other / "videos").symlink_to(tmp_path / "films")
    assert read_run(run).best_video is read_run(other).best_video is None
    film = run / "videos" / "play_3_return_9.mp4"
    film.write_bytes(FILM)
    assert read_run(run).best_video == film
    (tmp_path / "pictures").mkdir()
    (run / "report").symlink_to(tmp_path / "pictures")
    code, _, errors = run_here(report, run)
    assert code == 1 and f"{run / 'report'}: cannot be written (a link, or no regular file). Name" in errors
    assert not [*(tmp_path / "pictures").iterdir()] and b"nobody" not in (run / "report.html").read_bytes()
