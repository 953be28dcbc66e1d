"""A claim is tried only where the script has what the claim is about."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the scripts need torch")

from pv.suites.training_run.claims import judge
from pv.suites.training_run.run import read_folder
from tests.observe.test_scripts import HERE, missing, run_scripts


def test_claims_about_masks_and_new_heads_are_not_tried_without_either(tmp_path: Path) -> None:
    names = ("language_model", "masked_language_model", "heads_of_tuned_models")
    run_scripts(tmp_path, [(name, HERE / "scripts" / f"{name}.py") for name in names], plain=False)
    records = [judge(read_folder(tmp_path / name / "trace", complete=True)) for name in names]
    assert [record["TR-MASK-003"].tried > 0 for record in records] == [False, True, False]
    assert [record["TR-PARAM-010"].tried > 0 for record in records] == [False, False, True]


def test_clipping_after_the_step_is_a_hint_where_no_norm_exceeds_the_limit(tmp_path: Path) -> None:
    source = (HERE / "scripts/truncated_bptt.py").read_text()
    clip, step = "        nn.utils.clip_grad_norm_(net.parameters(), 0.25)\n", "        optimizer.step()\n"
    assert clip + step in source
    path = tmp_path / "late.py"
    path.write_text(source.replace(clip + step, step + clip.replace("0.25", "99")))
    run_scripts(tmp_path, [("late", path)], plain=False)
    record = judge(read_folder(tmp_path / "late/trace", complete=True))["TR-CLIP-001"]
    assert [finding.hint for finding in record.findings] == [True]


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
