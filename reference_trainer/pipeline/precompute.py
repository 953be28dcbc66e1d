"""The command `precompute`: store the outputs of a teacher for all examples, to use them in any number of runs.

Shape letters: B batch, T position, N scored positions, V vocabulary, K kept tokens.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from reference_trainer.callbacks.progress import Lines
from reference_trainer.config.settings import Settings
from reference_trainer.data.text import Rows
from reference_trainer.distillation.heads import Head, HeadTeacher
from reference_trainer.distillation.objective import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch, Teacher, checked_logits, keep_top_k
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.distillation.step import labels_of_logits
from reference_trainer.errors import LogitsError, OutputError, SettingError
from reference_trainer.models.placement import device_name
from reference_trainer.pipeline.custom_class import create_run
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.pipeline.teachers import outputs_identity
from reference_trainer.storage.export import versions
from reference_trainer.storage.files import atomic_write, check_room, exclusive_directory
from reference_trainer.storage.retention import differences
from reference_trainer.storage.teacher_outputs import MANIFEST, Manifest, SavedOutputs, publish, shard_name, write_shard

SHARD_BYTES = 2**28
"""Approximate size of a shard. All outputs of a shard are in memory before it is written."""


def precompute(
    settings: Settings,
    *,
    top_k: int | None = None,
    lines: Lines | None = None,
    environment: Mapping[str, str] = os.environ,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write the teacher's outputs for every example of the data to the directory `settings.run.out`, and return it.

    The shards are written to `OUT.partial`, which is renamed at the end, so the directory appears complete. If a call
    was killed, the same call continues in `OUT.partial`. Equal calls write equal bytes. A directory that already has
    these outputs stays unchanged. If a launcher starts several processes, each writes a part of the shards.

    Args:
        settings: The settings of the run that will read the outputs.
        top_k: The number of tokens to keep per position, at the temperature of the settings; None keeps all logits.
        lines: The writer of all lines; by default to standard output.
        environment: The variables that a launcher sets.
        shard_bytes: Approximate size of a shard.

    Raises:
        OutputError: The directory has other outputs, or cannot be written.
        ModelFileError: The directory exists without valid outputs, also if it is empty.
        SettingError: `top_k` is larger than the vocabulary, the data has no example numbers, the teacher is served, or
            the teacher has another tokenizer.
        LogitsError: An output is not finite.
        TrainerError: The errors of `distill` before a step.
    """
    settings = settings.replace(smoke=None, teacher_outputs=None)
    with create_run(settings, Distillation, lines=lines, environment=environment) as run, run:
        run.join()
        claimed = run.ranks.broadcast_decision(partial(_claim, run))  # before the inputs, which may take long to create
        if settings.teacher.url is not None:
            raise SettingError("precompute cannot store outputs of --teacher-url; expected --teacher")
        if settings.teacher.cross_tokenizer:
            raise SettingError("precompute stores outputs for the student's tokens; expected no cross_tokenizer")
        run.make_inputs()
        run.load_teacher()
        _OutputWriter(run, top_k, shard_bytes, claimed=claimed).write()
    return settings.run.out


def _staging(out: Path) -> Path:
    """Return the directory of unfinished outputs."""
    return out.with_name(f"{out.name}.partial")


def _claim(run: Distillation) -> bool:
    """Claim the directory of unfinished outputs until the end of the run; return False if the output exists."""
    if (out := run.settings.run.out).exists():
        return False
    run.enter_context(exclusive_directory(_staging(out), force=True, bytes_needed=0))
    return True


class _OutputWriter:
    """Compute the outputs of one teacher and write them. All ranks call every method, except as a docstring notes.

    Args:
        run: The run, with its teacher.
        top_k: The number of tokens to keep; None keeps all logits.
        shard_bytes: Approximate size of a shard.
        claimed: The result of `_claim`.
    """

    def __init__(self, run: Distillation, top_k: int | None, shard_bytes: int, *, claimed: bool) -> None:
        self.run, self.out, self.ranks, self.claimed = run, run.settings.run.out, run.ranks, claimed
        self.staging = _staging(self.out)
        self.rows = run.numbered_rows()
        teacher, _ = run.with_one_vocabulary(ModuleStudent(run.student, run.vocab_size))
        assert isinstance(teacher, Teacher), "the settings exclude a teacher without logits for the student's tokens"
        self.teacher = teacher
        self.manifest = self._manifest(top_k, shard_bytes)

    def _manifest(self, top_k: int | None, shard_bytes: int) -> Manifest:
        run, settings, V = self.run, self.run.settings, self.teacher.vocab_size
        if top_k is not None and not 1 <= top_k <= V:
            raise SettingError(f"invalid value {top_k} for 'top_k': expected 1 to {V}, the number of tokens")
        # Bytes of a position: its label (int32), and V logits, or K logits, K tokens (int32) and the rest.
        logit_bytes = {"bfloat16": 2, "float64": 8}.get(settings.run.dtype, 4)
        position_bytes = 4 + V * logit_bytes
        if top_k is not None:
            logit_bytes = max(logit_bytes, 4)  # `keep_top_k` returns float32 at least
            position_bytes = 4 + top_k * (logit_bytes + 4) + logit_bytes
        batches = shard_bytes // (position_bytes * settings.data.length * settings.data.batch_size)
        rows = sum(map(len, self.rows))
        digests = dict(run.digests)
        teacher_digest = digests.pop("teacher_sha256")
        return Manifest(
            identity=outputs_identity(settings, digests, rows),
            teacher_sha256=teacher_digest,
            vocab_size=V,
            top_k=top_k,
            temperature=None if top_k is None else float(settings.objective.temperature),
            rows=rows,
            rows_per_shard=max(batches, 1) * settings.data.batch_size,  # a shard has whole batches
            made_with={
                "batch_size": settings.data.batch_size,
                "device": device_name(run.device),
                "dtype": settings.run.dtype,
                **versions(),
            },
        )

    def write(self) -> None:
        """Write the outputs, unless they exist."""
        self.ranks.check_equal(self.manifest.model_dump(mode="json"))
        if self.ranks.broadcast_decision(self._is_complete):
            self.run.lines.write(f"outputs: {self.out} already has these outputs")
            return
        self.ranks.run_on_all(self._write_shards)
        self.ranks.broadcast_decision(lambda: publish(self.staging, self.out, self.manifest))
        self.run.lines.write(f"outputs: wrote {self.out}, {self.manifest.rows} examples")

    def _is_complete(self) -> bool:
        """Return whether the outputs exist; if not, remove unfinished outputs of another call. Called on rank 0."""
        if not self.claimed:
            written = _comparable(SavedOutputs(self.out).manifest)
            if changed := differences(written, _comparable(self.manifest)):
                raise OutputError(f"{self.out} has other outputs: {'; '.join(changed)}; choose another --out")
            return True
        unfinished = _unfinished(self.staging)
        if unfinished is None or differences(unfinished, _comparable(self.manifest)):
            for entry in self.staging.iterdir():
                entry.unlink()
            text = self.manifest.text()
            atomic_write(self.staging / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))
        return False

    def _bytes_needed(self, row: Mapping[str, Tensor]) -> int:
        """Return the number of bytes of the missing shards.

        row: the outputs of one row, which show the bytes per position.
        """
        position_bytes = sum(tensor.element_size() * math.prod(tensor.shape[1:]) for tensor in row.values())
        batches = _batches(self.rows, 0, self.manifest.rows)
        positions = sum(int((labels_of_logits(batch.labels) != IGNORE_INDEX).sum()) for batch in batches)
        existing = sum(file.stat().st_size for file in self.staging.glob("outputs-*"))
        return max(positions * position_bytes - existing, 0)

    def _write_shards(self) -> None:
        """Write the missing shards of this rank."""
        ranks, count = self.ranks, self.manifest.shard_count
        missing = [k for k in range(ranks.rank, count, ranks.world_size) if not self._path(k).exists()]
        # Every forward of a sharded teacher needs all ranks, but ranks may have different numbers of missing shards. A
        # rank that has finished repeats a forward until the last rank has finished.
        batches = (batch for index in missing for batch in self._shard(index))
        forwards = sum(1 for _ in batches) if self.run.is_sharded else 0
        most = max(ranks.all_gather_json(forwards))
        for index in missing:
            outputs = [row for batch in self._shard(index) for row in self._outputs(batch)]
            if index == missing[0]:  # the data types of the outputs are not known before
                check_room(self.staging, self._bytes_needed(outputs[0]))
            write_shard(self._path(index), outputs)
            self.run.lines.write(f"outputs: shard {index + 1} of {count}")
        for _ in range(most - forwards):
            self._run_teacher(next(_batches(self.rows, 0, 1)))

    def _path(self, index: int) -> Path:
        return self.staging / shard_name(index)

    def _shard(self, index: int) -> Iterator[Batch]:
        """Yield the batches of a shard."""
        begin = index * self.manifest.rows_per_shard
        return _batches(self.rows, begin, min(begin + self.manifest.rows_per_shard, self.manifest.rows))

    def _outputs(self, batch: Batch) -> Iterator[dict[str, Tensor]]:
        """Yield the outputs of each row of a batch, at its scored positions."""
        output, labels_BT = self._run_teacher(batch), labels_of_logits(batch.labels)
        scored_BT = labels_BT != IGNORE_INDEX
        if isinstance(output, Head):
            chunks = output.logits_in_chunks(scored_BT.flatten().nonzero()[:, 0])
        else:
            chunks = iter([output[scored_BT.to(output.device)]])
        parts = [self._stored_outputs(logits_CV) for logits_CV in chunks]
        # The first axis of every tensor has all scored positions of the batch; split it into rows.
        tensors = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        tensors["labels"] = labels_BT[scored_BT].int()
        counts = scored_BT.sum(-1).tolist()
        rows = {name: tensor.split(counts) for name, tensor in tensors.items()}
        for row in range(len(counts)):
            yield {name: parts[row] for name, parts in rows.items()}

    def _run_teacher(self, batch: Batch) -> Head | Tensor:
        """Run the teacher; return its output layer if `top_k` is set and a layer is offered, else logits [B, T, V]."""
        if self.manifest.top_k is not None and isinstance(self.teacher, HeadTeacher):
            if (head := self.teacher.head(batch)) is not None:
                return head[0]
        return checked_logits("teacher", self.teacher.logits(batch), batch.tokens, self.teacher.vocab_size)

    def _stored_outputs(self, logits_NV: Tensor) -> dict[str, Tensor]:
        """Return the tensors to store, by name. Raise `LogitsError` for rows without a softmax distribution."""
        # The maximum of a row is finite if and only if no logit is NaN or +inf, and not all are -inf.
        if not bool(logits_NV.amax(-1).isfinite().all()):
            raise LogitsError("the teacher has logits that are not finite; did its training diverge?")
        if self.manifest.top_k is None:
            return {"logits": logits_NV}
        top_k = keep_top_k(logits_NV, self.manifest.top_k, float(self.run.settings.objective.temperature))
        return {"logits": top_k.logits, "tokens": top_k.tokens, "rest": top_k.rest}


def _comparable(manifest: Manifest) -> dict[str, object]:
    """Return a manifest without its files, as JSON."""
    return manifest.model_copy(update={"shards": ()}).model_dump(mode="json")


def _unfinished(staging: Path) -> dict[str, object] | None:
    """Return the manifest of unfinished outputs without its files, as JSON; None if it cannot be read."""
    try:
        return _comparable(Manifest.model_validate_json((staging / MANIFEST).read_bytes()))
    except (OSError, ValueError):
        return None


def _batches(parts: Sequence[Rows], begin: int, end: int) -> Iterator[Batch]:
    """Yield batches of the examples from `begin` up to but not including `end`, in order.

    The parts are numbered one after the other; no batch has rows of two parts. Raise `SettingError` if the examples of
    a batch have other numbers.
    """
    first = 0  # number of the first row of a part
    for rows in parts:
        order = torch.arange(len(rows), device="cpu")[max(begin - first, 0) : max(end - first, 0)]
        done = 0  # number of rows of `order` that are in a batch already
        position = 1
        while done < len(order):
            batch = rows.batch(order, position)
            expected = order[done : done + len(batch.tokens)] + first
            if batch.examples is None or not torch.equal(batch.examples.cpu(), expected):
                raise SettingError(f"{type(rows).__name__} does not number its rows from {first} in Batch.examples")
            yield batch
            done += len(batch.tokens)
            position += 1
        first += len(rows)
