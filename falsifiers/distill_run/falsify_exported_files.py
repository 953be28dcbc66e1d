"""Attacks on the files exported by a whole distillation: predicates over `reference_run.py::distil`.

The files are read with safetensors and json.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from falsifiers.distill_run.reference_run import SHAPE
from falsifiers.distill_run.run_observations import digests
from falsifiers.distill_run.run_oracles import text_of


def falsify_exported_weights_equal_trained_weights(run: Any) -> None:
    student = run.result["student"]
    written = load_file(run.directory / "out/model.safetensors")
    assert set(written) == set(student["weights"]), (
        f"the file holds {sorted(written)}, the student {sorted(student['weights'])}"
    )
    for name, digest in digests(_Holder(written)).items():
        assert digest == student["weights"][name], (
            f"{name} in the file, {written[name].dtype}, differs from the trained student's"
        )
    assert student["read_back"] == student["weights"], "the model that is read back has other weights"
    assert student["logits_read_back"] == student["logits"], "the model that is read back has other logits"


class _Holder(torch.nn.Module):
    """Tensors by the names that they have in a file."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors

    def state_dict(self, *arguments: Any, **others: Any) -> Any:
        return self.tensors


def falsify_manifest_matches_export(run: Any) -> None:
    out = run.directory / "out"
    names = sorted(path.name for path in out.iterdir())
    assert names == ["config.json", "manifest.json", "model.safetensors"], f"the directory holds {names}"
    config = json.loads((out / "config.json").read_text())
    shape = {name: SHAPE[name] for name in ("layers", "width")}
    expected: dict[str, Any] = {"vocab_size": 256, "heads": 1, "model_type": "reference_trainer.decoder", **shape}
    assert config == expected, f"config.json says {config}; expected {expected}"
    manifest = json.loads((out / "manifest.json").read_text(), parse_constant=_no_json)
    for name, value in _described(run, out).items():
        assert manifest.get(name) == value, f"the manifest's {name} is {manifest.get(name)!r}; expected {value!r}"
    for name in ("reference_trainer", "torch", "python"):
        assert manifest["versions"].get(name), f"the manifest lacks the version of {name}: {manifest['versions']}"
    for name, value in run.result["train"].items():
        seen = manifest["result"][name]
        assert seen == value, f"the manifest's {name} is {seen!r}, the result's {value!r}"


def _no_json(name: str) -> None:
    raise AssertionError(f"the manifest holds {name}, which is not JSON")


def _described(run: Any, out: Path) -> dict[str, Any]:
    files = {name: (out / name).read_bytes() for name in ("model.safetensors", "config.json")}
    return {
        "settings": run.result["settings"],
        "seed": run.arguments["seed"],
        "data_sha256": hashlib.sha256(text_of(run)).hexdigest(),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
