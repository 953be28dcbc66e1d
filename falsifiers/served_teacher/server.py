"""A server of the completions protocol of vLLM, whose model is a table of logits; for falsifiers and tests."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


class TableServer(ThreadingHTTPServer):
    """Logits after token k are row k of `table`.

    statuses: of the next requests, before any is answered; see `CUT` and `STALLED`.
    prompts: the prompts of all answered requests. requests: the number of all requests, answered or not. models: the
    models that the server lists. key: the key that a request needs; None for none.
    """

    def __init__(self, table: Any, identity: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.table, self.models = np.asarray(table, dtype=np.float64), [identity]
        self.key: str | None = None
        self.statuses: list[int] = []
        self.prompts: list[list[int]] = []
        self.requests = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        self.prompts += content["prompt"]
        choices = [
            {"index": index, "text": "", "prompt_logprobs": self._entries(prompt, content["prompt_logprobs"])}
            for index, prompt in enumerate(content["prompt"])
        ]
        return {"object": "text_completion", "model": content["model"], "choices": choices[::-1]}

    def _entries(self, prompt: list[int], k: int) -> list[Any]:
        """Return what vLLM does: null, then for each token the k most probable ones and the token itself."""
        entries: list[Any] = [None]
        for before, token in itertools.pairwise(prompt):
            logits = self.table[before]
            logprobs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            order = np.argsort(-logprobs, kind="stable")
            ranks = {int(token): rank for rank, token in enumerate(order, 1)}
            kept = dict.fromkeys([token, *(int(one) for one in order[:k])])
            entries.append(
                {str(one): {"logprob": logprobs[one], "rank": ranks[one], "decoded_token": str(one)} for one in kept}
            )
        return entries


CUT = 0
"""In place of a status: an answer that ends early."""
STALLED = -1
"""In place of a status: 503, whose message does not come for 3 s."""


class Answering(BaseHTTPRequestHandler):
    server: TableServer

    def do_GET(self) -> None:
        self._reply({"object": "list", "data": self.server.models})

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests += 1
        if self.server.statuses:
            self._reply({"error": {"message": "not now"}}, self.server.statuses.pop(0))
        else:
            self._reply(self.server.answer(content))

    def _reply(self, content: dict[str, Any], status: int = 200) -> None:
        if status == STALLED:
            self.send_response(503)
            self.send_header("Content-Length", "9")
            self.end_headers()
            time.sleep(3)
            return
        if self.path not in ("/v1/models", "/v1/completions"):
            content, status = {"error": {"message": f"no {self.path}"}}, 404
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            content, status = {"error": {"message": "no key"}}, 401
        body = json.dumps(content).encode()
        self.send_response(status or 200)
        self.send_header("Content-Length", str(len(body) + (status == CUT)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(table: Any, **identity: Any) -> Iterator[TableServer]:
    """Yield a server that answers until the end of the block."""
    described = {"id": "table", "root": "tables/one", "max_model_len": 64} | identity
    with TableServer(table, described) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
