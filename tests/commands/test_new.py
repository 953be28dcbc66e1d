"""`pv new` writes contracts that pass at once, and never changes a file."""

import re
from pathlib import Path

import pytest

import pv
from pv.commands.new import new
from pv.errors import UsageError
from pv.results.outcome import Outcome
from tests.commands.small import run

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


def fill_in(folder: Path, name: str, strategy: str = "") -> None:
    """Replace each FILL_IN of a test by `strategy`, or by the proposal behind it."""
    test = folder / f"falsifiers/{name}/falsify_{name}.py"
    filled = re.sub(r"=FILL_IN,  # such as (.*)", rf"={strategy or chr(92) + '1'},", test.read_text())
    test.write_text(re.sub(r"=FILL_IN,.*", f"={strategy},", filled))


def test_contract_of_a_function_passes_after_values_and_equation_are_filled_in(folder: Path) -> None:
    (folder / "code.py").write_text(SCALED)
    written = new(subject="code:scaled")
    test = "falsifiers/scaled/falsify_scaled.py"
    undecided = "in place of FILL_IN; until then the claim is undecided"
    assert written.advice == (f"write strategies for x and factor in {test}, {undecided}",)
    file = folder / "contracts/scaled.yaml"
    fill_in(folder, "scaled")
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 1/1  mutants 1/1\n")
    lines = [line.removeprefix("# ") for line in file.read_text().splitlines()[1:]]
    filled = "\n".join(lines).replace("FILL IN\n", "x * factor\n").replace("FILL IN, such as ", "")
    file.write_text(filled)
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 2/2  mutants 1/1\n")


FACTOR = """
def f(updates, warmup, total):
    return updates / warmup if updates < warmup else (total - updates) / (total - warmup)
"""


@pytest.mark.parametrize(
    "code",
    [
        FACTOR,
        "def f(first, second, values, copy, *, subject, device):\n    return [values, second / (first - second)]\n",
        "def f(*sizes, **options):\n    return 1 / len(sizes)\n",
    ],
)
def test_what_a_signature_does_not_tell_leaves_the_claim_undecided(folder: Path, code: str) -> None:
    (folder / "code.py").write_text(code)
    new(subject="code:f")
    report = pv.validate(["contracts"])
    (result,) = report.contracts[0].results
    assert (report.exit_code, result.outcome, report.findings) == (2, Outcome.UNDECIDED, ())
    assert "FILL IN valid values of " in result.reason and "falsifiers/f/falsify_f.py" in result.reason


def test_results_that_cannot_be_compared_leave_the_claim_undecided(folder: Path) -> None:
    (folder / "code.py").write_text("def f(first, values):\n    return [object(), first, values]\n")
    new(subject="code:f")
    fill_in(folder, "f", "st.integers(0, 1)")
    (result,) = pv.validate(["contracts"]).contracts[0].results
    assert (result.outcome, "FILL IN how to compare list" in result.reason) == (Outcome.UNDECIDED, True)
    (folder / "code.py").write_text("def f(first, values):\n    return [first, values]\n")
    assert pv.validate(["contracts"]).exit_code == 0


@pytest.mark.parametrize("taken", ["contracts/example.yaml"])
def test_existing_file_is_kept_and_nothing_is_written(folder: Path, taken: str) -> None:
    (folder / taken).parent.mkdir(parents=True, exist_ok=True)
    (folder / taken).write_text("mine")
    with pytest.raises(UsageError, match="exists; nothing was written"):
        new()
    assert files(folder) == {taken: "mine"}


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
        ("code:scled", "defines no scled; did you mean 'scaled'"),
        ("cod:scaled", "no module 'cod'.*; did you mean 'code'"),
        ("code:Kind", "code:Kind is a class: name a function that constructs it and calls Kind.of or Kind.at$"),
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


def test_module_that_cannot_be_imported_is_refused(folder: Path) -> None:
    (folder / "my-module.py").write_text(SCALED)
    with pytest.raises(UsageError, match="Python names have no '-': rename it, such as to 'my_module:scaled'"):
        new(subject="my-module:scaled")
    assert files(folder).keys() == {"my-module.py"}
