"""Attacks on runs that begin with the weights of a checkpoint of other ranks. The subject is `pipeline.distill`."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from falsifiers.rank_runs.launched import Ended, assert_no_error, assert_same_end, launched, matching
from falsifiers.resume.runs import Cut, Model, own, settings
from falsifiers.support.runs import assert_same_lines, file_digests, flip, scratch
from reference_trainer import Callback
from reference_trainer.ranks.parallel import whole

SAVED = 2
"""Steps of the run whose last checkpoint is read."""
PLACES = [(1, "ddp"), (2, "ddp"), (3, "ddp"), (2, "fsdp2"), (3, "fsdp2")]
"""Numbers of ranks and strategies."""
STEP = "student-step2"


class Recording(Callback):
    """Callback that writes whole weights, at the begin and the end of a run, on each rank."""

    def __init__(self, directory: Path, rank: int) -> None:
        self.directory, self.rank = directory, rank

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_train_begin(self, context: Any) -> None:
        assert context.step == 0, f"the run begins at step {context.step}"
        state = {id(each): values for each, values in self.run.optimizer.state.items()}
        assert not state, f"the optimizer begins with the state of {len(state)} parameters"
        self._write("begin")

    def on_train_end(self, context: Any) -> None:
        self._write("end")

    def _write(self, name: str) -> None:
        given = self.run.student.state_dict() | {f"P{k}": p for k, p in enumerate(self.run.features.parameters)}
        tensors = {key: whole(each.detach()).clone() for key, each in given.items()}
        save_file(tensors, self.directory / f"{name}-{self.rank}")


def _saved(make: Any, directory: Path, place: tuple[int, str], **others: Any) -> list[Ended]:
    ranks, strategy = place
    chosen = settings(directory, "source", strategy=strategy, max_steps=SAVED, save_every=SAVED, **others)
    (directory / "saved").mkdir()
    ended = launched(make, chosen, ranks, lambda rank: [Recording(directory / "saved", rank)])
    assert_no_error(f"the source of {ranks} ranks with {strategy}", ended)
    return ended


def _source(directory: Path) -> dict[str, Any]:
    return {"init_from": directory / "source" / "checkpoints" / STEP}


@given(saved=st.sampled_from(PLACES), begun=st.sampled_from(PLACES))
@example(saved=(2, "fsdp2"), begun=(3, "fsdp2"))
def falsify_weights_are_those_of_the_checkpoint(subject: Any, saved: tuple[int, str], begun: tuple[int, str]) -> None:
    make = matching(subject)
    with scratch() as directory:
        _saved(make, directory, saved, feature_weight=0.5)
        (directory / "begun").mkdir()
        ranks, strategy = begun
        chosen = settings(directory, "out", strategy=strategy, max_steps=1, feature_weight=0.5, **_source(directory))
        ended = launched(make, chosen, ranks, lambda rank: [Recording(directory / "begun", rank)])
        where = f"saved by {saved}, begun by {begun}"
        assert_no_error(where, ended)
        expected = load_file(directory / "saved" / "end-0")
        for rank in range(ranks):
            seen = load_file(directory / "begun" / f"begin-{rank}")
            assert seen.keys() == expected.keys(), f"{where}, rank {rank}: the tensors are {sorted(seen)}"
            wrong = [each for each, tensor in expected.items() if not torch.equal(seen[each], tensor)]
            assert not wrong, f"{where}, rank {rank}: {wrong} are not those of the checkpoint"


MISFITS: dict[str, tuple[Any, type[Model] | None, str]] = {
    "missing": (shutil.rmtree, None, "expected a checkpoint"),
    "damaged": (lambda path: flip(path / "rank-00000.safetensors"), None, "rank-00000.safetensors has the SHA-256"),
    "of another width": (None, lambda: Model(7, seed=1), "embed.weight is float32 [11, 5]; expected float32 [11, 7]"),
    "of another dtype": (None, lambda: Model(5, seed=1).double(), "is float32 [11, 5]; expected float64 [11, 5]"),
    "of more layers": (None, lambda: torch.nn.ModuleDict({"x": Model(5, seed=1)}), ": missing ["),
}


@given(kind=st.sampled_from(list(MISFITS)), saved=st.sampled_from(PLACES), begun=st.sampled_from(PLACES))
@example(kind="of another width", saved=(1, "ddp"), begun=(2, "ddp"))
def falsify_misfits_are_refused(subject: Any, kind: str, saved: tuple[int, str], begun: tuple[int, str]) -> None:
    change, student, words = MISFITS[kind]
    make = own(subject)
    with scratch() as directory:
        _saved(make, directory, saved)
        if change is not None:
            change(_source(directory)["init_from"])

        class Other(make):
            def make_student(self) -> Any:
                return super().make_student() if student is None else student()

        before = file_digests(directory)
        ranks, strategy = begun
        ended = launched(Other, settings(directory, "out", strategy=strategy, **_source(directory)), ranks)
        for rank, each in enumerate(ended):
            where = f"{kind}, saved by {saved}, begun by {begun}, rank {rank}"
            assert words in each.error and STEP in each.error, f"{where}: {each.error or 'it was accepted'}"
        changed = sorted(set(before.items()) ^ set(file_digests(directory).items()))
        assert not changed, f"{kind}: the run was refused, and changed {changed}"


@given(cut=st.integers(1, 4), begun=st.sampled_from([(1, "ddp"), (2, "fsdp2")]))
def falsify_source_is_recorded(subject: Any, cut: int, begun: tuple[int, str]) -> None:
    make = own(subject)
    with scratch() as directory:
        _saved(make, directory, (2, "ddp"))
        given, (ranks, strategy) = _source(directory), begun
        digest = json.loads((given["init_from"] / "manifest.json").read_text())["sha256"]
        straight = launched(make, settings(directory, "straight", strategy=strategy, **given), ranks)
        launched(make, settings(directory, "cut", strategy=strategy, **given), ranks, lambda rank: [Cut(cut)])
        shutil.rmtree(directory / "source")
        again = {"strategy": strategy, "resume": Path("latest"), "force": True}
        other = launched(make, settings(directory, "cut", **again, init_from=directory / "other"), ranks)
        words = ("init_from was", str(given["init_from"]), str(directory / "other"))
        assert all(word in other[0].error for word in words), f"resumed with another source: {other[0].error}"
        relative = Path(os.path.relpath(given["init_from"]))
        resumed = launched(make, settings(directory, "cut", **again, init_from=relative), ranks)
        assert_no_error(f"{begun}, resumed after step {cut}", [*straight, *resumed])
        assert_same_lines(f"{begun}, cut after step {cut}", directory, "cut", "straight")
        assert_same_end(f"{begun}, cut after step {cut}", resumed[0], straight[0])
        expected = {"path": str(given["init_from"].resolve()), "step": SAVED, "sha256": digest}
        files = [directory / out / "manifest.json" for out in ("straight", "cut")]
        seen = {str(each): json.loads(each.read_text()).get("initial_weights") for each in files}
        for each in sorted((directory / "cut" / "checkpoints").glob("student-step*/manifest.json")):
            seen[str(each)] = json.loads(each.read_text())["state"]["initial"]
        wrong = {each: value for each, value in seen.items() if value != expected}
        assert not wrong, f"expected {expected} in every manifest; these differ: {wrong}"
