"""Attacks on the numbers of saved models. The subject is `reference_trainer.pipeline.saved_models`."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.evaluation.models import BYTES, ROUNDING, TOKENS, checkpoint, chosen, decoder, expected, model
from falsifiers.support.oracles import assert_close
from falsifiers.support.small_runs import run, small
from reference_trainer import MetricSum
from reference_trainer.pipeline import distill
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.storage.export import save_decoder, weights_digest


@given(text=BYTES, length=st.integers(2, 5), batch_size=st.integers(1, 9), compared=st.booleans(), whole=st.booleans())
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=True)
@example(text=bytes(range(10)), length=10, batch_size=1, compared=False, whole=True)
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=False)
def falsify_numbers_are_those_of_the_logits(
    subject: Any, device: str, text: bytes, length: int, batch_size: int, compared: bool, whole: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths, others = [model(directory, 1), checkpoint(directory, 2)], {"device": device, "length": length}
        if compared:
            others["teacher"] = model(directory, 3)
        settings = chosen(directory, text, batch_size=batch_size, **others)
        seen = subject.evaluate_saved(paths, settings, whole=whole)
        part = text if whole else text[len(text) * 9 // 10 :]
        assert [each.path for each in seen.models] == paths, f"the models are {[each.path for each in seen.models]}"
        for seed, each in enumerate(seen.models, start=1):
            wanted = expected(part, length, decoder(seed), decoder(3) if compared else None)
            assert each.sums.keys() == wanted.keys(), f"the metrics are {list(each.sums)}; expected {list(wanted)}"
            for metric, (total, count) in wanted.items():
                what = f"{metric} of {each.path.name} over {'the whole' if whole else 'a tenth'} of {len(text)} bytes"
                assert each.sums[metric].count == count, f"{what} counts {each.sums[metric].count}; expected {count}"
                assert_close(what, each.sums[metric].sum, total, ROUNDING * count, "the sum over scored bytes")


OF_RUNS = [
    {"length": 9},
    {"documents": "pack", "separator": "^"},
    {"dtype": "bfloat16"},
]
"""Settings by which runs evaluate."""
LONG = bytes(range(TOKENS)) * 17_000
"""A text of which more than a run evaluates is held back."""


@given(of_run=st.sampled_from(OF_RUNS))
def falsify_numbers_of_a_run_are_found_again(subject: Any, of_run: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = small(directory, out=directory / "out", save_every=1, **of_run)
        ended = run(distill, settings)
        (directory / "teacher").mkdir()
        save_decoder(ended.teacher, directory / "teacher", {})
        paths = [directory / "exported", directory / "out", directory / "out" / "checkpoints" / "student-latest"]
        export_checkpoint(directory / "out", "latest", paths[0])
        given = {"data": settings.data, "device": "cpu", "teacher": directory / "teacher"}
        seen = subject.evaluate_saved(paths, subject.as_run([directory / "missing", *paths], given))
    for each in seen.models:
        for metric, found in each.sums.items():
            reported = ended.held_back[metric]
            assert found == reported, f"{of_run}: {metric} of {each.path.name} is {found}; the run reports {reported}"


def falsify_as_much_is_evaluated_as_in_a_run(subject: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = chosen(directory, LONG, length=257, batch_size=64)
        (seen,) = subject.evaluate_saved([model(directory, 1)], settings).models
    counted = seen.sums["hard_loss"].count
    assert counted == (2**16 - 1) // 256 * 256, f"of {len(LONG) // 10} held-back bytes, {counted} are evaluated"


@given(
    losses=st.lists(st.sampled_from([0.0, 1.25, 800.0]), min_size=1, max_size=3),
    compared=st.booleans(),
    whole=st.booleans(),
)
@example(losses=[800.0, 1.0], compared=True, whole=True)
def falsify_report_has_every_number(subject: Any, losses: list[float], compared: bool, whole: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        others = {"teacher": model(directory, 3)} if compared else {}
        settings = chosen(directory, bytes(range(TOKENS)) * 2, **others)
        seen = subject.evaluate_saved([model(directory, 1)], settings, whole=whole)
        models = [replace(seen.models[0], sums={"hard_loss": MetricSum(4 * loss, 4)}) for loss in losses]
        seen = replace(seen, models=models)
        report = json.loads(json.dumps(subject.report(seen), allow_nan=False))
    text = {"name": str(directory / "text"), "sha256": seen.text.digest, "part": "whole" if whole else "held back"}
    assert report["schema"] == "reference-trainer/evaluation/1", f"the schema is {report['schema']}"
    assert report["text"] == text, f"the text is {report['text']}; expected {text}"
    path, digest = directory / "model-3", weights_digest(decoder(3))
    expected_teacher = {"path": str(path), "sha256": digest} if compared else None
    assert report["teacher"] == expected_teacher, f"the teacher is {report['teacher']}; expected {expected_teacher}"
    assert (report["length"], report["device"]) == (3, "cpu"), f"{report['length']} bytes on {report['device']}"
    assert report["versions"]["torch"] == torch.__version__, f"the versions are {report['versions']}"
    for loss, entry in zip(losses, report["models"], strict=True):
        assert entry["path"] == str(directory / "model-1") and entry["sha256"] == seen.models[0].digest, f"{entry}"
        assert entry["sums"] == {"hard_loss": {"sum": 4 * loss, "count": 4}}, f"the sums are {entry['sums']}"
        wanted = {"hard_loss": loss, "student_perplexity": math.exp(min(loss, 20))}
        assert entry["metrics"] == wanted, f"the metrics are {entry['metrics']}; expected {wanted}"
    lines = subject.table(seen)[2:]
    for loss, line in zip(losses, lines, strict=True):
        cells = line.split()[-2:]
        assert cells == [f"{loss:.6g}", f"{math.exp(min(loss, 20)):.6g}"], f"a line of the table is {line!r}"
