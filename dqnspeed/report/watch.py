"""A server that shows the page on this machine while runs are training."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REFRESH_S = 30  # rare, because drawing a page slows the runs down
HOST = "127.0.0.1"
WAITING_PAGE = b"<!doctype html><title>dqnspeed</title>No run has begun yet."


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Print a traceback, except for a browser that hung up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*_)


@contextlib.contextmanager
def serve_page(page: Path) -> Iterator[str]:
    """Serve the file ``page``, and nothing else, to this machine; browsers reload it every :data:`REFRESH_S` seconds.

    Yields:
        The address of the page.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # The domain of a hostile site may resolve to this machine; its requests name that domain as their host.
            is_local = self.headers.get("Host", "").partition(":")[0] in (HOST, "localhost")
            if not is_local or self.path.partition("?")[0] != "/":
                self.send_error(404)
                return
            content = page.read_bytes() if page.exists() else WAITING_PAGE
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Refresh", str(REFRESH_S))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing for each request."""

    with _Server((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
