"""Wrong versions of public functions: the faults that the contract declares."""

from typing import Any


def first_rows_only(original: Any, self: Any, module: str, like: Any) -> Any:
    from dataclasses import replace

    taken = original(replace(self, files=self.files[:1]), module, like)
    for name, each in taken.items():
        if each.shape != like[name].shape:
            filled = like[name].clone()
            filled[: len(each)] = each
            taken[name] = filled
    return taken


def not_verified(original: Any, path: Any, *rest: Any) -> Any:
    from reference_trainer.storage.checkpoints import Manifest
    from reference_trainer.storage.export import load_decoder
    from reference_trainer.storage.whole_weights import SavedWeights

    tensors = {f"student.{name}": each for name, each in load_decoder(path).state_dict().items()}
    manifest = Manifest(run_id="student", step=2, conditions={}, state={})
    return SavedWeights(path=path, manifest=manifest, files=[tensors])


def source_forgotten(original: Any, self: Any, *given: Any) -> Any:
    run = original(self, *given)
    self.initial = None
    return run


def misfits_skipped(original: Any, self: Any, name: str, module: Any) -> None:
    own = module.state_dict()
    for key, each in self.of(name, own).items():
        if key in own and own[key].shape == each.shape:
            own[key].copy_(each)
