"""A YAML language server reads the schema of a contract that `pv new` wrote.

It runs where the npm package `yaml-language-server` is installed: on the path, or named by PV_YAML_LANGUAGE_SERVER.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pv.commands.new import new

SERVER = os.environ.get("PV_YAML_LANGUAGE_SERVER") or shutil.which("yaml-language-server")
pytestmark = pytest.mark.skipif(SERVER is None, reason="yaml-language-server (npm) is not installed")


class Client:
    """A connection to the server over its standard streams."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.count = 0
        self.settings: dict[str, Any] = {}

    def send(self, method: str, parameters: Any, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": parameters, **more}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        size = 0
        while (line := self.process.stdout.readline().strip()) or not size:
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
            assert line or size, "the server ended"
        message: dict[str, Any] = json.loads(self.process.stdout.read(size))
        if "id" in message and "method" in message:
            asked = message["params"]["items"] if message["method"] == "workspace/configuration" else None
            self.reply(message["id"], asked and [self.settings.get(item["section"], {}) for item in asked])
        return message

    def reply(self, id_: Any, result: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not wanted(message := self.read()):
            pass
        return message

    def request(self, method: str, parameters: Any) -> Any:
        self.count += 1
        self.send(method, parameters, id=self.count)
        return self.until(lambda m: m.get("id") == self.count and "method" not in m).get("result")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    process = subprocess.Popen([str(SERVER), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    found = Client(process)
    found.request("initialize", {"processId": None, "rootUri": tmp_path.as_uri(), "capabilities": {}})
    found.send("initialized", {})
    yield found
    process.kill()
    process.wait()


def opened(client: Client, file: Path) -> list[str]:
    """Open a file, and return the messages of its diagnostics."""
    document = {"uri": file.as_uri(), "languageId": "yaml", "version": 1, "text": file.read_text()}
    client.send("textDocument/didOpen", {"textDocument": document})
    message = client.until(lambda m: m.get("method") == "textDocument/publishDiagnostics")
    return [each["message"] for each in message["params"]["diagnostics"]]


def contract(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    new()
    return folder / "contracts/example.yaml"


def test_sound_contract_has_no_diagnostics(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(client, contract(tmp_path, monkeypatch)) == []


def test_unknown_key_is_marked(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = contract(tmp_path, monkeypatch)
    file.write_text(file.read_text().replace("  kills:", "  kill:"))
    assert opened(client, file) == ["Property kill is not allowed."]


def test_key_is_described_where_the_cursor_is(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = contract(tmp_path, monkeypatch)
    opened(client, file)
    line = next(i for i, text in enumerate(file.read_text().splitlines()) if text.startswith("  kills:"))
    position = {"textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": 4}}
    shown = client.request("textDocument/hover", position)
    assert "Ids of the mutants that the falsifier must detect" in json.dumps(shown)


def test_settings_of_an_editor_map_the_schema_to_contracts_without_a_line(client: Client, tmp_path: Path) -> None:
    schema = Path(__file__).parents[1] / "pv/contract/schema/contract.json"
    client.settings = {"yaml": {"validate": True, "schemas": {schema.as_uri(): "*.yaml"}}}
    client.send("workspace/didChangeConfiguration", {"settings": {}})
    client.until(lambda message: message.get("method") == "workspace/configuration")
    file = tmp_path / "contract.yaml"
    file.write_text("schema: pv/1\nsubjekt: code\n")
    assert "Property subjekt is not allowed." in opened(client, file)
