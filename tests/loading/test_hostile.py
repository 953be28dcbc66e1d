"""Whatever a file holds, loading answers with refusals at a place, soon, and without an exception."""

# ruff: noqa: E501  (a case and what is said of it stand in one line)

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pv.linting import lint
from pv.loading import load
from pv.model import Finding, Severity
from pv.project import Project, find_project

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "tests" / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")
PROJECT = find_project(ROOT / "tests" / "bad_contracts" / "project")
# Fifty times what any case takes here: a case that is over it does something quadratic.
SOON_S = 20.0


@dataclass(frozen=True)
class Hostile:
    """What a file holds, and the finding it gets, without its path."""

    name: str
    data: bytes
    says: str


def text(name: str, content: str, says: str) -> Hostile:
    return Hostile(name, content.encode(), says)


def spoilt(name: str, old: str, new: str, says: str) -> Hostile:
    """The sound contract with one place changed."""
    assert GOOD.count(old) == 1, old
    return text(name, GOOD.replace(old, new), says)


EMPTY = "1:1 PV002 the file is empty; a contract starts with 'schema: pv/1'"
NO_MAPPING = "1:1 PV014 a contract is a mapping, and this file is not"
NO_ALIAS = "contracts have no anchors or aliases"
NO_TAG = "contracts are plain data, without tags"
NOT_UTF8 = "save the file as UTF-8"
CONTROL = "remove it, or write it as an escape"
DEEP = "nested deeper than 32 levels; flatten the contract"

BYTES = [
    Hostile("binary", bytes(range(256)), "2:118 PV001 is not UTF-8: byte 0x80; " + NOT_UTF8),
    Hostile("nul bytes", b"schema: pv/1\nid: a\0b\n", f"2:6 PV002 not YAML: the control character '\\x00'; {CONTROL}"),
    Hostile("utf-16 with a mark", GOOD.encode("utf-16"), "1:1 PV001 is not UTF-8: byte 0xff; " + NOT_UTF8),
    Hostile(
        "utf-16 without", GOOD.encode("utf-16-le"), f"1:2 PV002 not YAML: the control character '\\x00'; {CONTROL}"
    ),
    Hostile("utf-32", GOOD.encode("utf-32"), "1:1 PV001 is not UTF-8: byte 0xff; " + NOT_UTF8),
    Hostile("latin-1", "a: é\nb: ü".encode("latin-1"), "1:4 PV001 is not UTF-8: byte 0xe9; " + NOT_UTF8),
    Hostile(
        "latin-1 behind utf-8", "é: ".encode() + "ü".encode("latin-1"), "1:4 PV001 is not UTF-8: byte 0xfc; " + NOT_UTF8
    ),
    Hostile("cut inside a character", "schema: é".encode()[:-1], "1:9 PV001 is not UTF-8: byte 0xc3; " + NOT_UTF8),
    Hostile("surrogate", b"a: \xed\xa0\x80", "1:4 PV001 is not UTF-8: byte 0xed; " + NOT_UTF8),
    Hostile("huge", b"a: " + b"x" * (1 << 20), "1:1 PV003 is over 1 MiB; split the contract"),
    Hostile(
        "control character",
        b"schema: pv/1\na: \x1b[31m",
        f"2:4 PV002 not YAML: the control character '\\x1b'; {CONTROL}",
    ),
]
SYNTAX = [
    text("empty", "", EMPTY),
    text("only a mark", "\ufeff", EMPTY),
    text("only comments", "# schema: pv/1\n\n# nothing\n", EMPTY),
    text("only a document start", "---\n", "2:1 PV014 a contract is a mapping, and this file is not"),
    text(
        "truncated in a quote",
        'schema: "pv/1',
        "1:14 PV002 not YAML: found unexpected end of stream while scanning a quoted scalar",
    ),
    text(
        "truncated in a list",
        "schema: [pv/1",
        "2:1 PV002 not YAML: did not find expected ',' or ']' while parsing a flow sequence",
    ),
    text(
        "a tab as indentation",
        "a:\n\tb: 1",
        "2:1 PV002 not YAML: found character that cannot start any token while scanning for the next token",
    ),
    text("a stray bracket", "a: 1\n]", "2:1 PV002 not YAML: did not find expected key while parsing a block mapping"),
    text(
        "bad indentation",
        "a:\n  b: 1\n c: 2",
        "3:2 PV002 not YAML: did not find expected key while parsing a block mapping",
    ),
    text(
        "a bad escape", 'a: "\\q"', "1:5 PV002 not YAML: found unknown escape character while parsing a quoted scalar"
    ),
    text(
        "an escaped surrogate",
        'a: "\\ud800"',
        "1:7 PV002 not YAML: found invalid Unicode character escape code while parsing a quoted scalar",
    ),
    text(
        "an unknown directive's tag",
        "%TAG ! tag:example.org,2000:\n---\n!x a: 1",
        f"3:1 PV004 tag 'tag:example.org,2000:x'; {NO_TAG}",
    ),
    text("a version to come", "%YAML 3.0\n---\na: 1", "1:1 PV002 not YAML: found incompatible YAML document"),
    text("two directives", "%YAML 1.2\n%YAML 1.2\n---\na: 1", "2:1 PV002 not YAML: found duplicate %YAML directive"),
]
CONSTRUCTS = [
    text("alias bomb", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", f"1:4 PV004 anchor &a; {NO_ALIAS}"),
    text("alias of nothing", "a: *b", "1:4 PV004 alias *b; write the value out; contracts have no aliases"),
    text("cyclic alias", "&a [*a]", f"1:1 PV004 anchor &a; {NO_ALIAS}"),
    text("merge key", "a: {<<: *b}", "1:9 PV004 alias *b; write the value out; contracts have no aliases"),
    text("anchor", "a: &b 1", f"1:4 PV004 anchor &b; {NO_ALIAS}"),
    text(
        "python object",
        "a: !!python/object/apply:os.system [x]",
        f"1:4 PV004 tag 'tag:yaml.org,2002:python/object/apply:os.system'; {NO_TAG}",
    ),
    text("local tag", "a: !x 1", f"1:4 PV004 tag '!x'; {NO_TAG}"),
    text("verbatim tag", "a: !<tag:yaml.org,2002:int> 1", f"1:4 PV004 tag 'tag:yaml.org,2002:int'; {NO_TAG}"),
    text("core tag", "a: !!str 1", f"1:4 PV004 tag 'tag:yaml.org,2002:str'; {NO_TAG}"),
    text("no specific tag", "a: ! 1", f"1:4 PV004 tag '!'; {NO_TAG}"),
    text("tag on a mapping", "!!map {a: 1}", f"1:1 PV004 tag 'tag:yaml.org,2002:map'; {NO_TAG}"),
    text("two documents", "a: 1\n---\nb: 2", "2:1 PV004 a second document; one contract, one file"),
    text("compound key", "? [a, b]\n: 1", "1:3 PV004 a mapping or list as a key; keys are plain words"),
    text("mapping as a key", "{{a: 1}: 2}", "1:2 PV004 a mapping or list as a key; keys are plain words"),
    text(
        "duplicate key",
        GOOD + "subject: tiny\n",
        "15:1 PV005 the key 'subject' stands twice; first at line 3; remove one of them",
    ),
    text(
        "duplicate key in quotes",
        GOOD + '"subject": tiny\n',
        "15:1 PV005 the key 'subject' stands twice; first at line 3; remove one of them",
    ),
    text("deep flow", "[" * 1000, f"1:33 PV003 {DEEP}"),
    text("deep flow mapping", "{a: " * 1000, f"1:126 PV003 {DEEP}"),
    text("deep block", "".join(" " * i + "a:\n" for i in range(500)), f"32:32 PV003 {DEEP}"),
    text("deep sequences", "- " * 1000, f"1:65 PV003 {DEEP}"),
    text("deep keys", "? " * 1000, f"1:65 PV003 {DEEP}"),
    text("many values", "[" + "1," * 100_001 + "]", "1:200000 PV003 more than 100000 values; split the contract"),
]
KINDS = [
    text("a number", "1", NO_MAPPING),
    text("a list", "- schema: pv/1", NO_MAPPING),
    text("a string", "schema", NO_MAPPING),
    text(
        "another mapping", "a: 1", "1:1 PV014 this is no contract: it has no 'schema' key; start it with 'schema: pv/1'"
    ),
    text("a format that is a list", "schema: [pv/1]", "1:9 PV014 unknown format (no text); this version reads pv/1"),
    text("a format that is a number", "schema: 1", "1:9 PV014 unknown format '1'; this version reads pv/1"),
    text(
        "metadata is a list",
        "schema: pv/1\nmetadata: [1]\nfalsifiers: []",
        "2:11 PV012 metadata: must be a mapping, not [1]",
    ),
    spoilt("version is a number", "1.0.0", "1.0", "2:31 PV012 metadata.version: must be text (quote it), not 1.0"),
    spoilt(
        "references are text",
        "[the definition]",
        "the definition",
        "2:73 PV012 metadata.references: must be a list, not 'the definition'",
    ),
    spoilt(
        "references are numbers",
        "[the definition]",
        "[1]",
        "2:74 PV012 metadata.references[0]: must be text (quote it), not 1",
    ),
    spoilt(
        "an id in two lines",
        "id: good",
        'id: "good\\n"',
        "2:16 PV012 metadata.id: must look like ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$, not 'good\\n'",
    ),
    spoilt("subject is empty", "subject: tiny", "subject:", "3:9 PV012 subject: must be text (quote it), not None"),
    spoilt(
        "subject is a path",
        "subject: tiny",
        "subject: ../tiny.py",
        "3:10 PV012 subject: must look like module or module:attribute, not '../tiny.py'",
    ),
    spoilt(
        "obligations are a mapping",
        "[{id: O, statement: doubling doubles}]",
        "{id: O}",
        "4:14 PV012 obligations: must be a list, not {'id': 'O'}",
    ),
    spoilt(
        "an obligation is text",
        "[{id: O, statement: doubling doubles}]",
        "[O]",
        "4:15 PV012 obligations[0]: must be a mapping, not 'O'",
    ),
    spoilt(
        "test is outside",
        "falsifiers/falsify_tiny.py",
        "/etc/passwd.py",
        "11:9 PV012 falsifiers[0].test: must look like path/to/file.py::function, not '/etc/passwd.py::falsify_double'",
    ),
    spoilt("kills is text", "[tripled]", "tripled", "12:10 PV012 falsifiers[0].kills: must be a list, not 'tripled'"),
    spoilt(
        "kills twice",
        "[tripled]",
        "[tripled, tripled]",
        "12:10 PV012 falsifiers[0].kills: must not repeat an item, not ['tripled', 'tripled']",
    ),
    spoilt(
        "an unknown device",
        "  kills:",
        "  devices: [tpu]\n  kills:",
        "12:13 PV012 falsifiers[0].devices[0]: must be one of 'cpu', 'cuda', not 'tpu'",
    ),
    spoilt(
        "no device",
        "  kills:",
        "  devices: []\n  kills:",
        "12:12 PV012 falsifiers[0].devices: must not be empty, not []",
    ),
    spoilt(
        "no examples",
        "  kills:",
        "  examples: 0\n  kills:",
        "12:13 PV012 falsifiers[0].examples: must be at least 1, not 0",
    ),
    spoilt(
        "examples is a boolean",
        "  kills:",
        "  examples: true\n  kills:",
        "12:13 PV012 falsifiers[0].examples: must be a whole number, not True",
    ),
    spoilt(
        "limit is no number",
        "  kills:",
        "  limit: .nan\n  kills:",
        "12:10 PV012 the number '.nan' is not finite; quote it if it is text",
    ),
    spoilt(
        "limit is negative",
        "  kills:",
        "  limit: -1e-6\n  kills:",
        "12:10 PV012 falsifiers[0].limit: must be more than 0, not -1e-06",
    ),
    spoilt(
        "a bad equation name",
        "obligations:",
        "equations: {a b: {formula: x}}\nobligations:",
        "4:13 PV012 equations: a key must look like ^[A-Za-z_][A-Za-z0-9_]{0,99}$, not 'a b'",
    ),
    spoilt(
        "two changes",
        "edit: {",
        "swap: {object: a:b, with: a:c}, edit: {",
        "14:3 PV012 mutants[0] needs exactly one of 'edit', 'swap'",
    ),
    text(
        "a gate of words",
        GOOD + "qa_gate: {id: G, name: g, require: {mutants: some}}",
        "15:46 PV012 qa_gate.require.mutants: must be 'all' or a list of ids, not 'some'",
    ),
    text(
        "an unknown requirement",
        GOOD + "qa_gate: {id: G, name: g, require: {mutant: all}}",
        "15:37 PV010 qa_gate.require has no key 'mutant'; did you mean 'mutants'?",
    ),
    text(
        "merge key as a key",
        GOOD + "<<: 1",
        "15:1 PV010 the contract has no key '<<'; known: equations, equivalents, falsifiers, harnesses, kani_harnesses, metadata, mutants, mutated, obligations, qa_gate, runs, schema, subject, subjects",
    ),
    text(
        "a null key",
        GOOD + "? \n: 1",
        "15:2 PV010 the contract has no key ''; known: equations, equivalents, falsifiers, harnesses, kani_harnesses, metadata, mutants, mutated, obligations, qa_gate, runs, schema, subject, subjects",
    ),
    text("existing: metadata is text", "metadata: x\nequations: {}", "1:11 PV012 metadata: must be a mapping, not 'x'"),
    text(
        "existing: equations are numbers",
        "metadata: {}\nequations: [1]",
        "2:12 PV012 equations: must be a mapping or a list of equations, not [1]",
    ),
    text(
        "existing: references are text",
        "metadata: {references: x}\nequations: {}",
        "1:24 PV012 metadata.references: must be a list or nothing, not 'x'",
    ),
    text(
        "existing: tests are a mapping",
        "metadata: {}\nfalsification_tests: {a: 1}",
        "2:22 PV012 falsification_tests: must be a list or nothing, not {'a': 1}",
    ),
    text(
        "existing: a test is text",
        "metadata: {}\nfalsification_tests: [a]",
        "2:23 PV012 falsification_tests[0]: must be a mapping, not 'a'",
    ),
]
ONE_FINDING = [*BYTES, *SYNTAX, *CONSTRUCTS, *KINDS]


def refusals(path: Path) -> list[str]:
    """What loading says of the file, without its path; every refusal at a place, and no contract with one."""
    started = time.monotonic()
    loaded = load([path])
    assert time.monotonic() - started < SOON_S
    assert all(
        found.where.path == path and found.where.line >= 1 and found.where.column >= 1 for found in loaded.findings
    )
    assert all(found.severity is Severity.REFUSAL for found in loaded.findings)
    assert loaded.contracts == ()
    return [str(found).removeprefix(f"{path}:") for found in loaded.findings]


@pytest.mark.parametrize("case", ONE_FINDING, ids=lambda case: case.name)
def test_a_hostile_file_is_refused_at_its_place(case: Hostile, tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_bytes(case.data)
    assert refusals(path) == [case.says]


def write(folder: Path, content: str) -> Path:
    path = folder / "contract.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def problems(path: Path, project: Project = PROJECT) -> list[Finding]:
    """All findings of the file, of loading and of lint, each at a place."""
    loaded = load([path])
    found = [*loaded.findings, *lint(loaded.contracts, project=project)]
    assert all(finding.where.line >= 1 and finding.where.column >= 1 for finding in found)
    return found


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_the_line_ends_of_other_systems_are_read(end: str, tmp_path: Path) -> None:
    assert problems(write(tmp_path, GOOD.replace("\n", end))) == []


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert problems(path) == []


def test_a_version_directive_and_one_document_end_are_read(tmp_path: Path) -> None:
    assert problems(write(tmp_path, f"%YAML 1.2\n---\n{GOOD}...\n")) == []


@pytest.mark.parametrize(
    "number", ["9" * 10**5, "1e999", "-1e999", ".inf", "-.inf", ".nan", "0x" + "f" * 10**4, "1" * 500]
)
@pytest.mark.parametrize("key", ["examples", "limit"])
def test_a_number_out_of_all_bounds_is_refused(number: str, key: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("  kills:", f"  {key}: {number}\n  kills:"))
    assert {said.split(" ")[0] + said.split(" ")[1] for said in refusals(path)} == {f"12:{len(key) + 5}PV012"}


def test_a_whole_number_in_another_notation_is_a_whole_number(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("  kills:", "  examples: 1e2\n  kills:"))
    examples = load([path]).contracts[0].falsifiers[0].examples
    assert (examples, type(examples)) == (100, int)


def test_text_of_a_megabyte_is_text(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("another factor", '"' + "x" * 900_000 + '"'))
    assert problems(path) == []
    assert len(load([path]).contracts[0].falsifiers[0].if_fails) == 900_000


@pytest.mark.parametrize(
    "module", ["a" * 5000, ".".join(["a"] * 3000), "tiny:" + "a" * 5000, "tiny:" + ".".join(["a"] * 3000)]
)
def test_a_subject_of_an_impossible_length_leads_nowhere(module: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("subject: tiny", f"subject: {module}"))
    assert {finding.code for finding in problems(path)} == {"PV121" if ":" in module else "PV120"}


def test_a_test_of_an_impossible_length_leads_nowhere(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("falsifiers/falsify_tiny", "a" * 5000 + "/" + "b" * 5000))
    assert [finding.code for finding in problems(path)] == ["PV110"]


@pytest.mark.parametrize(
    "find", ["(" * 1000, "-" * 20_000 + "1", "a" + ".b" * 20_000, "[" * 90 + "]" * 90, '"\\0"', "\\0"]
)
def test_a_mutant_nested_beyond_the_parser_does_not_apply(find: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("find: number * 2", f"find: {find!r}"))
    assert [finding.code for finding in problems(path)] == ["PV133"]


@pytest.mark.parametrize("replace", ["(" * 1000, "-" * 20_000 + "1", "a" + ".b" * 20_000])
def test_a_replacement_nested_beyond_the_parser_does_not_apply(replace: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("replace: number * 3", f"replace: {replace!r}"))
    assert [finding.code for finding in problems(path)] == ["PV133"]


def kills(names: list[str]) -> str:
    return GOOD.replace("[tripled]", f"[{', '.join(['tripled', *names])}]")


MANY = {
    "unknown mutants": (kills([f"m{i}" for i in range(40_000)]), "PV130"),
    "items of two types": (kills([f"{i}, a{i}" for i in range(45_000)]), "PV012"),
    "unknown keys": (GOOD + "".join(f"falsifierz{i}: 1\n" for i in range(30_000)), "PV010"),
    "obligations": (
        GOOD.replace("[{id: O, ", "[" + "".join(f"{{id: O{i}, statement: x}}, " for i in range(10_000)) + "{id: O, "),
        "PV141",
    ),
    "falsifiers that are numbers": (f"schema: pv/1\nfalsifiers: [{', '.join(['1'] * 90_000)}]", "PV012"),
}


@pytest.mark.parametrize("name", MANY)
def test_many_problems_do_not_hold_up_the_check(name: str, tmp_path: Path) -> None:
    content, code = MANY[name]
    path, started = write(tmp_path, content), time.monotonic()
    assert code in {finding.code for finding in problems(path)}
    assert time.monotonic() - started < SOON_S


def test_a_folder_in_a_contracts_place_holds_no_contract(tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").mkdir()
    assert load([tmp_path / "contract.yaml"]) == load([])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert refusals(tmp_path / "none.yaml") == ["1:1 PV001 cannot be read: No such file or directory"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0)
    assert refusals(path) == ["1:1 PV001 cannot be read: Permission denied"]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "contract.yaml")
    assert refusals(tmp_path / "contract.yaml") == ["1:1 PV001 cannot be read: it is no regular file"]


def test_a_device_is_refused() -> None:
    assert refusals(Path("/dev/zero")) == ["1:1 PV001 cannot be read: it is no regular file"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.symlink_to(path)
    assert refusals(path) == ["1:1 PV001 cannot be read: Too many levels of symbolic links"]


def test_a_link_to_nothing_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "contract.yaml").symlink_to(tmp_path / "none")
    assert [f.code for f in load([tmp_path]).findings] == ["PV001"]


def test_a_name_that_is_no_path_is_refused() -> None:
    assert refusals(Path("a\0b.yaml")) == ["1:1 PV001 cannot be read: embedded null byte"]


def test_a_name_that_is_too_long_is_refused() -> None:
    assert refusals(Path("a" * 300 + ".yaml")) == ["1:1 PV001 cannot be read: File name too long"]


def test_folders_that_link_to_each_other_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "again").symlink_to(tmp_path)
    assert [contract.id for contract in load([tmp_path, tmp_path / "again", tmp_path / "contract.yaml"]).contracts] == [
        "good"
    ]


def test_every_file_of_a_folder_is_judged_by_itself(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "z.yml").write_bytes(b"\xff")
    loaded = load([tmp_path])
    assert [contract.id for contract in loaded.contracts] == ["good"]
    assert [(f.where.path.name, f.code) for f in loaded.findings] == [("a.yaml", "PV002"), ("z.yml", "PV001")]


def existing(name: str, depends_on: str) -> str:
    return f"metadata: {{version: 1.0.0, description: {name}, depends_on: [{depends_on}]}}\nequations: {{}}\n"


def test_contracts_that_depend_on_each_other_are_both_read(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a"), ("c", "c")):
        (tmp_path / f"{name}.yaml").write_text(existing(name, other))
    assert [contract.id for contract in load([tmp_path]).contracts] == ["a", "b", "c"]
    assert load([tmp_path]).findings == ()


def small_project(folder: Path, **sources: str) -> Project:
    (folder / "pyproject.toml").write_text("[tool.pv]\n")
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "falsifiers").mkdir()
    (folder / "falsifiers" / "falsify_tiny.py").write_text("import tiny\ndef falsify_double(subject): pass\n")
    return find_project(folder)


def test_modules_that_import_each_other_are_linted(tmp_path: Path) -> None:
    double = "def double(number):\n    return number * 2\n"
    project = small_project(tmp_path, tiny=f"import other\n{double}", other="import tiny, other\n")
    assert problems(write(tmp_path, GOOD), project) == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("def double(:\n", {"PV120": 0, "PV135": 1}),
        ("x = " + "-" * 20_000 + "1", {"PV135": 1}),
        ("x = '\0'", {"PV135": 1}),
    ],
)
def test_a_subject_that_is_no_python_is_a_finding(source: str, code: dict[str, int], tmp_path: Path) -> None:
    project = small_project(tmp_path, tiny=source)
    found = problems(write(tmp_path, GOOD), project)
    assert [finding.code for finding in found] == ["PV135"]
    assert "tiny.py is no valid Python" in found[0].message


def test_a_subject_in_the_encoding_it_declares_is_read(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    source = "# -*- coding: latin-1 -*-\nname = 'é'\ndef double(number):\n    return number * 2\n"
    (tmp_path / "tiny.py").write_bytes(source.encode("latin-1"))
    assert problems(write(tmp_path, GOOD), project) == []


def test_a_subject_behind_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    (tmp_path / "tiny.py").write_bytes(b"\xef\xbb\xbfdef double(number):\n    return number * 2\n")
    assert problems(write(tmp_path, GOOD), project) == []


def command(path: Path) -> "subprocess.CompletedProcess[bytes]":
    arguments = [sys.executable, "-m", "pv", "lint", str(path)]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    "name", ["binary", "nul bytes", "alias bomb", "deep flow", "python object", "duplicate key", "a list"]
)
def test_the_command_refuses_without_a_traceback(name: str, tmp_path: Path) -> None:
    case = next(case for case in ONE_FINDING if case.name == name)
    path = tmp_path / "contract.yaml"
    path.write_bytes(case.data)
    ended = command(path)
    assert (ended.returncode, ended.stderr) == (3, b"")
    assert ended.stdout.decode() == f"refusal: {path}:{case.says}\n0 contracts: 1 refusals, 0 errors, 0 notices\n"


def test_the_command_says_which_path_is_missing(tmp_path: Path) -> None:
    ended = command(tmp_path / "none.yaml")
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert (
        ended.stderr.decode()
        == f"pv: there is no {tmp_path}/none.yaml; name a contract file or a folder of contracts\n"
    )


def test_the_command_still_lints_the_sound_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("[")
    (tmp_path / "b.yaml").write_text(existing("b", "a"))
    ended = command(tmp_path)
    assert ended.returncode == 3
    assert ended.stdout.decode().endswith("1 contracts: 1 refusals, 0 errors, 0 notices\n")
