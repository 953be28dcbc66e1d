"""Devices that are not here: when they count, what is recorded of them, and how long it holds."""

import pytest

import pv
from pv.errors import UsageError
from pv.results.outcome import Outcome
from pv.results.trial import DeviceInfo
from tests.commands.small import edit, result
from tests.support.projects import Project

H200 = DeviceInfo(name="NVIDIA H200", torch="2.11.0")


def probe(name: str) -> DeviceInfo:
    return DeviceInfo() if name == "cpu" else H200


def test_an_absent_device_counts_only_when_it_is_asked_for(project: Project) -> None:
    folder = project("small")
    assert pv.validate().exit_code == 0
    assert pv.validate(require=["cuda"]).exit_code == 2
    asked = pv.validate(devices=["cuda"])
    assert asked.exit_code == 2
    assert {c.device for c in asked.contracts[0].results} == {"cuda"}
    (folder / "contracts/counting.yaml").write_text(
        (folder / "contracts/counting.yaml").read_text() + "qa_gate: {id: G, name: both, require: {cuda: fresh}}\n"
    )
    assert pv.validate().exit_code == 2
    with pytest.raises(UsageError, match=r"unknown device 'tpu' \(choose from cpu, cuda\)"):
        pv.validate(devices=["tpu"])


def test_recorded_evidence_counts_while_all_it_rests_on_is_unchanged(project: Project) -> None:
    folder = project("small")
    recorded = pv.validate(devices=["cuda"], record=True, probe=probe)
    assert recorded.exit_code == 0
    assert [c.outcome for c in recorded.contracts[0].results] == [Outcome.HELD] * 2
    fresh = pv.validate(require=["cuda"])
    assert fresh.exit_code == 0
    assert "CUDA 2 of 2 (recorded on NVIDIA H200, " in pv.render(fresh, verbose=True)

    edit(
        folder / "counting.py",
        "    whole = epochs * steps\n",
        "    # as many as there are\n    whole = epochs * steps\n",
    )
    assert pv.validate(require=["cuda"]).exit_code == 0, "a comment changes nothing"

    edit(folder / "counting.py", "range(1, total", "range(0 + 1, total")
    edit(folder / "contracts/counting.yaml", 'find: "range(1, total', 'find: "range(0 + 1, total')
    stale = pv.validate(require=["cuda"])
    assert stale.exit_code == 2
    assert result(stale, "C-WHOLE", "cuda").reason == "stale, changed: counting.py"
    assert pv.validate().exit_code == 0, "stale evidence that nothing requires is only shown"
    assert "CUDA 0 of 2 (recorded, 2 stale)" in pv.render(pv.validate(), verbose=True)


def test_a_refutation_recorded_elsewhere_fails_here_too(project: Project) -> None:
    folder = project("small")
    edit(
        folder / "falsifiers/falsify_counting.py", 'assert device in ("cpu", "cuda")', 'assert device == "cpu", device'
    )
    assert pv.validate(devices=["cuda"], record=True, probe=probe).exit_code == 1
    report = pv.validate()
    assert report.exit_code == 1
    assert result(report, "C-WHOLE", "cuda").outcome is Outcome.FALSIFIED


def test_a_broken_evidence_file_is_an_error_with_its_place(project: Project) -> None:
    folder = project("small")
    (folder / "evidence").mkdir()
    (folder / "evidence/counting.cuda.json").write_text("{")
    report = pv.validate()
    assert report.exit_code == 1
    assert "counting.cuda.json:1:1 PV170 the evidence file cannot be used" in pv.render(report)


def test_evidence_rests_on_whatever_was_read_while_it_was_taken(project: Project) -> None:
    folder = project("small")
    (folder / "table.txt").write_text("1")
    edit(folder / "counting.py", "def total(", "FACTOR = int(open('table.txt').read())\n\n\ndef total(")
    pv.validate(devices=["cuda"], record=True, probe=probe)
    assert pv.validate(require=["cuda"]).exit_code == 0
    (folder / "table.txt").write_text("01")
    assert result(pv.validate(require=["cuda"]), "C-WHOLE", "cuda").reason == "stale, changed: table.txt"
