"""Wrong versions of public functions: the faults that the contract declares."""

from typing import Any


def first_rows_only(original: Any, self: Any, module: str, like: Any) -> Any:
    from dataclasses import replace

    tensors = original(replace(self, files=self.files[:1]), module, like)
    for name, value in tensors.items():
        if value.shape != like[name].shape:
            tensors[name] = like[name].clone()
            tensors[name][: len(value)] = value
    return tensors


def not_verified(original: Any, path: Any, *rest: Any) -> Any:
    from reference_trainer.storage.checkpoints import Manifest
    from reference_trainer.storage.export import load_decoder
    from reference_trainer.storage.whole_weights import SavedWeights

    tensors = {f"student.{name}": value for name, value in load_decoder(path).state_dict().items()}
    manifest = Manifest(run_id="student", step=2, conditions={}, state={})
    return SavedWeights(path=path, manifest=manifest, files=[tensors])


def source_forgotten(original: Any, self: Any, *arguments: Any) -> Any:
    run = original(self, *arguments)
    self.initial = None
    return run


def misfits_skipped(original: Any, self: Any, name: str, module: Any) -> None:
    state = module.state_dict()
    for key, value in self.whole_tensors(name, state).items():
        if key in state and state[key].shape == value.shape:
            state[key].copy_(value)
