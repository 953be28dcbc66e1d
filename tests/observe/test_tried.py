"""A claim is tried only where the script has what the claim is about."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the scripts need torch")

from pv.suites.training_run.claims import judge
from pv.suites.training_run.run import read_folder
from tests.observe.test_scripts import HERE, run_scripts


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
