"""Attacks on models that two ranks load in two parts: hub ids, packed rows, adapters and `init_from`."""

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load as loads
from safetensors.torch import load_file
from torch import Tensor

import reference_trainer
from falsifiers.rank_runs.falsify_runs import launcher
from falsifiers.support.assertions import assert_equal
from falsifiers.support.causal import conversations, word_tokenizer, write_causal
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import scratch
from reference_trainer.huggingface.adapters import add_adapter, frozen_weights
from reference_trainer.huggingface.models import load_model
from reference_trainer.storage.checkpoints import DISK, Manifest, rank_file, save_checkpoint, write_tensors
from reference_trainer.storage.whole_weights import tensors_digest

COMMIT, SEED, RANKS, LORA = "0" * 40, 3, 2, 2
READERS = ("reference_trainer.models.loading", "transformers.modeling_utils", "safetensors.torch")
"""The modules that read safetensors files with `safe_open`."""


class Reads:
    """Counter of the tensor bytes that this process reads from safetensors files, and of its hub look-ups of weights.

    revisions: the revisions of the look-ups.
    """

    def __init__(self) -> None:
        self.bytes, self.lookups, self.revisions = 0, 0, set[Any]()

    @contextmanager
    def counted(self) -> Iterator[None]:
        from transformers import utils
        from transformers.utils import hub

        from reference_trainer.storage import checkpoints

        def load(content: bytes) -> Any:
            self.bytes += len(content)
            return loads(content)

        def recording_cached_file(place: Any, name: str, **options: Any) -> Any:
            if name.endswith((".safetensors", ".index.json")):
                self.lookups += 1
                self.revisions.add(options.get("revision"))
            return cached_file(place, name, **options)

        cached_file = hub.cached_file
        with ExitStack() as stack:
            for module in READERS:
                stack.enter_context(mock.patch(f"{module}.safe_open", lambda *a, **k: _File(self, safe_open(*a, **k))))
            stack.enter_context(mock.patch.object(checkpoints, "load", load))
            stack.enter_context(mock.patch.object(utils, "cached_file", recording_cached_file))
            yield

    def count(self, tensor: Tensor) -> Tensor:
        self.bytes += tensor.nbytes
        return tensor


class _File:
    """Wrapper of an open safetensors file, or of a slice of it, that counts the bytes of the returned tensors."""

    def __init__(self, reads: Reads, target: Any) -> None:
        self._reads, self._target = reads, target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __enter__(self) -> "_File":
        return _File(self._reads, self._target.__enter__())

    def __exit__(self, *error: object) -> None:
        self._target.__exit__(*error)

    def get_slice(self, name: str) -> "_File":
        return _File(self._reads, self._target.get_slice(name))

    def get_tensor(self, name: str) -> Tensor:
        return self._reads.count(self._target.get_tensor(name))

    def __getitem__(self, rows: Any) -> Tensor:
        return self._reads.count(self._target[rows])


def part_of(tensor: Tensor, rank: int) -> Tensor:
    """Return the rows of a rank; all parts have the same size, except the last one."""
    size = -(-len(tensor) // RANKS)
    return tensor[rank * size : (rank + 1) * size]


def checkpoint(directory: Path, tensors: dict[str, Tensor]) -> Path:
    """Write a checkpoint of two ranks with these weights of the student, and return its directory."""
    shards = [{f"student.{name}": part_of(tensor, rank) for name, tensor in tensors.items()} for rank in range(RANKS)]
    manifest = Manifest(run_id="student", step=2, world_size=RANKS, strategy="fsdp2", conditions={}, state={})

    def write_other(partial: Path) -> Any:
        return {rank_file(1): write_tensors(partial / rank_file(1), shards[1], DISK)}

    return save_checkpoint(directory, manifest, shards[0], others=write_other)


END = 5
"""The end token in generation_config.json; config.json has another one."""
REVISION = "v1"


def move_to_hub(directory: Path, cache: Path, name: str) -> Path:
    """Move a model into a hub cache that has only one revision of it, and return its id."""
    place = cache / f"models--tiny--{name}"
    shutil.move(directory, place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    # `init_from` has no setting of a revision, so its revision is the default one.
    (place / "refs" / ("main" if name == "init_from" else REVISION)).write_text(COMMIT)
    return Path("tiny", name)


def split_weights(directory: Path) -> None:
    """Replace the weights file of a model by several files with an index."""
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(directory, dtype="auto").save_pretrained(directory, max_shard_size=2000)
    (directory / "model.safetensors").unlink()


@dataclass(frozen=True, slots=True, eq=False)
class InitialState:
    """The models at the start of a run of one process.

    Attributes:
        weights: The tensors in the files of student and teacher.
        student: The initial weights of the student, by name.
        frozen: The names of the weights of the student that are not trained.
        digest: The digest of the frozen weights; None without an adapter.
        places: The directories of the models, by setting.
    """

    weights: dict[str, dict[str, Tensor]]
    student: dict[str, Tensor]
    frozen: set[str]
    digest: str | None
    places: dict[str, Path]


def write_models(
    directory: Path, *, lora: bool, start: str | None, tied: bool, split: bool, kind: torch.dtype
) -> InitialState:
    """Write models and conversations, and return the initial state of a run with them.

    start: the form of `init_from`, or None. split: write the weights as several files. kind: dtype of the teacher.
    """
    words = word_tokenizer()
    for name, width, dtype in (("student", 8, torch.float32), ("teacher", 12, kind)):
        write_causal(directory / name, words, width, dtype, tie_word_embeddings=tied)
        (directory / name / "generation_config.json").write_text(json.dumps({"eos_token_id": END}))
    (directory / "chats.jsonl").write_text("\n".join(map(json.dumps, conversations(0)[:10])))
    weights = {name: load_file(directory / name / "model.safetensors") for name in ("student", "teacher")}
    for name in weights if split else ():
        split_weights(directory / name)
    student = {f"model.{name}": tensor for name, tensor in weights["student"].items()}
    digest, frozen = None, set[str]()
    if lora:
        adapted = add_adapter(
            load_model(directory / "student", dtype=torch.float32), Path(), rank=LORA, options={}, seed=SEED
        )
        student, digest = dict(adapted.named_parameters()), tensors_digest(frozen_weights(adapted))
        frozen = {name for name, parameter in student.items() if not parameter.requires_grad}
    if start is not None:  # other values in the same shapes
        student = {name: tensor.flip(0) for name, tensor in student.items()}
    places = {name: directory / name for name in ("student", "teacher")}
    if start == "checkpoint":
        head = {"model.lm_head.weight": student["model.model.embed_tokens.weight"]} if tied else {}
        places["init_from"] = checkpoint(directory / "checkpoints", student | head)
    elif start == "model":
        model = load_model(directory / "student", dtype=torch.float32)
        model.load_state_dict(student, strict=False)
        model.model.save_pretrained(directory / "start")
        words.save_pretrained(directory / "start")
        places["init_from"] = directory / "start"
    return InitialState(weights, student, frozen, digest, places)


@dataclass(frozen=True, slots=True, eq=False)
class RankRecord:
    """A rank of a prepared run.

    parts: its rows of the parameters, by model. frozen: names of untrained weights of the student. bytes, lookups,
    revisions: see `Reads`. kernels: attention implementations. digest: digest of the frozen weights.
    """

    parts: dict[str, dict[str, Tensor]]
    frozen: set[str]
    bytes: int
    lookups: int
    revisions: set[str | None]
    kernels: set[str]
    digest: str | None
    end_tokens: set[int]


def prepare_ranks(subject: Any, settings: reference_trainer.Settings) -> list[RankRecord]:
    """Prepare a run of `RANKS` ranks, and return the record of each rank."""
    variables, served = launcher()

    def work(rank: int) -> RankRecord:
        environment = {**variables, "WORLD_SIZE": str(RANKS), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        lines, reads = reference_trainer.Lines(io.StringIO()), Reads()
        with reads.counted(), subject.HuggingFace(settings, lines=lines, environment=environment) as run:
            run.prepare()
            models = {"student": run.student, "teacher": run.teacher}
            return RankRecord(
                parts={
                    name: {key: p.to_local().detach().clone() for key, p in module.named_parameters()}
                    for name, module in models.items()
                },
                frozen={name for name, parameter in run.student.named_parameters() if not parameter.requires_grad},
                bytes=reads.bytes,
                lookups=reads.lookups,
                revisions=reads.revisions,
                kernels={module.model.config._attn_implementation for module in models.values()},
                digest=run.digests.get("base_sha256"),
                end_tokens={module.model.generation_config.eos_token_id for module in models.values()},
            )

    return run_ranks(RANKS, work, served=served)


@given(
    is_id=st.booleans(),
    documents=st.sampled_from(["pack", "pad"]),
    lora=st.booleans(),
    start=st.sampled_from([None, "model", "checkpoint"]),
    tied=st.booleans(),
    split=st.booleans(),
    kind=st.sampled_from([torch.float32, torch.bfloat16]),
)
@example(is_id=True, documents="pack", lora=True, start=None, tied=False, split=True, kind=torch.bfloat16)
@example(is_id=False, documents="pad", lora=False, start="checkpoint", tied=False, split=True, kind=torch.float32)
@example(is_id=True, documents="pad", lora=False, start="model", tied=True, split=False, kind=torch.float32)
def falsify_two_ranks_read_their_parts(
    subject: Any,
    is_id: bool,
    documents: str,
    lora: bool,
    start: str | None,
    tied: bool,
    split: bool,
    kind: torch.dtype,
) -> None:
    """Every rank has its part of the initial state of one process, and reads no more bytes than this part has."""
    start = None if lora else start  # with an adapter, init_from would be another adapter
    with scratch() as directory, ExitStack() as stack:
        initial = write_models(directory, lora=lora, start=start, tied=tied, split=split, kind=kind)
        places, cache = initial.places, directory / "hub"
        if is_id:
            places |= {
                name: move_to_hub(place, cache, name) for name, place in places.items() if place.parent == directory
            }
        for name, value in (("HF_HUB_CACHE", str(cache)), ("HF_HUB_OFFLINE", True)):
            stack.enter_context(mock.patch(f"huggingface_hub.constants.{name}", value))
        settings = reference_trainer.Settings(
            **places,
            data=directory / "chats.jsonl",
            out=directory / "out",
            data_cache=directory / "cache",
            documents=documents,
            lora=LORA if lora else None,
            strategy="fsdp2",
            shard_teacher=True,
            length=40,
            batch_size=1,
            seed=SEED,
            device="cpu",
            hang_after=0.0,
            **({"revision": REVISION, "teacher_revision": REVISION} if is_id else {}),
        )
        records = prepare_ranks(subject, settings)
    for rank, record in enumerate(records):
        assert_parts(rank, record, initial, has_digest=lora or start == "model")
        # `init_from` has no setting of a revision.
        allowed = {REVISION, *([None] if start == "model" else [])}
        where = f"rank {rank}"
        assert record.revisions <= allowed, f"{where} looks up weights of {record.revisions}; allowed {allowed}"
        isolated = {kernel.startswith("by_document") for kernel in record.kernels}
        assert isolated == {documents == "pack"}, f"{where}: the attention of rows {documents} is {record.kernels}"


def assert_parts(rank: int, record: RankRecord, initial: InitialState, *, has_digest: bool) -> None:
    """Assert that a rank has its parts of the models, and has read no more bytes.

    Args:
        rank: The rank.
        record: The record of the rank.
        initial: The initial state of a run of one process.
        has_digest: Whether the first rank of a machine reads a whole model for its digest.
    """
    where, weights = f"rank {rank}", initial.weights
    teacher = {f"model.{name}": tensor for name, tensor in weights["teacher"].items()}
    for name, tensors in {"student": initial.student, "teacher": teacher}.items():
        parts = record.parts[name]
        assert parts.keys() == tensors.keys(), f"{where}: weights of the {name}: {sorted(parts)}; not {sorted(tensors)}"
        for key, tensor in tensors.items():
            part = parts[key]
            assert part.dtype == tensor.dtype, f"{where}: {key} of the {name} is {part.dtype}; not {tensor.dtype}"
            assert torch.equal(part, part_of(tensor, rank)), f"{where}: {key} of the {name} has other values"
    names = sorted(record.frozen)[:3], sorted(initial.frozen)[:3]
    assert record.frozen == initial.frozen, f"{where}: frozen weights {names[0]}; expected {names[1]}"
    sizes = {name: sum(tensor.nbytes for tensor in tensors.values()) for name, tensors in weights.items()}
    bound = sum(-(-len(t) // RANKS) * t[0].nbytes for tensors in weights.values() for t in tensors.values())
    if rank == 0 and has_digest:
        bound += sum(sizes.values())
    assert record.bytes <= bound, f"{where} reads {record.bytes} bytes; allowed {bound} of the models with {sizes}"
    assert rank == 0 or not record.lookups, f"{where} looks up weights {record.lookups} times; only rank 0 may"
    ends = record.end_tokens
    assert ends == {END}, f"{where}: end tokens {ends}; expected {END} of generation_config.json"
    assert_equal(f"{where}: digest of frozen weights", record.digest, initial.digest)
