"""The reports, the comment, the arguments, the installation and the baselines of `action.yml`."""

import json
import re
import runpy
import shutil
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import pages
from tests.action.runner import ACTION, ROOT, Api, Runner
from tests.commands.small import edit
from tests.support.projects import write

ONE = "--only C-WHOLE --no-mutants"


def ask_for_less(runner: Runner) -> None:
    edit(runner.project / "contracts/counting.yaml", "- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 10\n")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    """Returns a runner beside a server that keeps the comments of a pull request."""
    handler: Any = type("Handler", (Api,), {"comments": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        runner = Runner(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        runner.comments = handler.comments
        yield runner
        server.shutdown()


def test_the_example_of_one_job_writes_reports_a_summary_annotations_and_one_comment(runner: Runner) -> None:
    # GitHub returns 30 comments, unless the request asks for 100.
    runner.comments += [{"id": number, "body": "LGTM"} for number in range(140)]
    inputs, scripts = example("one-job")
    assert "arguments" not in inputs, "names of claims or devices belong to one project"
    assert runner.run(**inputs, arguments=ONE, token="write") == 0 and scripts == [], runner.log
    assert {path.name for path in runner.reports.iterdir()} == {
        *("results.json", "report.md", "report.xml", "report.sarif", "report.html", "comment.md")
    }
    assert "| ✅ | `counting` 1.0.0 |" in runner.summary
    assert runner.outputs["steps.validate.outputs.exit-code"] == "0"
    edit(runner.project / "counting.py", "epochs * steps", "epochs * steps + 1")
    assert runner.run(arguments=ONE, token="write") == 1
    assert "::error file=sub dir/counting.py,line=6,col=1,title=falsified%3A C-WHOLE on cpu::" in runner.log
    assert "| ❌ | `counting` 1.0.0 |" in runner.summary
    place = json.loads((runner.reports / "report.sarif").read_text())["runs"][0]["results"][0]["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "sub%20dir/counting.py"
    (comment,) = runner.comments[140:]
    assert comment["body"].startswith("<!-- pv-report falsifier-report -->\n## Falsifier report")
    assert "**fail**" in comment["body"]


def test_an_api_that_refuses_or_does_not_answer_does_not_fail_the_action(runner: Runner) -> None:
    write(runner.reports, {"comment.md": "a report"})
    runner.outputs["steps.validate.outputs.folder"] = str(runner.reports)
    for url, token, why in ((runner.url, "read", "HTTP 403"), ("http://127.0.0.1:9", "write", "URLError")):
        runner.url = url
        assert runner.run(only="Comment", token=token) == 0
        assert f"no comment was written ({why})" in runner.log
    assert runner.comments == []


def test_quoted_patterns_reach_the_command_whole_and_arguments_are_not_executed(runner: Runner) -> None:
    (runner.project / "C-W-a-file").touch()
    arguments = "--only \"C-W*\"   --no-mutants\n--only 'C-L*'"
    assert runner.run(arguments=arguments, comment="false") == 0, runner.log
    content = json.loads((runner.reports / "results.json").read_text())
    assert {result["falsifier"] for result in content["contracts"][0]["results"]} == {"C-LIMIT", "C-WHOLE"}
    assert runner.run(arguments="--only '$(touch pwned)' --only `touch pwned` ; touch pwned", comment="false") == 3
    assert not list(runner.folder.rglob("pwned"))
    assert "wrote no report; its exit code is 3" in runner.summary


def test_output_of_the_code_under_contract_is_not_run_as_a_command(runner: Runner) -> None:
    with (runner.project / "falsifiers/falsify_counting.py").open("a") as falsifiers:
        falsifiers.write('\n\ndef falsify_whole(subject, device):\n    raise OSError("\\n::add-mask::secret\\n")\n')
    assert runner.run(arguments=ONE, comment="false") == 1
    before, _, after = runner.log.partition("::stop-commands::")
    token, _, rest = after.partition("\n")
    printed, sign, annotations = rest.partition(f"::{token}::\n")
    assert sign and "::add-mask::" in printed
    assert not re.search(r"^\s*::add-mask::", before + annotations, re.MULTILINE)


def test_the_project_is_installed_before_pv_with_its_extras_and_a_wrong_input_is_named(runner: Runner) -> None:
    (runner.project / "needs.txt").touch()
    code = runner.run(
        install="python -m pip install torch --index-url 'https://example.org/cpu'\ntouch done",
        requirements="needs.txt\n",
        extras="symbolic,trainer",
        arguments="--only 'unclosed",
        comment="false",
    )
    assert runner.installed == [
        "-m pip install torch --index-url https://example.org/cpu",
        "-m pip install -r needs.txt",
        f"-m pip install {ROOT}[symbolic,trainer]",
    ]
    assert (runner.project / "done").exists()
    assert code == 3 and "the input 'arguments' has an unclosed quote" in runner.log
    assert runner.run(install="false\ntrue") == 1, "a failed command fails the action"


SCRIPT = """
import torch
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    {step}
    torch.nn.functional.cross_entropy(model(torch.randn(4, 3)), torch.randint(2, (4,))).backward()
    optimizer.step()
"""
EXAMPLES = {path.stem: path for path in (ROOT / ".github/examples").glob("*.yml")}


def example(name: str) -> tuple[dict[str, str], list[str]]:
    """Return the inputs of the action in an example, and the scripts of the other steps."""
    jobs = yaml.safe_load(EXAMPLES[name].read_text())["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    (ours,) = [step for step in steps if "/pv@" in step.get("uses", "")]
    return ours.get("with", {}), [step["run"] for step in steps if "run" in step]


def test_examples_give_only_inputs_that_exist_and_no_script_of_the_action_has_an_expression() -> None:
    named = runpy.run_path(str(ROOT / ".ci/notes.py"))["NAMING_THE_ACTION"]
    for name, path in EXAMPLES.items():
        assert set(example(name)[0]) <= set(ACTION["inputs"])
        assert str(path.relative_to(ROOT)) in named
    assert not [step["run"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")]


def test_the_example_of_a_matrix_merges_its_shards(runner: Runner) -> None:
    inputs, scripts = example("matrix")
    for shard in range(1, 5):
        values = {key: text.replace("${{ matrix.shard }}", str(shard)) for key, text in inputs.items()}
        assert runner.run(**values) == 0, runner.log
        runner.reports.rename(runner.folder / values["artifact"])
    for script in scripts:
        assert runner.script(script, runner.folder) == 0, runner.log
    assert {"report.sarif", "report.xml"} <= {path.name for path in runner.folder.iterdir()}


def test_the_example_of_a_loop_passes_until_the_loop_has_a_fault(runner: Runner) -> None:
    inputs, scripts = example("loop")
    shutil.rmtree(runner.project)
    comment = EXAMPLES["loop"].read_text().partition("\n#\n")[2].partition("\n#\n")[0]
    files = {"contracts/loop.yaml": comment.replace("#   ", ""), "pyproject.toml": '[tool.pv]\nroots = ["."]\n'}
    write(runner.project, files)
    for _, info, body in pages.BLOCK.findall((ROOT / "docs/tutorial.md").read_text()):
        words = dict(part.partition("=")[::2] for part in info.split())
        if words.get("file") in ("loop.py", "adapter.py"):
            pages.write(runner.project / words["file"], body, words)
    inputs |= {"arguments": "--only loop.TL-GRAD-002", "comment": "false"}
    assert runner.run(**inputs) == 0 and scripts == [], runner.log
    edit(runner.project / "loop.py", "(loss * (y != -1).sum() / scored)", "(loss / len(batches))")
    assert runner.run(**inputs) == 1
    assert "title=falsified%3A loop.TL-GRAD-002" in runner.log


def test_the_example_of_a_script_passes_until_the_script_has_a_fault(runner: Runner) -> None:
    inputs, scripts = example("script")
    script = SCRIPT.format(step="optimizer.zero_grad()")
    write(runner.project, {"train.py": script})
    inputs |= {"token": "write"}
    assert runner.run(**inputs) == 0 and scripts == [], runner.log
    assert "| ✅ | `training-run` 1.0.0 |" in runner.summary
    write(runner.project, {"train.py": SCRIPT.format(step="pass")})
    assert runner.run(**inputs) == 1
    line = next(n for n, text in enumerate(script.splitlines(), 1) if "optimizer.step()" in text)
    assert f"::error file=sub dir/train.py,line={line},col=1,title=falsified%3A TR-GRAD-001::" in runner.log
    (comment,) = runner.comments
    assert comment["body"].startswith("<!-- pv-report training-script -->") and "`TR-GRAD-001`" in comment["body"]
    assert runner.run(command="python 'train.py") == 3 and "the input 'command' has an unclosed quote" in runner.log


def test_the_baseline_is_compared_in_the_comment(runner: Runner) -> None:
    assert runner.run(arguments=ONE, baseline="none.json", comment="false") == 0
    assert "there is no baseline none.json" in runner.log
    shutil.copy(runner.reports / "results.json", runner.project / "base.json")
    ask_for_less(runner)
    inputs = {"arguments": ONE, "baseline": "base.json", "token": "write"}
    assert runner.run(**inputs) == 1
    place = "`contracts/counting.yaml:15`"
    row = f"| **weaker** | `counting` | `C-WHOLE` | {place} | fewer examples asked for: 10, was 100 |"
    assert row in runner.comments[0]["body"]
    assert runner.run(**inputs, fail_on="never") == 0


def test_the_default_branch_stores_its_results_and_a_pull_request_is_compared_with_them(runner: Runner) -> None:
    (runner.workspace / ".gitignore").write_text(".pv_cache\n__pycache__\n")
    runner.git("init", "-q")
    runner.push()
    assert runner.run(arguments=ONE, comment="false") == 0, runner.log
    (stored,) = (runner.folder / "caches").iterdir()
    assert stored.name == f"pv-falsifier-report-Linux-{runner.git('rev-parse', 'main')}"
    ask_for_less(runner)
    edit(runner.project / "counting.py", "epochs * steps", "epochs * steps + 1")
    runner.pull_request()
    assert runner.run(arguments=ONE, comment="false") == 1
    place = "file=sub dir/contracts/counting.yaml,line=15,col=13"
    assert f"::error {place},title=weaker%3A counting C-WHOLE::" in runner.log
    assert "falsified on cpu, was held" in runner.summary
    assert [path.name for path in (runner.folder / "caches").iterdir()] == [stored.name]
    # The report of another commit is no base: the contracts of the base are read from git, without results.
    other = stored.rename(stored.with_name(f"pv-falsifier-report-Linux-{'0' * 40}"))
    (report,) = other.glob("*.json")
    edit(report, runner.git("rev-parse", "main"), "0" * 40)
    earlier = runner.summary
    assert runner.run(arguments=ONE, comment="false") == 1
    later = runner.summary.removeprefix(earlier)
    assert "| **weaker** | `counting` | `C-WHOLE` |" in later and "was held" not in later


def test_without_stored_results_the_contracts_of_the_base_are_read_from_git(runner: Runner) -> None:
    inputs = {"arguments": ONE, "comment": "false", "cache": "false"}
    runner.git("init", "-q")
    runner.push()
    origin = runner.folder / "origin"
    shutil.copytree(runner.workspace, origin)
    ask_for_less(runner)
    runner.pull_request()
    shallow = runner.folder / "shallow"
    runner.git("clone", "-q", "--depth=1", f"file://{runner.workspace}", str(shallow))
    shutil.rmtree(runner.workspace)
    shallow.rename(runner.workspace)
    runner.git("remote", "set-url", "origin", f"file://{origin}")
    assert runner.run(**inputs) == 1, runner.log
    assert "| **weaker** | `counting` | `C-WHOLE` |" in runner.summary
    runner.git("remote", "set-url", "origin", "file:///nowhere")
    assert runner.run(**inputs, baseline="none") == 0
