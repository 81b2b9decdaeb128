"""A server on this machine that answers the library of the Hugging Face Hub as the Hub does, with repositories in
memory."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_good"


class HubServer(ThreadingHTTPServer):
    """Serves ``repos``: the files of each repository by its name.

    Attributes:
        sizes: sizes to report instead of the true ones, by file name.
        asked: paths of all requests.
        takes_commits: whether uploads are taken.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos = dict[str, dict[str, bytes]]()
        self.sizes, self.asked = dict[str, int](), list[str]()
        self.takes_commits = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repo: str) -> str:
        """A commit that the files of ``repo`` have."""
        digest = hashlib.sha1(repo.encode())
        for name, data in sorted(self.repos[repo].items()):
            digest.update(name.encode() + data)
        return digest.hexdigest()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self._path()
        if path == "/api/whoami-v2":
            self._whoami()
        elif path.startswith("/api/models/"):
            self._model(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            repo, _, rest = path.strip("/").partition("/resolve/")
            commit, _, name = rest.partition("/")
            data = self.server.repos.get(repo, {}).get(name)
            if data is None or commit != self.server.commit(repo):
                self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            else:
                self._send(data, 200, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit})
        else:
            self._json({"error": path}, 404)

    def do_POST(self) -> None:
        path = self._path()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if not self._may_write():
            return self._json({"error": "Invalid token"}, 401)
        if path == "/api/repos/create":
            given = json.loads(body)
            name = "/".join(filter(None, [given.get("organization") or "me", given["name"]]))
            self.server.repos.setdefault(name, {".gitattributes": b""})
            return self._json({"url": f"{self.server.url}/{name}", "name": name})
        repo = "/".join(path.removeprefix("/api/models/").split("/")[:2])
        if "/preupload/" in path:
            files = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                     for each in json.loads(body)["files"]]  # fmt: skip
            return self._json({"files": files})
        if "/commit/" in path:
            if not self.server.takes_commits:
                return self._json({"error": "Forbidden"}, 403)
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "deletedFile":
                    del self.server.repos[repo][line["value"]["path"]]
                if line["key"] == "file":
                    self.server.repos[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = self.server.commit(repo)
            url = f"{self.server.url}/{repo}/commit/{commit}"
            return self._json({"success": True, "commitOid": commit, "commitUrl": url, "pullRequestUrl": None})
        return self._json({"error": path}, 404)

    def _model(self, rest: str) -> None:
        owner, name, *more = rest.split("/")
        repo = f"{owner}/{name}"
        files = self.server.repos.get(repo)
        if files is None:
            return self._json({"error": "Repository not found"}, 401, {"X-Error-Code": "RepoNotFound"})
        commit = self.server.commit(repo)
        if more and more[1] not in (commit, "main"):
            return self._json({"error": "Invalid rev id"}, 404, {"X-Error-Code": "RevisionNotFound"})
        sizes = {name: self.server.sizes.get(name, len(data)) for name, data in files.items()}
        if more and more[0] == "tree":
            oid = {name: hashlib.sha1(data).hexdigest() for name, data in files.items()}
            tree = [{"type": "file", "path": name, "size": size, "oid": oid[name]} for name, size in sizes.items()]
            return self._json(tree)
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        return self._json({"id": repo, "modelId": repo, "sha": commit, "private": False, "siblings": siblings})

    def _whoami(self) -> None:
        if self._may_write():
            self._json({"type": "user", "name": "me", "orgs": []})
        else:
            self._json({"error": "Invalid username or password."}, 401)

    def _may_write(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(path)
        return path

    def _json(self, node: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(node).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
