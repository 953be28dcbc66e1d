"""The weights that a run begins with: those of its own models, or of a saved model or checkpoint."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from reference_trainer.callbacks.lines import Lines
from reference_trainer.pipeline.checkpointing import RUN_ID, read_with_hint
from reference_trainer.pipeline.parts import Run
from reference_trainer.storage.checkpoint_manifest import rank_file
from reference_trainer.storage.export import WEIGHTS
from reference_trainer.storage.files import path_in_json
from reference_trainer.storage.whole_weights import SavedWeights, read_model, read_weights

__all__ = ["InitialWeights"]

CHECKPOINT = re.compile(rf"{RUN_ID}-step[0-9]+")


class InitialWeights:
    """The checkpoint or model that `init_from` names; none for a run that resumes: its checkpoint has later weights.

    All ranks make this. Raise `CheckpointError` or `ModelFileError` on all of them if it is missing or damaged, and
    `RankError` if ranks read different ones.
    """

    def __init__(self, run: Run) -> None:
        settings, self._ranks = run.settings, run.ranks
        self._saved: SavedWeights | None = None
        if settings.init_from is not None and settings.resume is None:
            self._saved = self._ranks.run_on_all(partial(_read, settings.init_from, run))
            self._ranks.check_equal({"init_from": self._saved.manifest.sha256})

    @property
    def recorded(self) -> dict[str, Any] | None:
        """Return what a run records of it: its path, its step and the SHA-256 of its manifest."""
        if self._saved is None:
            return None
        manifest = self._saved.manifest
        return {"path": path_in_json(self._saved.path.resolve()), "step": manifest.step, "sha256": manifest.sha256}

    def load_into(self, name: str, module: nn.Module, lines: Lines) -> None:
        """Load the weights that were saved of a module, before it is spread over the ranks, and write a line.

        A module without tensors stays as it is; projections too, with another line, if the source has none. Errors:
        those of `SavedWeights.load_into`, on all ranks.
        """
        saved = self._saved
        if saved is None or not module.state_dict():
            return
        if name == "projections" and not saved.has(name):
            lines.write(f"projections: drawn anew; {saved.path} has none")
            return
        self._ranks.run_on_all(partial(saved.load_into, name, module))
        step = f", step {saved.manifest.step}" if saved.manifest.step else ""
        lines.write(f"{name}: weights of {saved.path}{step}")


def _read(path: Path, run: Run) -> SavedWeights:
    model = os.path.isfile(path / WEIGHTS)  # noqa: PTH113  (Path.is_file raises for a name that is too long)
    if "load" in run.replaced or run.recipe.export.has_own_format:
        named = CHECKPOINT.fullmatch(path.resolve().name)
        model = named is None and not os.path.isfile(path / rank_file(0))  # noqa: PTH113  (is_file raises for long names)
    return read_model(path, run.load) if model else read_with_hint(read_weights, path)
