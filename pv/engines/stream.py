"""The evidence stream: JSON lines from a worker to its parent, written at once, so a killed worker loses little."""

import json
import os
from typing import Any

MAX_RECORD = 1 << 20


class Stream:
    """Writes records to a pipe. A record that is too long is written without its arguments."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def put(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"kind": kind, **fields}, allow_nan=False).encode() + b"\n"
        if len(data) > MAX_RECORD:
            for key in ("arguments", "frames"):
                fields.pop(key, None)
            texts = {k: v[:4096] if isinstance(v, str) else v for k, v in fields.items()}
            data = json.dumps({"kind": kind, **texts, "exact": False}, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]
