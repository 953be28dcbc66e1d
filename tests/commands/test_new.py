"""`pv new` writes contracts that pass at once, and never changes a file."""

import re
from pathlib import Path

import pytest
import yaml

import pv
from pv.commands.function_under_contract import formula
from pv.commands.new import new
from pv.errors import UsageError
from pv.results.outcome import Outcome
from tests.commands.small import run
from tests.support.projects import HEAD, write

TABLE = yaml.safe_load(Path(__file__).with_name("functions.yaml").read_text(encoding="utf-8"))
SCALED = '''
def scaled(x: float, *, factor: float) -> float:
    """Return x, scaled: the "product"."""
    return x * factor
'''


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_example_in_an_empty_folder_passes_and_kills_its_mutant(empty: Path) -> None:
    done = run("new")
    assert done.returncode == 0, done.stderr
    written = [line.removeprefix("wrote ") for line in done.stdout.splitlines() if line.startswith("wrote ")]
    assert sorted(written) == sorted(files(empty))
    assert done.stdout.endswith("next: pv validate example\n")
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"
    validated = run("validate", "contracts/example.yaml")
    assert validated.returncode == 0, validated.stdout
    assert validated.stdout.startswith("PASS  example  falsifiers 1/1  mutants 1/1\n")


def test_contract_of_an_annotated_function_passes_at_once_and_its_equation_after_it_is_filled_in(empty: Path) -> None:
    (empty / "code.py").write_text(SCALED)
    written = new(subject="code:scaled")
    test = "falsifiers/scaled/falsify_scaled.py"
    assert written.advice == (f"check that the strategies in {test} draw every valid value and no invalid one",)
    file = empty / "contracts/scaled.yaml"
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 1/1  mutants 1/1\n")
    lines = [line.removeprefix("# ") for line in file.read_text().splitlines()[1:]]
    filled = "\n".join(lines).replace("FILL IN\n", "x * factor\n").replace("FILL IN, such as ", "")
    file.write_text(filled)
    assert run("validate", "contracts").stdout.startswith("PASS  scaled  falsifiers 2/2  mutants 1/1\n")


@pytest.mark.parametrize("subject", TABLE["with_formula"])
def test_a_formula_of_the_docstring_is_an_equation_that_is_compared(empty: Path, subject: str) -> None:
    (empty / "code.py").write_text(TABLE["with_formula"][subject])
    name = new(subject=subject).commands[0].split()[-1]
    report = pv.validate(["contracts"])
    assert (report.exit_code, report.findings) == (0, ()), pv.render(report)
    assert len(report.contracts[0].results) == 2
    text = (empty / "code.py").read_text()
    (empty / "code.py").write_text(re.sub(r"(    return .*)", r"\1 + 0.25", text))
    outcomes = {result.falsifier.equation: result.outcome for result in pv.validate([name]).contracts[0].results}
    assert Outcome.FALSIFIED in [outcome for equation, outcome in outcomes.items() if equation]


@pytest.mark.parametrize("code", TABLE["drawn"])
def test_values_and_calls_follow_from_the_signature(empty: Path, code: str) -> None:
    (empty / "code.py").write_text(code)
    new("f", subject="code:Kind" if "class" in code else "code:f")
    text = (empty / "falsifiers/f/falsify_f.py").read_text()
    assert [part for part in TABLE["drawn"][code] if part not in text] == []


@pytest.mark.parametrize("names", ["lr", "param, grad, lr"])
def test_advice_lists_the_parameters_without_a_strategy(empty: Path, names: str) -> None:
    (empty / "code.py").write_text(f"def f({names}):\n    return lr\n")
    (advice,) = new(subject="code:f").advice
    assert advice.startswith(f"write strategies for {names} in falsifiers/f/falsify_f.py, in place of FILL_IN;")


@pytest.mark.parametrize("code", TABLE["undecided"])
def test_claim_is_undecided_until_missing_parts_are_filled_in(empty: Path, code: str) -> None:
    (empty / "code.py").write_text(code)
    new(subject="code:f")
    report = pv.validate(["contracts"])
    (result,) = report.contracts[0].results
    assert (report.exit_code, result.outcome, report.findings) == (2, Outcome.UNDECIDED, ())
    reason = TABLE["undecided"][code]
    assert reason in result.reason, result.reason
    assert ("falsifiers/f/falsify_f.py" in result.reason) >= reason.startswith("FILL IN valid values of")


@pytest.mark.parametrize("text", TABLE["formulas"])
def test_only_arithmetic_of_the_parameters_is_a_formula(text: str) -> None:
    assert formula(text, {"x"}) == TABLE["formulas"][text]


def test_results_that_cannot_be_compared_leave_the_claim_undecided(empty: Path) -> None:
    (empty / "code.py").write_text("def f(first, values):\n    return [object(), first, values]\n")
    new(subject="code:f")
    test = empty / "falsifiers/f/falsify_f.py"
    test.write_text(re.sub(r"=FILL_IN,.*", "=st.integers(0, 1),", test.read_text()))
    (result,) = pv.validate(["contracts"]).contracts[0].results
    assert (result.outcome, "FILL IN how to compare list" in result.reason) == (Outcome.UNDECIDED, True)
    (empty / "code.py").write_text("def f(first, values):\n    return [first, values]\n")
    assert pv.validate(["contracts"]).exit_code == 0


@pytest.mark.parametrize("taken", ["contracts/example.yaml", "falsifiers"])
def test_existing_file_is_kept_and_nothing_is_written(empty: Path, taken: str) -> None:
    write(empty, {taken: "mine"})
    with pytest.raises(UsageError, match="; nothing was written"):
        new()
    assert files(empty) == {taken: "mine"}


def test_an_id_is_unique_and_one_that_starts_with_a_digit_is_no_module(empty: Path) -> None:
    write(empty, {"contracts/other.yaml": f"{HEAD.replace('id: c', 'id: example')}falsifiers: []\n"})
    with pytest.raises(UsageError, match=r"duplicate contract 'example' \(first defined in contracts/other\.yaml\)"):
        new()
    assert Path("c_2d.py") in new("2d").files


def test_modules_below_src_are_found(empty: Path) -> None:
    (empty / "src/package").mkdir(parents=True)
    (empty / "src/package/code.py").write_text(SCALED)
    new(subject="package.code:scaled")
    assert 'roots = ["src", "."]' in (empty / "pyproject.toml").read_text()
    assert run("lint").stdout == "1 contract: 0 invalid files, 0 errors, 0 notices\n"


@pytest.mark.parametrize("target", TABLE["refused"])
def test_subject_that_cannot_be_called_is_refused(empty: Path, target: str) -> None:
    (empty / "code.py").write_text(TABLE["refused_code"])
    with pytest.raises(UsageError, match=TABLE["refused"][target]):
        new(subject=target)
    assert list(files(empty)) == ["code.py"]


@pytest.mark.parametrize("name", ["../escape", "a b", ".hidden", "x" * 101])
def test_name_is_a_slug(empty: Path, name: str) -> None:
    with pytest.raises(UsageError, match="invalid name"):
        new(name)


def test_module_that_cannot_be_imported_is_refused(empty: Path) -> None:
    (empty / "my-module.py").write_text(SCALED)
    with pytest.raises(UsageError, match="Python names have no '-': rename it, such as to 'my_module:scaled'"):
        new(subject="my-module:scaled")
    assert files(empty).keys() == {"my-module.py"}
