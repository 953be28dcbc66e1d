"""`pv new` writes contracts that pass at once, and never changes a file."""

import json
from pathlib import Path

import pytest

import pv
from pv.commands.new import new
from pv.commands.templates import SCHEMA_FILE
from pv.errors import UsageError
from tests.cli.calls import run

SCALED = '''
def scaled(x: float, *, factor: float) -> float:
    """Return x, scaled: the "product"."""
    return x * factor
'''


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_example_in_an_empty_folder_passes_and_kills_its_mutant(folder: Path) -> None:
    done = run("new")
    assert done.returncode == 0, done.stderr
    written = [line.removeprefix("wrote ") for line in done.stdout.splitlines() if line.startswith("wrote ")]
    assert sorted(written) == sorted(files(folder))
    assert done.stdout.endswith("next: pv validate example\n")
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"
    validated = run("validate", "contracts/example.yaml")
    assert validated.returncode == 0, validated.stdout
    assert validated.stdout.startswith("PASS  example  falsifiers 1/1  mutants 1/1\n")


def test_contract_of_a_function_passes_before_and_after_its_equation_is_filled_in(folder: Path) -> None:
    (folder / "code.py").write_text(SCALED)
    new(subject="code:scaled")
    file = folder / "contracts/scaled.yaml"
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 1/1  mutants 1/1\n")
    lines = [line.removeprefix("# ") for line in file.read_text().splitlines()[1:]]
    file.write_text("\n".join(lines).replace("FILL IN\n", "x * factor\n"))
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 2/2  mutants 1/1\n")


def test_parameters_of_unknown_types_are_named_and_draw_nothing(folder: Path) -> None:
    (folder / "code.py").write_text("def scaled(x: float, plan: 'Plan', other: 'dict[str, Plan]'):\n    return 2 * x\n")
    written = new(subject="code:scaled")
    test = "falsifiers/scaled/falsify_scaled.py"
    assert written.advice == (f"write strategies for plan and other in {test}, in place of st.nothing()",)
    said = run("validate", "contracts").stdout
    assert "no example was valid" in said and "plan=nothing(), other=nothing()" in said
    (folder / test).write_text((folder / test).read_text().replace("st.nothing()", "st.none()"))
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 1/1  mutants 1/1\n")


def test_editor_finds_the_schema_beside_the_contract(folder: Path) -> None:
    new("first")
    first = (folder / "contracts/first.yaml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert json.loads((folder / "contracts" / SCHEMA_FILE).read_text()) == pv.schema("contract")


@pytest.mark.parametrize("taken", ["example.py", "contracts/example.yaml", "falsifiers/example/falsify_example.py"])
def test_existing_file_is_kept_and_nothing_is_written(folder: Path, taken: str) -> None:
    (folder / taken).parent.mkdir(parents=True, exist_ok=True)
    (folder / taken).write_text("mine")
    with pytest.raises(UsageError, match="exists; nothing was written"):
        new()
    assert files(folder) == {taken: "mine"}


def test_existing_table_free_pyproject_is_kept_and_its_lines_are_shown(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\n")
    written = new()
    assert (folder / "pyproject.toml").read_text() == "[project]\n"
    assert written.advice == ('add these lines to pyproject.toml:\n[tool.pv]\nroots = ["."]\n',)


def test_second_contract_shares_the_project_and_reports_an_old_schema(folder: Path) -> None:
    new()
    (folder / "contracts" / SCHEMA_FILE).write_text("{}")
    written = new("another")
    assert "pyproject.toml" not in map(str, written.files)
    assert run("lint").stdout == "2 contracts: 0 invalid files, 0 errors, 0 notices\n"
    assert written.advice == (
        "contracts/pv-1.schema.json is of another version: renew it with `pv schema > contracts/pv-1.schema.json`",
    )
    assert (folder / "contracts" / SCHEMA_FILE).read_text() == "{}"


def test_modules_below_src_are_found(folder: Path) -> None:
    (folder / "src/package").mkdir(parents=True)
    (folder / "src/package/code.py").write_text(SCALED)
    new(subject="package.code:scaled")
    assert 'roots = ["src", "."]' in (folder / "pyproject.toml").read_text()
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("code", "expected module:function; code defines scaled, none, later"),
        ("code:Kind.method", "expected module:function"),
        ("code:scled", "defines no scled; did you mean 'scaled'"),
        ("cod:scaled", "no module 'cod'.*; did you mean 'code'"),
        ("code:none", "has no parameter"),
        ("code:Kind", "code:Kind is a class: name a function that constructs it and calls Kind.of or Kind.at$"),
        ("code:Bare", "code:Bare is a class: name a function that constructs and uses it$"),
        ("code:later", "is a coroutine or a generator"),
    ],
)
def test_subject_that_cannot_be_called_is_refused(folder: Path, target: str, message: str) -> None:
    classes = "class Kind(Bare):\n    def __init__(self): ...\n    def of(self): ...\n    def at(self): ...\n"
    classes = f"class Bare:\n    def __init__(self): ...\n{classes}"
    (folder / "code.py").write_text(f"{SCALED}\ndef none(): ...\ndef later(a):\n    yield a\n{classes}")
    with pytest.raises(UsageError, match=message):
        new(subject=target)
    assert list(files(folder)) == ["code.py"]


@pytest.mark.parametrize("name", ["../escape", "a b", "", ".hidden", "x" * 101])
def test_name_is_a_slug(folder: Path, name: str) -> None:
    if name:
        with pytest.raises(UsageError, match="invalid name"):
            new(name)
    else:
        assert new(name).commands[0] == "pv validate example"


def test_duplicate_id_is_refused(folder: Path) -> None:
    new()
    (folder / "contracts/example.yaml").rename(folder / "contracts/other.yaml")
    with pytest.raises(UsageError, match=r"duplicate contract 'example' \(first defined in contracts/other.yaml\)"):
        new()
