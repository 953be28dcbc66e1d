"""Records are written as JSON lines; a record that is too long is shortened, not dropped."""

import json
import os
import threading
from typing import Any

from pv.engines.stream import MAX_RECORD, Stream


def records(*puts: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    reader, writer = os.pipe()
    chunks: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reader, "rb") as file:
            chunks.append(file.read())

    thread = threading.Thread(target=drain)
    thread.start()
    for kind, fields in puts:
        Stream(writer).put(kind, **fields)
    os.close(writer)
    thread.join(timeout=30)
    return [json.loads(line) for line in chunks[0].splitlines()]


def test_records_are_lines_in_order() -> None:
    assert records(("ready", {}), ("end", {"valid": 3})) == [{"kind": "ready"}, {"kind": "end", "valid": 3}]


def test_long_record_loses_its_arguments_and_keeps_its_status() -> None:
    big = {"status": "refuted", "error": "e" * 10_000, "arguments": {"x": "1" * MAX_RECORD}, "exact": True}
    (found,) = records(("counterexample", big))
    assert found == {"kind": "counterexample", "status": "refuted", "error": "e" * 4096, "exact": False}
