"""Invalid contracts are refused with file, line and column, whatever the file contains."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from pv.contract.check import TYPES, compile_schema
from pv.contract.finding import Severity
from pv.contract.load import load
from tests.commands.small import run
from tests.support import projects
from tests.support.calls import count_calls
from tests.support.projects import BAD, findings

Write = Callable[[str | bytes], Path]
TINY = BAD / "project"
GOOD = (BAD / "good.yaml").read_text(encoding="utf-8")
TABLE = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a contract of this content, text as UTF-8."""

    def write_(content: str | bytes) -> Path:
        path = tmp_path / "contract.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_


def refusals(path: Path) -> list[str]:
    """What loading says of a file, without its path; every refusal at a place, and no contract with one."""
    loaded = load([path])
    assert all(finding.location.path == path and finding.location.line >= 1 for finding in loaded.findings)
    assert all(finding.severity is Severity.REFUSAL for finding in loaded.findings)
    assert loaded.contracts == ()
    return [str(finding).removeprefix(f"{path}:") for finding in loaded.findings]


def spoilt(old: str, new: str) -> str:
    """The sound contract with one place changed."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


# In addition to the files of tests/bad_contracts.
TEXTS: dict[str, tuple[str | bytes, str]] = {
    "binary": (bytes(range(256)), "2:118 PV001 invalid UTF-8: byte 0x80; save the file as UTF-8"),
    "byte order mark": (
        b"\xef\xbb\xbf" + "é".encode() + b"\xff",
        "1:2 PV001 invalid UTF-8: byte 0xff; save the file as UTF-8",
    ),
    "latin-1": ("a: é\nb: ü".encode("latin-1"), "1:4 PV001 invalid UTF-8: byte 0xe9; save the file as UTF-8"),
    "huge": (b"a: " + b"x" * (1 << 20), "1:1 PV003 file too large: expected at most 1 MiB; split the contract"),
    "deep block": (
        "".join(" " * i + "a:\n" for i in range(500)),
        "32:32 PV003 too deep: expected at most 32 levels; flatten the contract",
    ),
    "many values": (
        "[" + "1," * 100_001 + "]",
        "1:200000 PV003 too many values: expected at most 100000; split the contract",
    ),
    **TABLE["texts"],
    **{says: (spoilt(old, new), says) for old, new, says in TABLE["spoilt"]},
}


@pytest.mark.parametrize("name", TEXTS)
def test_invalid_contract_is_refused_with_its_position(name: str, write: Write) -> None:
    content, says = TEXTS[name]
    assert refusals(write(content)) == [says]


SCHEMAS = [
    *({"type": name} for name in (*TYPES, ["null", "number"])),
    *({keyword: 1} for keyword in ("minimum", "maximum", "exclusiveMinimum", "minLength", "minItems", "minProperties")),
    *({keyword: [{"minimum": 1}, {"maximum": 1}]} for keyword in ("anyOf", "oneOf")),
    *({"required": ["a"]}, {"uniqueItems": True}, {"enum": ["a", ""]}, {"const": "a"}, {"pattern": "a"}),
    *({"items": {"minimum": 1}}, {"propertyNames": {"minLength": 1}}),
    {"properties": {"a": {"minimum": 1}}, "additionalProperties": False},
]
VALUES = json.loads(
    '[null, true, 0, 1, 1.0, 1.5, 2, "", "a", "b", [], [0], [1, 1], [1, 2], {}, {"a": 0}, {"a": 1}, {"": 1}]'
)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_compiled_schema_agrees_with_jsonschema(schema: dict[str, Any]) -> None:
    accepted, expected = compile_schema(schema), Draft202012Validator(schema).is_valid
    assert [value for value in VALUES if accepted(value) != expected(value)] == []


def test_keys_that_are_missing_together_are_reported_once(write: Write) -> None:
    lines = (line for line in GOOD.splitlines() if not line.startswith(("  rule:", "  prediction:")))
    (finding,) = refusals(write("\n".join(lines)))
    assert finding.endswith("PV011 missing key 'rule', 'prediction' in 'falsifiers[0]'; add it")


@pytest.mark.parametrize("number", ["9" * 10**5, "1e999", "0x" + "f" * 10**4])
@pytest.mark.parametrize("key", ["examples", "limit"])
def test_a_number_out_of_all_bounds_is_refused(number: str, key: str, write: Write) -> None:
    path = write(spoilt("  kills:", f"  {key}: {number}\n  kills:"))
    assert {refusal.split(" ")[0] + refusal.split(" ")[1] for refusal in refusals(path)} == {f"12:{len(key) + 5}PV012"}


@pytest.mark.parametrize("find", ["(" * 1000, "a" + ".b" * 20_000, '"\\0"'])
def test_a_mutant_nested_beyond_the_parser_does_not_apply(find: str, write: Write) -> None:
    path = write(spoilt("find: number * 2", f"find: {find!r}"))
    assert [finding.code for finding in findings(TINY, path)] == ["PV133"]


MANY: dict[str, Callable[[int], str]] = {
    "PV130": lambda n: spoilt("[tripled]", f"[tripled, {', '.join(f'm{i}' for i in range(n))}]"),
    "PV010": lambda n: GOOD + "".join(f"falsifierz{i}: 1\n" for i in range(n)),
    "PV141": lambda n: spoilt("[{id: O, ", f"[{''.join(f'{{id: O{i}, statement: x}}, ' for i in range(n))}{{id: O, "),
}


@pytest.mark.parametrize("code", MANY)
def test_many_problems_take_linear_time(code: str, write: Write) -> None:
    def calls(number: int) -> int:
        path = write(MANY[code](number))
        return count_calls(lambda: codes.extend(finding.code for finding in findings(TINY, path)))

    codes: list[str] = []
    calls(10)  # fills the caches
    few, lots = calls(200), calls(2_000)
    assert code in codes and lots < 12 * few


def test_every_file_of_a_folder_is_judged_by_itself(tmp_path: Path, write: Write) -> None:
    write(GOOD)
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "z.yml").write_bytes(b"\xff")
    loaded = load([tmp_path, tmp_path / "again"])
    assert [contract.id for contract in loaded.contracts] == ["good"]
    assert [(f.location.path.name, f.code) for f in loaded.findings] == [("a.yaml", "PV002"), ("z.yml", "PV001")]
    ended = run("lint", str(tmp_path))
    assert (ended.returncode, ended.stderr) == (3, "")
    assert f"refusal: {tmp_path}/z.yml:1:1 PV001 invalid UTF-8: byte 0xff; save the file as UTF-8\n" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("1 contract: 2 invalid files, ")


def test_unreadable_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    assert refusals(path) == ["1:1 PV001 cannot read the file: No such file or directory"]
    os.mkfifo(path)
    assert refusals(path) == ["1:1 PV001 cannot read the file: not a regular file"]
    path.unlink()
    path.symlink_to(path)
    assert refusals(path) == ["1:1 PV001 cannot read the file: Too many levels of symbolic links"]


@pytest.mark.parametrize("content", [GOOD.replace("\n", "\r\n"), b"\xef\xbb\xbf" + GOOD.encode()])
def test_files_of_other_systems_are_read(content: str | bytes, write: Write) -> None:
    assert findings(TINY, write(content)) == []


DOUBLE = "def double(number):\n    return number * 2\n"


@pytest.mark.parametrize(
    ("source", "place"),
    [("def double(:\n", ":1:12"), ("x = 1\n  y = 2\n", ":2:2"), ("x = " + "-" * 20_000 + "1", ""), ("x = '\0'", "")],
)
def test_a_subject_that_is_no_python_is_a_finding(source: str, place: str, tmp_path: Path, write: Write) -> None:
    test = "def falsify_double(subject): assert True\n"
    projects.write(tmp_path, {"pyproject.toml": "[tool.pv]\n", "tiny.py": source, "falsifiers/falsify_tiny.py": test})
    problems = findings(tmp_path, write(GOOD))
    assert [problem.code for problem in problems] == ["PV120", "PV135"]  # for the subject, and for the mutant of it
    assert all(f"tiny.py{place} is not valid Python: " in problem.message for problem in problems)


@pytest.mark.parametrize(("file", "code"), [("tiny.py", "PV120"), ("falsifiers/falsify_tiny.py", "PV110")])
def test_an_import_that_is_no_python_is_a_finding(file: str, code: str, tmp_path: Path, write: Write) -> None:
    files = {"tiny.py": DOUBLE, "falsifiers/falsify_tiny.py": "def falsify_double(subject): assert True\n"}
    files[file] = f"import helper\n{files[file]}"
    projects.write(tmp_path, {"pyproject.toml": "[tool.pv]\n", "helper.py": "def double(:\n", **files})
    (finding,) = findings(tmp_path, write(GOOD))
    assert finding.code == code and "helper.py:1:12 is not valid Python: " in finding.message
