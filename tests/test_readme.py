"""The README is true: its transcripts are output but for numbers that grow, its commands and files exist."""

import os
import re
import sys
from pathlib import Path

import pytest

import pv
from pv.cli import main
from pv.contract.model import Contract
from pv.report.contract_line import aligned
from reference_trainer.cli import main as trainer
from tests import pages
from tests.support.workers import shared_workers as shared_workers
from tests.test_authoring import start

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def row(contract: Contract) -> dict[str, str]:
    """Return the columns of a passing contract without recorded results, with its numbers."""
    falsifiers, harnesses, mutants = (len(part) for part in (contract.falsifiers, contract.harnesses, contract.mutants))
    cuda = sum("cuda" in falsifier.devices for falsifier in contract.falsifiers)
    return {
        "cpu": f"falsifiers {falsifiers}/{falsifiers}",
        "proved": f"proved {harnesses}/{harnesses}" if harnesses else "",
        "mutants": f"mutants {mutants}/{mutants}" if mutants else "",
        "cuda": f"cuda 0/{cuda} not measured" if cuda else "",
    }


def shape(line: str) -> list[str]:
    """Return the words of a line with N for each number."""
    return re.sub(r"\d+(\.\d+)?", "N", line).split()


def test_the_transcript_shows_contracts_of_the_project_as_they_are_printed() -> None:
    contracts = {contract.id: contract for contract in pv.load(pv.find_project(ROOT).contracts).contracts}
    start = README.index("\n...\nPASS  ")
    *lines, _, last = README[start : README.index("\n```", start)].replace("\n...", "").strip().splitlines()
    assert len(lines) >= 3
    for line in lines:
        id_ = line.split()[1]
        assert shape(line) == shape(f"PASS {id_} {aligned([row(contracts[id_])])[0]}")
    assert last.startswith("0 fail, 0 undecided, ") and last.endswith("; exit 0")


def test_the_script_and_the_contract_are_red_as_shown_and_the_contract_turns_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "pyproject.toml").write_text('[tool.pv]\nroots = ["."]\n')
    code = tmp_path / "soft.py"

    def mend() -> None:
        if code.exists():
            code.write_text(code.read_text().replace("return temperature *", "return temperature**2 *"))

    assert pages.run_page(ROOT / "README.md", tmp_path, mend, start) == 3


def test_the_checked_loop_is_an_excerpt_of_the_tutorial() -> None:
    """The tutorial is run; its loop and output are not run again here."""
    lines = (ROOT / "docs/tutorial.md").read_text().splitlines()
    part = README[README.index("## Check your") : README.index("**What it found**")]
    blocks = [body for _, _, body in pages.BLOCK.findall(part)]
    assert len(blocks) == 2
    assert [line for body in blocks for line in body.splitlines() if line not in lines] == []


def test_the_first_commands_are_there_to_be_run() -> None:
    """The first one is run in tests/commands/test_new.py."""
    assert "`pv new && pv validate`" in README
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    assert len(commands) == 2
    assert commands[0].endswith("/pv validate") and commands[1].endswith(" -m pytest -n auto --dist worksteal")


def test_the_page_of_commands_has_each_command_and_only_real_options() -> None:
    commands = [*main.commands.values(), *trainer.commands.values()]
    options = {name for command in commands for p in command.params for name in (*p.opts, *p.secondary_opts)}
    page = (ROOT / "docs/commands.md").read_text()
    named = set(re.findall(r"--[a-z][a-z-]*", page)) - {"--pv-mutant", "--pv-mutants", "--pv-subject"}
    assert named <= options, named - options
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| "))
    assert set(re.findall(r"^\| `pv ([a-z]+)", rows, re.MULTILINE)) == set(main.commands)
    assert set(re.findall(r"^\| `reference-trainer ([a-z]+)", rows, re.MULTILINE)) == set(trainer.commands)


def test_every_link_leads_to_a_file() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_index_of_the_site() -> None:
    trees = re.findall(r"```{toctree}\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL)
    listed = re.findall(r"^(?:[^:\n]*<)?([\w-]+)>?$", "\n".join(trees), re.MULTILINE)
    assert sorted([*listed, "index"]) == sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def test_paths_and_names_in_the_documentation_exist() -> None:
    names = ("docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md", "reference_trainer/README.md")
    located = []
    for page in (*(ROOT / name for name in names), *ROOT.glob("docs/trainer*.md")):
        text = page.read_text()
        spans = " ` ".join(re.findall(r"`([^`\n]+)`", text))
        # Names in capitals, such as `pv/report/NAME.py`, stand for any file.
        for path in re.findall(r"(?<!\S)(?:pv|reference_trainer|tests|contracts)/[a-z_./]*(?=\s)", spans):
            assert (ROOT / path).exists(), f"{page.name}: {path}"
        located += re.findall(r"`([\w.]+)`\s+in\s+`((?:pv|reference_trainer)/[a-z_/]+\.py)`", text)
        located += [(name, path) for path, name in re.findall(r"`(pv/[a-z_/]+\.py)`: `([\w.]+)`", text)]
    assert len(located) > 10
    for name, path in located:
        for part in name.split("."):
            defined = rf"(def|class) {part}\b|^ *{part}( =|:)"
            assert re.search(defined, (ROOT / path).read_text(), re.MULTILINE), f"{path} does not define {name}"
