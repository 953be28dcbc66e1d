"""A runner of GitHub for the steps of `action.yml`, on a repository that is not this one, and a stand-in for its API.

Only the steps with `run` and of `actions/cache` are carried out, with the variables and files that a runner sets. `pip`
is a stand-in.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.processes import git
from tests.support.projects import copy

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


class Api(BaseHTTPRequestHandler):
    """Keeps the comments of one pull request. A token other than `write` is refused."""

    comments: ClassVar[list[dict[str, Any]]]

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        size, page = int(query.get("per_page", ["30"])[0]), int(query.get("page", ["1"])[0])
        self.answer(200, self.comments[size * (page - 1) : size * page])

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
        self.project = copy("small", self.workspace / "sub dir")
        (folder / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        self.log = ""
        self.outputs: dict[str, str] = {}
        self.comments: list[dict[str, Any]] = []
        self.event = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF_NAME": "7/merge", "GITHUB_SHA": "0" * 40}
        self._python()

    def _python(self) -> None:
        """Write a `python` and a `pip` that note what is to be installed."""
        programs = self.folder / "bin"
        programs.mkdir()
        python = programs / "python"
        notes = self.folder / "pip.txt"
        python.write_text(
            f'#!/bin/bash\nif [ "$1 $2" = "-m pip" ]; then printf "%s\\n" "$*" >> "{notes}"; exit; fi\n'
            f'exec "{sys.executable}" "$@"\n'
        )
        pip = programs / "pip"
        pip.write_text(f'#!/bin/bash\nexec "{python}" -m pip "$@"\n')
        for program in (python, pip):
            program.chmod(0o755)

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

    def run(self, only: str = "", **inputs: str) -> int:
        """Run the action, or `only` the step of a name, with inputs named with underscores; return its exit code."""
        values = {name: str(declaration["default"]) for name, declaration in ACTION["inputs"].items()}
        values |= {"working-directory": "sub dir"} | {name.replace("_", "-"): value for name, value in inputs.items()}
        for step in ACTION["runs"]["steps"]:
            if only not in ("", step.get("name")) or not self._condition(step.get("if", ""), values):
                continue
            if "actions/cache/" in step.get("uses", ""):
                self._cache(step["uses"], {key: self._expanded(text, values) for key, text in step["with"].items()})
            elif "run" in step:
                code = self._step(step, values)
                if code and not step.get("continue-on-error"):
                    return code
        return 0

    def script(self, text: str, folder: Path) -> int:
        """Run the script of a step of a workflow in a folder; return its exit code."""
        return self._step({"run": text, "working-directory": str(folder)}, {})

    def _cache(self, action: str, settings: dict[str, str]) -> None:
        """Save or restore a folder as actions/cache does: by its key, else the newest whose key starts alike."""
        place, store = self.workspace / settings["path"], self.folder / "caches"
        if "/save@" in action:
            shutil.copytree(place, store / settings["key"])
            return
        alike = sorted(store.glob(f"{settings['restore-keys']}*"), key=lambda path: path.stat().st_mtime_ns)
        stored = [path for path in (*alike, store / settings["key"]) if path.exists()]
        shutil.rmtree(place, ignore_errors=True)
        if stored:
            shutil.copytree(stored[-1], place)

    def git(self, *words: str) -> str:
        return git(*words, cwd=self.workspace)

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
            command, cwd=folder, env=self._environment(output) | variables, text=True, capture_output=True, timeout=600
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
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values.get(match[1], ""), text)

    def _condition(self, text: str, inputs: dict[str, str]) -> bool:
        if not text:
            return True
        # The conditions of action.yml have the form `inputs.x == 'y'` or `!=`.
        left, sign, right = text.split()
        equal = self._expanded(f"${{{{ {left} }}}}", inputs) == right.strip("'")
        return equal is (sign == "==")
