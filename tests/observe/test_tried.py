"""A claim is tried only where the script has what the claim is about."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the scripts need torch")

from pv.commands.observed import check_run, render
from pv.suites.training_run.claim import Record
from pv.suites.training_run.claims import CLAIMS, judge
from pv.suites.training_run.run import Run, read_folder
from tests.observe.test_scripts import HERE, missing, run_scripts


def test_claims_are_not_tried_on_scripts_without_their_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("language_model", "masked_language_model", "heads_of_tuned_models")
    run_scripts(tmp_path, [(name, HERE / "scripts" / f"{name}.py") for name in names], plain=False)
    records = [judge(read_folder(tmp_path / name / "trace", complete=True)) for name in names]
    assert [record["TR-MASK-003"].tried > 0 for record in records] == [False, True, False]
    assert [record["TR-PARAM-010"].tried > 0 for record in records] == [False, False, True]
    # None of the models has a layer with running statistics.
    assert not any(record[name].tried for record in records for name in ("TR-NORM-001", "TR-NORM-003"))

    def falsified(run: Run, record: Record) -> None:
        record.not_reached = "another part of the run has no probe"
        record.falsify("train.py:1", "seen", "right")

    # A claim that one part of a run falsifies is reached, whatever another part is.
    monkeypatch.setitem(CLAIMS, "TR-GRAD-001", replace(CLAIMS["TR-GRAD-001"], function=falsified))
    report = check_run(trace=tmp_path / names[0] / "trace", only=["TR-GRAD-001"]).report
    assert (report.contracts[0].status.value, report.exit_code) == ("fail", 1)


# Edits of correct scripts for which the claim gives a hint: (claim, script, old text, new text, ...).
HINTS = [
    (
        "TR-CLIP-001",
        "truncated_bptt",
        "        nn.utils.clip_grad_norm_(net.parameters(), 0.25)\n        optimizer.step()\n",
        "        optimizer.step()\n        nn.utils.clip_grad_norm_(net.parameters(), 99)\n",
    ),
    ("TR-DATA-014", "repeated_on_purpose", "torch.manual_seed(1000 + index)", "torch.manual_seed(1000)"),
    ("TR-LOG-003", "repeated_on_purpose", "shown += loss.item()", "shown += loss"),
    (
        "TR-LOG-003",
        "repeated_on_purpose",
        "shown += loss.item()",
        "shown += 2 * loss",
        "{shown / 16:.4f}",
        "{shown.item():.4f}",
    ),
    ("TR-NORM-003", "repeated_on_purpose", "eps=1e-3, momentum=0.1", "eps=0.45"),
]


def test_edits_of_scripts_that_may_be_intended_are_hints(tmp_path: Path) -> None:
    for number, (_, script, *texts) in enumerate(HINTS):
        source = (HERE / "scripts" / f"{script}.py").read_text()
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            assert old in source
            source = source.replace(old, new)
        (tmp_path / f"{number}.py").write_text(source)
    run_scripts(tmp_path, [(str(n), tmp_path / f"{n}.py") for n in range(len(HINTS))], plain=False)
    for number, (claim, *_) in enumerate(HINTS):
        records = judge(read_folder(tmp_path / str(number) / "trace", complete=True))
        hints_of = {name: [finding.hint for finding in record.findings] for name, record in records.items()}
        assert {name for name, hints in hints_of.items() if hints} == {claim}
        assert all(hints_of[claim])
        shown = render(check_run(trace=tmp_path / str(number) / "trace", only=[claim]), hints=True)
        assert f"HINT        {claim}" in shown and "\n  right     if this is not intended: " in shown


@pytest.mark.parametrize(
    ("script", "old", "new", "advice"),
    [
        ("grad_scaler", "target) / size", "target) / ACCUMULATE", "divide by the number"),
        ("accelerate_accumulates", "torch.randn(90, 6)", "torch.randn(80, 6)", "accelerator.backward(loss) divides"),
        ("resume_lightning", "max_epochs=4,", "max_epochs=4, accumulate_grad_batches=3,", "the Trainer divides"),
    ],
)
def test_advice_about_a_short_step_names_the_library_that_divides(
    tmp_path: Path, script: str, old: str, new: str, advice: str
) -> None:
    source = (HERE / "scripts" / f"{script}.py").read_text()
    if missing(source):
        pytest.skip("a library is missing")
    path = tmp_path / "short.py"
    path.write_text(re.sub(r"(?m)^(cut|runs): .*\n", "", source.replace(old, new)))
    run_scripts(tmp_path, [("short", path)], plain=False)
    record = judge(read_folder(tmp_path / "short/trace", complete=True))["TR-WEIGHT-002"]
    assert [finding.right.startswith(advice) for finding in record.findings] == [True], record


TWO_OPTIMIZERS = """
import torch
from torch import nn
models = [nn.Linear(4, 1), nn.Linear(4, 1)]
optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step in range(4):
    for model, optimizer in zip(models, optimizers):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(8, 4) * (float("inf") if step == 2 else 1)).square().mean()).backward()
        scaler.step(optimizer)
    scaler.update()
"""


def test_a_step_is_skipped_if_the_optimizer_of_the_step_was_not_called(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_OPTIMIZERS)
    run_scripts(tmp_path, [("two", tmp_path / "two.py")], plain=False)
    (process,) = read_folder(tmp_path / "two" / "trace", complete=True).processes
    assert len([*process.of("skipped_step")]) == 2  # both optimizers, in the step with infinite inputs
