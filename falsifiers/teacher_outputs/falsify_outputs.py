"""Attacks on stored outputs of a teacher: their production, training from them, top-k outputs, and digests."""

import hashlib
import io
import itertools
import json
import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.chunked_head.models import chunks_of
from falsifiers.rank_runs.falsify_runs import assert_no_error, launched, launcher
from falsifiers.resume.runs import TIMEOUT_S
from falsifiers.support import oracles
from falsifiers.support.assertions import assert_equal
from falsifiers.support.cases import HALVES, TEMPERATURES, tensors
from falsifiers.support.oracles import assert_refused
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import cut, file_digests, flip, reconfigure, run, scratch, small, written_model
from falsifiers.teacher_outputs.parts import Counted
from reference_trainer import Annealed, Callback, Lines, Schedule, SettingError
from reference_trainer.distillation import heads
from reference_trainer.distillation.losses import Weights, kd_logit_gradient, kd_loss
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher, ModuleStudent
from reference_trainer.distillation.step import forward_backward
from reference_trainer.errors import LogitsError, ModelFileError, OutputError
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline import distill
from reference_trainer.pipeline.precompute import precompute
from reference_trainer.pipeline.teachers import stored_teacher
from reference_trainer.plan.objective import Objective
from reference_trainer.storage.export import save_decoder
from reference_trainer.storage.teacher_outputs import SavedOutputs
from reference_trainer.training.evaluation import evaluate

MANIFEST = "manifest.json"
COUNTING: dict[str, Any] = {"parts": "falsifiers.teacher_outputs.parts:Counting"}
SHARDS = 4
"""Number of shards of a small run: 12 training sequences and one held-back sequence, in batches of 4."""


def written(
    directory: Path,
    name: str,
    write: Callable[..., Path] = precompute,
    top_k: int | None = None,
    shard_bytes: int = 1,
    **changes: Any,
) -> Path:
    """Write the outputs of a small run, by default in shards of one batch, and return their directory."""
    settings = small(directory, **{"out": directory / name, "temperature": 2.0, **changes})
    return write(settings, top_k=top_k, shard_bytes=shard_bytes, lines=Lines(io.StringIO()))


PACKED: dict[str, Any] = {"documents": "pack", "separator": "--", "epochs": 2, "length": 20}


@given(
    seed=st.integers(0, 9),
    accumulate=st.integers(1, 2),
    top_k=st.sampled_from([None, 256]),
    shard_bytes=st.sampled_from([1, 10**5]),
    rows=st.sampled_from([{}, PACKED]),
)
@example(seed=1, accumulate=1, top_k=256, shard_bytes=1, rows=PACKED)
def falsify_training_from_outputs(
    subject: Any, seed: int, accumulate: int, top_k: int | None, shard_bytes: int, rows: dict[str, Any]
) -> None:
    """Compare a run from stored outputs of all tokens with a run with the live teacher.

    top_k: 256, all tokens, or None, which stores logits. shard_bytes: the size of one batch, or of several.
    """
    with scratch() as directory:
        settings = small(directory, seed=seed, accumulate=accumulate, out=directory / "live", **rows)
        if rows:
            text = directory / "documents"
            text.write_bytes(b"".join(b"word %d and more--" % number for number in range(30)))
            settings = settings.replace(data=text)
        outputs = directory / "outputs"
        live = run(subject, settings)
        produced = settings.replace(out=outputs)
        precompute(produced, top_k=top_k, shard_bytes=shard_bytes, lines=Lines(io.StringIO()))
        stored = run(subject, settings.replace(out=directory / "stored", teacher_outputs=outputs))
        digests = [file_digests(directory / out)["model.safetensors"] for out in ("stored", "live")]
    assert_equal(f"{top_k=}: digest of the student from stored outputs, compared with a live teacher", *digests)
    # Outputs of the k most probable tokens are for one temperature, so the KL divergence at 1 is unknown.
    assert_equal(f"{top_k=}: whether kl_at_1 is evaluated", "kl_at_1" in stored.held_back, top_k is None)
    expected = {metric: live.held_back[metric] for metric in stored.held_back}
    assert_equal("held-back metrics from stored outputs", stored.held_back, expected)


@given(interrupted=st.integers(1, SHARDS), top_k=st.sampled_from([None, 3]))
def falsify_interrupted_production(subject: Any, interrupted: int, top_k: int | None) -> None:
    """Interrupt the production in a forward pass of the teacher, and continue it, with just enough free space."""
    with scratch() as directory:
        out, case = directory / "out", f"interrupted in forward {interrupted}"

        def produce(name: str = "out") -> dict[str, str]:
            return file_digests(written(directory, name, subject.precompute, top_k=top_k, **COUNTING))

        undisturbed = produce("undisturbed")
        assert len(undisturbed) == SHARDS + 1, (
            f"the outputs are {sorted(undisturbed)}; expected {SHARDS} and a manifest"
        )
        Counted.forwards, Counted.interrupted = 0, interrupted
        try:
            produce()
            raise AssertionError(f"a KeyboardInterrupt in forward {interrupted} did not end the production")
        except KeyboardInterrupt:
            assert not out.exists(), f"{case}: --out has {sorted(p.name for p in out.iterdir())}; expected no directory"
        Counted.forwards = Counted.interrupted = 0
        size = sum(path.stat().st_size for path in (directory / "out.partial").glob("outputs-*"))
        with free_bytes(max(tensor_bytes(directory / "undisturbed") - size, 0)):
            assert_equal(f"{case}, then continued: digests of the outputs", produce(), undisturbed)
        assert_equal(f"{case}: forwards when continued", Counted.forwards, SHARDS - interrupted + 1)
        Counted.forwards = 0
        produce()
        assert_equal("forwards of a call whose outputs are complete", Counted.forwards, 0)
        assert_equal("partial files", sorted(p.name for p in directory.iterdir() if "partial" in p.name), [])


@given(ranks=st.sampled_from([2, 3]), top_k=st.sampled_from([None, 3]), divided=st.booleans())
@example(ranks=3, top_k=3, divided=True)
@example(ranks=3, top_k=None, divided=False)
def falsify_ranks_share_the_shards(subject: Any, ranks: int, top_k: int | None, divided: bool) -> None:
    with scratch() as directory:
        expected = file_digests(written(directory, "alone", subject.precompute, top_k=top_k, **COUNTING))
        options = {"out": directory / "several", "temperature": 2.0, "rank_timeout": TIMEOUT_S, **COUNTING}
        settings = small(directory, shard_teacher=divided, **options)
        place, served = launcher()

        def work(rank: int) -> int:
            Counted.forwards = Counted.interrupted = 0
            variables = {**place, "WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            quiet = Lines(io.StringIO())
            subject.precompute(settings, top_k=top_k, shard_bytes=1, lines=quiet, environment=variables)
            return Counted.forwards

        forwards = run_ranks(ranks, work, limit_s=60.0, served=served)
        assert_equal(f"digests of the outputs of {ranks} ranks", file_digests(directory / "several"), expected)
        shares = [len(range(rank, SHARDS, ranks)) for rank in range(ranks)]
        # All ranks run each forward of a divided teacher together, to gather its weights.
        shares = [max(shares)] * ranks if divided else shares
        assert_equal(f"forwards of {ranks} ranks for {SHARDS} shards", forwards, shares)


@given(seed=st.integers(0, 9), k=st.sampled_from([1, 3, 256]), rows=st.sampled_from([1, 7, 30]))
def falsify_top_k_outputs_are_kept_in_chunks(subject: Any, seed: int, k: int, rows: int) -> None:
    """Compute the most probable tokens in chunks of `rows` rows of 256 logits, and compare with outputs in one chunk.

    The teacher may return logits only for the check of its head in the first batch. The probabilities of the kept
    tokens must equal the results from outputs of all tokens.
    """
    tau = 2.0
    with scratch() as directory:
        written(directory, "all", subject.precompute, seed=seed, dtype="float64", **COUNTING)
        written(directory, "whole", subject.precompute, top_k=k, seed=seed, dtype="float64", **COUNTING)
        Counted.logits = 0
        with chunks_of(1):  # rows of the vocabulary of `chunked_head.models`
            limit = rows * 256 * 8
            with mock.patch.multiple(heads, CPU_CHUNK_BYTES=limit, CHUNK_BYTES=limit):
                written(directory, "chunks", subject.precompute, top_k=k, seed=seed, dtype="float64", **COUNTING)
                formed = Counted.logits
                written(directory, "all in chunks", subject.precompute, seed=seed, dtype="float64", **COUNTING)
        all_logits = [file_digests(directory / name) for name in ("all", "all in chunks")]
        assert_equal(f"digests of outputs of all tokens, in chunks of {rows} rows", *reversed(all_logits))
        limit = heads.CHECKED_TOKENS * 256
        assert 0 < formed <= limit, f"a forward of the teacher returned {formed} logits; expected 1 to {limit}"
        files = [sorted((directory / name).glob("outputs-*")) for name in ("whole", "chunks", "all")]
        assert_equal("numbers of shards", [len(paths) for paths in files], [SHARDS] * 3)
        for expected, actual, all_tokens in zip(*(map(load_file, paths) for paths in files), strict=True):
            # `rest` is the logarithm of the sum of exp(logit / tau) over the tokens that are not kept.
            kept = torch.cat([actual["logits"] / tau, actual["rest"][:, None]], 1).softmax(-1)[:, :k]
            wanted = (all_tokens["logits"] / tau).softmax(-1).gather(1, actual["tokens"].long())
            error = float((kept - wanted).abs().max())
            assert error <= EXACT, f"probabilities of {k} tokens at {tau=} have an error of {error:.1e} > {EXACT}"
            for name, tensor in expected.items():
                error = float((actual[name].double() - tensor.double()).abs().max())
                assert error <= EXACT, (
                    f"{k} tokens in chunks of {rows} rows: {name} has an error of {error:.1e} > {EXACT}"
                )


def all_outputs(outputs: Path) -> dict[str, Tensor]:
    """Return the tensors of all shards."""
    shards = [load_file(path) for path in sorted(outputs.glob("outputs-*"))]
    return {name: torch.cat([shard[name] for shard in shards]) for name in shards[0] if name != "ends"}


def tensor_bytes(outputs: Path) -> int:
    return sum(tensor.nbytes for tensor in all_outputs(outputs).values())


def free_bytes(free: int) -> Any:
    """Return a context in which every disk has `free` bytes left."""
    return mock.patch.object(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


@given(dtype=st.sampled_from(["bfloat16", "float32", "float64"]), top_k=st.sampled_from([None, 3]))
def falsify_room_is_that_of_the_outputs(subject: Any, dtype: str, top_k: int | None) -> None:
    """The bytes of the tensors must suffice, and one byte less is refused. Shards have at most `shard_bytes`."""
    batch = 4 * 8  # positions; a kept logit is float32 at least, a token and a label are int32
    width = {"bfloat16": 2, "float32": 4, "float64": 8}[dtype]
    one_batch = batch * (4 + (256 * width if top_k is None else top_k * (max(width, 4) + 4) + max(width, 4)))
    with scratch() as directory:
        write = partial(written, directory, write=subject.precompute, top_k=top_k, dtype=dtype)
        out = write("measured")
        needed, expected = tensor_bytes(out), all_outputs(out)
        for free in (needed, needed - 1):
            with free_bytes(free):
                if free == needed:
                    write("enough")
                else:
                    assert_refused(f"{free} bytes free", lambda: write("refused"), f"{needed:,}", kind=OutputError)
        for batches, shard_bytes in ((2, 3 * one_batch - 1), (3, 3 * one_batch)):
            outputs = write(f"of{batches}", shard_bytes=shard_bytes)
            rows = [len(load_file(path)["ends"]) for path in sorted(outputs.glob("outputs-*"))]
            sizes = [min(4 * batches, 13 - begin) for begin in range(0, 13, 4 * batches)]
            assert_equal(f"rows in shards of {shard_bytes} bytes of {dtype}", rows, sizes)
            saved, nothing = SavedOutputs(outputs), torch.full((2, 8), -100)
            for number, (name, tensor) in itertools.product(range(13), expected.items()):
                row, wanted = saved.row(number)[name], tensor[7 * number : 7 * number + 7]
                case = f"{name} of row {number} in shards of {shard_bytes} bytes is {row}; expected {wanted}"
                assert torch.equal(row, wanted), case
            assert_refused("row 13 of 13", partial(saved.row, 13), "no row 13", kind=ModelFileError)
            teacher: Any = stored_teacher(saved)
            # A batch without numbers of rows: a rank without a row left computes one.
            unscored = Batch(torch.zeros_like(nothing), nothing)
            logits = teacher.top_k(unscored).logits if top_k else teacher.logits(unscored)
            assert not bool(logits.any()), f"logits of a batch without labels are {logits.tolist()}; expected zeros"


def falsify_unfinished_outputs_of_another_call(subject: Any) -> None:
    """Interrupt a call, and then make another one: it must not use the shards, and its outputs are not replaced."""
    versions = subject.versions()
    cases: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "teacher": ({"seed": 1}, versions),
        "data type": ({"dtype": "float64"}, versions),
        "version of PyTorch": ({}, {**versions, "torch": "2.0"}),
    }
    for label, (change, others) in cases.items():
        with scratch() as directory:
            other = partial(written, directory, "out", subject.precompute, top_k=2, **change, **COUNTING)
            Counted.forwards, Counted.interrupted = 0, 3
            try:
                with mock.patch.object(subject, "versions", lambda others=others: others):
                    other()
            except KeyboardInterrupt:
                Counted.interrupted = 0
            actual = file_digests(written(directory, "out", subject.precompute, top_k=2, **COUNTING))
            expected = file_digests(written(directory, "expected", subject.precompute, top_k=2, **COUNTING))
            assert_equal(f"digests of outputs after an interrupted call with another {label}", actual, expected)
            with mock.patch.object(subject, "versions", lambda others=others: others):
                assert_refused(f"outputs of another {label}", other, "has other outputs", kind=OutputError)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "text edited in place": (lambda d: (d / "text").write_bytes(bytes(range(1, 101))), "data_sha256 was"),
    "length": (lambda d: {"length": 9}, "length was 8 and is 9"),
    "documents": (lambda d: {"documents": "pack"}, 'documents was null and is "pack"'),
    "temperature": (lambda d: {"temperature": 1.0}, "temperature was 2.0 and is 1.0"),
    "annealed temperature": (lambda d: {"temperature_end": 1.0}, "temperature_end was null and is 1.0"),
    "shared vocabulary": (lambda d: {"share_vocabulary": "pad"}, 'share_vocabulary was null and is "pad"'),
    "share of the data": (lambda d: {"data_share": 0.5}, "data_share was null and is 0.5"),
    "separator": (lambda d: {"documents": "pad", "separator": "-"}, "separator was"),
    "features": (lambda d: {"feature_weight": 1.0}, "no hidden states"),
    "features later": (lambda d: {"feature_weight_end": 1.0}, "no hidden states"),
    "teacher": (lambda d: {"teacher": _train_other(d)}, "teacher_sha256 was"),
    "another format": (lambda d: reconfigure(d / "outputs" / MANIFEST, format="other/1"), "has format 'other/1'"),
    "shard cut": (lambda d: cut(d / "outputs" / "outputs-00001.safetensors"), "sizes of the files"),
    "shard changed": (lambda d: flip(d / "outputs" / "outputs-00001.safetensors", -3), "SHA-256"),
    "shard missing": (lambda d: (d / "outputs" / "outputs-00001.safetensors").unlink(), "outputs-00001.safetensors"),
    "no manifest": (lambda d: (d / "outputs" / MANIFEST).unlink(), MANIFEST),
    "other outputs at a resume": (lambda d: _begin_with_others(d), "teacher_outputs_sha256 was"),
    "labels of other rows": (lambda d: exchange_shards(d / "outputs"), "other tokens to predict"),
}
"""A change of the files, or the settings of the run that differ from the outputs, and words of the refusal."""


def _train_other(directory: Path) -> Path:
    """Train another model, and return its directory."""
    run(distill, small(directory, out=directory / "other"))
    return directory / "other"


def _begin_with_others(directory: Path) -> dict[str, Any]:
    """Train a step from outputs of the same teacher with more tokens, and return the settings that resume the run."""
    options = {"out": directory / "out", "teacher_outputs": written(directory, "more", top_k=4), "temperature": 2.0}
    run(distill, small(directory, max_steps=1, save_every=1, **options))
    return {"resume": Path("latest"), "force": True, "save_every": 1}


def exchange_shards(outputs: Path) -> None:
    """Exchange the first two shards, and their digests in the manifest."""
    names = [outputs / f"outputs-0000{number}.safetensors" for number in (0, 1)]
    contents = [name.read_bytes() for name in names]
    for path, content in zip(names, reversed(contents), strict=True):
        path.write_bytes(content)
    tree = json.loads((outputs / MANIFEST).read_text())
    tree["shards"][:2] = tree["shards"][1::-1]
    (outputs / MANIFEST).write_text(json.dumps(tree))


@given(kind=st.sampled_from(list(REFUSED)))
def falsify_other_outputs_are_refused(subject: Any, kind: str) -> None:
    change, words = REFUSED[kind]
    with scratch() as directory:
        outputs = written(directory, "outputs", top_k=3)
        settings = small(directory, out=directory / "out", teacher_outputs=outputs, temperature=2.0)
        changes = change(directory)
        settings = settings.model_copy(update=changes if isinstance(changes, dict) else {})
        kind_of_error = SettingError if " was" in words else Exception
        assert_refused(kind, lambda: run(subject, settings), words, kind=kind_of_error)


def falsify_calls_without_outputs_are_refused(subject: Any) -> None:
    """Call with invalid settings, or with a teacher whose logits overflow, and assert that no outputs are left."""
    with scratch() as directory:
        broken = new_decoder(DecoderConfig(vocab_size=256, layers=1, width=16, heads=1), 0)
        for parameter in broken.parameters():
            parameter.data.mul_(1e37 if parameter.dim() == 1 else 1e4)  # finite weights whose products are not
        (directory / "broken").mkdir()
        save_decoder(broken, directory / "broken", {})
        cases: dict[str, tuple[dict[str, Any], str, type[Exception]]] = {
            "no tokens": ({"top_k": 0}, "expected 1 to 256", SettingError),
            "more tokens than there are": ({"top_k": 257}, "expected 1 to 256", SettingError),
            "infinite logits": ({"teacher": directory / "broken"}, "not finite", LogitsError),
            "most probable tokens of infinite logits": (
                {"teacher": directory / "broken", "top_k": 3},
                "not finite",
                LogitsError,
            ),
            "another tokenizer": ({"cross_tokenizer": True}, "expected no cross_tokenizer", SettingError),
            "a server": ({"teacher_url": "http://127.0.0.1:9", "temperature": 1.0}, "--teacher-url", SettingError),
        }
        for label, (changes, words, kind) in cases.items():
            call = partial(written, directory, "out", subject.precompute, **changes)
            assert_refused(label, call, words, kind=kind)
            assert not (directory / "out").exists(), f"{label}: the refused call left outputs; expected none"


DIVERGENCES = sorted(oracles.DIVERGENCES)
EXACT = 1e-9
"""Largest relative error in float64: some hundred roundings of 2^-53, times the largest temperature squared, 400."""


@st.composite
def models(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, float]:
    """Draw logits [1, 2, V] of a student and a teacher, the number of kept tokens, and a temperature."""
    V = draw(st.integers(2, 6))
    student, teacher = (draw(tensors((1, 2, V), HALVES, torch.float64)) for _ in range(2))
    return student, teacher + draw(st.sampled_from([0.0, 100.0])), draw(st.integers(1, V)), draw(TEMPERATURES)


PRECISE = torch.tensor([[[0.5, 0.0, -1.5, 1.0]]]).double(), torch.tensor([[[1.0, -0.5, 0.5, 0.0]]]).double(), 2, 3.0
"""A case whose sums over the tokens that are not kept have no exact bfloat16."""


def outcomes(logits_BTV: Tensor, tokens: list[list[int]], temperature: float) -> list[list[Tensor]]:
    """Return, for each row, the log-probabilities of the kept tokens and, unless all are kept, of the others' sum."""
    log_NV, rows = torch.log_softmax(logits_BTV.flatten(0, 1) / temperature, -1), []
    for row, kept in zip(log_NV, tokens, strict=True):
        rest = [logit for number, logit in enumerate(row) if number not in kept]
        tail = [torch.logsumexp(torch.stack(rest), 0)] if rest else []
        rows.append([*(row[number] for number in kept), *tail])
    return rows


def largest(teacher_BTV: Tensor, k: int) -> list[list[int]]:
    """Return the k tokens with the largest logits of each row; of equal logits, the first tokens."""
    return [sorted(range(len(row)), key=lambda v: -row[v])[:k] for row in teacher_BTV.flatten(0, 1).tolist()]


def expected_divergence(name: str, student: Tensor, teacher: Tensor, k: int, temperature: float) -> Tensor:
    """Return temperature^2 times the divergence between distributions of K + 1 outcomes, by its definition."""
    total, tokens = torch.zeros((), dtype=torch.float64), largest(teacher, k)
    for q, p in zip(outcomes(student, tokens, temperature), outcomes(teacher, tokens, temperature), strict=True):
        divergence = oracles.DIVERGENCES[name].textbook(torch.stack(p), torch.stack(q), 0.5)
        total = total + temperature**2 * divergence
    return total


def loss_and_gradient(
    subject: Any, name: str, student: Tensor, teacher: Tensor, k: int, tau: float, device: str
) -> tuple[float, Tensor]:
    """Return loss and gradient with the teacher's logits that the subject completes from its top k outputs."""
    student, teacher = student.to(device), teacher.to(device)
    kept = subject.keep_top_k(teacher, k, tau)
    complete = subject.complete_logits(kept, student, tau)
    call = partial(subject.complete_logits, kept, student, 2 * tau)
    assert_refused("another temperature", call, f"{tau:g}", f"{2 * tau:g}", kind=SettingError)
    labels = torch.zeros(student.shape[:2], dtype=torch.int64, device=device)
    settings: Any = {"temperature": tau, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": name}
    tensors = (student, complete, labels)
    return float(kd_loss(*tensors, **settings).sum), kd_logit_gradient(*tensors, **settings).cpu()


DTYPES = {torch.float64: EXACT, torch.float32: 1e-4, torch.bfloat16: 1e-4}
"""Largest error for each dtype of logits; bfloat16 is computed in float32. The drawn logits are exact in all dtypes."""


@given(drawn=models(), name=st.sampled_from(DIVERGENCES), dtypes=st.tuples(*[st.sampled_from(list(DTYPES))] * 2))
@example(drawn=PRECISE, name="forward_kl", dtypes=(torch.bfloat16, torch.float64))
@example(drawn=PRECISE, name="forward_kl", dtypes=(torch.bfloat16, torch.bfloat16))
def falsify_loss_is_that_of_the_outcomes(
    subject: Any,
    device: str,
    drawn: tuple[Tensor, Tensor, int, float],
    name: str,
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    """Compare with the divergence of K + 1 outcomes, in float64. dtypes: of student and teacher."""
    student, teacher, k, tau = drawn
    models = student.to(dtypes[0]), teacher.to(dtypes[1])
    loss, gradient = loss_and_gradient(subject, name, *models, k, tau, device)
    leaf = student.clone().requires_grad_()
    expected = expected_divergence(name, leaf, teacher, k, tau)
    (derivative,) = torch.autograd.grad(expected, leaf)
    case, nats = f"{name} with {k} of {student.shape[-1]} tokens at {tau=} of {dtypes}", float(expected.detach())
    allowed = max(DTYPES[dtype] for dtype in dtypes)
    assert abs(loss - nats) <= allowed * max(1.0, abs(nats)), f"{case} is {loss} nats; expected {nats}"
    error = float((gradient - derivative).abs().max())
    assert error <= allowed * tau, f"{case}: the gradient is {gradient.tolist()}; expected {derivative.tolist()}"


@given(drawn=models())
def falsify_banned_tail_is_shared_equally(subject: Any, drawn: tuple[Tensor, Tensor, int, float]) -> None:
    """Ban all tokens but the teacher's top k for the student, by logits of -inf.

    Each of the V - k other tokens must have the teacher's probability (1 - sum of the top k) / (V - k), and the loss
    must be +inf.
    """
    student, teacher, k, tau = drawn
    V = student.shape[-1]
    k = min(k, V - 1)
    p = (teacher / tau).softmax(-1).flatten(0, 1)
    expected, banned = p.clone(), student.clone().flatten(0, 1)
    for number, tokens in enumerate(largest(teacher, k)):
        others = [v for v in range(V) if v not in tokens]
        banned[number, others] = -math.inf
        expected[number, others] = p[number, others].sum() / (V - k)
    complete = subject.complete_logits(subject.keep_top_k(teacher, k, tau), banned.view_as(student), tau)
    actual = (complete / tau).softmax(-1).flatten(0, 1)
    case = f"{k} of {V} tokens at temperature {tau}"
    assert float((actual - expected).abs().max()) <= EXACT, f"{case}: probabilities {actual}; expected {expected}"
    loss, gradient = loss_and_gradient(subject, "forward_kl", banned.view_as(student), teacher, k, tau, "cpu")
    assert loss == math.inf, f"{case}: the loss is {loss} nats; expected +inf"
    assert bool(gradient.isfinite().all()), f"{case}: the gradient is {gradient.tolist()}; expected finite numbers"


class TopKTable:
    """A teacher that returns the top k outputs of a table of logits [3, V]."""

    def __init__(self, subject: Any, table: Tensor, k: int, tau: float) -> None:
        self.vocab_size = table.shape[1]
        self.top_k = lambda batch: subject.keep_top_k(table[batch.tokens], k, tau)


class OneBatch:
    """Rows that form one batch."""

    device, batches = torch.device("cpu"), 1

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch.tokens)

    def batch(self, order: Tensor, position: int) -> Batch:
        return self._batch


@given(table=tensors((3, 4), HALVES, torch.float64), k=st.integers(1, 4), ce_weight=st.sampled_from([0.0, 1.0]))
def falsify_unknown_metrics_are_absent(subject: Any, table: Tensor, k: int, ce_weight: float) -> None:
    tokens = torch.tensor([[0, 1, 2]])
    batch, weights = Batch(tokens=tokens, labels=tokens), Weights(temperature=2.0, ce_weight=ce_weight, kd_weight=1.0)
    teacher: Any = TopKTable(subject, table, k, 2.0)
    labels = torch.tensor([[1, 2, -100]])
    student = FixtureStudent(torch.zeros(3, 4, dtype=torch.float64), learning_rate=0.1)
    sums = forward_backward(teacher, student, batch, labels, weights, scale=1.0, metrics=True).sums
    assert_equal("metrics of a step", set(sums), {"loss", "hard_loss", "soft_loss"})
    evaluated = evaluate(teacher, FixtureTeacher(torch.zeros_like(table)), OneBatch(batch), weights)
    assert_equal("metrics of an evaluation", set(evaluated), {"hard_loss", "soft_loss", "token_accuracy"})
    hard = sum(-oracles.log_softmax([0.0] * 4, 1.0)[y] for y in (1, 2))
    oracles.assert_close("hard_loss", float(sums["hard_loss"]), hard, EXACT, "2 tokens with 4 equal logits")


TEACHER_METRICS = {"kl_at_1", "kl_at_T", "teacher_loss", "teacher_entropy", "teacher_perplexity", "agreement"}


class CountedTeacher:
    """A teacher that records the step of each of its forward passes."""

    vocab_size = 3

    def __init__(self) -> None:
        self.step, self.steps = 0, list[int]()

    def logits(self, batch: Batch) -> Tensor:
        self.steps.append(self.step)
        return torch.zeros(*batch.tokens.shape, 3, dtype=torch.float64)


class StepRecorder(Callback):
    """Callback that tells the teacher the step, and records the names of the metrics of logged steps."""

    def __init__(self, teacher: CountedTeacher) -> None:
        self.teacher, self.logged = teacher, dict[int, Any]()

    def on_step_begin(self, context: Any) -> None:
        self.teacher.step = context.step

    def on_log(self, context: Any) -> None:
        self.logged[context.step] = set(context.metrics)


@given(
    start=st.sampled_from([0.0, 1.0]),
    end=st.sampled_from([None, 0.0, 1.0]),
    warmup=st.integers(0, 4),
    steps=st.integers(1, 9),
    every=st.integers(0, 4),
)
def falsify_teacher_runs_where_it_is_needed(
    subject: Any, start: float, end: float | None, warmup: int, steps: int, every: int
) -> None:
    kd = start if end is None else Annealed(start, end, "linear", warmup)
    table, teacher = nn.Embedding(3, 3, _weight=torch.zeros(3, 3, dtype=torch.float64)), CountedTeacher()
    recorder, tokens = StepRecorder(teacher), torch.tensor([[0, 1, 2]])
    subject.train(
        teacher,
        ModuleStudent(table, 3),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        torch.optim.SGD(table.parameters(), lr=0.1),
        schedule=Schedule(epochs=1, steps_per_epoch=steps, log_every=every),
        objective=Objective(temperature=2.0, ce_weight=1.0, kd_weight=kd),
        learning_rate=lambda step: 0.1,
        callbacks=[recorder],
    )
    weight = {step: kd.at(step, steps) if isinstance(kd, Annealed) else kd for step in range(1, steps + 1)}
    logged = range(every, steps + 1, every) if every else range(0)
    # Metrics are means over the steps since the last logged one. If one of these has a weight, the teacher runs in all.
    expected = []
    for step in weight:
        interval = next((range(last - every + 1, last + 1) for last in logged if step <= last), [step])
        expected += [step] if any(weight[n] for n in interval) else []
    assert_equal(f"with the weights {weight}, logged every {every}, steps of the teacher", teacher.steps, expected)
    assert_equal("logged steps", list(recorder.logged), list(logged))
    for step, names in recorder.logged.items():
        wanted = TEACHER_METRICS if step in expected else set()
        assert_equal(f"teacher metrics of step {step} of weight {weight[step]}", names & TEACHER_METRICS, wanted)


class TeacherSize(Callback):
    """Callback that writes the largest size of this rank's weights of the teacher, the total size, and their dtypes."""

    def __init__(self, path: Path) -> None:
        self.path, self.largest = path, 0

    def attach(self, distillation: Any) -> None:
        self.run = distillation

    def on_optimizer_step(self, context: Any) -> None:
        """Measure between a step and its evaluation, since the end of an evaluation frees all weights of a teacher."""
        parameters = list(self.run.teacher.parameters())
        pieces = [getattr(parameter, "to_local", parameter.detach)() for parameter in parameters]
        size, total = sum(piece.untyped_storage().nbytes() for piece in pieces), sum(p.nbytes for p in parameters)
        self.largest = max(self.largest, size)
        self.path.write_text(json.dumps([self.largest, total, *sorted({str(piece.dtype) for piece in pieces})]))

    on_train_end = on_optimizer_step


@given(strategy=st.sampled_from(["fsdp2", "ddp"]), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
@example(strategy="ddp", dtype=torch.bfloat16)
def falsify_ranks_share_the_teacher(subject: Any, strategy: str, dtype: torch.dtype) -> None:
    """Compare runs of two ranks with a divided teacher (`shard_teacher`) and with a copy on each rank."""

    class OfDtype(subject.Distillation):  # the subject is any module
        def make_teacher(self) -> Any:
            return super().make_teacher().to(dtype)

    with scratch() as directory:
        options = {"strategy": strategy, "rank_timeout": TIMEOUT_S, "teacher_width": 64, "eval_every": 1}
        chosen = [small(directory, out=directory / str(flag), shard_teacher=flag, **options) for flag in (False, True)]
        whole = launched(OfDtype, chosen[0], 2)
        shared = launched(OfDtype, chosen[1], 2, lambda rank: [TeacherSize(directory / f"size{rank}")])
        assert_no_error(f"a teacher in shards, {strategy}", [*whole, *shared])
        for rank in range(2):
            size, total, *dtypes = json.loads((directory / f"size{rank}").read_text())
            assert_equal(f"dtypes of the teacher on rank {rank}", dtypes, [str(dtype)])
            # Half of the weights; 1 % for the padding of shards.
            assert size <= 0.51 * total, f"rank {rank} has {size} of the teacher's {total} bytes; expected half"
        assert_same(f"with {strategy} and a divided teacher of {dtype}", shared[0].weights, whole[0].weights)
        manifests = [json.loads((directory / out / "manifest.json").read_text()) for out in ("True", "False")]
        assert_equal("digest of a divided teacher", *(manifest["teacher_sha256"] for manifest in manifests))


@given(seed=st.integers(0, 99))
def falsify_digest_of_a_teacher_is_that_of_its_file(subject: Any, seed: int) -> None:
    """Compute in float64, so that the weights of the teacher in memory differ from its file."""
    with scratch() as directory:
        teacher = written_model(directory, seed=seed)
        run(subject, small(directory, out=directory / "out", teacher=teacher, dtype="float64"))
        manifest = json.loads((directory / "out" / "manifest.json").read_text())
        expected = hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    assert_equal("digest of the teacher", manifest["teacher_sha256"], expected)


@given(contents=st.lists(st.binary(min_size=1, max_size=9), min_size=2, max_size=4))
def falsify_digest_of_shards(subject: Any, contents: list[bytes]) -> None:
    """Compare with the SHA-256 of the output of `sha256sum` for all shards, by name."""
    with scratch() as directory:
        files = {f"model-{number}.safetensors": content for number, content in enumerate(contents)}
        for file, content in files.items():
            (directory / file).write_bytes(content)
        index = {"weight_map": {f"w{number}": file for number, file in enumerate(reversed(files))}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        actual = subject.files_digest(subject.weight_files(directory))
        (directory / "model-1.safetensors").write_bytes(contents[1] + b"x")
        other = subject.files_digest(subject.weight_files(directory))
        text = "".join(f"{hashlib.sha256(content).hexdigest()}  {file}\n" for file, content in files.items())
        assert_equal(f"digest of {sorted(files)}", actual, hashlib.sha256(text.encode()).hexdigest())
        assert other != actual, f"the digest is {other} before and after a shard changed"
        for missing, words in (("model-0.safetensors", "model-0"), ("model.safetensors.index.json", str(directory))):
            (directory / missing).unlink()
            assert_refused(f"no {missing}", lambda: subject.files_digest(subject.weight_files(directory)), words)
