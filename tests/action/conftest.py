"""A runner beside a server that keeps the comments of a pull request."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.action.runner import Api, Runner


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    class Handler(Api):
        comments: ClassVar[list[dict[str, Any]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        runner = Runner(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        runner.comments = Handler.comments
        yield runner
        server.shutdown()
