"""Attacks on the evaluation of saved models. The subject is `reference_trainer.pipeline.saved_models`."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.oracles import assert_close, refusal_complaint
from falsifiers.support.small_runs import run, small
from reference_trainer import MetricSum, Settings
from reference_trainer.errors import TrainerError
from reference_trainer.models.decoder import Decoder, DecoderConfig, new_decoder
from reference_trainer.pipeline import distill
from reference_trainer.pipeline.checkpoint_list import export_checkpoint
from reference_trainer.storage.checkpoint_manifest import Manifest
from reference_trainer.storage.checkpoints import save_checkpoint
from reference_trainer.storage.export import save_decoder, weights_digest
from reference_trainer.storage.snapshot import snapshot

TOKENS = 40
BYTES = st.binary(min_size=41, max_size=90).map(lambda text: bytes(byte % TOKENS for byte in text))
ROUNDING = 1e-5
"""Nats a byte, of logits in float32."""


def decoder(seed: int, tokens: int = TOKENS) -> Decoder:
    """Return a small model; with random weights of a size that makes its predictions differ from those of others."""
    made = new_decoder(DecoderConfig(vocab_size=tokens, layers=1, width=16, heads=1), seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3.0)
    return made


def model(directory: Path, seed: int, tokens: int = TOKENS, *, broken: bool = False) -> Path:
    """Return the directory of a saved model; broken: its logits are not finite, although its weights are."""
    path, made = directory / f"model-{seed}", decoder(seed, tokens)
    path.mkdir()
    if broken:
        with torch.no_grad():
            made.head.weight.sign_().mul_(3e38)  # products of finite weights that are not
    save_decoder(made, path, {})
    return path


def checkpoint(directory: Path, seed: int) -> Path:
    """Return the directory of a checkpoint of the same model."""
    described = {"student": asdict(decoder(seed).config)}
    content = Manifest(run_id="student", step=1, conditions={}, state=described)
    tensors = snapshot({"student": decoder(seed)}, None).tensors
    return save_checkpoint(directory, content, tensors)


def chosen(directory: Path, text: bytes, **others: Any) -> Settings:
    """Return settings for an evaluation of this text."""
    (directory / "text").write_bytes(text)
    return Settings(**{"data": directory / "text", "length": 3, "batch_size": 4, "device": "cpu", **others})


def expected(part: bytes, length: int, student: Decoder, teacher: Decoder | None) -> dict[str, tuple[float, int]]:
    """Return sum and count of each metric, of float64 log-probabilities, one sequence after the other."""
    sums = {"hard_loss": 0.0} | ({} if teacher is None else {"kl_at_1": 0.0, "agreement": 0.0, "teacher_loss": 0.0})
    starts = range(0, len(part) - length + 1, length - 1)
    for start in starts:
        tokens_1T = torch.tensor([list(part[start : start + length])])
        labels = tokens_1T[0, 1:]
        s = _log_probabilities(student, tokens_1T)
        sums["hard_loss"] -= float(s[range(length - 1), labels].sum())
        if teacher is not None:
            t = _log_probabilities(teacher, tokens_1T)
            sums["teacher_loss"] -= float(t[range(length - 1), labels].sum())
            sums["kl_at_1"] += float((t.exp() * (t - s)).sum())
            sums["agreement"] += float((t.argmax(-1) == s.argmax(-1)).sum())
    return {name: (total, len(starts) * (length - 1)) for name, total in sums.items()}


def _log_probabilities(model: Decoder, tokens_1T: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens_1T)[0, :-1].double().log_softmax(-1)


@given(text=BYTES, length=st.integers(2, 5), batch_size=st.integers(1, 9), compared=st.booleans(), whole=st.booleans())
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=True)
@example(text=bytes(range(10)), length=10, batch_size=1, compared=False, whole=True)
@example(text=bytes(range(TOKENS)) * 2, length=4, batch_size=2, compared=True, whole=False)
def falsify_numbers_are_those_of_the_logits(
    subject: Any, device: str, text: bytes, length: int, batch_size: int, compared: bool, whole: bool
) -> None:
    """Sum and count of each model are those of its log-probabilities, over the held-back tenth or the whole text."""
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
    {"documents": "pad", "separator": "^", "length": 7},
    {"dtype": "bfloat16"},
]
"""Settings by which runs evaluate."""
LONG = bytes(range(TOKENS)) * 17_000
"""A text of which more than a run evaluates is held back."""


@given(tokens=st.sampled_from([TOKENS, 255, 256, 257, 300]), largest=st.sampled_from([TOKENS - 1, 254, 255]))
@example(tokens=256, largest=255)
@example(tokens=255, largest=255)
@example(tokens=300, largest=255)
def falsify_text_fits_the_tokens(subject: Any, tokens: int, largest: int) -> None:
    """A model with a token for every byte of the text is evaluated; another is refused by byte and tokens."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = chosen(directory, bytes([*range(30), largest]) * 4)
        seen = ""
        try:
            subject.evaluate_saved([model(directory, 1, tokens)], settings)
        except TrainerError as error:
            seen = str(error)
    words = "" if largest < tokens else f"byte {largest}, and "
    assert bool(words) == bool(seen) and words in seen, f"byte {largest} for a model of {tokens} tokens: {seen!r}"


@given(of_run=st.sampled_from(OF_RUNS))
def falsify_numbers_of_a_run_are_found_again(subject: Any, of_run: dict[str, Any]) -> None:
    """A model, its last checkpoint and its export have the sums that the run with the same text and teacher reports."""
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


@given(unfit=st.lists(st.booleans(), min_size=1, max_size=4))
def falsify_models_beside_an_unfit_one_are_evaluated(subject: Any, unfit: list[bool]) -> None:
    """Each model is handed over when it is done, in order; the errors of the others are handed over too."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
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


def falsify_as_much_is_evaluated_as_in_a_run(subject: Any) -> None:
    """By default at most the first 64 KiB of the held-back part count, as in a run; the model computes them once."""
    forwards: list[Any] = []
    counting = torch.nn.modules.module.register_module_forward_hook(
        lambda module, given, output: forwards.append(given) if isinstance(module, Decoder) else None
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        settings = chosen(directory, LONG, length=257, batch_size=64)
        with counting:
            (seen,) = subject.evaluate_saved([model(directory, 1)], settings).models
    assert len(forwards) == 4, f"255 sequences in batches of 64 take {len(forwards)} forwards of the model; expected 4"
    counted = seen.sums["hard_loss"].count
    assert counted == (2**16 - 1) // 256 * 256, f"of {len(LONG) // 10} held-back bytes, {counted} are evaluated"


@given(same=st.booleans())
def falsify_checkpoint_is_evaluated_as_its_model(subject: Any, same: bool) -> None:
    """A checkpoint and the model of the same weights have the same sums and the same digest; others have others."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths = [model(directory, 1), checkpoint(directory, 1 if same else 2)]
        settings = chosen(directory, bytes(range(TOKENS)) * 2)
        first, second = subject.evaluate_saved(paths, settings).models
    assert (first.sums == second.sums) is same, f"the same weights: {same}; {first.sums} and {second.sums}"
    assert (first.digest == second.digest) is same, f"the same weights: {same}; {first.digest} and {second.digest}"


def _changed(path: Path) -> None:
    """Change a byte of the largest file, in its last tensor."""
    largest = max(path.iterdir(), key=lambda each: each.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-2] ^= 1
    largest.write_bytes(content)


def _damaged_model(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = model(directory, 1)
    _changed(path)
    return path, {}


def _damaged_checkpoint(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = checkpoint(directory, 1)
    _changed(path)
    return path, {}


def _of_an_own_model(directory: Path) -> tuple[Path, dict[str, Any]]:
    content = Manifest(run_id="student", step=1, conditions={}, state={})
    return save_checkpoint(directory, content, {"student.w": torch.ones(2)}), {}


WRONG: dict[str, tuple[Callable[[Path], tuple[Path, dict[str, Any]]], str]] = {
    "a changed model": (_damaged_model, "model-1"),
    "a changed checkpoint": (_damaged_checkpoint, "student-step1"),
    "a checkpoint of an own model": (_of_an_own_model, "no student of this package"),
    "a directory that is missing": (lambda directory: (directory / "missing", {}), "missing"),
    "too few tokens": (lambda directory: (model(directory, 1, TOKENS - 1), {}), "byte 39, and "),
    "logits that are not finite": (lambda directory: (model(directory, 1, broken=True), {}), "model-1"),
    "the directory of checkpoints": (
        lambda directory: (checkpoint(directory / "saved", 1).parent, {}),
        "saved/student-latest?",
    ),
    "a name that is too long": (lambda directory: (directory / ("x" * 300), {}), "expected a model or a checkpoint"),
    "a teacher of more tokens": (
        lambda directory: (model(directory, 1), {"teacher": model(directory, 2, TOKENS + 1)}),
        "in the evaluation of",
    ),
    "less than a sequence": (lambda directory: (model(directory, 1), {"length": 9}), "at least 81"),
    "less than a sequence in the whole": (
        lambda directory: (model(directory, 1), {"length": TOKENS * 2 + 1}),
        "holds 80 bytes; expected at least 81",
    ),
    "a changed teacher": (
        lambda directory: (model(directory, 2), {"teacher": _damaged_model(directory)[0]}),
        "model-1",
    ),
}
"""What is evaluated, with settings, and a word of the refusal."""


def _noted(call: Callable[[], Any]) -> Any:
    """Return what a call returns; its error has its notes in the message, as a command prints it."""
    try:
        return call()
    except TrainerError as error:
        raise TrainerError("; ".join([str(error), *getattr(error, "__notes__", [])])) from error


def falsify_unfit_model_has_no_numbers(subject: Any) -> None:
    """A damaged, missing or unfit model is refused by its cause, also beside one that is whole."""
    for kind, (make, word) in WRONG.items():
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            path, others = make(directory)
            settings = chosen(directory, bytes(range(TOKENS)) * 2, **others)
            paths = [model(directory, 9), path]
            call = partial(subject.evaluate_saved, paths, settings, whole="whole" in kind)
            wrong = refusal_complaint(kind, partial(_noted, call), word, kind=TrainerError)
            assert wrong is None, wrong


@given(
    losses=st.lists(st.sampled_from([0.0, 1.25, 800.0]), min_size=1, max_size=3),
    compared=st.booleans(),
    whole=st.booleans(),
)
@example(losses=[800.0, 1.0], compared=True, whole=True)
def falsify_report_has_every_number(subject: Any, losses: list[float], compared: bool, whole: bool) -> None:
    """The report has sums, counts, means and what they depend on, as strict JSON; the table a line for each model."""
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
    first, head, *lines = subject.table(seen)
    about = f"{directory / 'text'} ({text['part']}): 4 bytes in sequences of 3{f', against {path}' if compared else ''}"
    assert first == about, f"the table begins with {first!r}; expected {about!r}"
    assert head.split() == ["model", "hard_loss", "student_perplexity"], f"the metrics are {head!r}"
    for loss, line in zip(losses, lines, strict=True):
        begin = head.index("hard_loss")
        assert line == line.rstrip(), f"a line of the table ends with spaces: {line!r}"
        cells = [line[:begin].strip(), *line[begin:].split()]
        wanted = [str(directory / "model-1"), f"{loss:.6g}", f"{math.exp(min(loss, 20)):.6g}"]
        assert cells == wanted and line[begin] != " ", f"a line of the table is {line!r}; expected {wanted}"
