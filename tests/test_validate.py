"""Whole validations of a small project: what passes, what a planted fault does, what each option changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.cells import Cell, Outcome
from pv.errors import UsageError
from pv.evidence import DeviceInfo
from pv.verdict import Report, Status

Project = Callable[[str], Path]
H200 = DeviceInfo(name="NVIDIA H200", torch="2.11.0")


def edit(path: Path, find: str, replace: str) -> None:
    text = path.read_text()
    assert text.count(find) == 1, f"{find!r} occurs {text.count(find)} times in {path}"
    path.write_text(text.replace(find, replace))


def cell(report: Report, falsifier: str, device: str = "cpu") -> Cell:
    (found,) = (c for v in report.contracts for c in v.cells if (c.falsifier.id, c.device) == (falsifier, device))
    return found


def outcomes(report: Report) -> dict[str, Outcome]:
    return {c.falsifier.id: c.outcome for v in report.contracts for c in v.cells if c.device == "cpu"}


def probe(name: str) -> DeviceInfo:
    return DeviceInfo() if name == "cpu" else H200


def test_a_sound_project_passes_with_its_denominators(project: Project) -> None:
    folder = project("small")
    report = pv.validate()
    assert report.exit_code == 0
    assert "counting 1.0.0: 5 of 5 falsifiers survived, CUDA 0 of 2 (not measured on cuda), 5 of 5 mutants killed" in (
        pv.render(report)
    )
    log = (folder / "falsifiers/executions.log").read_text().splitlines()
    assert log.count("5x7 on cpu") == 1, "the full run is shared by its predicates"
    assert log.count("2x2 on cpu") == 3, "once clean for both predicates, once for each mutant"


def test_a_planted_fault_is_falsified_with_the_smallest_input_and_a_message_that_tells(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "min(limit, whole)", "max(limit, whole)")
    edit(folder / "contracts/counting.yaml", "min(limit, whole)", "max(limit, whole)")
    report = pv.validate()
    assert report.exit_code == 1
    found = cell(report, "C-LIMIT")
    assert found.outcome is Outcome.FALSIFIED
    assert found.trial is not None and found.trial.counterexample is not None
    assert found.trial.counterexample.arguments in (
        {"epochs": 1, "steps": 1, "limit": 2},
        {"epochs": 1, "steps": 2, "limit": 1},
        {"epochs": 2, "steps": 1, "limit": 1},
    )
    text = pv.render(report)
    assert "AssertionError: not the smaller of the two" in text
    assert "contracts/counting.yaml:7:3" in text
    assert "the limit is ignored, or compared the wrong way round" in text
    assert "repeat    pv validate --only C-LIMIT\n" in text


def test_a_counterexample_replays_by_blob_and_by_arguments_until_it_is_mended(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "whole = epochs * steps", "whole = epochs * steps + (epochs > 3)")
    trial = cell(pv.validate(only=["C-WHOLE"]), "C-WHOLE").trial
    assert trial is not None and trial.counterexample is not None
    assert trial.counterexample.arguments == {"epochs": 4, "steps": 1}
    blob = f"{trial.counterexample.hypothesis}:{trial.counterexample.blob}"
    for replay in (blob, '{"epochs": 4, "steps": 1}'):
        replayed = cell(pv.validate(only=["C-WHOLE"], replay=replay), "C-WHOLE")
        assert replayed.outcome is Outcome.FALSIFIED
        assert replayed.trial is not None and replayed.trial.counterexample is not None
        assert replayed.trial.counterexample.arguments == {"epochs": 4, "steps": 1}
    edit(folder / "counting.py", "(epochs > 3)", "0")
    assert (
        cell(pv.validate(only=["C-WHOLE"], replay='{"epochs": 4, "steps": 1}'), "C-WHOLE").outcome is Outcome.SURVIVED
    )
    assert "does not fail" in cell(pv.validate(only=["C-WHOLE"], replay=blob), "C-WHOLE").reason


def test_a_falsifier_that_kills_nothing_is_vacuous(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", "== sorted([limit, epochs * steps])[0]", ">= 0")
    report = pv.validate()
    assert report.exit_code == 1
    assert cell(report, "C-LIMIT").outcome is Outcome.VACUOUS
    assert cell(report, "C-LIMIT").reason == "the mutant 'limit-ignored' survived it (its code was reached)"
    assert report.contracts[0].killed == {"epoch-lost", "last-step-lost", "from-zero"}


def test_a_mutant_in_a_module_that_is_never_imported_is_void(project: Project) -> None:
    folder = project("small")
    (folder / "other.py").write_text("def unused():\n    return 1\n")
    edit(folder / "counting.py", "import sys\n", "import sys\n\nif not sys.argv:\n    import other\n")
    contract = folder / "contracts/counting.yaml"
    edit(contract, "kills: [limit-ignored, limit-forgotten]", "kills: [limit-ignored, limit-forgotten, elsewhere]")
    contract.write_text(
        contract.read_text()
        + '- {id: elsewhere, fault: another module, edit: {function: "other:unused", find: "1", replace: "2"}}\n'
    )
    found = cell(pv.validate(), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert found.reason == "the mutant 'elsewhere' could not be judged: other was never imported"


def test_a_mutant_that_breaks_the_import_is_not_killed(project: Project) -> None:
    folder = project("small")
    edit(folder / "contracts/counting.yaml", "replace: whole}", "replace: '[][0]'}")
    edit(folder / "counting.py", "def total(", "FIRST = 1\n\n\ndef total(")
    edit(
        folder / "contracts/counting.yaml",
        'function: "counting:total", find: "min(limit, whole)"',
        'function: "counting:FIRST", find: "1"',
    )
    found = cell(pv.validate(), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert found.reason == "the mutant 'limit-ignored' could not be judged: IndexError: list index out of range"


def test_a_run_that_raises_falsifies_what_reads_it(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "return [step for", "raise ValueError('no steps')\n    return [step for")
    report = pv.validate()
    assert outcomes(report)["C-RUN"] is outcomes(report)["C-RUN-FIRST"] is Outcome.FALSIFIED
    assert "ValueError: no steps" in pv.render(report)


def test_small_arguments_must_satisfy_the_claim(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "return [step for step in", "return [step + (epochs == 2) for step in")
    edit(folder / "contracts/counting.yaml", "kills: [last-step-lost]", "kills: [last-step-lost, from-zero]")
    found = cell(pv.validate(only=["C-RUN-FIRST"]), "C-RUN-FIRST")
    assert found.outcome is Outcome.ERROR
    assert found.reason.startswith("the clean subject fails at the run's `small` arguments")


def test_another_subject_is_attacked_in_the_place_of_the_contracts_own(project: Project) -> None:
    folder = project("small")
    (folder / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    report = pv.validate(only=["C-LIMIT", "C-WHOLE"], subjects={"counting": "theirs"})
    assert outcomes(report) == {"C-LIMIT": Outcome.FALSIFIED, "C-WHOLE": Outcome.SURVIVED}
    with pytest.raises(UsageError, match="names the contract 'count'; the contracts are counting"):
        pv.validate(subjects={"count": "theirs"})
    with pytest.raises(UsageError, match="'os:_exit' is no subject"):
        pv.validate(subjects={"counting": "os:_exit"})
    assert pv.validate(subjects={"counting": "os:system"}).exit_code == 1, "no module outside the roots"


def test_an_installed_copy_never_stands_in_for_the_tree(project: Project) -> None:
    """`json` is loaded in every worker before the project's own `json.py` could be."""
    folder = project("small")
    (folder / "json.py").write_text((folder / "counting.py").read_text())
    found = cell(pv.validate(only=["C-LIMIT"], subjects={"counting": "json"}), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert "json was loaded from" in found.reason and str(folder / "json.py") in found.reason


def test_nothing_matched_is_exit_2_and_says_what_to_do(project: Project) -> None:
    project("small")
    for report in (pv.validate(only=["NO-SUCH"]), pv.validate(contracts=["none"])):
        assert report.exit_code == 2
        assert "nothing was measured: nothing matches" in pv.render(report)


def test_an_empty_folder_is_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pv.validate([tmp_path]).exit_code == 2
    with pytest.raises(UsageError, match="there is no contracts"):
        pv.validate(["contracts"])


def test_fail_fast_stops_at_the_first_failure(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "whole = epochs * steps", "whole = epochs * steps + 1")
    edit(folder / "contracts/counting.yaml", "find: epochs * steps,", "find: epochs * steps + 1,")
    report = pv.validate(fail_fast=True, jobs=1)
    assert report.exit_code == 1
    assert Outcome.FALSIFIED in outcomes(report).values()
    assert cell(report, "C-RUN").reason == "not run: --fail-fast stopped at the first failure"


def test_seeds_repeat_and_differ(project: Project) -> None:
    project("small")
    first, again, other = (pv.validate(only=["C-WHOLE"], seed=seed, examples=7) for seed in (1, 1, 2))
    seeds = [cell(report, "C-WHOLE").trial for report in (first, again, other)]
    assert [trial.valid for trial in seeds if trial is not None] == [7, 7, 7]
    assert seeds[0] is not None and seeds[1] is not None and seeds[2] is not None
    assert seeds[0].seed == seeds[1].seed != seeds[2].seed


def test_spawned_workers_say_the_same(project: Project) -> None:
    project("small")
    report = pv.validate(spawn=True, only=["C-LIMIT", "C-COMMAND"])
    assert report.exit_code == 0
    assert report.contracts[0].killed == {"limit-ignored", "limit-forgotten", "epoch-lost"}
    assert report.notes == ("tasks are spawned, as asked",)


def test_an_absent_device_counts_only_when_it_is_asked_for(project: Project) -> None:
    folder = project("small")
    assert pv.validate().exit_code == 0
    assert pv.validate(require=["cuda"]).exit_code == 2
    asked = pv.validate(devices=["cuda"])
    assert asked.exit_code == 2
    assert {c.device for c in asked.contracts[0].cells} == {"cuda"}
    (folder / "contracts/counting.yaml").write_text(
        (folder / "contracts/counting.yaml").read_text() + "qa_gate: {id: G, name: both, require: {cuda: fresh}}\n"
    )
    assert pv.validate().exit_code == 2
    with pytest.raises(UsageError, match="there is no device 'tpu'; the devices are cpu, cuda"):
        pv.validate(devices=["tpu"])


def test_recorded_evidence_counts_while_all_it_rests_on_is_unchanged(project: Project) -> None:
    folder = project("small")
    recorded = pv.validate(devices=["cuda"], record=True, probe=probe)
    assert recorded.exit_code == 0
    assert [c.outcome for c in recorded.contracts[0].cells] == [Outcome.SURVIVED] * 2
    fresh = pv.validate(require=["cuda"])
    assert fresh.exit_code == 0
    assert "CUDA 2 of 2 (recorded on NVIDIA H200, " in pv.render(fresh)

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
    assert cell(stale, "C-WHOLE", "cuda").reason == "stale, changed: counting.py"
    assert pv.validate().exit_code == 0, "stale evidence that nothing requires is only shown"
    assert "CUDA 0 of 2 (recorded, 2 stale)" in pv.render(pv.validate())


def test_a_refutation_recorded_elsewhere_fails_here_too(project: Project) -> None:
    folder = project("small")
    edit(
        folder / "falsifiers/falsify_counting.py", 'assert device in ("cpu", "cuda")', 'assert device == "cpu", device'
    )
    assert pv.validate(devices=["cuda"], record=True, probe=probe).exit_code == 1
    report = pv.validate()
    assert report.exit_code == 1
    assert cell(report, "C-WHOLE", "cuda").outcome is Outcome.FALSIFIED


def test_a_broken_evidence_file_is_an_error_with_its_place(project: Project) -> None:
    folder = project("small")
    (folder / "evidence").mkdir()
    (folder / "evidence/counting.cuda.json").write_text("{")
    report = pv.validate()
    assert report.exit_code == 1
    assert "counting.cuda.json:1:1 PV170 the evidence file cannot be used" in pv.render(report)


def test_recording_needs_a_device_and_the_contracts_own_subject(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match="add --device cuda"):
        pv.validate(record=True)
    weakened: tuple[dict[str, Any], ...] = ({"subjects": {"counting": "counting"}}, {"examples": 1}, {"seed": 1})
    for weaker in weakened:
        with pytest.raises(UsageError, match="evidence is recorded for a contract as it stands"):
            pv.validate(record=True, devices=["cuda"], **weaker)


def test_a_refused_file_does_not_keep_the_others_from_running(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/1\nmetadata: [1]\n")
    report = pv.validate()
    assert report.exit_code == 3
    assert [verdict.status for verdict in report.contracts] == [Status.PASS]
    assert "contracts/broken.yaml:2:11 PV012 metadata: must be a mapping, not [1]" in pv.render(report)


def test_a_contract_whose_test_does_not_exist_fails_before_anything_runs(project: Project) -> None:
    folder = project("small")
    edit(folder / "contracts/counting.yaml", "::falsify_limit", "::falsify_limits")
    report = pv.validate()
    assert report.exit_code == 1
    assert "PV111 falsifiers/falsify_counting.py defines no falsify_limits; did you mean 'falsify_limit'?" in (
        pv.render(report)
    )


def test_evidence_rests_on_whatever_was_read_while_it_was_taken(project: Project) -> None:
    folder = project("small")
    (folder / "table.txt").write_text("1")
    edit(folder / "counting.py", "def total(", "FACTOR = int(open('table.txt').read())\n\n\ndef total(")
    pv.validate(devices=["cuda"], record=True, probe=probe)
    assert pv.validate(require=["cuda"]).exit_code == 0
    (folder / "table.txt").write_text("01")
    assert cell(pv.validate(require=["cuda"]), "C-WHOLE", "cuda").reason == "stale, changed: table.txt"


def test_a_mutant_that_names_what_is_not_there_kills_nothing(project: Project) -> None:
    folder = project("small")
    edit(folder / "contracts/counting.yaml", "replace: whole}", "replace: undefined}")
    found = cell(pv.validate(), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert "'limit-ignored' could not be judged: NameError: name 'undefined' is not defined" in found.reason


def test_a_vacuous_falsifier_is_shown_with_the_fault_that_it_missed(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", "== sorted([limit, epochs * steps])[0]", ">= 0")
    text = pv.render(pv.validate())
    assert "survivor  limit-ignored: the limit is not read (contracts/counting.yaml:" in text
    assert "limit-forgotten: the limit is forgotten (contracts/counting.yaml:" in text
    assert "usually" not in text, "what usually makes the claim fail says nothing about an attack that is too weak"


def test_the_command_to_repeat_carries_what_was_asked_for(project: Project) -> None:
    folder = project("small")
    (folder / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    report = pv.validate(["contracts"], only=["C-LIMIT"], subjects={"counting": "theirs"}, seed=7, examples=50)
    text = pv.render(report)
    assert "FAIL       counting 1.0.0 on theirs: " in text
    command = "pv validate contracts --subject counting=theirs --examples 50 --seed 7 --only C-LIMIT"
    assert f"repeat    {command}\n" in text
    assert f"replay    {command} --replay " in text


def test_only_what_draws_examples_can_be_replayed(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match="C-RUN-FIRST reads the run 'whole': it draws no examples"):
        pv.validate(only=["C-RUN-FIRST"], replay="{}")
    with pytest.raises(UsageError, match="exactly one falsifier, not 2"):
        pv.validate(only=["C-RUN*"], replay="{}")
    plain = cell(pv.validate(only=["C-COMMAND"], replay="{}"), "C-COMMAND")
    assert plain.outcome is Outcome.ERROR
    assert plain.reason == "ValueError: it draws no examples, so there is none to replay"


def test_a_pattern_that_names_nothing_is_said_and_is_no_pass(project: Project) -> None:
    project("small")
    report = pv.validate(only=["C-LIMIT", "TYPO"])
    assert report.exit_code == 2
    assert "note: --only TYPO names nothing" in pv.render(report)


def test_numbers_out_of_range_are_refused(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match="jobs is -1; it must be at least 1"):
        pv.validate(jobs=-1)
    with pytest.raises(UsageError, match="examples is 0; it must be at least 1"):
        pv.validate(examples=0)


def test_a_contract_is_judged_in_the_project_that_it_lies_in(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = project("small")
    monkeypatch.chdir(tmp_path)
    assert pv.validate([folder / "contracts/counting.yaml"], only=["C-LIMIT"]).exit_code == 0


def test_a_falsifier_that_cannot_be_imported_says_where(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", "import subprocess\n", "import subprocess\nimport notthere\n")
    text = pv.render(pv.validate(only=["C-LIMIT"]))
    assert "seen      ModuleNotFoundError: No module named 'notthere'" in text
    assert "at        falsifiers/falsify_counting.py:4 in <module>: import notthere" in text


def test_a_contract_named_like_a_binding_registry_is_read_all_the_same(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/counting.yaml").rename(folder / "contracts/binding.yaml")
    assert pv.validate(only=["C-LIMIT"]).exit_code == 0
