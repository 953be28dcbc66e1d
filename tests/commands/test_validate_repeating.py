"""What failed can be seen again: by its seed, its counterexample, and the command that is printed."""

import json
import re
import shlex
from pathlib import Path

import pytest

import pv
from pv.commands.counterexamples import write_replays
from pv.engines.replay import read
from pv.engines.trial import Counterexample, Trial, TrialStatus
from pv.errors import UsageError
from pv.results.evidence import Evidence
from pv.results.outcome import Outcome
from pv.source.project import find_project
from tests.commands.small import edit, result
from tests.support.projects import HEAD, Project, write


def test_a_counterexample_replays_by_blob_and_by_arguments_until_it_is_mended_or_rejected(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "whole = epochs * steps", "whole = epochs * steps + (epochs > 3)")
    trial = result(pv.validate(only=["C-WHOLE"]), "C-WHOLE").trial
    assert trial.counterexample.arguments == {"epochs": 4, "steps": 1}
    blob = f"{trial.counterexample.hypothesis}:{trial.counterexample.blob}"
    for replay in (blob, '{"epochs": 4, "steps": 1}'):
        replayed = result(pv.validate(only=["C-WHOLE"], replay=replay), "C-WHOLE")
        assert replayed.outcome is Outcome.FALSIFIED
        assert replayed.trial.counterexample.arguments == {"epochs": 4, "steps": 1}
    edit(folder / "counting.py", "(epochs > 3)", "0")
    for replay in (blob, '{"epochs": 4, "steps": 1}'):
        holds_now("C-WHOLE", replay)
    test = folder / "falsifiers/falsify_counting.py"
    start = "def falsify_whole(subject, device, epochs, steps):\n"
    edit(test, start, f"{start}    assume(epochs < 4)\n")
    edit(test, "from hypothesis import given", "from hypothesis import assume, given")
    rejected = result(pv.validate(only=["C-WHOLE"], replay=blob), "C-WHOLE")
    assert (rejected.outcome, "the test rejects the example to replay" in rejected.reason) == (Outcome.VACUOUS, True)


def holds_now(claim: str, replay: str) -> None:
    report = pv.validate(only=[claim], replay=replay)
    replayed = result(report, claim)
    says = "the replayed example holds now; no other example was tried"
    assert (report.exit_code, replayed.outcome, replayed.reason, replayed.mutants) == (0, Outcome.HELD, says, ())
    for name in ("text", "json", "markdown", "junit"):  # the others show failures, or words split by markup
        assert says in pv.render(report, name, verbose=True)


def test_seeds_repeat_and_differ(project: Project) -> None:
    project("small")
    first, again, other = (pv.validate(only=["C-WHOLE"], seed=seed, examples=7, mutants=False) for seed in (1, 1, 2))
    seeds = [result(report, "C-WHOLE").trial for report in (first, again, other)]
    assert [trial.valid for trial in seeds] == [7, 7, 7]
    assert seeds[0].seed == seeds[1].seed != seeds[2].seed


def test_command_to_repeat_has_the_options_of_the_request(project: Project) -> None:
    folder = project("small")
    (folder / "theirs.py").write_text("def total(epochs, steps, limit=None):\n    return epochs * steps\n")
    report = pv.validate(["contracts"], only=["C-LIMIT"], subjects={"counting": "theirs"}, seed=7, examples=50)
    text = pv.render(report)
    assert text.startswith("FAIL  counting on theirs  ")
    command = "pv validate contracts --subject counting=theirs --examples 50 --seed 7 --only C-LIMIT"
    assert f"rerun     {command}\n" in text
    assert f"replay    {command} --replay " in text


def test_only_claims_that_draw_examples_can_be_replayed(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match="C-RUN-FIRST reads the run 'whole': it draws no examples"):
        pv.validate(only=["C-RUN-FIRST"], replay="{}")
    with pytest.raises(UsageError, match="exactly one claim, not 2"):
        pv.validate(only=["C-RUN*"], replay="{}")
    plain = result(pv.validate(only=["C-COMMAND"], replay="{}"), "C-COMMAND")
    assert plain.outcome is Outcome.ERROR
    assert plain.reason == "ValueError: the test draws no examples, so none can be replayed"


def test_an_equations_counterexample_is_printed_to_be_replayed_until_it_is_mended(project: Project) -> None:
    folder = project("kernels")
    edit(folder / "kernels.py", "return F.softmax(x, -1)", "return F.softmax(x, -1) * 1.5")
    report = pv.validate(only=["K-SOFTMAX"])
    (line,) = (line for line in pv.render(report).splitlines() if line.startswith("  replay    "))
    _, replay = shlex.split(line.partition("--only ")[2].partition(" ")[2])
    edit(folder / "kernels.py", " * 1.5", "")
    holds_now("K-SOFTMAX", replay)


def test_an_example_of_an_equation_names_its_variables(project: Project) -> None:
    project("kernels")
    for replay, says in {
        "{}": "is not an example of the equation softmax_rows: missing x",
        '{"x": [1.0]}': "x has the shape [1], its axes are [",
        "6.0:AAE=": "invalid example for K-SOFTMAX: expected the arguments",
    }.items():
        with pytest.raises(UsageError, match=re.escape(says)):
            pv.validate(only=["K-SOFTMAX"], replay=replay)


TOP_K = f"""{HEAD}subject: top
equations:
  tops: {{domain: {{K: size 1..4, x: "real[V]"}}, expression: "min(x[top(x, V, K)], K)", implemented_by: "top_k(x, K)"}}
falsifiers: [{{id: TOP-K, equation: tops, rule: The k largest stay, prediction: equal, if_fails: Off by one}}]
"""


def test_an_example_names_sizes_that_no_array_has(empty: Path) -> None:
    write(empty, {"contracts/top.yaml": TOP_K, "top.py": "def top_k(x, k): return x.topk(k).values[-1]\n"})
    with pytest.raises(UsageError, match=r"missing K \(a size that no array has\)"):
        pv.validate(only=["TOP-K"], replay='{"x": [1, 2, 3, 4]}')


def file_of(number: object, project: Path) -> str:
    """Return the file that a counterexample with this argument is written to."""
    seen = Counterexample(arguments={"n": number}, exact=True, error="no")
    trial = Trial(falsifier="F-1", device="cpu", status=TrialStatus.REFUTED, counterexample=seen)
    evidence = write_replays(find_project(project), Evidence(trials={("F-1", "cpu"): trial}))
    return evidence.trials["F-1", "cpu"].counterexample.file


def test_only_a_long_example_is_written_and_can_be_read_again(empty: Path) -> None:
    assert file_of(1, empty) == ""
    assert list(empty.iterdir()) == []
    (empty / ".pv_cache").write_text("not a folder")
    assert file_of([1] * 200, empty) == "", "a folder that cannot be written costs only the file"
    (empty / ".pv_cache").unlink()
    assert file_of([1] * 200, empty) == ".pv_cache/replay/F-1-cpu.json"
    assert json.loads(read("@.pv_cache/replay/F-1-cpu.json")) == {"n": [1] * 200}
    assert read("{}") == "{}"
    with pytest.raises(UsageError, match=r"cannot read the example .*missing\.json: No such file or directory"):
        read(f"@{empty}/missing.json")
