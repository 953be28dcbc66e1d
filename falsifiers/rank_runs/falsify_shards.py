"""An attack on how FSDP2 divides a student. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from falsifiers.rank_runs.launched import Model, launched, own, settings


@given(ranks=st.sampled_from([2, 3]), strategy=st.sampled_from(["fsdp2", "ddp"]))
def falsify_parameters_are_divided(subject: Any, ranks: int, strategy: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        ended = launched(own(subject), settings(directory, "out", strategy=strategy, max_steps=1), ranks)
        assert not any(each.error for each in ended), f"{strategy}: {[each.error for each in ended]}"
        path = directory / "out" / "checkpoints" / "student-step1"
        files = [load_file(each) for each in sorted(path.glob("rank-*.safetensors"))]
    assert len(files) == (ranks if strategy == "fsdp2" else 1), f"{strategy}: {ranks} ranks write {len(files)} files"
    for name, parameter in Model(5, seed=1).named_parameters():
        rows = [len(tensors[f"student.{name}"]) for tensors in files if f"student.{name}" in tensors]
        where = f"{ranks} ranks with {strategy}: {name} has the rows {rows}"
        assert sum(rows) == len(parameter), f"{where}; expected {len(parameter)} in all"
        assert max(rows) <= -(-len(parameter) // len(files)), f"{where}; they are not divided evenly"
