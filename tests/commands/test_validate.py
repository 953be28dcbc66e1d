"""Whole validations of a small project: faults in its code or files, and devices that are not here."""

import json
from collections.abc import Callable
from functools import partial

import pytest

import pv
from pv.commands.validate import Interrupted
from pv.errors import UsageError
from pv.execution.consumers import Progress
from pv.results.evidence import DeviceInfo
from pv.results.outcome import Outcome
from pv.results.verdict import Status
from tests.commands.small import edit, outcomes, result
from tests.support.projects import Project


def test_a_sound_project_passes_with_its_denominators(project: Project) -> None:
    folder = project("small")
    report = pv.validate()
    assert report.exit_code == 0
    first, blank, last = pv.render(report).splitlines()
    assert first == "PASS  counting  falsifiers 5/5  mutants 5/5  cuda 0/2 not measured"
    assert blank == "" and last.startswith("0 fail, 0 undecided, 1 pass; ") and last.endswith("; seed 0; exit 0")
    figures = "5 of 5 falsifiers held, CUDA 0 of 2 (not measured on cuda), 5 of 5 mutants killed"
    assert f"counting 1.0.0: {figures}\n" in pv.render(report, verbose=True)
    assert [(trace.run, trace.device) for trace in report.contracts[0].runs] == [("whole", "cpu")]
    log = (folder / "falsifiers/.executions.log").read_text().splitlines()
    assert log.count("5x7 on cpu") == 1, "the full run is shared by its predicates"
    assert log.count("2x2 on cpu") == 3, "once clean for both predicates, once for each mutant"


def test_planted_faults_are_falsified_with_the_smallest_input_and_their_message(project: Project) -> None:
    """A run that raises falsifies every claim that reads it."""
    code = project("small") / "counting.py"
    edit(code, "min(limit, whole)", "max(limit, whole)")
    edit(code, "return [step for", "raise ValueError('no steps')\n    return [step for")
    report = pv.validate()
    assert report.exit_code == 1
    falsified = ("C-LIMIT", "C-RUN", "C-RUN-FIRST")
    assert [outcomes(report)[claim] for claim in falsified] == [Outcome.FALSIFIED] * 3
    arguments = result(report, "C-LIMIT").trial.counterexample.arguments
    assert sorted(arguments.values()) == [1, 1, 2], "the smallest"
    text = pv.render(report)
    for part in (
        "AssertionError: not the smaller of the two",
        "contracts/counting.yaml:7:3",
        "the limit is ignored, or compared the wrong way round",
        "rerun     pv validate --only C-LIMIT\n",
        "ValueError: no steps",
    ):
        assert part in text


def test_a_failure_is_located_at_the_line_that_raised_and_not_at_its_caller(project: Project) -> None:
    code = project("small") / "counting.py"
    edit(code, "    whole = ", "    raise ValueError('no total')\n    whole = ")
    raised = code.read_text().splitlines().index("    raise ValueError('no total')") + 1
    first = result(pv.validate(only=["C-RUN"]), "C-RUN").trial.counterexample.code[0]
    assert (first.path, first.line) == ("counting.py", raised)


def test_valid_contracts_run_beside_an_invalid_file(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/1\nmetadata: [1]\n")
    report = pv.validate()
    assert report.exit_code == 3
    assert [verdict.status for verdict in report.contracts] == [Status.PASS]
    assert "contracts/broken.yaml:2:11 PV012 invalid value [1] for 'metadata': expected a mapping" in pv.render(report)


def test_a_falsifier_that_cannot_be_imported_names_the_line(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", "import subprocess\n", "import subprocess\nimport notthere\n")
    text = pv.render(pv.validate(only=["C-LIMIT"]))
    assert "because   ModuleNotFoundError: No module named 'notthere'" in text
    assert "at        falsifiers/falsify_counting.py:4 in <module>: import notthere" in text


def test_another_subject_is_attacked_in_the_place_of_the_contracts_own(project: Project) -> None:
    folder = project("small")
    (folder / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    report = pv.validate(only=["C-LIMIT", "C-WHOLE"], subjects={"counting": "theirs"})
    assert outcomes(report) == {"C-LIMIT": Outcome.FALSIFIED, "C-WHOLE": Outcome.HELD}
    with pytest.raises(UsageError, match=r"unknown contract 'count' in --subject \(choose from counting\)"):
        pv.validate(subjects={"count": "theirs"})
    with pytest.raises(UsageError, match="invalid subject 'os:_exit'"):
        pv.validate(subjects={"counting": "os:_exit"})
    assert pv.validate(subjects={"counting": "os:system"}).exit_code == 1, "no module outside the roots"


def test_module_loaded_from_outside_the_project_is_an_error(project: Project) -> None:
    """`json` is loaded in every worker before the project's own `json.py` could be."""
    folder = project("small")
    (folder / "json.py").write_text((folder / "counting.py").read_text())
    claim = result(pv.validate(only=["C-LIMIT"], subjects={"counting": "json"}), "C-LIMIT")
    assert claim.outcome is Outcome.ERROR
    assert "json was loaded from" in claim.reason and str(folder / "json.py") in claim.reason


def test_falsifiers_of_other_subjects_read_executions_of_their_own(project: Project) -> None:
    """The other subject counts from 0; a mutant is judged where the falsifier holds at the small arguments."""
    folder = project("small")
    text = (folder / "counting.py").read_text()
    (folder / "losing.py").write_text(text.replace("range(1, total(epochs, steps) + 1)", "range(total(epochs, steps))"))
    edit(folder / "contracts/counting.yaml", "  run: whole\n  kills", "  run: whole\n  subject: losing\n  kills")
    report = pv.validate()
    claim = result(report, "C-RUN-FIRST")
    assert (claim.outcome, outcomes(report)["C-RUN"]) == (Outcome.FALSIFIED, Outcome.HELD)
    assert {name.partition(":")[0] for name in claim.trial.reached} == {"losing"}
    assert [trace.run for trace in report.contracts[0].runs] == ["whole", "whole of losing"]


H200 = DeviceInfo(name="NVIDIA H200", torch="2.11.0")
quick = partial(pv.validate, mutants=False)


def probe(name: str) -> DeviceInfo:
    return DeviceInfo() if name == "cpu" else H200


def test_an_absent_device_counts_only_when_it_is_asked_for(project: Project) -> None:
    folder = project("small")
    assert quick().exit_code == 0
    assert quick(require=["cuda"]).exit_code == 2
    asked = quick(devices=["cuda"])
    assert asked.exit_code == 2
    assert {c.device for c in asked.contracts[0].results} == {"cuda"}
    with (folder / "contracts/counting.yaml").open("a") as contract:
        contract.write("qa_gate: {id: G, name: both, require: {cuda: fresh}}\n")
    edit(folder / "other.yaml", "::falsify_limit", "::falsify_nothing")
    (folder / "other.yaml").rename(folder / "contracts/other.yaml")
    assert [verdict.status for verdict in quick().contracts] == [Status.FAIL, Status.UNDECIDED], "worst first"
    with pytest.raises(UsageError, match=r"unknown device 'tpu' \(choose from cpu, cuda\)"):
        quick(devices=["tpu"])


def test_recorded_evidence_counts_while_all_it_rests_on_is_unchanged(project: Project) -> None:
    folder = project("small")
    (folder / "table.txt").write_text("1")
    edit(folder / "counting.py", "def total(", "FACTOR = int(open('table.txt').read())\n\n\ndef total(")
    recorded = quick(devices=["cuda"], record=True, probe=probe)
    assert recorded.exit_code == 0
    assert [c.outcome for c in recorded.contracts[0].results] == [Outcome.HELD] * 2
    fresh = quick(require=["cuda"])
    assert fresh.exit_code == 0
    assert "CUDA 2 of 2 (recorded on NVIDIA H200, " in pv.render(fresh, verbose=True)

    edit(folder / "counting.py", "    whole = epochs", "    # as many as there are\n    whole = epochs")
    assert quick(require=["cuda"]).exit_code == 0, "a comment changes nothing"
    (folder / "table.txt").write_text("01")
    assert result(quick(require=["cuda"]), "C-WHOLE", "cuda").reason == "stale, changed: table.txt"
    (folder / "table.txt").write_text("1")

    edit(folder / "counting.py", "range(1, total", "range(0 + 1, total")
    edit(folder / "contracts/counting.yaml", 'find: "range(1, total', 'find: "range(0 + 1, total')
    stale = quick(require=["cuda"])
    assert stale.exit_code == 2
    assert result(stale, "C-WHOLE", "cuda").reason == "stale, changed: counting.py"
    assert quick().exit_code == 0, "stale evidence that nothing requires is only shown"
    assert "CUDA 0 of 2 (recorded, 2 stale)" in pv.render(quick(), verbose=True)

    (folder / "evidence/counting.cuda.json").write_text("{")
    broken = quick()
    assert broken.exit_code == 1
    assert "counting.cuda.json:1:1 PV170 the evidence file cannot be used" in pv.render(broken)


def test_a_refutation_recorded_elsewhere_fails_here_too(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", 'device in ("cpu", "cuda")', 'device == "cpu", device')
    assert quick(devices=["cuda"], record=True, probe=probe).exit_code == 1
    report = quick()
    assert report.exit_code == 1
    assert result(report, "C-WHOLE", "cuda").outcome is Outcome.FALSIFIED


def test_contracts_without_claims_for_the_requested_device_are_left_out_with_a_note(project: Project) -> None:
    folder = project("small")
    (folder / "other.yaml").rename(folder / "contracts/other.yaml")
    report = quick(devices=["cuda"], probe=probe)
    assert [verdict.contract.id for verdict in report.contracts] == ["counting"]
    assert report.exit_code == 0
    assert report.notes == ("left out, since they claim nothing on cuda: other",)
    both = quick(devices=["cuda"], require=["cuda"], probe=probe)
    assert {v.contract.id: v.unclaimed_devices for v in both.contracts} == {"counting": (), "other": ("cuda",)}
    assert both.exit_code == 2, "evidence of a required device is missing"
    for named in ({"contracts": ["other"]}, {"only": ["C-LIMIT"]}, {"paths": ["contracts/other.yaml"]}):
        nothing = quick(devices=["cuda"], probe=probe, **named)
        assert (nothing.exit_code, nothing.notes) == (2, ("nothing was measured: no claim is for cuda",)), named


def _stop_after(count: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.done > count:
            raise KeyboardInterrupt

    return stop


def test_results_that_came_before_a_validation_ended_early_are_recorded(project: Project) -> None:
    folder = project("small")
    with pytest.raises(Interrupted):
        quick(devices=["cuda"], record=True, probe=probe, jobs=1, on_progress=_stop_after(1))
    (only,) = json.loads((folder / "evidence/counting.cuda.json").read_text())["results"]
    assert (only["falsifier"], only["status"]) == ("C-WHOLE", "held")


def test_shards_record_into_one_file(project: Project) -> None:
    folder = project("small")
    for part in ("1/2", "2/2"):
        assert quick(devices=["cuda"], record=True, probe=probe, shard=part).exit_code == 0
    results = json.loads((folder / "evidence/counting.cuda.json").read_text())["results"]
    assert [record["falsifier"] for record in results] == ["C-RUN", "C-WHOLE"]


def test_only_claims_for_cuda_see_gpus(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 'import os; assert os.environ["CUDA_VISIBLE_DEVICES"] == {"cpu": "", "cuda": "0"}[device]'
    edit(project("small") / "falsifiers/falsify_counting.py", 'assert device in ("cpu", "cuda")', seen)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    report = quick(devices=["cpu", "cuda"], probe=probe, only=["C-WHOLE"])
    results = {result.device: result.outcome for result in report.contracts[0].results}
    assert results == {"cpu": Outcome.HELD, "cuda": Outcome.HELD}
