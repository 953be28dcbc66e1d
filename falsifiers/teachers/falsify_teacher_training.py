"""Attacks on the training of a teacher, and on the packaged one."""

import hashlib
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import reference_trainer
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support.acting import acting
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import SMALL, refused, run, small, written_model
from falsifiers.teachers.cases import CPU, TEXT, bits_of, same, settings_of
from reference_trainer.models.decoder import DecoderConfig, new_decoder

OFFSET = 1_000_003
AT_A_STANDSTILL = 5e-324
"""The smallest positive learning rate: no float32 weight moves by it."""


class _Recorded(nn.Module):
    """A decoder that records its input tokens."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder, self.read = decoder, list[list[list[int]]]()

    def forward(self, tokens: Tensor) -> Any:
        self.read.append(tokens.tolist())
        return self.decoder(tokens)


class _Watched:
    """A training that does not move the weights: the weights, and the batch and loss of each step."""

    def __init__(self, subject: Any, device: str, steps: int, **own: Any) -> None:
        self.losses: list[float] = []
        recorded: list[_Recorded] = []
        settings = settings_of(None, lr=AT_A_STANDSTILL, **own)
        sequences = reference_trainer.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=torch.device(device))

        def wrap(decoder: nn.Module) -> nn.Module:
            recorded.append(_Recorded(decoder))
            return recorded[0]

        def note(listener: Any, context: Any) -> None:
            self.losses.append(context.loss)

        listener = type("Listener", (reference_trainer.Callback,), {"on_step_end": note})()
        self.decoder = subject.train_teacher(settings, sequences, steps, [listener], wrap)
        self.read = recorded[0].read


def _to_be_read(seed: int, steps: int) -> list[list[list[int]]]:
    """The batches of two sequences of `TEXT`, which has eight, each sharing a byte with the next."""
    rows = [TEXT.tolist()[start : start + 8] for start in range(0, 56, 7)]
    orders = [reference_trainer.epoch_order(seed, epoch, len(rows)).tolist() for epoch in range(1, steps // 4 + 2)]
    return [[rows[k] for k in order[start : start + 2]] for order in orders for start in range(0, 8, 2)][:steps]


@given(seed=st.integers(0, 9), layers=st.integers(1, 2), steps=st.integers(1, 9))
def falsify_teacher_is_trained_on_labels_only(subject: Any, device: str, seed: int, layers: int, steps: int) -> None:
    seen = _Watched(subject, device, steps, seed=seed, teacher_layers=layers)
    config = DecoderConfig(vocab_size=256, layers=layers, width=16, heads=1)
    start = new_decoder(config, seed + OFFSET).to(device)
    assert bits_of(seen.decoder) == bits_of(start), f"a teacher of seed {seed} does not start as seed {seed + OFFSET}"
    expected = _to_be_read(seed + OFFSET, steps)
    assert seen.read == expected, f"seed {seed} reads {seen.read}; in the order of {seed + OFFSET} it is {expected}"
    for step, (batch, loss) in enumerate(zip(expected, seen.losses, strict=True), 1):
        nats = _cross_entropy(start, torch.tensor(batch, device=device))
        assert math.isclose(loss, nats, rel_tol=1e-5), f"the loss of step {step} is {loss}; its cross-entropy is {nats}"


def _cross_entropy(decoder: nn.Module, tokens: Tensor) -> float:
    with torch.no_grad():
        logits = decoder(tokens)[:, :-1].double()
    return float(nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))


class OnPurpose(Exception):
    """Raised by a callback."""


@given(event=st.sampled_from(["on_train_begin", "on_step_end"]), fault=st.sampled_from([OnPurpose, KeyboardInterrupt]))
def falsify_failed_teacher_training_caches_nothing(subject: Any, event: str, fault: type[BaseException]) -> None:
    def fail() -> None:
        raise fault("on purpose")

    sequences = reference_trainer.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=CPU)
    with tempfile.TemporaryDirectory() as name:
        settings, notes = settings_of(Path(name)), None
        try:
            subject.load_or_train(settings, sequences, "d", [acting(fail, event)], list[str]().append, same)
        except fault as error:
            notes = getattr(error, "__notes__", [])
        kept = [p.name for p in Path(name).rglob("*")]
    assert notes is not None, f"an exception in {event} is lost, and a partly trained teacher is used"
    assert notes, f"the error in {event} has no note, so it seems to be the student's"
    assert kept == [], f"a training that failed in {event} left {kept} in the cache"


BYTES, LENGTH = 256, 8
CASES = [(300, "truncate"), (200, "truncate-student"), (200, "pad"), (256, "pad"), (300, "pad")]


def _shared(student: Tensor, teacher: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of both over the shared vocabulary."""
    size = max(student.shape[-1], teacher.shape[-1])
    if mode != "pad":
        size = min(student.shape[-1], teacher.shape[-1])
    padded = [
        torch.cat((each, each.new_full((*each.shape[:-1], size), -math.inf)), -1)[..., :size]
        for each in (student, teacher)
    ]
    return padded[0].log_softmax(-1), padded[1].log_softmax(-1)


@given(seed=st.integers(0, 9))
def falsify_a_run_shares_the_vocabulary_as_named(subject: Any, seed: int) -> None:
    for vocabulary, mode in CASES:
        _assert_run(subject, vocabulary, mode, seed)


def _assert_run(subject: Any, vocabulary: int, mode: str, seed: int) -> None:
    with scratch() as directory:
        settings = {"teacher": written_model(directory, vocabulary, seed), "out": directory / "out", "dtype": "float64"}
        if vocabulary != BYTES:
            said = refused(subject, small(directory, **{**settings, "out": directory / "refused"}))
            assert "--share-vocabulary" in said, f"without a mode a teacher of {vocabulary} tokens gives {said!r}"
        made = small(directory, **settings, share_vocabulary=mode)
        result = run(subject, made)
        text = (directory / "text").read_bytes()[90:]
        manifest = json.loads((directory / "out" / "manifest.json").read_text(), parse_constant=_refuse)
        again = reference_trainer.load_decoder(directory / "out")
    assert manifest["settings"]["share_vocabulary"] == mode, f"the manifest names {manifest['settings']}"
    expected = _expected(again, result.teacher, text, mode)
    for metric, value in expected.items():
        seen, what = result.held_back[metric].sum, f"{metric} with a teacher of {vocabulary} tokens and {mode!r}"
        assert seen == value or math.isclose(seen, value, rel_tol=1e-10, abs_tol=1e-12), (
            f"{what} is {seen}; expected {value}"
        )
        written = float(manifest["held_back"][metric]["sum"])
        assert written == seen, f"{what} is written as {written}; measured was {seen}"


def _refuse(constant: str) -> float:
    raise AssertionError(f"the manifest has {constant}, which is not JSON")


def _expected(student: Any, teacher: Any, text: bytes, mode: str) -> dict[str, float]:
    count = (len(text) - 1) // (LENGTH - 1)
    tokens = torch.tensor([list(text[k * (LENGTH - 1) :][:LENGTH]) for k in range(count)])
    with torch.no_grad():
        log_q, log_p = _shared(student(tokens)[:, :-1], teacher(tokens)[:, :-1], mode)
    hard = -log_q.gather(-1, tokens[:, 1:, None]).sum()
    terms = torch.where(log_p > -math.inf, log_p.exp() * (log_p - log_q), 0.0)
    return {"hard_loss": float(hard), "kl_at_1": float(terms.sum())}


DATA = Path(__file__).parents[2] / "reference_trainer" / "data"
EVERY = 16
"""Of the sequences of the training part; all of the held-back ones are scored."""


def _note() -> dict[str, Any]:
    note: dict[str, Any] = json.loads((DATA / "teacher" / "manifest.json").read_text())
    return note


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _loss(note: dict[str, Any], part: bytes, every: int = 1) -> tuple[float, int]:
    """Return the sum of the cross-entropy of every so many sequences in nats, in float64, and of how many bytes."""
    length, heads = note["settings"]["length"], note["settings"]["width"] // 32
    count = (len(part) - 1) // (length - 1)
    tokens = np.array([list(part[k * (length - 1) :][:length]) for k in range(0, count, every)])
    weights = oracle.weights_in(DATA / "teacher")
    sums = []
    for some in oracle.chunks(tokens):
        log_p = oracle.log_softmax(oracle.logits(weights, heads, some)[:, :-1])
        sums.append(-np.take_along_axis(log_p, some[:, 1:, None], -1).sum())
    return math.fsum(sums), tokens[:, 1:].size


def falsify_packaged_teacher_is_what_its_note_says(subject: Any) -> None:
    note, text = _note(), (DATA / "corpus" / "python-topics.txt").read_bytes()
    loaded = bits_of(subject.load_teacher(subject.PACKAGED))
    given = bits_of(reference_trainer.load_decoder(DATA / "teacher"))
    assert loaded == given, "the teacher that a run loads has other weights than the packaged file"
    for name, digest in note["sha256"].items():
        assert _sha256(DATA / "teacher" / name) == digest, f"{name} has another digest than its manifest, {digest}"
    trained_on = {"data_sha256": hashlib.sha256(text).hexdigest(), "kd_weight": 0, "ce_weight": 1, "data": None}
    seen = {name: note["settings"].get(name, note.get(name)) for name in trained_on}
    assert seen == trained_on, f"the teacher was trained with {seen}; expected {trained_on}"
    cut = len(text) - -(-len(text) // 10)
    (total, count), recorded = _loss(note, text[cut:]), note["held_back"]["hard_loss"]
    assert recorded["count"] == count, f"the note counts {recorded['count']} held-back bytes; there are {count}"
    mean, noted = total / count, recorded["sum"] / count
    assert math.isclose(mean, noted, abs_tol=1e-5), f"its held-back loss is {mean} nats per byte; the note has {noted}"
    known, bytes_known = _loss(note, text[:cut], EVERY)
    assert known / bytes_known < mean - 0.05, f"held-back text costs {mean}, its own {known / bytes_known}"


def falsify_default_run_uses_packaged_teacher(subject: Any) -> None:
    own = {name: SMALL[name] for name in ("layers", "width", "teacher_layers", "teacher_width", "device")}
    with tempfile.TemporaryDirectory() as name:
        paths = {"out": Path(name) / "out", "teacher_cache": Path(name) / "cache"}
        result = run(subject, reference_trainer.Settings(**own, **paths, smoke=1))
    expected = bits_of(reference_trainer.load_decoder(DATA / "teacher"))
    assert bits_of(result.teacher) == expected, "without a text or teacher of its own, a run has another teacher"
