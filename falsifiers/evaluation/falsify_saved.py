"""Attacks on the numbers of saved models, and on what is said of unfit ones."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.evaluation.cases import BYTES, ROUNDING, TOKENS, checkpoint, chosen, decoder, expected, model
from falsifiers.support.oracles import assert_close, assert_refused
from falsifiers.support.scratch import flip, scratch
from falsifiers.support.small_runs import run, small
from reference_trainer import MetricSum
from reference_trainer.errors import TrainerError
from reference_trainer.pipeline import distill
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.export import save_decoder, weights_digest


@given(text=BYTES, length=st.integers(2, 5), batch_size=st.integers(1, 9), compared=st.booleans(), whole=st.booleans())
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=True)
@example(text=bytes(range(10)), length=10, batch_size=1, compared=False, whole=True)
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=False)
def falsify_numbers_are_those_of_the_logits(
    subject: Any, device: str, text: bytes, length: int, batch_size: int, compared: bool, whole: bool
) -> None:
    with scratch() as directory:
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


OF_RUNS = [{"length": 9, "accept_depth": 2}, {"documents": "pack", "separator": "^"}, {"dtype": "bfloat16"}]
"""Settings by which runs evaluate."""
LONG = bytes(range(TOKENS)) * 17_000
"""A text of which more than a run evaluates is held back."""


@given(of_run=st.sampled_from(OF_RUNS))
def falsify_numbers_of_a_run_are_found_again(subject: Any, of_run: dict[str, Any]) -> None:
    with scratch() as directory:
        settings = small(directory, out=directory / "out", save_every=1, **of_run)
        ended = run(distill, settings)
        (directory / "teacher").mkdir()
        save_decoder(ended.teacher, directory / "teacher", {})
        paths = [directory / "exported", directory / "out", directory / "out" / "checkpoints" / "student-latest"]
        export_checkpoint(directory / "out", "latest", paths[0])
        given = {"data": settings.data, "device": "cpu", "teacher": directory / "teacher"}
        seen = subject.evaluate_saved(paths, subject.as_run([directory / "missing", *paths], given))
        identity = json.loads((paths[1] / "manifest.json").read_text())["evaluation"]
    assert seen.config.in_json() == identity, f"{of_run}: the run has {identity}; its model {seen.config.in_json()}"
    for each in seen.models:
        for metric, found in each.sums.items():
            reported = ended.held_back[metric]
            assert found == reported, f"{of_run}: {metric} of {each.path.name} is {found}; the run reports {reported}"


def falsify_as_much_is_evaluated_as_in_a_run(subject: Any) -> None:
    with scratch() as directory:
        settings = chosen(directory, LONG, length=257, batch_size=64)
        (seen,) = subject.evaluate_saved([model(directory, 1)], settings).models
    counted = seen.sums["hard_loss"].count
    assert counted == (2**16 - 1) // 256 * 256, f"of {len(LONG) // 10} held-back bytes, {counted} are evaluated"


@given(
    losses=st.lists(st.sampled_from([0.0, 1.25, 800.0]), min_size=1, max_size=3),
    compared=st.booleans(),
    whole=st.booleans(),
)
def falsify_report_has_every_number(subject: Any, losses: list[float], compared: bool, whole: bool) -> None:
    with scratch() as directory:
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
    head, *lines = subject.table(seen)[1:]
    for loss, line in zip(losses, lines, strict=True):
        assert len(line.split()) == len(head.split()), f"under {head!r} stands {line!r}"
        cells = [cell for cell in line.split()[1:] if cell != "-"]
        assert cells == [f"{loss:.6g}", f"{math.exp(min(loss, 20)):.6g}"], f"a line of the table is {line!r}"


@given(unfit=st.lists(st.booleans(), min_size=1, max_size=4))
def falsify_models_beside_an_unfit_one_are_evaluated(subject: Any, unfit: list[bool]) -> None:
    with scratch() as directory:
        paths = [directory / f"missing-{n}" if bad else model(directory, n) for n, bad in enumerate(unfit)]
        seen, errors = list[list[str]](), list[Exception]()
        subject.evaluate_saved(
            paths,
            chosen(directory, bytes(range(TOKENS)) * 2),
            done=lambda evaluation: seen.append(subject.table(evaluation)),
            unfit=errors.append,
        )
    fit = [str(path) for path, bad in zip(paths, unfit, strict=True) if not bad]
    assert [rows[-1].split()[0] for rows in seen] == fit, f"evaluated are {[rows[-1] for rows in seen]}; expected {fit}"
    assert all(rows[:-1] == seen[-1][: len(rows) - 1] for rows in seen), f"a line of the table changes: {seen}"
    assert len(errors) == sum(unfit), f"{sum(unfit)} models are missing, and the errors are {errors}"


def _changed(path: Path) -> Path:
    """Change a byte of the largest file, in its last tensor, and return the path."""
    flip(max(path.iterdir(), key=lambda each: each.stat().st_size), -2)
    return path


def _of_an_own_model(directory: Path) -> tuple[Path, dict[str, Any]]:
    content = Manifest(run_id="student", step=1, conditions={}, state={})
    return save_checkpoint(directory, content, {"student.w": torch.ones(2)}), {}


WRONG: dict[str, tuple[Callable[[Path], tuple[Path, dict[str, Any]]], str]] = {
    "a changed model": (lambda directory: (_changed(model(directory, 1)), {}), "model-1"),
    "a changed checkpoint": (lambda directory: (_changed(checkpoint(directory, 1)), {}), "student-step1"),
    "a checkpoint of an own model": (_of_an_own_model, "no student of this package"),
    "a directory that is missing": (lambda directory: (directory / "missing", {}), "missing"),
    "too few tokens": (lambda directory: (model(directory, 1, TOKENS - 1), {}), "byte 39, and "),
    "logits that are not finite": (lambda directory: (model(directory, 1, broken=True), {}), "model-1"),
    "a teacher of more tokens": (
        lambda directory: (model(directory, 1), {"teacher": model(directory, 2, TOKENS + 1)}),
        "in the evaluation of",
    ),
    "less than a sequence": (lambda directory: (model(directory, 1), {"length": 9}), "at least 81"),
}
"""What is evaluated, with settings, and a word of the refusal."""


def _noted(call: Callable[[], Any]) -> Any:
    """Return what a call returns; its error has its notes in the message, as a command prints it."""
    try:
        return call()
    except TrainerError as error:
        raise TrainerError("; ".join([str(error), *getattr(error, "__notes__", [])])) from error


def falsify_unfit_model_has_no_numbers(subject: Any) -> None:
    for kind, (make, word) in WRONG.items():
        with scratch() as directory:
            path, others = make(directory)
            settings = chosen(directory, bytes(range(TOKENS)) * 2, **others)
            paths = [model(directory, 9), path]
            call = partial(subject.evaluate_saved, paths, settings)
            assert_refused(kind, partial(_noted, call), word, kind=TrainerError)
