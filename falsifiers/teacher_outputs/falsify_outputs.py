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
"""Of the outputs of a small run: 12 sequences and one that is held back, in batches of 4."""


def written(
    directory: Path,
    name: str,
    write: Callable[..., Path] = precompute,
    top_k: int | None = None,
    shard_bytes: int = 1,
    **changes: Any,
) -> Path:
    """Return the directory of outputs of a small run, by default in shards of one batch."""
    settings = small(directory, **{"out": directory / name, "temperature": 2.0, **changes})
    return write(settings, top_k=top_k, shard_bytes=shard_bytes, lines=Lines(io.StringIO()))


@given(
    seed=st.integers(0, 9),
    accumulate=st.integers(1, 2),
    top_k=st.sampled_from([None, 256]),
    shard_bytes=st.sampled_from([1, 10**5]),
    rows=st.sampled_from([{}, {"documents": "pack", "separator": "--", "epochs": 2, "length": 20}]),
)
def falsify_training_from_outputs(
    subject: Any, seed: int, accumulate: int, top_k: int | None, shard_bytes: int, rows: dict[str, Any]
) -> None:
    """A run from outputs of every token equals the run with the live teacher. The subject is `pipeline.distill`.

    shard_bytes: of one batch, or of several.
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
        bits = [file_digests(directory / out)["model.safetensors"] for out in ("live", "stored")]
    assert bits[0] == bits[1], f"from outputs of {top_k or 'all'} tokens, the student differs from the teacher's"
    measured = stored.held_back.keys()
    assert ("kl_at_1" in measured) == (top_k is None), f"with top_k {top_k} an evaluation measures {sorted(measured)}"
    for metric in measured:
        seen, expected = stored.held_back[metric], live.held_back[metric]
        assert seen == expected, f"held-back {metric} is {seen} from outputs, and {expected} from the teacher"


@given(interrupted=st.integers(1, SHARDS), top_k=st.sampled_from([None, 3]))
def falsify_interrupted_production(subject: Any, interrupted: int, top_k: int | None) -> None:
    with scratch() as directory:
        out, where = directory / "out", f"interrupted in forward {interrupted}"

        def produced(name: str = "out") -> dict[str, str]:
            return file_digests(written(directory, name, subject.precompute, top_k=top_k, **COUNTING))

        undisturbed = produced("undisturbed")
        assert len(undisturbed) == SHARDS + 1, f"the outputs are {sorted(undisturbed)}"
        Counted.forwards, Counted.interrupted = 0, interrupted
        try:
            produced()
            raise AssertionError(f"forward {interrupted} was not interrupted")
        except KeyboardInterrupt:
            assert not out.exists(), f"{where}, a production left {sorted(p.name for p in out.iterdir())} in --out"
        Counted.forwards = Counted.interrupted = 0
        size = sum(path.stat().st_size for path in (directory / "out.partial").glob("outputs-*"))
        with free_bytes(max(tensor_bytes(directory / "undisturbed") - size, 0)):
            assert produced() == undisturbed, f"{where}, the outputs differ from undisturbed ones"
        again, remaining = Counted.forwards, SHARDS - interrupted + 1
        assert again == remaining, f"{where}, {again} forwards were made afterwards; expected {remaining}"
        produced()
        assert Counted.forwards == again, "outputs that are there were computed again"
        assert sorted(p.name for p in directory.iterdir() if "partial" in p.name) == [], "unfinished outputs are left"


@given(ranks=st.sampled_from([2, 3]), top_k=st.sampled_from([None, 3]), divided=st.booleans())
@example(ranks=3, top_k=3, divided=True)
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
        assert file_digests(directory / "several") == expected, f"{ranks} ranks write other outputs than one process"
        shares = [len(range(rank, SHARDS, ranks)) for rank in range(ranks)]
        shares = [max(shares)] * ranks if divided else shares  # every rank gathers the teacher
        assert forwards == shares, f"{ranks} ranks made {forwards} forwards for {SHARDS} shards; expected {shares}"


@given(seed=st.integers(0, 9), k=st.sampled_from([1, 3, 256]), rows=st.sampled_from([1, 7, 30]))
def falsify_top_k_outputs_are_kept_in_chunks(subject: Any, seed: int, k: int, rows: int) -> None:
    """Chunks have some rows of 256 logits; only the check of the first batch has the teacher form logits.

    The kept tokens have the same probabilities as in outputs of all tokens, which have no rest.
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
        assert all_logits[0] == all_logits[1], f"outputs of all tokens differ if chunks have {rows} rows"
        assert 0 < formed <= heads.CHECKED_TOKENS * 256, f"a forward returned {formed} logits"
        files = [sorted((directory / name).glob("outputs-*")) for name in ("whole", "chunks", "all")]
        assert [len(paths) for paths in files] == [SHARDS] * 3, f"the shards are {files}"
        for expected, seen, every in zip(*(map(load_file, paths) for paths in files), strict=True):
            kept = torch.cat([seen["logits"] / tau, seen["rest"][:, None]], 1).softmax(-1)[:, :k]
            wanted = (every["logits"] / tau).softmax(-1).gather(1, seen["tokens"].long())
            apart = float((kept - wanted).abs().max())
            assert apart <= EXACT, f"the probabilities of {k} kept tokens at temperature {tau} are off by {apart:.1e}"
            for name, tensor in expected.items():
                apart = float((seen[name].double() - tensor.double()).abs().max())
                assert apart <= EXACT, f"{k} tokens in chunks of {rows} rows: {name} is off by {apart:.1e}"


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
    """One byte fewer than the tensors have is refused; their bytes are enough. Shards have the bytes that are asked."""
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
            seen = write(f"of{batches}", shard_bytes=shard_bytes)
            rows = [len(load_file(path)["ends"]) for path in sorted(seen.glob("outputs-*"))]
            sizes = [min(4 * batches, 13 - begin) for begin in range(0, 13, 4 * batches)]
            assert rows == sizes, f"shards of {shard_bytes} bytes have {rows} rows of {dtype}; expected {sizes}"
            saved, nothing = SavedOutputs(seen), torch.full((2, 8), -100)
            for number, (name, tensor) in itertools.product(range(13), expected.items()):
                row, wanted = saved.row(number)[name], tensor[7 * number : 7 * number + 7]
                assert torch.equal(row, wanted), f"{name} of row {number} in shards of {shard_bytes} bytes: {row}"
            assert_refused("row 13 of 13", partial(saved.row, 13), "no row 13", kind=ModelFileError)
            teacher: Any = stored_teacher(saved)
            unscored = Batch(torch.zeros_like(nothing), nothing)  # without numbers, as of a rank without rows
            logits = teacher.top_k(unscored).logits if top_k else teacher.logits(unscored)
            assert not bool(logits.any()), f"logits of a batch in which nothing is predicted are {logits.tolist()}"


def falsify_unfinished_outputs_of_another_call(subject: Any) -> None:
    """Shards of an interrupted call are used by an equal call only; outputs of another call are not replaced."""
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
            seen = file_digests(written(directory, "out", subject.precompute, top_k=2, **COUNTING))
            expected = file_digests(written(directory, "expected", subject.precompute, top_k=2, **COUNTING))
            assert seen == expected, f"the outputs hold shards of another {label}, whose production was interrupted"
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
    "teacher": (lambda d: {"teacher": _other(d)}, "teacher_sha256 was"),
    "another format": (lambda d: reconfigure(d / "outputs" / MANIFEST, format="other/1"), "has format 'other/1'"),
    "shard cut": (lambda d: cut(d / "outputs" / "outputs-00001.safetensors"), "sizes of the files"),
    "shard changed": (lambda d: flip(d / "outputs" / "outputs-00001.safetensors", -3), "SHA-256"),
    "shard missing": (lambda d: (d / "outputs" / "outputs-00001.safetensors").unlink(), "outputs-00001.safetensors"),
    "no manifest": (lambda d: (d / "outputs" / MANIFEST).unlink(), MANIFEST),
    "other outputs at a resume": (lambda d: _begun(d), "teacher_outputs_sha256 was"),
    "labels of other rows": (lambda d: renumbered(d / "outputs"), "other tokens to predict"),
}
"""What differs from the outputs, by a setting or on the disk, and what the refusal says."""


def _other(directory: Path) -> Path:
    """Train another model, and return its directory."""
    run(distill, small(directory, out=directory / "other"))
    return directory / "other"


def _begun(directory: Path) -> dict[str, Any]:
    """Train a step from outputs of the same teacher with more tokens, and return the settings of the next ones."""
    options = {"out": directory / "out", "teacher_outputs": written(directory, "more", top_k=4), "temperature": 2.0}
    run(distill, small(directory, max_steps=1, save_every=1, **options))
    return {"resume": Path("latest"), "force": True, "save_every": 1}


def renumbered(outputs: Path) -> None:
    """Exchange two shards, and their digests."""
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
    """Each call is refused, and leaves no outputs."""
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
            assert not (directory / "out").exists(), f"{label}: outputs are there after the refusal"


DIVERGENCES = sorted(oracles.DIVERGENCES)
EXACT = 1e-9
"""Largest relative difference in float64, whose rounding the largest temperature and its square multiply by 400."""


@st.composite
def models(draw: st.DrawFn) -> tuple[Tensor, Tensor, int, float]:
    """Draw logits [1, 2, V] of a student and a teacher, the number of kept tokens, and a temperature."""
    V = draw(st.integers(2, 6))
    student, teacher = (draw(tensors((1, 2, V), HALVES, torch.float64)) for _ in range(2))
    return student, teacher + draw(st.sampled_from([0.0, 100.0])), draw(st.integers(1, V)), draw(TEMPERATURES)


PRECISE = torch.tensor([[[0.5, 0.0, -1.5, 1.0]]]).double(), torch.tensor([[[1.0, -0.5, 0.5, 0.0]]]).double(), 2, 3.0
"""Rests that bfloat16 cannot represent."""


def outcomes(logits_BTV: Tensor, tokens: list[list[int]], temperature: float) -> list[list[Tensor]]:
    """Return log-probabilities of the kept tokens of each row and, unless all are kept, of the others together."""
    log_NV, rows = torch.log_softmax(logits_BTV.flatten(0, 1) / temperature, -1), []
    for row, kept in zip(log_NV, tokens, strict=True):
        rest = [logit for number, logit in enumerate(row) if number not in kept]
        tail = [torch.logsumexp(torch.stack(rest), 0)] if rest else []
        rows.append([*(row[number] for number in kept), *tail])
    return rows


def largest(teacher_BTV: Tensor, k: int) -> list[list[int]]:
    """Return the k tokens of the largest logits of each row, the first of equal ones."""
    return [sorted(range(len(row)), key=lambda v: -row[v])[:k] for row in teacher_BTV.flatten(0, 1).tolist()]


def expected(name: str, student: Tensor, teacher: Tensor, k: int, temperature: float) -> Tensor:
    """Return temperature^2 times the divergence between distributions of K + 1 outcomes, by its definition."""
    total, tokens = torch.zeros((), dtype=torch.float64), largest(teacher, k)
    for q, p in zip(outcomes(student, tokens, temperature), outcomes(teacher, tokens, temperature), strict=True):
        divergence = oracles.DIVERGENCES[name].textbook(torch.stack(p), torch.stack(q), 0.5)
        total = total + temperature**2 * divergence
    return total


def loss_and_gradient(
    subject: Any, name: str, student: Tensor, teacher: Tensor, k: int, tau: float, device: str
) -> tuple[float, Tensor]:
    """Return the loss and the gradient that the subject's completed teacher gives."""
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
"""Likewise; bfloat16 is computed in float32. The drawn logits are exact in each."""


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
    """dtypes: of student and teacher."""
    student, teacher, k, tau = drawn
    models = student.to(dtypes[0]), teacher.to(dtypes[1])
    loss, gradient = loss_and_gradient(subject, name, *models, k, tau, device)
    leaf = student.clone().requires_grad_()
    nats = expected(name, leaf, teacher, k, tau)
    (derivative,) = torch.autograd.grad(nats, leaf)
    of = f"{name} with {k} of {student.shape[-1]} tokens at temperature {tau} of {dtypes}"
    exact = max(DTYPES[dtype] for dtype in dtypes)
    bound = exact * max(1.0, abs(float(nats.detach())))
    assert abs(loss - float(nats.detach())) <= bound, f"{of} is {loss} nats; expected {float(nats.detach())}"
    apart = float((gradient - derivative).abs().max())
    assert apart <= exact * tau, f"{of}: the gradient is {gradient.tolist()}; expected {derivative.tolist()}"


@given(drawn=models())
def falsify_banned_tail_is_shared_equally(subject: Any, drawn: tuple[Tensor, Tensor, int, float]) -> None:
    """Each of the V - K other tokens has the probability (1 - sum of p_k) / (V - K), at an infinite cost."""
    student, teacher, k, tau = drawn
    V = student.shape[-1]
    k = min(k, V - 1)
    p = (teacher / tau).softmax(-1).flatten(0, 1)
    wanted, banned = p.clone(), student.clone().flatten(0, 1)
    for number, tokens in enumerate(largest(teacher, k)):
        rest = [v for v in range(V) if v not in tokens]
        banned[number, rest] = -math.inf
        wanted[number, rest] = p[number, rest].sum() / (V - k)
    complete = subject.complete_logits(subject.keep_top_k(teacher, k, tau), banned.view_as(student), tau)
    seen = (complete / tau).softmax(-1).flatten(0, 1)
    case = f"{k} of {V} tokens at temperature {tau}"
    assert float((seen - wanted).abs().max()) <= EXACT, f"{case}: probabilities {seen.tolist()}; expected {wanted}"
    loss, gradient = loss_and_gradient(subject, "forward_kl", banned.view_as(student), teacher, k, tau, "cpu")
    assert loss == math.inf, f"{case}: a student that bans the tail has a loss of {loss} nats, not +inf"
    assert bool(gradient.isfinite().all()), f"{case}: the gradient is {gradient.tolist()}"


class TopKTable:
    """A teacher that knows the most probable tokens of a table [3, V]."""

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
    passed = forward_backward(teacher, student, batch, labels, weights, scale=1.0, metrics=True)
    assert set(passed.sums) == {"loss", "hard_loss", "soft_loss"}, f"a step measures {sorted(passed.sums)}"
    evaluated = evaluate(teacher, FixtureTeacher(torch.zeros_like(table)), OneBatch(batch), weights)
    assert set(evaluated) == {"hard_loss", "soft_loss", "token_accuracy"}, f"an evaluation measures {sorted(evaluated)}"
    hard = sum(-oracles.log_softmax([0.0] * 4, 1.0)[y] for y in (1, 2))
    assert abs(float(passed.sums["hard_loss"]) - hard) <= EXACT, f"hard_loss is {float(passed.sums['hard_loss'])}"


OF_A_TEACHER = {"kl_at_1", "kl_at_T", "teacher_loss", "teacher_entropy", "teacher_perplexity", "agreement"}


class CountedTeacher:
    """A teacher that notes in which step it is run."""

    vocab_size = 3

    def __init__(self) -> None:
        self.step, self.steps = 0, list[int]()

    def logits(self, batch: Batch) -> Tensor:
        self.steps.append(self.step)
        return torch.zeros(*batch.tokens.shape, 3, dtype=torch.float64)


class StepNotes(Callback):
    """Callback that gives the teacher the step, and records the metrics of logged steps."""

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
    notes, tokens = StepNotes(teacher), torch.tensor([[0, 1, 2]])
    subject.train(
        teacher,
        ModuleStudent(table, 3),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        torch.optim.SGD(table.parameters(), lr=0.1),
        schedule=Schedule(epochs=1, steps_per_epoch=steps, log_every=every),
        objective=Objective(temperature=2.0, ce_weight=1.0, kd_weight=kd),
        learning_rate=lambda step: 0.1,
        callbacks=[notes],
    )
    weight = {step: kd.at(step, steps) if isinstance(kd, Annealed) else kd for step in range(1, steps + 1)}
    logged = range(every, steps + 1, every) if every else range(0)
    # A line needs the teacher in all its steps if it needs it in one.
    lines = {
        step: next((range(last - every + 1, last + 1) for last in logged if step <= last), [step]) for step in weight
    }
    expected = [step for step in weight if any(weight[of_line] for of_line in lines[step])]
    assert teacher.steps == expected, f"with the weights {weight}, logged every {every}, it ran in {teacher.steps}"
    for step, names in notes.logged.items():
        seen, whole = names & OF_A_TEACHER, OF_A_TEACHER if step in expected else set()
        assert seen == whole, f"step {step}, of weight {weight[step]}, logs {sorted(seen)}; expected {sorted(whole)}"


class TeacherSize(Callback):
    """Write the most bytes of the teacher's weights that this rank has after a step, all there are, and their dtype."""

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
            assert dtypes == [str(dtype)], f"rank {rank} keeps a teacher of {dtype} in {dtypes}"
            assert size <= 0.51 * total, f"rank {rank} keeps {size} of the teacher's {total} bytes"
        assert_same(f"with {strategy} and a divided teacher of {dtype}", shared[0].weights, whole[0].weights)
        digests = [json.loads((directory / out / "manifest.json").read_text()) for out in ("False", "True")]
        assert digests[0]["teacher_sha256"] == digests[1]["teacher_sha256"], "a divided teacher has another digest"


@given(seed=st.integers(0, 99))
def falsify_digest_of_a_teacher_is_that_of_its_file(subject: Any, seed: int) -> None:
    """The teacher computes in float64, so its weights in memory differ from its file."""
    with scratch() as directory:
        teacher = written_model(directory, seed=seed)
        run(subject, small(directory, out=directory / "out", teacher=teacher, dtype="float64"))
        manifest = json.loads((directory / "out" / "manifest.json").read_text())
        expected = hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    assert manifest["teacher_sha256"] == expected, f"the digest is {manifest['teacher_sha256']}, of the file {expected}"


@given(contents=st.lists(st.binary(min_size=1, max_size=9), min_size=2, max_size=4))
def falsify_digest_of_shards(subject: Any, contents: list[bytes]) -> None:
    with scratch() as directory:
        files = {f"model-{number}.safetensors": content for number, content in enumerate(contents)}
        for file, content in files.items():
            (directory / file).write_bytes(content)
        index = {"weight_map": {f"w{number}": file for number, file in enumerate(reversed(files))}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        seen = subject.files_digest(subject.weight_files(directory))
        (directory / "model-1.safetensors").write_bytes(contents[1] + b"x")
        other = subject.files_digest(subject.weight_files(directory))
        text = "".join(f"{hashlib.sha256(content).hexdigest()}  {file}\n" for file, content in files.items())
        assert seen == hashlib.sha256(text.encode()).hexdigest(), f"the digest of {sorted(files)} is {seen}"
        assert other != seen, "another shard has the same digest"
        for missing, words in (("model-0.safetensors", "model-0"), ("model.safetensors.index.json", str(directory))):
            (directory / missing).unlink()
            assert_refused(f"no {missing}", lambda: subject.files_digest(subject.weight_files(directory)), words)
