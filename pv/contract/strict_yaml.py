"""Strict YAML loader for untrusted files.

Input is bounded, without aliases, tags or duplicate keys; every node has its location.
Scalars follow the core schema of YAML 1.2: `1e-6` is a number, `no` and `012` are a string and the number 12.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pv.contract.finding import Finding, Location, refusal

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 100_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT = re.compile(r"[-+]?[0-9]{1,400}")
_HEX_OR_OCTAL = re.compile(r"0x[0-9a-fA-F]{1,400}|0o[0-7]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_QUOTE = "check the indentation of this line, and quote a value that has ': ', ' #', or inside [ ] or { } a comma"
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(slots=True)
class Node:
    """A YAML value with its place. `value` is a scalar, a list of nodes, or a dict of nodes; `text` the raw scalar."""

    location: Location
    value: Any
    text: str = ""
    keys: dict[str, Location] = field(default_factory=dict)
    inside: "Inside | None" = None

    def plain(self) -> Any:
        """Return the value without locations."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def get(self, key: str) -> "Node | None":
        return self.value.get(key) if isinstance(self.value, dict) else None

    def items(self) -> list["Node"]:
        return self.value if isinstance(self.value, list) else []

    def at(self, path: "list[str | int]") -> Location:
        """Return the location of the value at `path`, or of the nearest existing value above it."""
        node = self
        for step in path:
            inside: Any = node.value
            try:
                node = inside[step]
            except (KeyError, IndexError, TypeError):
                break
        return node.location


@dataclass(frozen=True, slots=True)
class Inside:
    """The position of the text of a scalar, which maps positions in the text to positions in the file.

    A scalar over several lines other than a `|` block, or one with escapes, has no such start.
    """

    start: Location
    block: bool

    def place(self, line: int, column: int) -> Location:
        """Return the position in the file of a line and column of the text, from 1."""
        first = line == 1 or self.block
        return Location(
            self.start.path, self.start.line + line - 1, self.start.column - 1 + column if first else column
        )


class Refused(Exception):
    """The text is not what we read as YAML; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def parse(path: Path, shown: Path) -> tuple[Node, list[Finding]]:
    """Return the tree of one file, and its duplicate keys. Locations name the file `shown`.

    Raise Refused for a file that cannot be read, is not YAML, or exceeds a limit.
    """
    text = _read(path, shown)
    builder = _Builder(shown, text)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
    except yaml.YAMLError as error:
        raise Refused(_syntax(shown, text, error)) from error
    except (RecursionError, ValueError) as error:
        raise Refused(refusal("PV002", Location(shown), f"invalid YAML: {error}")) from error
    if builder.root is None:
        raise Refused(refusal("PV002", Location(shown), "empty file", "a contract starts with 'schema: pv/1'"))
    return builder.root, builder.findings


def _read(path: Path, shown: Path) -> str:
    try:
        # A pipe or device may never answer, so it is not even opened.
        if not path.is_file() and not path.is_dir() and path.exists():
            raise Refused(refusal("PV001", Location(shown), "cannot read the file: not a regular file"))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Refused(refusal("PV001", Location(shown), f"cannot read the file: {error.strerror or error}")) from error
    except ValueError as error:  # the name itself, by a NUL or a character that the file system cannot write
        raise Refused(refusal("PV001", Location(shown), f"cannot read the file: {error}")) from error
    if len(data) > MAX_BYTES:
        message = f"file too large: expected at most {MAX_BYTES >> 20} MiB"
        raise Refused(refusal("PV003", Location(shown), message, "split the contract"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"invalid UTF-8: byte 0x{data[error.start]:02x}"
        location = _after(shown, data[: error.start].decode("utf-8-sig"))
        raise Refused(refusal("PV001", location, message, "save the file as UTF-8")) from error


def _after(shown: Path, text: str) -> Location:
    """Return the position just after `text`."""
    return Location(shown, text.count("\n") + 1, len(text) - text.rfind("\n"))


class _Builder:
    """Builds the tree from parser events, without recursion, so that depth is our limit and not the stack's."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.rows = [*_LINE_END.split(text), ""]
        self.root: Node | None = None
        self.findings: list[Finding] = []
        self._open: list[tuple[Node, list[Node]]] = []
        self._nodes = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._refuse("PV004", event, f"unsupported alias *{event.anchor}", "write out the value")
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self._refuse("PV004", event, "unsupported second document", "one contract, one file")
        if isinstance(event, yaml.NodeEvent):
            self._check(event)
        if isinstance(event, yaml.ScalarEvent):
            self._add(Node(self._where(event), _scalar(event), event.value, inside=self._inside(event)))
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._open.append((Node(self._where(event), empty), []))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()

    def _check(self, event: Any) -> None:
        self._nodes += 1
        if event.anchor:
            self._refuse("PV004", event, f"unsupported anchor &{event.anchor}", "write out the value in each place")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._refuse("PV004", event, f"unsupported tag {tag!r}", "contracts are plain data, without tags")
        if len(self._open) >= MAX_DEPTH:
            self._refuse("PV003", event, f"too deep: expected at most {MAX_DEPTH} levels", "flatten the contract")
        if self._nodes > MAX_NODES:
            self._refuse("PV003", event, f"too many values: expected at most {MAX_NODES}", "split the contract")

    def _add(self, node: Node) -> None:
        if self._open:
            self._open[-1][1].append(node)
        else:
            self.root = node

    def _close(self) -> None:
        node, parts = self._open.pop()
        if isinstance(node.value, list):
            node.value = parts
        else:
            for key, value in zip(parts[::2], parts[1::2], strict=True):
                self._put(node, key, value)
        self._add(node)

    def _put(self, node: Node, key: Node, value: Node) -> None:
        if isinstance(key.value, dict | list):
            raise Refused(refusal("PV004", key.location, "invalid key: a mapping or list", "keys are plain words"))
        name = key.text
        if name in node.value:
            first = node.keys[name]
            message = f"duplicate key {name!r} (first defined at line {first.line})"
            self.findings.append(refusal("PV005", key.location, message, "remove one of them"))
        else:
            node.value[name] = value
            node.keys[name] = key.location

    def _inside(self, event: Any) -> Inside | None:
        first, last = event.start_mark, event.end_mark
        if event.style == "|":
            rows = enumerate(self.rows[first.line + 1 : last.line + 1], first.line + 1)
            number, row = next(((n, row) for n, row in rows if row.strip()), (first.line + 1, ""))
            blank = number - first.line - 1  # leading empty lines are part of the text
            return Inside(Location(self.path, number + 1 - blank, len(row) - len(row.lstrip(" ")) + 1), block=True)
        quoted = event.style in ("'", '"')
        written = self.rows[first.line][first.column : last.column] if first.line == last.line else ""
        if written != (f"{event.style}{event.value}{event.style}" if quoted else event.value):
            return None
        return Inside(Location(self.path, first.line + 1, first.column + 1 + quoted), block=False)

    def _where(self, event: Any) -> Location:
        return Location(self.path, event.start_mark.line + 1, event.start_mark.column + 1)

    def _refuse(self, code: str, event: Any, message: str, hint: str) -> None:
        raise Refused(refusal(code, self._where(event), message, hint))


def _scalar(event: Any) -> Any:
    """Return the value of a scalar by the YAML 1.2 core schema; quoted and block scalars are strings."""
    text: str = event.value
    if event.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _HEX_OR_OCTAL.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def _syntax(shown: Path, text: str, error: yaml.YAMLError) -> Finding:
    if isinstance(error, yaml.reader.ReaderError):  # it names no place, only the character
        place = text.find(error.character if isinstance(error.character, str) else chr(error.character))
        message = f"invalid YAML: the control character {text[place]!r}"
        return refusal("PV002", _after(shown, text[: max(0, place)]), message, "remove it, or write it as an escape")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    location = Location(shown, mark.line + 1, mark.column + 1) if mark else Location(shown)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    return refusal("PV002", location, f"invalid YAML: {problem}" + (f" {context}" if context else ""), _hint(error))


def _hint(error: yaml.YAMLError) -> str:
    """Return a hint where the structure is wrong, not a single scalar or directive."""
    structure = isinstance(error, yaml.parser.ParserError) and error.context is not None
    return _QUOTE if structure or (isinstance(error, yaml.scanner.ScannerError) and error.context is None) else ""


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and every node below it."""
    todo = [node]
    while todo:
        current = todo.pop()
        yield current
        if isinstance(current.value, dict):
            todo.extend(current.value.values())
        elif isinstance(current.value, list):
            todo.extend(current.value)
