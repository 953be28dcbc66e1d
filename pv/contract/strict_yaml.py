"""Strict YAML loader for untrusted files: limits their size, refuses aliases and tags, and locates every value.

Scalars follow the core schema of YAML 1.2: `1e-6` is a number, `no` is a string, and `012` is the number 12. PyYAML,
which implements YAML 1.1, is used only to split the text into events.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from pv.contract.finding import Finding, Location, refusal

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 100_000

# The parser in C, if PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The core schema of YAML 1.2.2, section 10.3.2. Digits are limited: Python needs quadratic time to parse an integer.
_INT = re.compile(r"[-+]?[0-9]{1,400}")
_HEX_OR_OCTAL = re.compile(r"0x[0-9a-fA-F]{1,400}|0o[0-7]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_YAML_HINT = (
    "check the indentation of this line; quote a value that contains ': ' or ' #', or a comma inside [ ] or { }"
)
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
# Plain scalars that are null or a boolean, and the numbers that are written without digits.
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(slots=True)
class Node:
    """A YAML value with its location.

    Attributes:
        value: A scalar, a list of nodes, or a dict of nodes.
        text: The text of a scalar, without quotes and with escapes replaced; "" for other values.
        keys: The locations of the keys of a mapping.
        text_position: Maps positions in the text of a scalar to positions in the file; None if that is impossible.
    """

    location: Location
    value: Any
    text: str = ""
    keys: dict[str, Location] = field(default_factory=dict)
    text_position: "TextPosition | None" = None

    def plain(self) -> object:
        """Return the value without locations."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def get(self, key: str) -> "Node | None":
        """Return the value of a key; None if the node is no mapping or does not have the key."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def items(self) -> list["Node"]:
        """Return the items of a list; [] for any other value."""
        return self.value if isinstance(self.value, list) else []

    def at(self, path: "list[str | int]") -> Location:
        """Return the location of the value at `path`, or of the nearest existing value above it."""
        node = self
        for step in path:
            children = node.value if isinstance(node.value, dict) else dict(enumerate(node.items()))
            if step not in children:
                break
            node = children[step]
        return node.location


@dataclass(frozen=True, slots=True)
class TextPosition:
    """The position of the text of a scalar in the file, which maps positions in the text to positions in the file.

    Exists only for text on one line without escapes, and for `|` blocks: other styles change line ends or characters.

    Attributes:
        start: The position of the first character.
        block: Whether it is a `|` block, whose lines all start in one column.
    """

    start: Location
    block: bool

    def locate(self, line: int, column: int) -> Location:
        """Return the position in the file of a line and a column of the text, both from 1."""
        shift = self.start.column - 1 if line == 1 or self.block else 0
        return Location(self.start.path, self.start.line + line - 1, shift + column)


class Refused(Exception):
    """The file is not valid strict YAML; `finding` has the location and the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def parse(path: Path, shown: Path) -> tuple[Node, list[Finding]]:
    """Return the tree of one file, and a finding for every duplicate key.

    Args:
        path: The file to read.
        shown: The path that locations in messages have.

    Raises:
        Refused: The file cannot be read, is not YAML, exceeds a limit, or has an anchor, an alias, a tag, a second
            document, or a key that is a mapping or list.
    """
    text = _read(path, shown)
    builder = _Builder(shown, text)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.add(event)
    except yaml.YAMLError as error:
        raise Refused(_syntax_finding(shown, text, error)) from error
    except (RecursionError, ValueError) as error:
        raise Refused(refusal("PV002", Location(shown), f"invalid YAML: {error}")) from error
    if builder.root is None:
        raise Refused(refusal("PV002", Location(shown), "empty file", "a contract starts with 'schema: pv/1'"))
    return builder.root, builder.findings


def _read(path: Path, shown: Path) -> str:
    try:
        # Do not open a pipe or a device: opening a pipe without a writer blocks forever.
        if not path.is_file() and not path.is_dir() and path.exists():
            raise Refused(refusal("PV001", Location(shown), "cannot read the file: not a regular file"))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # one byte above the limit, to detect a larger file
    except OSError as error:
        raise Refused(refusal("PV001", Location(shown), f"cannot read the file: {error.strerror or error}")) from error
    except ValueError as error:  # the name has a NUL, or a character that the file system cannot encode
        raise Refused(refusal("PV001", Location(shown), f"cannot read the file: {error}")) from error
    if len(data) > MAX_BYTES:
        message = f"file too large: expected at most {MAX_BYTES >> 20} MiB"
        raise Refused(refusal("PV003", Location(shown), message, "split the contract"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `error.object` is the data without a byte order mark, which `error.start` does not count.
        message = f"invalid UTF-8: byte 0x{error.object[error.start]:02x}"
        location = _after(shown, error.object[: error.start].decode("utf-8"))
        raise Refused(refusal("PV001", location, message, "save the file as UTF-8")) from error


def _after(shown: Path, text: str) -> Location:
    """Return the position just after `text`."""
    return Location(shown, text.count("\n") + 1, len(text) - text.rfind("\n"))


class _Builder:
    """Builds the tree from the events of the parser.

    `_open` has the open mappings and lists, from the outermost to the innermost, each with its complete child nodes.
    There is no recursion, so the depth of a hostile file is limited by MAX_DEPTH and not by Python's stack.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.rows = [*_LINE_END.split(text), ""]
        self.root: Node | None = None
        self.findings: list[Finding] = []
        self._open: list[tuple[Node, list[Node]]] = []
        self._nodes = 0

    def add(self, event: yaml.Event) -> None:
        """Add the next event of the parser. Raise Refused."""
        if isinstance(event, yaml.AliasEvent):
            self._refuse("PV004", event, f"unsupported alias *{event.anchor}", "write out the value")
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self._refuse("PV004", event, "unsupported second document", "write one contract per file")
        if isinstance(event, yaml.NodeEvent):
            self._check(event)
        if isinstance(event, yaml.ScalarEvent):
            position = self._text_position(event)
            self._attach(Node(self._location(event), _scalar(event), event.value, text_position=position))
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            empty: dict[str, Node] | list[Node] = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._open.append((Node(self._location(event), empty), []))
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()

    def _check(self, event: yaml.NodeEvent) -> None:
        """Refuse anchors, tags, and values that exceed a limit."""
        self._nodes += 1
        if event.anchor:
            self._refuse("PV004", event, f"unsupported anchor &{event.anchor}", "write out the value in each place")
        tag = getattr(event, "tag", None)
        # Other loaders may create any Python object for a tag. Here a tag is refused, rather than ignored silently.
        if tag is not None:
            self._refuse("PV004", event, f"unsupported tag {tag!r}", "contracts are plain data, without tags")
        if len(self._open) >= MAX_DEPTH:
            self._refuse("PV003", event, f"too deep: expected at most {MAX_DEPTH} levels", "flatten the contract")
        if self._nodes > MAX_NODES:
            self._refuse("PV003", event, f"too many values: expected at most {MAX_NODES}", "split the contract")

    def _attach(self, node: Node) -> None:
        """Add a complete node to the innermost open mapping or list; if none is open, make the node the root."""
        if self._open:
            self._open[-1][1].append(node)
        else:
            self.root = node

    def _close(self) -> None:
        """Complete the innermost open mapping or list, and add it to the mapping or list around it."""
        node, children = self._open.pop()
        if isinstance(node.value, list):
            node.value = children
        else:  # keys and values alternate
            for key, value in zip(children[::2], children[1::2], strict=True):
                self._put(node, key, value)
        self._attach(node)

    def _put(self, node: Node, key: Node, value: Node) -> None:
        """Add a key and its value to a mapping; record a finding for a duplicate key."""
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

    def _text_position(self, event: Any) -> TextPosition | None:
        """Return the position of the text of a scalar; None if the text in the file is escaped or folded."""
        first, last = event.start_mark, event.end_mark
        if event.style == "|":
            # The same indentation is removed from all rows; leading blank rows are part of the text.
            rows = zip(self.rows[first.line + 1 : last.line + 1], _LINE_END.split(event.value), strict=False)
            indentation = next((len(row) - len(text) for row, text in rows if text.strip()), 0)
            return TextPosition(Location(self.path, first.line + 2, indentation + 1), block=True)
        quoted = event.style in ("'", '"')
        # If the file has exactly the value between the marks, nothing was escaped or folded.
        written = self.rows[first.line][first.column : last.column] if first.line == last.line else ""
        if written != (f"{event.style}{event.value}{event.style}" if quoted else event.value):
            return None
        return TextPosition(Location(self.path, first.line + 1, first.column + 1 + quoted), block=False)

    def _location(self, event: Any) -> Location:
        return Location(self.path, event.start_mark.line + 1, event.start_mark.column + 1)

    def _refuse(self, code: str, event: yaml.Event, message: str, hint: str) -> NoReturn:
        raise Refused(refusal(code, self._location(event), message, hint))


def _scalar(event: yaml.ScalarEvent) -> bool | int | float | str | None:
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


def _syntax_finding(shown: Path, text: str, error: yaml.YAMLError) -> Finding:
    """Return the finding of a syntax error that PyYAML reports."""
    if isinstance(error, yaml.reader.ReaderError):  # has the invalid character, but no location
        position = text.find(error.character if isinstance(error.character, str) else chr(error.character))
        message = f"invalid YAML: the control character {text[position]!r}"
        return refusal("PV002", _after(shown, text[: max(0, position)]), message, "remove it, or write it as an escape")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    location = Location(shown, mark.line + 1, mark.column + 1) if mark else Location(shown)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    return refusal("PV002", location, f"invalid YAML: {problem}" + (f" {context}" if context else ""), _hint(error))


def _hint(error: yaml.YAMLError) -> str:
    """Return a hint about structure if the structure of the text is wrong; "" if a scalar or a directive is wrong."""
    # PyYAML gives structural errors of its parser a context ("while parsing a block mapping"), and structural errors of
    # its scanner none ("mapping values are not allowed here").
    structure = isinstance(error, yaml.parser.ParserError) and error.context is not None
    structure = structure or (isinstance(error, yaml.scanner.ScannerError) and error.context is None)
    return _YAML_HINT if structure else ""


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
