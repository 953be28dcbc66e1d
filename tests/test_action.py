"""The steps of `action.yml` run as on GitHub, on a repository that is not this one, with a stand-in for its API.

Only the steps with `run` are executed, with the variables and files that a runner sets. `pip` is a stand-in.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SMALL = ROOT / "tests/projects/small"


class Api(BaseHTTPRequestHandler):
    """Keeps the comments of one pull request. A token other than `write` is refused."""

    comments: ClassVar[list[dict[str, Any]]]

    def do_GET(self) -> None:
        self.answer(200, self.comments)

    def do_POST(self) -> None:
        if self.allowed():
            self.comments.append({"id": len(self.comments), "body": self.content()["body"]})
            self.answer(201, {})

    def do_PATCH(self) -> None:
        if self.allowed():
            self.comments[int(self.path.rpartition("/")[2])]["body"] = self.content()["body"]
            self.answer(200, {})

    def allowed(self) -> bool:
        if self.headers["Authorization"] == "Bearer write":
            return True
        self.content()
        self.answer(403, {"message": "Resource not accessible by integration"})
        return False

    def content(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, code: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Runner:
    """A runner with one repository, whose project is in the folder `sub dir`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.workspace, self.temp = folder / "repository", folder / "temp"
        self.temp.mkdir()
        self.project = self.workspace / "sub dir"
        shutil.copytree(SMALL, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        self.log = ""
        self.outputs: dict[str, str] = {}
        self.comments: list[dict[str, Any]] = []
        self.event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF_NAME": "7/merge", "GITHUB_SHA": "0" * 40}
        self._python()

    def _python(self) -> None:
        """Write a `python` that notes what pip is asked to install."""
        programs = self.folder / "bin"
        programs.mkdir()
        python = programs / "python"
        notes = self.folder / "pip.txt"
        python.write_text(
            f'#!/bin/bash\nif [ "$1 $2" = "-m pip" ]; then printf "%s\\n" "$*" >> "{notes}"; exit; fi\n'
            f'exec "{sys.executable}" "$@"\n'
        )
        python.chmod(python.stat().st_mode | stat.S_IXUSR)

    @property
    def installed(self) -> list[str]:
        return (self.folder / "pip.txt").read_text().splitlines()

    @property
    def summary(self) -> str:
        path = self.folder / "summary.md"
        return path.read_text() if path.exists() else ""

    @property
    def reports(self) -> Path:
        return self.temp / "pv-report"

    def run(self, **inputs: str) -> int:
        """Run the action with the inputs, their names with underscores; return its exit code."""
        given = {name: str(each["default"]) for name, each in ACTION["inputs"].items()}
        given |= {"working-directory": "sub dir"} | {name.replace("_", "-"): value for name, value in inputs.items()}
        for step in ACTION["runs"]["steps"]:
            if not self._condition(step.get("if", ""), given):
                continue
            if "actions/cache/" in step.get("uses", ""):
                self._cache(step["uses"], {key: self._expanded(text, given) for key, text in step["with"].items()})
            elif "run" in step:
                code = self._step(step, given)
                if code and not step.get("continue-on-error"):
                    return code
        return 0

    def _cache(self, action: str, given: dict[str, str]) -> None:
        """Save or restore a folder as actions/cache does: by its key, else the newest whose key starts alike."""
        place, store = self.workspace / given["path"], self.folder / "caches"
        if "/save@" in action:
            shutil.copytree(place, store / given["key"])
            return
        alike = sorted(store.glob(f"{given['restore-keys']}*"), key=lambda path: path.stat().st_mtime_ns)
        found = [path for path in (*alike, store / given["key"]) if path.exists()]
        shutil.rmtree(place, ignore_errors=True)
        if found:
            shutil.copytree(found[-1], place)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        ended = subprocess.run(["git", *identity, *words], cwd=self.workspace, check=True, capture_output=True)
        return ended.stdout.decode().strip()

    def push(self) -> None:
        """Commit the working tree to the default branch, as the event of the next run."""
        self.git("add", "-A")
        self.git("commit", "--allow-empty", "-qm", "a")
        self._happened("push", "main", {"repository": {"default_branch": "main"}})

    def pull_request(self) -> None:
        """Commit the working tree to a branch and merge it into main, as GitHub does for the event of the next run."""
        base = self.git("rev-parse", "main")
        self.git("checkout", "-qB", "work")
        self.git("add", "-A")
        self.git("commit", "--allow-empty", "-qm", "b")
        head = self.git("rev-parse", "HEAD")
        self.git("checkout", "-q", "--detach", "main")
        self.git("merge", "--no-ff", "-qm", "c", "work")
        content = {"number": 7, "base": {"sha": base}, "head": {"sha": head}}
        self._happened("pull_request", "7/merge", {"pull_request": content})

    def _happened(self, name: str, ref: str, content: dict[str, Any]) -> None:
        sha = self.git("rev-parse", "HEAD")
        self.event = {"GITHUB_EVENT_NAME": name, "GITHUB_REF_NAME": ref, "GITHUB_SHA": sha}
        (self.folder / "event.json").write_text(json.dumps(content))

    def _step(self, step: dict[str, Any], inputs: dict[str, str]) -> int:
        folder = self.workspace / self._expanded(step.get("working-directory", "."), inputs)
        script = self.temp / "step.sh"
        script.write_text(step["run"])
        output = self.temp / "output"
        output.write_text("")
        variables = {key: self._expanded(value, inputs) for key, value in step.get("env", {}).items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        ended = subprocess.run(
            command, cwd=folder, env=self._environment(output) | variables, text=True, capture_output=True, timeout=400
        )
        self.log += ended.stdout + ended.stderr
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.outputs[f"steps.{step['id']}.outputs.{name}"] = value
        return ended.returncode

    def _environment(self, output: Path) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {
            "PATH": path,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_API_URL": self.url,
            "GITHUB_REPOSITORY": "owner/name",
            "RUNNER_TEMP": str(self.temp),
            **self.event,
        }

    def _expanded(self, text: str, inputs: dict[str, str]) -> str:
        values = {f"inputs.{name}": value for name, value in inputs.items()}
        values |= {"github.action_path": str(ROOT), "github.token": "read", "runner.os": "Linux"} | self.outputs
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values.get(found[1], ""), text)

    def _condition(self, text: str, inputs: dict[str, str]) -> bool:
        if not text:
            return True
        left, sign, right = text.split()
        equal = self._expanded(f"${{{{ {left} }}}}", inputs) == right.strip("'")
        return equal is (sign == "==")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    class Handler(Api):
        comments: ClassVar[list[dict[str, Any]]] = []

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        runner = Runner(tmp_path, f"http://127.0.0.1:{server.server_address[1]}")
        runner.comments = Handler.comments
        yield runner
        server.shutdown()


def test_a_repository_has_reports_a_summary_annotations_and_one_comment_that_is_updated(runner: Runner) -> None:
    assert runner.run(arguments="--only C-WHOLE --no-mutants", token="write") == 0, runner.log
    assert {path.name for path in runner.reports.iterdir()} == {
        *("results.json", "report.md", "report.xml", "report.sarif", "report.html", "comment.md")
    }
    assert "| ✅ | `counting` 1.0.0 |" in runner.summary
    assert runner.outputs["steps.validate.outputs.exit-code"] == "0"
    path = runner.project / "counting.py"
    path.write_text(path.read_text().replace("epochs * steps", "epochs * steps + 1"))
    assert runner.run(arguments="--only C-WHOLE --no-mutants", token="write") == 1
    assert "::error file=sub dir/counting.py,line=6,col=1,title=falsified%3A C-WHOLE on cpu::" in runner.log
    assert "| ❌ | `counting` 1.0.0 |" in runner.summary
    place = json.loads((runner.reports / "report.sarif").read_text())["runs"][0]["results"][0]["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "sub%20dir/counting.py"
    (comment,) = runner.comments
    assert comment["body"].startswith("<!-- pv-report falsifier-report -->\n## Falsifier report")
    assert "**fail**" in comment["body"]


def test_a_token_that_cannot_write_does_not_fail_the_action(runner: Runner) -> None:
    assert runner.run(arguments="--only C-WHOLE --no-mutants", token="read") == 0
    assert runner.comments == []
    assert "no comment was written (HTTP 403)" in runner.log


def test_an_api_that_does_not_answer_does_not_fail_the_action(runner: Runner) -> None:
    runner.url = "http://127.0.0.1:9"
    assert runner.run(arguments="--only C-WHOLE --no-mutants", token="write") == 0
    assert "no comment was written (URLError)" in runner.log


def test_quoted_patterns_reach_the_command_whole(runner: Runner) -> None:
    (runner.project / "C-W-a-file").touch()
    arguments = "--only \"C-W*\"   --no-mutants\n--only 'C-L*'"
    assert runner.run(arguments=arguments, comment="false") == 0, runner.log
    content = json.loads((runner.reports / "results.json").read_text())
    assert {result["falsifier"] for result in content["contracts"][0]["results"]} == {"C-LIMIT", "C-WHOLE"}


def test_arguments_are_neither_expanded_nor_executed(runner: Runner) -> None:
    assert runner.run(arguments="--only '$(touch pwned)' --only `touch pwned` ; touch pwned", comment="false") == 3
    assert not list(runner.folder.rglob("pwned"))
    assert "wrote no report; its exit code is 3" in runner.summary


def test_an_unclosed_quote_is_an_error_of_the_input(runner: Runner) -> None:
    assert runner.run(arguments="--only 'C-", comment="false") == 3
    assert "the input 'arguments' has an unclosed quote" in runner.log


def test_what_the_code_under_contract_prints_is_no_command_to_the_runner(runner: Runner) -> None:
    falsifiers = runner.project / "falsifiers/falsify_counting.py"
    text = falsifiers.read_text()
    falsifiers.write_text(
        text + '\n\ndef falsify_whole(subject, device):\n    raise OSError("\\n::add-mask::secret\\n")\n'
    )
    assert runner.run(arguments="--only C-WHOLE --no-mutants", comment="false") == 1
    before, _, after = runner.log.partition("::stop-commands::")
    token, _, rest = after.partition("\n")
    printed, sign, annotations = rest.partition(f"::{token}::\n")
    assert sign and "::add-mask::" in printed
    assert not re.search(r"^\s*::add-mask::", before + annotations, re.MULTILINE)


def test_the_project_is_installed_before_pv_with_its_extras(runner: Runner) -> None:
    (runner.project / "needs.txt").touch()
    runner.run(
        install="python -m pip install torch --index-url 'https://example.org/cpu'\ntouch done",
        requirements="needs.txt\n",
        extras="symbolic,trainer",
        arguments="--only C-WHOLE --no-mutants",
        comment="false",
    )
    assert runner.installed == [
        "-m pip install torch --index-url https://example.org/cpu",
        "-m pip install -r needs.txt",
        f"-m pip install {ROOT}[symbolic,trainer]",
    ]
    assert (runner.project / "done").exists()


def test_a_failed_install_command_fails_the_action(runner: Runner) -> None:
    assert runner.run(install="false\ntrue") == 1


def test_the_baseline_is_compared_in_the_comment(runner: Runner) -> None:
    assert runner.run(arguments="--only C-WHOLE --no-mutants", comment="false") == 0
    shutil.copy(runner.reports / "results.json", runner.project / "base.json")
    contract = runner.project / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 10\n"))
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
    contract = runner.project / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 10\n"))
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


def test_the_examples_give_only_inputs_that_exist() -> None:
    for path in (ROOT / ".github/examples").iterdir():
        steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
        (ours,) = [step for step in steps if "/pv@" in step.get("uses", "")]
        assert set(ours["with"]) <= set(ACTION["inputs"]), path


def test_an_expression_stands_in_no_script() -> None:
    assert not [step["run"] for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")]
