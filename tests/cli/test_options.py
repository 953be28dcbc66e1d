"""Every option of a command that runs claims arrives at the code that runs them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pv.errors import UsageError
from pv.report import render
from tests.commands.small import run
from tests.report.handmade import PLAIN
from tests.support.projects import Project

REQUEST: dict[str, Any] = {"only": ("M-*", "*-PAIR"), "seed": 5, "jobs": 3, "spawn": True}
REQUESTED = "--only M-* --only *-PAIR --seed 5 --jobs 3 --spawn"
COMMANDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "validate": (
        "pv.commands.validate.run_validation",
        f"contracts {REQUESTED} --contract a --contract b --device cuda --device cpu --require cuda --subject mean=a "
        "--subject other=b --fail-fast --examples 9 --no-mutants --no-cache",
        REQUEST
        | {"paths": (Path("contracts"),), "contracts": ("a", "b"), "devices": ("cuda", "cpu"), "require": {"cuda"}}
        | {"subjects": {"mean": "a", "other": "b"}, "fail_fast": True, "examples": 9, "mutants": False, "reuse": False},
    ),
    "compare": (
        "pv.commands.compare.run_validation",
        f"mean {REQUESTED} --examples 9 --subject modest",
        REQUEST | {"contracts": ["mean"], "subjects": {"mean": "peers.modest"}, "examples": 9, "mutants": False},
    ),
    "check": (
        "pv.commands.conformance.run_validation",
        f"mean --suite lr-schedule {REQUESTED} --fail-fast --replay {{}}",
        REQUEST
        | {"subjects": {"lr-schedule": "mean"}, "fail_fast": True, "replay": "{}"}
        | {"command": "pv check mean --suite lr-schedule"},
    ),
    "mutate": (
        "pv.commands.mutate.MutantTrials",
        "elsewhere --path other.yaml --sample 4 --seed 5 --wide --module mean --module p* --jobs 3 --fresh --spawn",
        {"id": "elsewhere", "sample": 4, "seed": 5, "widely": True, "modules": ("mean", "p*"), "jobs": 3}
        | {"fresh": True, "spawn": True},
    ),
    "check --": (
        "pv.commands.observed.check_run",
        "--steps 2 --sample 3 --trace t --keep-compile --no-probes --cut 1 --cut 4 --resume r --in-save --extend e "
        "--against a --only X --only Y -- python train.py --steps 9",
        {"words": ["python", "train.py", "--steps", "9"], "steps": 2, "sample": 3, "trace": Path("t")}
        | {"keep_compile": True, "probes": False, "cut": (1, 4), "resume": "r", "in_save": True, "extend": "e"}
        | {"against": "a", "only": ("X", "Y")},
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_all_options_arrive(project: Project, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    folder = project("compared")
    text = (folder / "contracts/mean.yaml").read_text()
    (folder / "other.yaml").write_text(text.replace("id: mean", "id: elsewhere"))
    function, words, expected = COMMANDS[command]
    arrived: dict[str, Any] = {}

    def stop(*positional: Any, **named: Any) -> None:
        for value in positional:  # such as a request or a contract
            arrived.update({name: getattr(value, name) for name in getattr(value, "__slots__", ())})
        arrived.update(named, words=positional[0])
        raise UsageError("stopped")

    monkeypatch.setattr(function, stop)
    done = run(*command.split()[:1], *words.split())
    assert done.stderr == "pv: stopped\n"
    assert {name: arrived[name] for name in expected} == expected


def test_reports_of_a_run_have_the_details_asked_for(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = SimpleNamespace(report=PLAIN, exit_code=2)
    monkeypatch.setattr("pv.commands.observed.check_run", lambda *_, **__: observed)
    monkeypatch.setattr("pv.commands.observed.render", lambda _, verbose, hints: f"{verbose=} {hints=}")
    done = run("check", "--hints", "--output", "text=text", "--output", "json=json", "--", "train")
    assert (done.returncode, done.stdout) == (2, "verbose=False hints=True")
    assert (empty / "text").read_text() == "verbose=True hints=True"
    assert (empty / "json").read_text() == render(PLAIN, "json")
