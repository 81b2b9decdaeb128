"""The report that W&B is sent, and what becomes of it without W&B."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import forked
import pytest
from conftest import environment, make_toy

from dqnspeed import envs
from dqnspeed.report import wandb as reports
from dqnspeed.report.figures import COLOURS
from dqnspeed.trainer import train

if importlib.util.find_spec("wandb_workspaces") is None:  # which takes moments to import
    pytest.skip("needs wandb_workspaces", allow_module_level=True)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that W&B tracked, and one that it did not."""
    folder = tmp_path_factory.mktemp("sweep")
    for name, wandb in (("1", "offline"), ("2", "offline"), ("3", "disabled")):
        overrides = [f"num_envs={name}", f"tracking.wandb={wandb}", "stop.max_steps=300"]
        run = make_toy(*overrides)
        config = {"num_envs": run.num_envs, "tracking": {"project": run.tracking.project}}
        (folder / name / ".hydra").mkdir(parents=True)
        (folder / name / ".hydra" / "overrides.yaml").write_text("".join(f"- {line}\n" for line in overrides))
        train(run, envs.describe(run), folder / name, config, "sweep", label=f"baseline num_envs={name}")
    return folder


def reported(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**environment(), "NO_PROXY": "127.0.0.1", **variables}
    return forked.run("dqnspeed.report", *map(str, arguments), "wandb=true", cwd=Path.cwd(), env=env, timeout=100)


class WandbServer(BaseHTTPRequestHandler):
    """Answers what a report asks, and keeps the report."""

    saved: dict[str, Any] = {}

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        variables = asked.get("variables") or {}
        me = {"id": "1", "entity": "me", "username": "me", "flags": "{}", "email": "", "admin": False, "apiKeys":
              {"edges": []}, "teams": {"edges": []}}  # fmt: skip
        page = {"hasNextPage": False, "endCursor": None}
        data: dict[str, Any] = {"viewer": me, "models": {"edges": [], "pageInfo": page}}
        data["project"] = {"internalId": "UHJvamVjdEludGVybmFsSWQ6MQ=="}
        data["upsertModel"] = {"project": {"name": "dqnspeed"}, "model": {"name": "dqnspeed"}, "inserted": True}
        if "spec" in variables:
            type(self).saved = variables
            project = {"name": "dqnspeed", "entityName": "me"}
            view = {"id": "abc", "name": "n", "displayName": "d", "description": "", "spec": variables["spec"],
                    "project": project, "createdAt": None, "updatedAt": None}  # fmt: skip
            data["upsertView"] = {"view": view, "inserted": True}
        self.answer({"data": data})

    def answer(self, node: object) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(node).encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), WandbServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def check(spec: dict[str, Any]) -> None:
    """The report has the table, the panels, and a set of runs for each rung that W&B has."""
    from wandb_workspaces.reports.v2 import internal

    blocks = internal.Spec.model_validate(spec).blocks
    grids = [block for block in blocks if isinstance(block, internal.PanelGrid)]
    runsets = grids[0].metadata.run_sets
    assert [runset.name for runset in runsets] == ["baseline num_envs=1", "baseline num_envs=2"]
    colours = grids[0].metadata.custom_run_colors
    assert {one for one in colours.values() if isinstance(one, str)} == {*COLOURS[:2]}, colours
    panels = grids[0].metadata.panel_bank_section_config.panels
    assert {(panel.config.metrics[0], panel.config.x_axis) for panel in panels} == {
        (metric, axis) for _, metric, axis in reports.CURVES
    }
    (parallel,) = grids[1].metadata.panel_bank_section_config.panels
    shown = [column.accessor for column in parallel.config.columns]
    assert shown[0] == "config:num_envs.value" and [f"summary:{name}" for name in reports.RESULTS] == shown[-3:]
    tables = [block.content for block in blocks if isinstance(block, internal.MarkdownBlock)]
    assert any(text.startswith("| rung |") and "`baseline num_envs=3`" in text for text in tables)


def test_without_a_key_a_sentence_says_so_and_the_report_is_kept(sweep: Path, tmp_path: Path) -> None:
    with serving() as address:
        result = reported(sweep, f"out={tmp_path}", HOME=str(tmp_path), WANDB_BASE_URL=address)
    assert result.returncode == 1 and "| `baseline num_envs=1` |" in result.stdout
    (line,) = [line for line in result.stderr.splitlines() if "wandb=true" in line]
    assert line.startswith("dqnspeed: wandb=true: the report was not sent (") and "WANDB_API_KEY" in line
    assert "Traceback" not in result.stderr
    check(json.loads((tmp_path / reports.FILE).read_text())["spec"])


def test_a_report_is_sent_with_the_runs_colours(sweep: Path, tmp_path: Path) -> None:
    with serving() as address:
        result = reported(sweep, f"out={tmp_path}", HOME=str(tmp_path), WANDB_BASE_URL=address, WANDB_API_KEY="x" * 40)
    assert result.returncode == 0, result.stderr
    assert f"{address}/me/dqnspeed/reports/" in result.stderr
    assert WandbServer.saved["entityName"] == "me"
    check(json.loads(WandbServer.saved["spec"]))


def test_runs_that_wandb_does_not_have_are_no_report_there(sweep: Path, tmp_path: Path) -> None:
    result = reported(sweep / "3", f"out={tmp_path}")
    assert result.returncode == 1
    assert "the report was not sent (none of the runs was tracked by W&B" in result.stderr
    assert (tmp_path / "report.html").exists() and not (tmp_path / reports.FILE).exists()
