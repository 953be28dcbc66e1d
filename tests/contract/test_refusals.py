"""Invalid contracts are refused with file, line and column, whatever the file contains."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Severity
from pv.contract.load import load
from tests.commands.small import run
from tests.support import projects
from tests.support.projects import BAD, findings

Write = Callable[[str | bytes], Path]
TINY = BAD / "project"
GOOD = (BAD / "good.yaml").read_text(encoding="utf-8")
SOON_S = 60.0
NO_MAPPING = "1:1 PV014 not a contract: expected a mapping; start it with 'schema: pv/1'"
SPLIT = "split the contract"
NO_ALIAS = "write out the value in each place"
NO_TAG = "contracts are plain data, without tags"
DEEP = "too deep: expected at most 32 levels; flatten the contract"
QUOTE = "check the indentation of this line, and quote a value that has ': ', ' #', or inside [ ] or { } a comma"
SCANNING = "while scanning for the next token"
CONTROL = "remove it, or write it as an escape"


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
    started = time.process_time()
    loaded = load([path])
    assert time.process_time() - started < SOON_S
    assert all(found.location.path == path and found.location.line >= 1 for found in loaded.findings)
    assert all(found.severity is Severity.REFUSAL for found in loaded.findings)
    assert loaded.contracts == ()
    return [str(found).removeprefix(f"{path}:") for found in loaded.findings]


def spoilt(old: str, new: str) -> str:
    """The sound contract with one place changed."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def with_key(text: str) -> str:
    return spoilt("  kills:", f"  {text}\n  kills:")


# Beside those of tests/bad_contracts.
TEXTS: dict[str, tuple[str | bytes, str]] = {
    "binary": (bytes(range(256)), "2:118 PV001 invalid UTF-8: byte 0x80; save the file as UTF-8"),
    "nul bytes": (b"schema: pv/1\nid: a\0b\n", f"2:6 PV002 invalid YAML: the control character '\\x00'; {CONTROL}"),
    "latin-1": ("a: é\nb: ü".encode("latin-1"), "1:4 PV001 invalid UTF-8: byte 0xe9; save the file as UTF-8"),
    "huge": (b"a: " + b"x" * (1 << 20), "1:1 PV003 file too large: expected at most 1 MiB; split the contract"),
    "empty": ("", "1:1 PV002 empty file; a contract starts with 'schema: pv/1'"),
    "cut": ('schema: "pv/1', "1:14 PV002 invalid YAML: found unexpected end of stream while scanning a quoted scalar"),
    "colon": ("a: b: c", f"1:5 PV002 invalid YAML: mapping values are not allowed in this context; {QUOTE}"),
    "tab": ("a:\n\tb: 1", f"2:1 PV002 invalid YAML: found character that cannot start any token {SCANNING}"),
    "alias bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", f"1:4 PV004 unsupported anchor &a; {NO_ALIAS}"),
    "alias": ("a: *b", "1:4 PV004 unsupported alias *b; write out the value"),
    "python object": (
        "a: !!python/object/apply:os.system [x]",
        f"1:4 PV004 unsupported tag 'tag:yaml.org,2002:python/object/apply:os.system'; {NO_TAG}",
    ),
    "documents": ("a: 1\n---\nb: 2", "2:1 PV004 unsupported second document; one contract, one file"),
    "compound key": ("? [a, b]\n: 1", "1:3 PV004 invalid key: a mapping or list; keys are plain words"),
    "deep block": ("".join(" " * i + "a:\n" for i in range(500)), f"32:32 PV003 {DEEP}"),
    "many values": ("[" + "1," * 100_001 + "]", f"1:200000 PV003 too many values: expected at most 100000; {SPLIT}"),
    "a list": ("- schema: pv/1", NO_MAPPING),
    "a mapping": ("a: 1", "1:1 PV014 not a contract: missing key 'schema'; start it with 'schema: pv/1'"),
}

INVALID, CLAIM, TARGET = "PV012 invalid value", "'falsifiers[0]", "expected module or module:attribute"
DASH = "Python names have no '-': rename it, such as to"
SPOILT = [
    (spoilt("1.0.0", "1.0"), "2:31 PV012 invalid value 1.0 for 'metadata.version': expected text (quote it)"),
    (spoilt("subject: tiny", "subject: ../tiny.py"), f"3:10 {INVALID} '../tiny.py' for 'subject': {TARGET}"),
    (spoilt("subject: tiny", "subject: my-f:f"), f"3:10 {INVALID} 'my-f:f' for 'subject': {TARGET}; {DASH} 'my_f:f'"),
    (
        spoilt("falsifiers/falsify_tiny.py", "/etc/x.py"),
        f"11:9 {INVALID} '/etc/x.py::falsify_double' for {CLAIM}.test': expected path/to/file.py::function",
    ),
    (
        spoilt("[tripled]", "[tripled, tripled]"),
        f"12:10 {INVALID} ['tripled', 'tripled'] for {CLAIM}.kills': expected no duplicate item",
    ),
    (with_key("devices: [tpu]"), f"12:13 {INVALID} 'tpu' for {CLAIM}.devices[0]': expected one of 'cpu', 'cuda'"),
    (with_key("examples: 0"), f"12:13 {INVALID} 0 for {CLAIM}.examples': expected at least 1"),
    (with_key("limit: .nan"), "12:10 PV012 invalid value '.nan': expected a finite number; quote it if it is text"),
    (
        spoilt("edit: {", "swap: {object: a:b, with: a:c}, edit: {"),
        "14:3 PV012 invalid 'mutants[0]': expected exactly one of 'edit', 'swap'",
    ),
    (
        spoilt("find: number * 2", "find: f(number, 2)"),
        "14:91 PV010 unknown key '2)' in 'mutants[0].edit'; "
        "quote the value: inside [ ] and { } YAML splits it at commas",
    ),
    ("metadata: x\nequations: {}", "1:11 PV012 invalid value 'x' for 'metadata': expected a mapping"),
]


@pytest.mark.parametrize(("content", "says"), [*(pytest.param(*v, id=name) for name, v in TEXTS.items()), *SPOILT])
def test_what_is_no_sound_contract_is_refused_at_its_place(content: str | bytes, says: str, write: Write) -> None:
    assert refusals(write(content)) == [says]


def test_keys_that_are_missing_together_are_reported_once(write: Write) -> None:
    lines = (line for line in GOOD.splitlines() if not line.startswith(("  rule:", "  prediction:")))
    (found,) = refusals(write("\n".join(lines)))
    assert found.endswith("PV011 missing key 'rule', 'prediction' in 'falsifiers[0]'; add it")


@pytest.mark.parametrize("number", ["9" * 10**5, "1e999", "0x" + "f" * 10**4])
@pytest.mark.parametrize("key", ["examples", "limit"])
def test_a_number_out_of_all_bounds_is_refused(number: str, key: str, write: Write) -> None:
    path = write(with_key(f"{key}: {number}"))
    assert {said.split(" ")[0] + said.split(" ")[1] for said in refusals(path)} == {f"12:{len(key) + 5}PV012"}


@pytest.mark.parametrize("find", ["(" * 1000, "a" + ".b" * 20_000, '"\\0"'])
def test_a_mutant_nested_beyond_the_parser_does_not_apply(find: str, write: Write) -> None:
    path = write(spoilt("find: number * 2", f"find: {find!r}"))
    assert [finding.code for finding in findings(TINY, path)] == ["PV133"]


MANY = {
    "PV130": spoilt("[tripled]", f"[tripled, {', '.join(f'm{i}' for i in range(10_000))}]"),
    "PV010": GOOD + "".join(f"falsifierz{i}: 1\n" for i in range(5_000)),
    "PV141": spoilt("[{id: O, ", f"[{''.join(f'{{id: O{i}, statement: x}}, ' for i in range(3_000))}{{id: O, "),
}


@pytest.mark.parametrize("code", MANY)
def test_many_problems_do_not_hold_up_the_check(code: str, write: Write) -> None:
    path, started = write(MANY[code]), time.process_time()
    assert code in {finding.code for finding in findings(TINY, path)}
    assert time.process_time() - started < SOON_S


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


def test_what_cannot_be_read_is_refused_and_not_waited_for(tmp_path: Path) -> None:
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
    found = findings(tmp_path, write(GOOD))
    assert [each.code for each in found] == ["PV120", "PV135"]  # for the subject, and for the mutant of it
    assert all(f"tiny.py{place} is not valid Python: " in each.message for each in found)


@pytest.mark.parametrize(("file", "code"), [("tiny.py", "PV120"), ("falsifiers/falsify_tiny.py", "PV110")])
def test_an_import_that_is_no_python_is_a_finding(file: str, code: str, tmp_path: Path, write: Write) -> None:
    files = {"tiny.py": DOUBLE, "falsifiers/falsify_tiny.py": "def falsify_double(subject): assert True\n"}
    files[file] = f"import helper\n{files[file]}"
    projects.write(tmp_path, {"pyproject.toml": "[tool.pv]\n", "helper.py": "def double(:\n", **files})
    (found,) = findings(tmp_path, write(GOOD))
    assert found.code == code and "helper.py:1:12 is not valid Python: " in found.message
