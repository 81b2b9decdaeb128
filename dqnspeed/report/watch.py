"""The page on this machine alone, while a sweep runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

EVERY_S = 30  # seconds between pages, so that drawing them slows the runs down little
HOST = "127.0.0.1"
WAITING = b"<!doctype html><title>dqnspeed</title>No run has begun yet."


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Print a traceback, other than of a browser that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*_)


@contextlib.contextmanager
def served(page: Path) -> Iterator[str]:
    """Serve ``page``, and nothing else, to this machine inside the block; browsers load it anew by themselves.

    Yields:
        Its address.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of elsewhere may have its name lead here; it would send that name.
            ours = self.headers.get("Host", "").partition(":")[0] in (HOST, "localhost")
            if not ours or self.path.partition("?")[0] != "/":
                self.send_error(404)
                return
            try:
                content = page.read_bytes()
            except OSError:
                content = WAITING
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Refresh", str(EVERY_S))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing of each request."""

    with _Server((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
