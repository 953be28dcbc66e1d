"""Attacks on tensors that are put together from the shards of several ranks. The subject is `storage.whole_weights`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference_trainer.errors import CheckpointError
from reference_trainer.storage.checkpoint_manifest import Manifest, rank_file
from reference_trainer.storage.checkpoints import DISK, save_checkpoint, write_tensors

ROWS = st.lists(st.integers(0, 3), min_size=1, max_size=4)
AT = Path("checkpoints/student-step3")


def _of(subject: Any, parts: list[Tensor], like: Tensor) -> Tensor:
    manifest = Manifest(run_id="student", step=3, conditions={}, state={})
    files = [{"student.w": part} for part in parts]
    return subject.SavedWeights(path=AT, manifest=manifest, files=files).of("student", {"w": like})["w"]


@given(rows=ROWS, columns=st.lists(st.integers(1, 3), max_size=2))
def falsify_shards_are_put_together_in_order(subject: Any, rows: list[int], columns: list[int]) -> None:
    whole = torch.arange(float(torch.Size([sum(rows), *columns]).numel())).reshape(sum(rows), *columns)
    seen = _of(subject, list(whole.split(rows)), whole)
    assert torch.equal(seen, whole), f"shards of {rows} rows become {seen.tolist()}; expected {whole.tolist()}"


@given(ranks=st.integers(1, 3), shape=st.sampled_from([(), (2,), (2, 3)]))
def falsify_whole_tensors_are_those_of_rank_0(subject: Any, ranks: int, shape: tuple[int, ...]) -> None:
    parts = [torch.full(shape, float(rank)) for rank in range(ranks)]
    for like in (torch.zeros(shape), *([torch.zeros(7)] if ranks == 1 else [])):
        seen = _of(subject, parts, like)
        assert torch.equal(seen, parts[0]), f"{ranks} ranks with the shape {shape} each: {seen.tolist()}"


ODD = {
    "another dtype": [torch.zeros(2, 3), torch.zeros(1, 3, dtype=torch.float64)],
    "another width": [torch.zeros(2, 3), torch.zeros(1, 4)],
    "another number of axes": [torch.zeros(2, 3), torch.zeros(3)],
    "no axis": [torch.zeros(()), torch.zeros(())],
}


@given(kind=st.sampled_from(list(ODD)))
def falsify_shards_of_several_tensors_are_refused(subject: Any, kind: str) -> None:
    parts = ODD[kind]
    try:
        seen = _of(subject, parts, torch.zeros(3, 3))
    except CheckpointError as error:
        words = [str(AT), "student.w", ", ".join(str(list(part.shape)) for part in parts)]
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{kind}: the refusal {error} does not name {missing}"
        return
    raise AssertionError(f"{kind}: the shards become a tensor of the shape {list(seen.shape)}")


@given(ranks=st.integers(2, 3), odd=st.booleans())
def falsify_files_of_other_tensors_are_refused(subject: Any, ranks: int, odd: bool) -> None:
    def saved(rank: int) -> dict[str, Tensor]:
        name = "student.v" if odd and rank == ranks - 1 else "student.w"
        return {name: torch.full((1,), float(rank)), f"optimizer.{rank}": torch.zeros(1)}

    def written(partial: Path) -> dict[str, Any]:
        return {rank_file(k): write_tensors(partial / rank_file(k), saved(k), DISK) for k in range(1, ranks)}

    with tempfile.TemporaryDirectory() as name:
        manifest = Manifest(run_id="student", step=3, world_size=ranks, strategy="fsdp2", conditions={}, state={})
        path = save_checkpoint(Path(name), manifest, saved(0), others=written)
        try:
            seen: Any = subject.read_weights(path).of("student", {"w": torch.zeros(ranks)})["w"].tolist()
        except CheckpointError as error:
            seen = str(error)
    if odd:
        assert isinstance(seen, str) and f"{path}: its files have tensors of different names" in seen, f"read: {seen}"
    else:
        assert seen == [float(rank) for rank in range(ranks)], f"files of {ranks} ranks are read as {seen}"
