"""Attacks on the teacher of a run: packaged, trained on the same text and cached, or of another vocabulary.

The subjects are `distillation.vocabulary`, `pipeline.teachers` and `pipeline.distill`.
"""

import hashlib
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import reference_trainer
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support import oracles
from falsifiers.support.assertions import assert_equal
from falsifiers.support.cases import HALVES, POSITIVE_WEIGHTS, TEMPERATURES, StepCase, assert_same_gradient, tensors
from falsifiers.support.runs import SMALL, acting, cut, flip, reconfigure, refused, run, scratch, small, written_model
from falsifiers.support.steps import SHIFTED, ConstantTeacher, RecordingStudent, assert_result_is_the_oracles
from reference_trainer.config.settings import DOTTED
from reference_trainer.distillation import providers
from reference_trainer.errors import SettingError, VocabularyError
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline.parts import text_rows

TOKENS = 3
"""Rows of every table of logits: the tokens 0, 1 and 2, which both vocabularies have."""


def sizes_of(case: StepCase) -> tuple[int, int]:
    """Return the vocabulary sizes of teacher and student."""
    return case.teacher.shape[1], case.student.shape[1]


def shared_step(subject: Any, case: StepCase, mode: str, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the result of a step in this mode, and the gradient of the student's logits, on the CPU."""
    learner = RecordingStudent(case.student.to(device))
    teacher, student = subject.share_vocabulary(providers.FixtureTeacher(case.teacher.to(device)), learner, mode)
    batch = providers.Batch(tokens=case.tokens.to(device), labels=case.labels.to(device))
    result = providers.kd_step(teacher, student, batch, **case.settings)
    gradients = [gradient for forward in learner.passes for gradient in forward.gradients]
    shapes, expected = [list(gradient.shape) for gradient in gradients], [*case.tokens.shape, case.student.shape[1]]
    assert shapes == [expected], f"{mode}, sizes {sizes_of(case)}: gradients of shapes {shapes}; expected {expected}"
    return result, gradients[0].cpu()


def table_of(table: Tensor, vocab_size: int) -> Tensor:
    """Return the first `vocab_size` columns of a table; missing columns are -inf."""
    missing = max(vocab_size - table.shape[1], 0)
    return torch.cat((table[:, :vocab_size], torch.full((len(table), missing), -math.inf, dtype=table.dtype)), 1)


@st.composite
def pairs(draw: st.DrawFn, larger: str) -> StepCase:
    """Draw a step between two tables, where `larger` ("teacher" or "student") has one to four more columns.

    Labels are in both vocabularies.
    """
    common = draw(st.integers(TOKENS, 5))
    sizes = {"teacher": common, "student": common, larger: common + draw(st.integers(1, 4))}
    tables = {name: draw(tensors((TOKENS, size), HALVES, torch.float64)) for name, size in sizes.items()}
    B, T = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    tokens = draw(st.lists(st.integers(0, TOKENS - 1), min_size=B * T, max_size=B * T))
    labels = draw(st.lists(st.sampled_from([*range(common), -100]), min_size=B * T, max_size=B * T))
    labels[1] = draw(st.integers(0, common - 1))
    tokens_BT, labels_BT = (torch.tensor(numbers).reshape(B, T) for numbers in (tokens, labels))
    weights = draw(TEMPERATURES), draw(POSITIVE_WEIGHTS), draw(POSITIVE_WEIGHTS)
    return StepCase(tokens_BT, labels_BT, tables["student"], tables["teacher"], *weights)


CPU = torch.device("cpu")
TEXT = torch.arange(60, dtype=torch.uint8)
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"

# Every setting that a trained teacher depends on, with two values.
INPUTS = {"batch_size": (2, 3), "dtype": ("float32", "bfloat16"), "length": (8, 9), "lr": (3e-3, 4e-3), "seed": (0, 1)}
INPUTS |= {"warmup": (1, 11), "teacher_layers": (1, 2), "teacher_steps": (2, 21), "teacher_width": (16, 32)}
INPUTS |= {"documents": ("pad", "pack"), "separator": ("--", ".")}


def settings_of(cache: Path | None, **changes: Any) -> Any:
    defaults = {name: values[0] for name, values in INPUTS.items()}
    return reference_trainer.Settings(teacher_cache=cache, **{**defaults, **changes})


class LoadedTeacher:
    """The teacher that a run loads or trains: its weights, the steps of its training, and the output lines."""

    def __init__(self, subject: Any, settings: Any, digest: str = "d") -> None:
        self.log: list[str] = []
        self.steps = 0
        part = {"length": settings.data.length, "batch_size": settings.data.batch_size, "device": CPU}
        sequences = reference_trainer.Sequences(bytes_N=TEXT, **part)

        def record_step(listener: Any, context: Any) -> None:
            self.steps = context.step

        counter = type("Counter", (reference_trainer.Callback,), {"on_step_end": record_step})()
        teacher = subject.load_or_train(settings, sequences, digest, [counter], self.log.append, unwrapped)
        self.bits = bits_of(teacher)


def unwrapped(decoder: nn.Module) -> nn.Module:
    """Return the decoder itself, where a run would wrap it for its ranks."""
    return decoder


def bits_of(module: nn.Module) -> dict[str, tuple[str, list[Any]]]:
    return {name: (str(value.dtype), value.tolist()) for name, value in module.state_dict().items()}


TRUNCATE_MODES = {"teacher": "truncate", "student": "truncate-student"}


def assert_shared_step(subject: Any, pair: StepCase, mode: str, device: str, vocab_size: int) -> None:
    """Assert the oracle's result and gradient for tables of this size; columns beyond it have the gradient 0."""
    result, gradient = shared_step(subject, pair, mode, device)
    case = pair.but(student=table_of(pair.student, vocab_size), teacher=table_of(pair.teacher, vocab_size))
    assert_result_is_the_oracles(result, case)
    where, shared = f"{mode}, sizes {sizes_of(pair)}", min(pair.student.shape[1], vocab_size)
    expected = torch.zeros_like(gradient)
    expected[..., :shared] = case.oracle_gradient()[..., :shared]
    assert_same_gradient(f"{where}: the gradient", gradient, expected, case.shifted().allowed_gradient(), SHIFTED)
    assert not bool(gradient[..., shared:].any()), f"{where}: gradient {gradient[..., shared:]} from column {shared} on"


@given(data=st.data(), larger=st.sampled_from(sorted(TRUNCATE_MODES)))
def falsify_truncated_vocabulary(subject: Any, device: str, data: st.DataObject, larger: str) -> None:
    pair = data.draw(pairs(larger))
    assert_shared_step(subject, pair, TRUNCATE_MODES[larger], device, min(sizes_of(pair)))


@given(teacher_padded=pairs("student"), pair=pairs("teacher"), label=st.none() | st.integers(0, 3))
def falsify_padded_vocabulary(
    subject: Any, device: str, teacher_padded: StepCase, pair: StepCase, label: int | None
) -> None:
    assert_shared_step(subject, teacher_padded, "pad", device, max(sizes_of(teacher_padded)))
    size = pair.student.shape[1]
    banned = pair.but(teacher=table_of(pair.teacher[:, :size], pair.teacher.shape[1]))
    assert_shared_step(subject, banned, "pad", device, size)
    cases = {"probability of tokens": pair}
    if label is not None:
        labels = pair.labels.clone()
        labels[0, 1] = min(size + label, pair.teacher.shape[1] - 1)
        cases["a label"] = banned.but(labels=labels)
    for part, case in cases.items():
        result, gradient = shared_step(subject, case, "pad", device)
        where = f"pad, sizes {sizes_of(pair)}: {part} that the student lacks"
        assert result.sum == math.inf, f"{where}: the loss is {result.sum}; expected +inf"
        assert bool(gradient.isfinite().all()), f"{where}: the gradient {gradient} is not finite"


@given(small=st.integers(1, 9), difference=st.integers(1, 9))
def falsify_truncation_of_the_smaller_vocabulary_is_refused(subject: Any, small: int, difference: int) -> None:
    large = small + difference
    sizes_in_error = f"teacher vocab_size {small}, student vocab_size {large};", f"teacher vocab_size {large}, student"
    for mode, sizes, kind, words in (
        ("truncate", (small, large), VocabularyError, (sizes_in_error[0], "'pad'")),
        ("truncate-student", (large, small), VocabularyError, (sizes_in_error[1], "'pad'")),
        ("cut", (small, large), SettingError, ("truncate, truncate-student, pad",)),
        ("cut", (small, small), SettingError, ("truncate, truncate-student, pad",)),
    ):
        student = RecordingStudent(torch.zeros(2, sizes[1], dtype=torch.float64))
        call = partial(subject.share_vocabulary, ConstantTeacher(sizes[0], None), student, mode)
        label = f"{mode} with a teacher of {sizes[0]} and a student of {sizes[1]} tokens"
        oracles.assert_refused(label, call, f"'{mode}'", *words, kind=kind)
        assert not student.passes, f"{mode} ran {len(student.passes)} forwards before the refusal"
    # Logits of a teacher that returns only its top k tokens cannot be cut or padded; logits of the student can.
    for mode, sizes, is_refused in (
        ("truncate", (large, small), True),
        ("pad", (small, large), True),
        ("truncate-student", (small, large), False),
        ("pad", (large, small), False),
    ):
        teacher = SimpleNamespace(vocab_size=sizes[0], top_k=None)
        student = RecordingStudent(torch.zeros(2, sizes[1], dtype=torch.float64))
        call = partial(subject.share_vocabulary, teacher, student, mode)
        label = f"{mode} with {sizes[0]} tokens of a top-k teacher and {sizes[1]} of the student"
        if is_refused:
            oracles.assert_refused(label, call, f"'{mode}'", "most probable tokens", kind=VocabularyError)
        else:
            shared = call()
            assert shared[0] is teacher, f"{label} replaces the teacher by {shared[0]}; expected the same teacher"
            assert_equal(f"{label}: size of the student", shared[1].vocab_size, sizes[0])


def _model_with_states(vocab_size: int, gradients: list[Any]) -> Any:
    """Return a model with hidden states; the backward of its forward appends its arguments to `gradients`."""
    states = [torch.ones(1, 2, 3), torch.zeros(1, 2, 3)]
    forward = SimpleNamespace(logits=torch.zeros(1, 2, vocab_size), hidden_states=states)
    forward.backward = lambda *arguments: gradients.extend(arguments)
    calls = dict.fromkeys(("forward", "forward_features", "outputs"), lambda batch: forward)
    return SimpleNamespace(vocab_size=vocab_size, logits=lambda batch: forward.logits, result=forward, **calls)


@given(teacher_size=st.integers(2, 5), size=st.integers(2, 5), mode=st.sampled_from(["pad", "truncate-student"]))
def falsify_gradients_of_hidden_states_are_passed_on(subject: Any, teacher_size: int, size: int, mode: str) -> None:
    if mode == "truncate-student" and size <= teacher_size:
        size = teacher_size + 1
    gradients = list[Any]()
    inner = _model_with_states(size, gradients)
    _, student = subject.share_vocabulary(_model_with_states(teacher_size, []), inner, mode)
    batch = SimpleNamespace(tokens=torch.zeros(1, 2, dtype=torch.int64))
    forward, hidden = student.forward_features(batch), [torch.full((1, 2, 3), 0.5), None]
    assert forward.hidden_states is inner.result.hidden_states, "the hidden states are not the student's"
    forward.backward(torch.ones_like(forward.logits), hidden)
    assert_equal("shape of the gradient of the logits", gradients[0].shape, inner.result.logits.shape)
    assert gradients[1:] == [hidden], f"gradients of the hidden states: {gradients[1:]}; expected {[hidden]}"


WRAPPED = [("truncate", "teacher", 5, 3), ("pad", "teacher", 3, 5)]
WRAPPED += [("truncate-student", "student", 5, 3), ("pad", "student", 3, 5)]
"""Mode, wrapped model, size of its vocabulary, and size of the vocabulary of the other model."""
CALLS = {"teacher": ["logits", "outputs"], "student": ["forward", "forward_features", "logits", "outputs"]}


def falsify_logits_of_another_width_are_refused(subject: Any) -> None:
    batch = SimpleNamespace(tokens=torch.zeros(1, 2, dtype=torch.int64))
    for mode, kind, size, other in WRAPPED:
        for width in (size - 1, size + 1, other):
            model = _model_with_states(width, [])
            model.vocab_size = size
            models = {"teacher": _model_with_states(other, []), "student": _model_with_states(other, []), kind: model}
            wrapped = dict(zip(models, subject.share_vocabulary(*models.values(), mode), strict=True))[kind]
            for name in CALLS[kind]:
                label = f"{mode}: {name} of a {kind} of {size} tokens that returns {width} logits"
                words = (f"vocabulary of {width}", f"vocab_size {size}")
                oracles.assert_refused(label, partial(getattr(wrapped, name), batch), *words)


OFFSET = 1_000_003
"""Added to the seed of a run for its teacher, so that no student begins with the same weights."""
SMALLEST_RATE = 5e-324
"""The smallest positive learning rate: it changes no float32 weight, so all losses belong to the first weights."""


class _RecordingDecoder(nn.Module):
    """A decoder that records its input tokens."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder, self.inputs = decoder, list[list[list[int]]]()

    def forward(self, tokens: Tensor) -> Any:
        self.inputs.append(tokens.tolist())
        return self.decoder(tokens)


class _RecordedTraining:
    """A training with the smallest learning rate: the final weights, and input and loss of every step."""

    def __init__(self, subject: Any, device: str, steps: int, **changes: Any) -> None:
        self.losses: list[float] = []
        recorded: list[_RecordingDecoder] = []
        settings = settings_of(None, lr=SMALLEST_RATE, **changes)
        sequences = reference_trainer.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=torch.device(device))

        def wrap(decoder: nn.Module) -> nn.Module:
            recorded.append(_RecordingDecoder(decoder))
            return recorded[0]

        def record_loss(listener: Any, context: Any) -> None:
            self.losses.append(context.loss)

        listener = type("Listener", (reference_trainer.Callback,), {"on_step_end": record_loss})()
        self.decoder = subject.train_teacher(settings, sequences, steps, [listener], wrap)
        self.inputs = recorded[0].inputs


def _expected_batches(seed: int, steps: int) -> list[list[list[int]]]:
    """Return the batches of two: `TEXT` has eight sequences, which share a byte with the next one."""
    rows = [TEXT.tolist()[start : start + 8] for start in range(0, 56, 7)]
    orders = [reference_trainer.epoch_order(seed, epoch, len(rows)).tolist() for epoch in range(1, steps // 4 + 2)]
    return [[rows[k] for k in order[start : start + 2]] for order in orders for start in range(0, 8, 2)][:steps]


@given(seed=st.integers(0, 9), layers=st.integers(1, 2), steps=st.integers(1, 9))
def falsify_teacher_is_trained_on_labels_only(subject: Any, device: str, seed: int, layers: int, steps: int) -> None:
    training = _RecordedTraining(subject, device, steps, seed=seed, teacher_layers=layers)
    config = DecoderConfig(vocab_size=256, layers=layers, width=16, heads=1)
    start = new_decoder(config, seed + OFFSET).to(device)
    assert bits_of(training.decoder) == bits_of(start), f"seed {seed}: weights differ from seed {seed + OFFSET}"
    expected = _expected_batches(seed + OFFSET, steps)
    assert_equal(f"batches of a teacher of seed {seed}", training.inputs, expected)
    for step, (batch, loss) in enumerate(zip(expected, training.losses, strict=True), 1):
        nats = _cross_entropy(start, torch.tensor(batch, device=device))
        assert math.isclose(loss, nats, rel_tol=1e-5), f"loss of step {step}: {loss}; expected the cross-entropy {nats}"


def falsify_heads_have_an_even_width_of_at_least_32(subject: Any) -> None:
    for width in range(2, 400, 2):
        candidates = [heads for heads in range(1, width) if width % (2 * heads) == 0 and width >= 32 * heads]
        seen, expected = subject.heads_for(width), max(candidates, default=1)
        assert seen == expected, f"heads of width {width}: {seen}; expected {expected}"


def _cross_entropy(decoder: nn.Module, tokens: Tensor) -> float:
    with torch.no_grad():
        logits = decoder(tokens)[:, :-1].double()
    return float(nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))


class HookError(Exception):
    """Raised by a callback."""


@given(event=st.sampled_from(["on_train_begin", "on_step_end"]), fault=st.sampled_from([HookError, KeyboardInterrupt]))
def falsify_failed_teacher_training_caches_nothing(subject: Any, event: str, fault: type[BaseException]) -> None:
    def fail() -> None:
        raise fault("on purpose")

    sequences = reference_trainer.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=CPU)
    with scratch() as directory:
        settings, notes = settings_of(directory), None
        try:
            subject.load_or_train(settings, sequences, "d", [acting(fail, event)], list[str]().append, unwrapped)
        except fault as error:
            notes = getattr(error, "__notes__", [])
        remaining = [path.name for path in directory.rglob("*")]
    assert notes is not None, f"{fault.__name__} in {event} is lost, and a partly trained teacher is used"
    assert notes, f"{fault.__name__} in {event} has no note that the teacher was being trained"
    assert not remaining, f"after {fault.__name__} in {event}, the cache has {remaining}; expected no files"


BYTES, LENGTH = 256, 8
# Size of the teacher's vocabulary, and the mode.
CASES = [(300, "truncate"), (200, "truncate-student"), (200, "pad"), (256, "pad"), (300, "pad")]


def _shared(student: Tensor, teacher: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of both over the shared vocabulary."""
    size = max(student.shape[-1], teacher.shape[-1])
    if mode != "pad":
        size = min(student.shape[-1], teacher.shape[-1])
    padded = [
        torch.cat((model, model.new_full((*model.shape[:-1], size), -math.inf)), -1)[..., :size]
        for model in (student, teacher)
    ]
    return padded[0].log_softmax(-1), padded[1].log_softmax(-1)


@given(seed=st.integers(0, 9))
def falsify_a_run_shares_the_vocabulary_as_named(subject: Any, seed: int) -> None:
    for vocabulary, mode in CASES:
        with scratch() as directory:
            teacher, out = written_model(directory, vocabulary, seed), directory / "out"
            # Forward KL is infinite, and refused, if the student gives a token of the teacher the probability 0.
            divergence = "jensen_shannon" if mode == "pad" else "forward_kl"
            options = {"dtype": "float64", "share_vocabulary": mode, "divergence": divergence}
            settings = small(directory, teacher=teacher, out=out, **options)
            if vocabulary != BYTES:
                without_mode = settings.replace(out=directory / "refused", share_vocabulary=None)
                error = refused(subject, without_mode)
                assert "--share-vocabulary" in error, f"teacher of {vocabulary} tokens, no mode: {error!r}"
            result = run(subject, settings)
            text = (directory / "text").read_bytes()[90:]
            manifest = json.loads((out / "manifest.json").read_text(), parse_constant=_refuse)
            student = reference_trainer.load_decoder(out)
        assert manifest["settings"]["share_vocabulary"] == mode, f"the mode is not {mode}: {manifest['settings']}"
        for metric, value in _expected(student, result.teacher, text, mode).items():
            seen, label = result.held_back[metric].sum, f"{metric} with a teacher of {vocabulary} tokens and {mode!r}"
            is_close = seen == value or math.isclose(seen, value, rel_tol=1e-10, abs_tol=1e-12)
            assert is_close, f"{label} is {seen}; expected {value}"
            written = float(manifest["held_back"][metric]["sum"])
            assert written == seen, f"{label} is {written} in the manifest; expected {seen}"


def _refuse(constant: str) -> float:
    raise AssertionError(f"the manifest has {constant}, which strict JSON does not allow")


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
"""Only every 16th sequence of the training part is scored, to save time; all held-back sequences are."""


def _loss(manifest: dict[str, Any], part: bytes, every: int = 1) -> tuple[float, int]:
    """Return the summed cross-entropy of every `every`-th sequence in nats, in float64, and the number of bytes."""
    length, heads = manifest["settings"]["length"], manifest["settings"]["width"] // 32
    count = (len(part) - 1) // (length - 1)
    tokens = np.array([list(part[k * (length - 1) :][:length]) for k in range(0, count, every)])
    weights = oracle.weights_in(DATA / "teacher")
    sums = []
    for chunk in oracle.chunks(tokens):
        log_p = oracle.log_softmax(oracle.logits(weights, heads, chunk)[:, :-1])
        sums.append(-np.take_along_axis(log_p, chunk[:, 1:, None], -1).sum())
    return math.fsum(sums), tokens[:, 1:].size


def falsify_packaged_teacher_is_what_its_note_says(subject: Any) -> None:
    manifest = json.loads((DATA / "teacher" / "manifest.json").read_text())
    text = (DATA / "corpus" / "python-topics.txt").read_bytes()
    loaded = bits_of(subject.load_teacher(subject.PACKAGED))
    packaged = bits_of(reference_trainer.load_decoder(DATA / "teacher"))
    assert loaded == packaged, "load_teacher returns other weights than the packaged file"
    for name, digest in manifest["sha256"].items():
        seen_digest = hashlib.sha256((DATA / "teacher" / name).read_bytes()).hexdigest()
        assert_equal(f"SHA-256 of {name}, as in the manifest", seen_digest, digest)
    # The teacher was trained on the labels of this text. Its loss on the training part must be lower than on the
    # held-back part, otherwise it has been trained on both.
    trained_on = {"data_sha256": hashlib.sha256(text).hexdigest(), "kd_weight": 0, "ce_weight": 1, "data": None}
    seen = {name: manifest["settings"].get(name, manifest.get(name)) for name in trained_on}
    assert seen == trained_on, f"the manifest has {seen}; expected {trained_on}"
    end = len(text) - -(-len(text) // 10)
    (total, count), recorded = _loss(manifest, text[end:]), manifest["held_back"]["hard_loss"]
    assert recorded["count"] == count, f"the manifest counts {recorded['count']} held-back bytes; not {count}"
    mean, recorded_mean = total / count, recorded["sum"] / count
    assert math.isclose(mean, recorded_mean, abs_tol=1e-5), f"held-back loss: {mean} nats a byte, not {recorded_mean}"
    trained_total, trained_bytes = _loss(manifest, text[:end], EVERY)
    trained_mean = trained_total / trained_bytes
    assert trained_mean < mean - 0.05, f"loss on training text {trained_mean}; expected below {mean} - 0.05, held-back"


def falsify_default_run_uses_packaged_teacher(subject: Any) -> None:
    options = {name: SMALL[name] for name in ("layers", "width", "teacher_layers", "teacher_width", "device")}
    with scratch() as directory:
        options |= {"out": directory / "out", "teacher_cache": directory / "cache"}
        result = run(subject, reference_trainer.Settings(**options, smoke=1))
    expected = bits_of(reference_trainer.load_decoder(DATA / "teacher"))
    assert bits_of(result.teacher) == expected, "without a text or a teacher, a run does not use the packaged teacher"


@given(seed=st.integers(0, 9), layers=st.integers(1, 2), steps=st.integers(1, 3), width=st.sampled_from([16, 48]))
def falsify_cached_teacher_equals_trained_one(subject: Any, seed: int, layers: int, steps: int, width: int) -> None:
    with scratch() as directory:
        cache, options = directory / "cache", {"teacher_layers": layers, "teacher_steps": steps, "teacher_width": width}
        cases = ((cache, seed), (cache, seed), (directory / "new", seed), (cache, seed + 1))
        first, cached, uncached, other = (LoadedTeacher(subject, settings_of(at, seed=s, **options)) for at, s in cases)
    assert_equal("steps of two trainings", (first.steps, uncached.steps), (steps, steps))
    assert_equal(f"steps of a cached teacher with the output {cached.log}", cached.steps, 0)
    assert any(str(cache) in line for line in cached.log), f"no line names the cache: {cached.log}"
    assert cached.bits == first.bits, "the cached teacher has other weights than the trained teacher"
    assert uncached.bits == first.bits, "two trainings with the same settings and text give different teachers"
    assert other.steps == steps and other.bits != first.bits, "another seed gives the same teacher"


def falsify_cache_key_covers_dependencies(subject: Any) -> None:
    base = settings_of(None)
    key = subject.teacher_key(base, "d", CPU)
    for name, (_, other) in INPUTS.items():
        changed = subject.teacher_key(base.model_copy(update={name: other}), "d", CPU)
        assert changed != key, f"{name} = {other!r} does not change the key {key}"
    assert subject.teacher_key(base, "e", CPU) != key, "another text has the same key"
    assert subject.teacher_key(base, "d", torch.device("cuda")) != key, "another kind of device has the same key"
    assert subject.teacher_key(base, "d", CPU, version="0.0.0") != key, "another version of torch has the same key"
    explicit = subject.teacher_key(base, "d", CPU, version=torch.__version__)
    assert explicit == key, f"by default the key does not have the version {torch.__version__} of torch"
    # A key of joined values without separators would not distinguish these two.
    similar = [settings_of(None, seed=seed, warmup=warmup) for seed, warmup in ((1, 12), (11, 2))]
    one, other = (subject.teacher_key(numbers, "d", CPU) for numbers in similar)
    assert one != other, "seed 1 and warmup 12 share the key of seed 11 and warmup 2"
    trained, keyed = _RecordingSettings(base), _RecordingSettings(base)
    recorded: Any = trained
    subject.train_teacher(trained, text_rows(recorded, TEXT, CPU), 1, [], unwrapped)
    subject.teacher_key(keyed, "d", CPU)
    for label, read in (("a training", trained.read), ("the key", keyed.read)):
        assert read <= set(INPUTS), f"{label} of a teacher reads {sorted(read - set(INPUTS))}, not in the key"


class _RecordingSettings:
    """Settings that record the flat names of the settings that are read."""

    def __init__(self, settings: Any, read: set[str] | None = None, group: str = "") -> None:
        self._source, self.read, self._group = settings, set[str]() if read is None else read, group

    def __getattr__(self, name: str) -> Any:
        if not self._group:
            return _RecordingSettings(getattr(self._source, name), self.read, name)
        self.read.add(next(flat for flat, dotted in DOTTED.items() if dotted == f"{self._group}.{name}"))
        return getattr(self._source, name)

    def flat(self) -> Any:
        return _RecordingValues(self._source.flat(), self.read)


class _RecordingValues:
    def __init__(self, values: Any, read: set[str]) -> None:
        self._values, self._read = values, read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._values[name]


@given(steps=st.integers(1, 4))
def falsify_smoke_run_only_reads_cache(subject: Any, steps: int) -> None:
    with scratch() as directory:
        cache = directory / "cache"
        smoke = LoadedTeacher(subject, settings_of(cache, smoke=steps))
        assert_equal(f"steps of the teacher of a smoke run of {steps}", smoke.steps, min(steps, 2))
        assert not cache.exists(), f"a smoke run left {sorted(p.name for p in cache.rglob('*'))} in the cache"
        full = LoadedTeacher(subject, settings_of(cache))
        assert full.steps == 2, f"after a smoke run the teacher was trained for {full.steps} steps; expected 2"
        cached = LoadedTeacher(subject, settings_of(cache, smoke=steps))
        assert cached.steps == 0 and cached.bits == full.bits, f"a cached teacher was not used: {cached.log}"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut in half": lambda d: cut(d / WEIGHTS),
    "weights with one bit flipped": lambda d: flip(d / WEIGHTS, -3),
    "another shape in the configuration": lambda d: reconfigure(d / CONFIG, layers=2),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "no manifest, as after a kill": lambda d: (d / MANIFEST).unlink(),
    "an empty manifest": lambda d: cut(d / MANIFEST, 0),
}


@given(damage=st.sampled_from(list(DAMAGES)))
def falsify_damaged_cache_is_ignored(subject: Any, damage: str) -> None:
    with scratch() as directory:
        settings = settings_of(directory)
        first = LoadedTeacher(subject, settings)
        (teacher,) = directory.iterdir()
        DAMAGES[damage](teacher)
        retrained = LoadedTeacher(subject, settings)
        assert retrained.steps == first.steps, f"{damage}: {retrained.steps} steps of training, not {first.steps}"
        assert retrained.bits == first.bits, f"{damage}: the retrained teacher has other weights"
        # Every damage is reported in a line, except a missing manifest: the cache entry does not exist.
        lines = len(first.log) + ("no manifest" not in damage)
        assert len(retrained.log) == lines, f"{damage}: the output is {retrained.log}; expected {lines} lines"
        third = LoadedTeacher(subject, settings)
        assert third.steps == 0 and third.bits == first.bits, f"{damage}: the cache was not repaired: {third.log}"


def falsify_unwritable_cache_does_not_end_run(subject: Any) -> None:
    with scratch() as directory:
        expected = LoadedTeacher(subject, settings_of(directory / "good"))
        (directory / "file").touch()
        seen = LoadedTeacher(subject, settings_of(directory / "file" / "cache"))
    assert seen.bits == expected.bits, "with a cache directory below a file, the teacher has other weights"
    reports = [line for line in seen.log if "not cached" in line]
    assert len(reports) == 1 and len(seen.log) == len(expected.log), f"cache below a file: {seen.log}; not 1 report"


HOME, NO_HOME = Path("/home/u"), None
PLACES: dict[str, tuple[dict[str, str], Path | None, Path | None, str]] = {
    "a setting": ({"XDG_CACHE_HOME": "/xdg"}, HOME, Path("/named"), "/named"),
    "XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "/xdg"}, HOME, None, "/xdg/reference_trainer"),
    "a home": ({}, HOME, None, "/home/u/.cache/reference_trainer"),
    "an empty variable": ({"XDG_CACHE_HOME": ""}, HOME, None, "/home/u/.cache/reference_trainer"),
    "a relative variable": ({"XDG_CACHE_HOME": "cache"}, HOME, None, "/home/u/.cache/reference_trainer"),
    "no home": ({}, NO_HOME, None, "--teacher-cache"),
}
"""Variables, home directory, `teacher_cache`, and the path of the cache or the flag in the error message."""


@given(case=st.sampled_from(list(PLACES)))
def falsify_cache_location(subject: Any, case: str) -> None:
    variables, home, teacher_cache, expected = PLACES[case]

    def find_home() -> Path:
        if home is None:
            raise RuntimeError("no home directory, on purpose")  # as `Path.home` does
        return home

    try:
        seen = str(subject.cache_directory(settings_of(teacher_cache), environment=variables, home=find_home))
    except reference_trainer.OutputError as error:
        seen = "--teacher-cache" if "--teacher-cache" in str(error) else repr(error)
    assert seen == expected, f"{case}: the cache is {seen}; expected {expected}"


def falsify_cached_teacher_is_moved_to_device(subject: Any) -> None:
    meta, batches = torch.device("meta"), {"length": 8, "batch_size": 2}
    with scratch() as directory:
        settings = settings_of(directory)
        LoadedTeacher(subject, settings)
        (cached,) = directory.iterdir()
        cached.rename(cached.with_name(f"teacher-{subject.teacher_key(settings, 'd', meta)}"))
        sequences, output = reference_trainer.Sequences(bytes_N=TEXT, device=meta, **batches), list[str]()
        teacher = subject.load_or_train(settings, sequences, "d", [], output.append, unwrapped)
    places = {str(value.device) for value in teacher.state_dict().values()}
    assert places == {"meta"}, f"the cached teacher is on {sorted(places)}; expected meta; output: {output}"
