"""`pv report` renders saved reports, compares them with a base, and exits like the validation."""

from dataclasses import replace
from pathlib import Path

import pytest

from pv.report import FORMATS, render
from pv.results.verdict import Report
from tests.commands.small import run
from tests.report.handmade import HOSTILE, PLAIN, report_of_many


@pytest.fixture
def results(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return saved(HOSTILE, "results.json")


def saved(report: Report, name: str) -> Path:
    Path(name).write_text(render(report, "json"))
    return Path(name)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_that_of_the_validation(results: Path, form: str) -> None:
    ended = run("report", "results.json", "--format", form, "--output", f"{form}=out", "--output", "json=second")
    assert (ended.returncode, ended.stdout) == (3, render(HOSTILE, form, width=80))
    assert Path("out").read_text() == render(HOSTILE, form)
    assert Path("second").read_text() == render(HOSTILE, "json")


def test_options_of_a_report_make_it_longer_or_shorter(results: Path) -> None:
    verbose = run("report", "results.json", "-v").stdout
    assert verbose == render(HOSTILE, "text", verbose=True, width=80) != run("report", "results.json").stdout
    saved(report_of_many(300), "many.json")
    shortened = run("report", "many.json", "--format", "markdown", "--max-bytes", "2000").stdout
    assert len(shortened.encode()) <= 2000


def test_the_differences_from_the_base_are_shown(results: Path) -> None:
    (verdict,) = PLAIN.contracts
    saved(PLAIN, "base.json")
    saved(replace(PLAIN, contracts=(replace(verdict, contract=replace(verdict.contract, mutants=())),)), "now.json")
    for form in ("text", "markdown", "html", "github"):
        assert "mutant removed: three" in run("report", "now.json", "--baseline", "base.json", "--format", form).stdout
    run("report", "now.json", "--baseline", "base.json", "--format", "github", GITHUB_STEP_SUMMARY="summary.md")
    assert "mutant removed: three" in Path("summary.md").read_text()


def test_the_job_summary_is_appended_within_the_limit_of_a_step(results: Path) -> None:
    saved(report_of_many(3000), "many.json")
    summary = Path("summary.md")
    summary.write_text("x" * 1_000_000 + "\n")
    ended = run("report", "many.json", "--format", "github", GITHUB_STEP_SUMMARY=str(summary))
    assert ended.stdout.startswith("::error ")
    text = summary.read_text()
    assert len(text.encode()) <= 1 << 20
    assert text[1_000_001:].startswith("## Falsifier report")
    run("report", "results.json", "--format", "text", GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text() == text


def test_the_job_summary_has_the_requested_limit(results: Path) -> None:
    saved(report_of_many(300), "many.json")
    for limit in (5000, 2 << 20):
        run("report", "many.json", "--format", "github", "--max-bytes", str(limit), GITHUB_STEP_SUMMARY=f"{limit}.md")
    assert 2000 < len(Path("5000.md").read_bytes()) <= 5000 < len(Path(f"{2 << 20}.md").read_bytes()) <= 1 << 20


def test_files_are_named_from_the_root_of_the_repository(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = results.absolute().parent
    (root / "sub").mkdir()
    monkeypatch.chdir("sub")
    ended = run("report", "../results.json", "--format", "github", GITHUB_WORKSPACE=str(root.parent))
    assert f"::error file={root.name}/sub/e.yaml,line=3," in ended.stdout
