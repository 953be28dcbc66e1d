"""Wrong versions of public functions: the faults that the contract `initial-weights` declares."""

from __future__ import annotations

from typing import Any


def shards_in_reverse(original: Any, self: Any, module: str, like: Any) -> Any:
    """Put the shards together from the last rank to the first."""
    from dataclasses import replace

    return original(replace(self, files=self.files[::-1]), module, like)


def first_rows_only(original: Any, self: Any, module: str, like: Any) -> Any:
    """Fill what the shard of rank 0 lacks with the weights of the new student."""
    from dataclasses import replace

    taken = original(replace(self, files=self.files[:1]), module, like)
    for name, each in taken.items():
        if each.shape != like[name].shape:
            filled = like[name].clone()
            filled[: len(each)] = each
            taken[name] = filled
    return taken


def step_lost(original: Any, path: Any) -> Any:
    """Record step 0."""
    from dataclasses import replace

    read = original(path)
    return replace(read, manifest=read.manifest.model_copy(update={"step": 0}))


def not_verified(original: Any, path: Any) -> Any:
    """Read the weights as they are."""
    from reference_trainer.storage.checkpoint_manifest import Manifest
    from reference_trainer.storage.export import load_decoder
    from reference_trainer.storage.whole_weights import SavedWeights

    tensors = {f"student.{name}": each for name, each in load_decoder(path).state_dict().items()}
    manifest = Manifest(run_id="student", step=2, conditions={}, state={})
    return SavedWeights(path=path, manifest=manifest, files=[tensors])


def student_alone(original: Any, self: Any, name: str, module: Any, lines: Any) -> None:
    """Leave the projections as they were drawn."""
    if name == "student":
        original(self, name, module, lines)


def zeros(original: Any, self: Any, name: str, module: Any, lines: Any) -> None:
    """Clear the projections of a run that has a source."""
    if name == "projections" and self.recorded is not None:
        for each in module.parameters():
            each.detach().zero_()
    original(self, name, module, lines)


def sources_not_compared(original: Any, self: Any, values: Any) -> None:
    """Compare all but what a run begins with."""
    original(self, {name: value for name, value in values.items() if name != "init_from"})


def parameters_alone(original: Any, self: Any, name: str, module: Any) -> None:
    """Leave the buffers as they are."""
    buffers = {key: each.clone() for key, each in module.named_buffers()}
    original(self, name, module)
    for key, each in module.named_buffers():
        each.copy_(buffers[key])


def misfits_skipped(original: Any, self: Any, name: str, module: Any) -> None:
    """Load what fits and leave out the rest."""
    own = module.state_dict()
    for key, each in self.of(name, own).items():
        if key in own and own[key].shape == each.shape:
            own[key].copy_(each)


def position_kept(original: Any, self: Any) -> Any:
    """Go on after the step of the checkpoint, with a new optimizer."""
    import json

    from reference_trainer.storage.checkpoint_files import read_manifest
    from reference_trainer.training.state import restored

    if self.settings.init_from is not None and self.resumed is None:
        self.resumed = restored(json.dumps(read_manifest(self.settings.init_from).state["train"]))
    return original(self)


def source_forgotten(original: Any, self: Any, checkpoint: Any, schedule: Any) -> Any:
    """Record nothing once the run has resumed."""
    state = original(self, checkpoint, schedule)
    self.initial = None
    return state


def any_source_accepted(original: Any, *given: Any) -> Any:
    """Leave the source out of what a resumed run must have in common with the saved one."""
    return {name: value for name, value in original(*given).items() if name != "init_from"}
