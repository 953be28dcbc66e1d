"""What `action.yml` compares a pull request with: a report, stored results, or the contracts of the base in git."""

import shutil

from tests.action.runner import Runner
from tests.commands.small import edit


def test_the_baseline_is_compared_in_the_comment(runner: Runner) -> None:
    assert runner.run(arguments="--only C-WHOLE --no-mutants", comment="false") == 0
    shutil.copy(runner.reports / "results.json", runner.project / "base.json")
    edit(runner.project / "contracts/counting.yaml", "- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 10\n")
    given = {"arguments": "--only C-WHOLE --no-mutants", "baseline": "base.json", "token": "write"}
    assert runner.run(**given) == 1
    place = "`contracts/counting.yaml:15`"
    row = f"| **weaker** | `counting` | `C-WHOLE` | {place} | fewer examples asked for: 10, was 100 |"
    assert row in runner.comments[0]["body"]
    assert runner.run(arguments="--only C-WHOLE --no-mutants", baseline="none.json", comment="false") == 0
    assert "there is no baseline none.json" in runner.log
    assert runner.run(**given, fail_on="never") == 0


def test_the_default_branch_stores_its_results_and_a_pull_request_is_compared_with_them(runner: Runner) -> None:
    given = {"arguments": "--only C-WHOLE --no-mutants", "comment": "false"}
    (runner.workspace / ".gitignore").write_text(".pv_cache\n__pycache__\n")
    runner.git("init", "-q")
    runner.push()
    assert runner.run(**given) == 0, runner.log
    (stored,) = (runner.folder / "caches").iterdir()
    assert stored.name == f"pv-falsifier-report-Linux-{runner.git('rev-parse', 'main')}"
    contract, code = runner.project / "contracts/counting.yaml", runner.project / "counting.py"
    contract.write_text(contract.read_text().replace("- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 10\n"))
    code.write_text(code.read_text().replace("epochs * steps", "epochs * steps + 1"))
    runner.pull_request()
    assert runner.run(**given) == 1
    place = "file=sub dir/contracts/counting.yaml,line=15,col=13"
    assert f"::error {place},title=weaker%3A counting C-WHOLE::" in runner.log
    assert "falsified on cpu, was held" in runner.summary
    assert [path.name for path in (runner.folder / "caches").iterdir()] == [stored.name]


def test_without_stored_results_the_contracts_of_the_base_are_read_from_git(runner: Runner) -> None:
    given = {"arguments": "--only C-WHOLE --no-mutants", "comment": "false", "cache": "false"}
    runner.git("init", "-q")
    runner.push()
    origin = runner.folder / "origin"
    shutil.copytree(runner.workspace, origin)
    edit(runner.project / "contracts/counting.yaml", "- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 10\n")
    runner.pull_request()
    shallow = runner.folder / "shallow"
    runner.git("clone", "-q", "--depth=1", f"file://{runner.workspace}", str(shallow))
    shutil.rmtree(runner.workspace)
    shallow.rename(runner.workspace)
    runner.git("remote", "set-url", "origin", f"file://{origin}")
    assert runner.run(**given) == 1, runner.log
    assert "| **weaker** | `counting` | `C-WHOLE` |" in runner.summary
    runner.git("remote", "set-url", "origin", "file:///nowhere")
    assert runner.run(**given, baseline="none") == 0
