"""`pv compare`, as a user runs it, and docs/peers.md: its claims, subjects, and faults that can be shown."""

import json
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import pv
from docs.reproductions.losses import FAULTS, Fault
from pv.contract.load import schema
from tests.commands.small import run
from tests.support.projects import Project

ABSENT = "no-such-distribution is not installed: pip install no-such-distribution (extra others)\n"


def test_every_format_has_the_matrix_of_all_declared_subjects(project: Project, tmp_path: Path) -> None:
    project("compared")
    files = {form: tmp_path / form for form in ("json", "markdown")}
    done = run("compare", "mean", *(f"--output={form}={file}" for form, file in files.items()))
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.split("\n\n")[1:3]
    assert [line.split() for line in table[0].splitlines()] == [
        ["mean", "defective", "modest", "modest-again", "absent"],
        ["M-PAIR", "held", "FALSIFIED", "held", "held", "undecided"],
        ["M-NOTHING", "held", "held", "not", "claimed", "not", "claimed", "undecided"],
    ]
    assert table[1].splitlines()[0] == "FALSIFIED  M-PAIR by defective  contracts/mean.yaml:7:3"
    assert "seen      AssertionError: the mean of 1 and 2 is 3.0; expected 1.5" in table[1]
    rerun = "pv validate contracts/mean.yaml --subject mean=peers.defective --no-mutants --only M-PAIR"
    assert f"rerun     {rerun}" in table[1]
    why = "not claimed by modest: M-NOTHING: it raises StatisticsError (docs.python.org, statistics.fmean)"
    assert why in done.stdout.splitlines()
    assert "peers.absent: undecided: no-such-distribution is not installed" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("; seed 0; exit 0")
    report: dict[str, Any] = json.loads(files["json"].read_text())
    Draft202012Validator(schema("comparison")).validate(report)
    for column in report["columns"]:
        if column["report"] is not None:
            Draft202012Validator(schema("report")).validate(column["report"])
    markdown = files["markdown"].read_text()
    for position, claim in enumerate(report["claims"]):
        row = next(line for line in markdown.splitlines() if line.startswith(f"| `{claim}`"))
        results = [result.strip(" *") for result in row.split("|")[2:-1]]
        assert results == [column["outcomes"][claim] for column in report["columns"]]
        shown = table[0].splitlines()[position + 1].lower()
        assert shown.split() == " ".join([claim.lower(), *results]).split()


@pytest.mark.usefixtures("empty")
def test_a_suite_needs_no_contract_of_the_project() -> None:
    subjects = ["--subject", "torch-sgd", "--subject", "torch-adamw"]
    done = run("compare", "optimizer", "--only", "OPT-GRAD-001", *subjects)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ["OPT-GRAD-001", "held", "held"] in [line.split() for line in done.stdout.splitlines()]


def test_subjects_of_one_module_share_no_runs(project: Project) -> None:
    project("trainers")
    subjects = ["--subject", "trainers:Right", "--subject", "trainers:Unclipped"]
    done = run("compare", "training-loop", "--only", "TL-CLIP-001", *subjects)
    assert ["tl-clip-001", "held", "falsified"] in [line.lower().split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("modest", 0),
        ("defective --strict", 1),
        ("absent", 2),
        ("modest --only M-NOTHING", 2),
        ("peers.absent:mean", 1),
    ],
)
def test_the_subject_of_the_contract_decides_the_exit_code(project: Project, arguments: str, code: int) -> None:
    project("compared")
    done = run("compare", "mean", "--format", "json", "--subject", *arguments.split())
    assert done.returncode == code, done.stdout + done.stderr
    comparison = json.loads(done.stdout)
    assert [column["name"] for column in comparison["columns"]] == arguments.split()[:1]
    assert comparison["exit_code"] == code


def test_a_fault_of_the_own_subject_fails(project: Project) -> None:
    root = project("compared")
    path = root / "mean.py"
    path.write_text(path.read_text().replace("len(values) if", "2 if").replace("values else 0.0", "values else 1.0"))
    with (root / "contracts/mean.yaml").open("a") as contract:
        contract.write("- {name: itself, target: mean}\n")
    done = run("compare", "mean", "--subject", "mean", "--subject", "modest")
    assert done.returncode == 1
    assert "FALSIFIED  M-NOTHING by mean  " in done.stdout


REFUSED = {
    "meen": "pv: unknown contract 'meen' (choose from mean)",
    "mean --subject modest --subject defectiv": "(.); did you mean 'defective'?\n",
    "mean --subject peers.modest:median": "pv: subject peers.modest:median: unknown name 'median' in",
    "mean --subject peers:Kind._mean": "pv: invalid subject 'peers:Kind._mean': expected module or module:attribute",
    "mean --only M-NOTING": "pv: --only M-NOTING matches no claim of mean; did you mean 'M-NOTHING'?",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_invalid_comparison_is_refused(project: Project, arguments: str) -> None:
    project("compared")
    done = run("compare", *arguments.split())
    assert (done.returncode, done.stdout, REFUSED[arguments] in done.stderr) == (3, "", True), done.stderr


@pytest.mark.parametrize(("asked", "message"), [("modst", "; did you mean 'modest'?\n"), ("absent", f"pv: {ABSENT}")])
def test_validate_refuses_a_subject_that_is_not_there(project: Project, asked: str, message: str) -> None:
    pyproject = project("compared") / "pyproject.toml"
    extras = '[project.optional-dependencies]\nsome = ["such"]\nothers = ["No_Such.Distribution[all]>=2"]\n'
    pyproject.write_text(pyproject.read_text() + extras)
    done = run("validate", "--subject", f"mean={asked}")
    assert (done.returncode, done.stdout) == (3, "")
    assert message in done.stderr


def test_validate_does_not_require_claims_that_a_subject_does_not_make(project: Project) -> None:
    project("compared")
    done = run("validate", "--subject", "mean=peers.modest", "--format", "json")
    (verdict,) = json.loads(done.stdout)["contracts"]
    results = {result["falsifier"]: (result["outcome"], result["required"]) for result in verdict["results"]}
    assert results == {"M-PAIR": ("held", True), "M-NOTHING": ("not claimed", False)}
    assert (done.returncode, verdict["status"]) == (0, "pass")
    assert verdict["summary"] == "1 of 1 falsifiers held (1 not claimed), 1 of 1 mutants killed"


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
BY_ID = {c.id: c for c in pv.load([ROOT / "contracts"]).contracts}
CONTRACTS = [BY_ID["kd-loss"], BY_ID["kd-domain"]]


def table_of(heading: str) -> list[list[str]]:
    """The cells of the first table after the heading."""
    blocks = PAGE[PAGE.index(f"{heading}\n") :].split("\n\n")
    table = next(block for block in blocks if block.startswith("| ")).splitlines()
    return [[result.strip() for result in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def test_matrix_of_the_page_has_every_claim_and_subject_and_marks_unclaimed_ones() -> None:
    head, _, *body = table_of("## The matrix")
    for contract in CONTRACTS:
        assert head == ["claim", "own", *(subject.name for subject in contract.subjects)], contract.id
    claims = [row[0].split()[0] for row in body if not row[0].startswith("*")]
    assert claims == [falsifier.id.removeprefix("F-KD-") for contract in CONTRACTS for falsifier in contract.falsifiers]
    assert {len(row) for row in body} == {len(head)}
    for column, subject in enumerate(CONTRACTS[0].subjects, 2):
        marked = {f"F-KD-{row[0].split()[0]}" for row in body if row[column] == "-"}
        unclaimed = {id_ for contract in CONTRACTS for id_ in contract.not_claimed(subject.target)}
        assert marked == unclaimed, subject.name


def test_every_falsified_cell_of_the_page_has_a_function_that_shows_the_fault() -> None:
    head, _, *body = table_of("## The matrix")
    red = {(head[column], row[0].split()[0]) for row in body for column, result in enumerate(row) if result == "**F**"}
    _, _, *faults = table_of("## Each fault, reproduced")
    cells = set()
    for group in (part for row in faults for part in row[1].split("; ")):
        subjects, claims = group.split(": ")
        cells |= {(subject, claim) for subject in subjects.split(", ") for claim in claims.split(", ")}
    assert cells == red
    named = {name.strip("`") for row in faults for name in row[3].split(", ")}
    assert named == {fault.show.__name__ for fault in FAULTS}


DEFECTS = ["F-KD-MASK-002", "F-KD-INF-004", "F-KD-VOCAB-001"]
LIBRARIES = ["torchtune", "trl", "liger", "modelopt", "recipe"]
RECIPES = ["recipe-tutorial", "recipe-batchmean", "recipe-mean"]


def test_recipes_break_their_known_claims_and_corrected_copies_hold() -> None:
    names = [*RECIPES, *(f"{library}-corrected" for library in LIBRARIES)]
    comparison = pv.compare("kd-domain", paths=[ROOT / "contracts"], subjects=names, only=DEFECTS, examples=10)
    assert comparison.exit_code == 0
    outcomes = {
        column.name: {row.id: column.outcome(row).value for row in comparison.rows} for column in comparison.columns
    }
    broken = {name: [claim for claim, outcome in outcomes[name].items() if outcome == "falsified"] for name in RECIPES}
    assert {"F-KD-MASK-002", "F-KD-INF-004"} <= set(broken["recipe-tutorial"])
    assert broken["recipe-batchmean"] == ["F-KD-MASK-002", "F-KD-INF-004"]
    assert "F-KD-VOCAB-001" in broken["recipe-mean"]
    for library in LIBRARIES:
        corrected = set(outcomes[f"{library}-corrected"].values())
        assert "held" in corrected <= {"held", "not claimed"}, library


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.show.__name__)
def test_a_fault_reproduces_with_the_library_alone(fault: Fault) -> None:
    try:
        version(fault.package)
    except PackageNotFoundError:
        pytest.skip(f"{fault.package} is not installed: it comes with the extra `peers`")
    seen = fault.show()
    assert fault.is_wrong(seen), f"{fault.name}: {fault.package} answers {seen}, as it should: {fault.right}"
