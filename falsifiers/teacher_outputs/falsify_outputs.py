"""Attacks on outputs of a teacher on disk: how they are written, read and refused."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.rank_runs.launched import launcher
from falsifiers.resume.runs import TIMEOUT_S
from falsifiers.support.oracles import assert_refused
from falsifiers.support.ranks import run_ranks
from falsifiers.support.runs import cut, file_digests, flip, run, scratch, small
from falsifiers.teacher_outputs.parts import Counted
from reference_trainer import Lines, SettingError
from reference_trainer.pipeline import distill
from reference_trainer.pipeline.precompute import precompute

MANIFEST = "manifest.json"
COUNTING = {"parts": "falsifiers.teacher_outputs.parts:Counting"}
SHARDS = 4
"""Of the outputs of a small run: 12 sequences and one that is held back, in batches of 4."""


def written(directory: Path, name: str, write: Callable[..., Any] = precompute, **others: Any) -> Path:
    """Return the directory of outputs of a small run, in shards of one batch."""
    top_k = others.pop("top_k", None)
    quiet = Lines(io.StringIO())
    settings = small(directory, out=directory / name, temperature=2.0, **others)
    result: Path = write(settings, top_k=top_k, shard_bytes=1, lines=quiet)
    return result


def _text(directory: Path) -> Path:
    path = directory / "documents"
    path.write_bytes(b"".join(b"word %d and more--" % number for number in range(30)))
    return path


@given(
    seed=st.integers(0, 9),
    accumulate=st.integers(1, 2),
    top_k=st.sampled_from([None, 256]),
    rows=st.sampled_from([{}, {"documents": "pack", "separator": "--", "epochs": 2, "length": 20}]),
)
def falsify_training_from_outputs(
    subject: Any, seed: int, accumulate: int, top_k: int | None, rows: dict[str, Any]
) -> None:
    """A run from outputs of every token is that of the live teacher. The subject is `pipeline.distill`."""
    with scratch() as directory:
        others = {"seed": seed, "accumulate": accumulate, **rows}
        settings = small(directory, **others)
        if rows:
            settings = settings.model_copy(update={"data": _text(directory)})
        of_all = [settings.model_copy(update={"out": directory / out}) for out in ("live", "outputs", "stored")]
        live = run(subject, of_all[0])
        precompute(of_all[1], top_k=top_k, shard_bytes=1, lines=Lines(io.StringIO()))
        stored = run(subject, of_all[2].model_copy(update={"teacher_outputs": directory / "outputs"}))
        bits = [file_digests(directory / out)["model.safetensors"] for out in ("live", "stored")]
    assert bits[0] == bits[1], f"from outputs of {top_k or 'all'} tokens, the student differs from the teacher's"
    kept = stored.held_back.keys()
    assert ("kl_at_1" in kept) == (top_k is None), f"with top_k {top_k} an evaluation measures {sorted(kept)}"
    for metric in kept:
        seen, expected = stored.held_back[metric], live.held_back[metric]
        assert seen == expected, f"held-back {metric} is {seen} from outputs, and {expected} from the teacher"


@given(interrupted=st.integers(1, SHARDS), top_k=st.sampled_from([None, 3]))
def falsify_interrupted_production(subject: Any, interrupted: int, top_k: int | None) -> None:
    with scratch() as directory:
        undisturbed = file_digests(written(directory, "undisturbed", subject.precompute, top_k=top_k, **COUNTING))
        assert len(undisturbed) == SHARDS + 1, f"the outputs are {sorted(undisturbed)}"
        Counted.forwards, Counted.interrupted = 0, interrupted
        out = directory / "out"
        try:
            written(directory, "out", subject.precompute, top_k=top_k, **COUNTING)
            raise AssertionError(f"forward {interrupted} was not interrupted")
        except KeyboardInterrupt:
            assert not out.exists(), f"an interrupted production left {sorted(p.name for p in out.iterdir())} in --out"
        Counted.forwards = Counted.interrupted = 0
        assert file_digests(written(directory, "out", subject.precompute, top_k=top_k, **COUNTING)) == undisturbed, (
            f"after an interrupt in forward {interrupted}, the outputs differ from undisturbed ones"
        )
        again, remaining = Counted.forwards, SHARDS - interrupted + 1
        assert again == remaining, f"{again} forwards were made after an interrupt in forward {interrupted}"
        written(directory, "out", subject.precompute, top_k=top_k, **COUNTING)
        assert Counted.forwards == again, "outputs that are there were computed again"
        assert sorted(p.name for p in directory.iterdir() if "partial" in p.name) == [], "unfinished outputs are left"


@given(ranks=st.sampled_from([2, 3]), top_k=st.sampled_from([None, 3]), divided=st.booleans())
@example(ranks=3, top_k=3, divided=True)
def falsify_ranks_share_the_shards(subject: Any, ranks: int, top_k: int | None, divided: bool) -> None:
    with scratch() as directory:
        expected = file_digests(written(directory, "alone", subject.precompute, top_k=top_k, **COUNTING))
        settings = small(
            directory,
            out=directory / "several",
            temperature=2.0,
            rank_timeout=TIMEOUT_S,
            shard_teacher=divided,
            **COUNTING,
        )
        place, served = launcher()

        def work(rank: int) -> int:
            Counted.forwards = Counted.interrupted = 0
            own = {**place, "WORLD_SIZE": str(ranks), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            quiet = Lines(io.StringIO())
            subject.precompute(settings, top_k=top_k, shard_bytes=1, lines=quiet, environment=own)
            return Counted.forwards

        forwards = run_ranks(ranks, work, limit_s=60.0, served=served)
        assert file_digests(directory / "several") == expected, f"{ranks} ranks write other outputs than one process"
        shares = [len(range(rank, SHARDS, ranks)) for rank in range(ranks)]
        shares = [max(shares)] * ranks if divided else shares  # every rank gathers the teacher
        assert forwards == shares, f"{ranks} ranks made {forwards} forwards for {SHARDS} shards; expected {shares}"


def falsify_unfinished_outputs_of_another_call(subject: Any) -> None:
    """Shards of an interrupted call are used by an equal call only."""
    with scratch() as directory:
        Counted.forwards, Counted.interrupted = 0, 3
        try:
            written(directory, "out", subject.precompute, top_k=2, seed=1, **COUNTING)
        except KeyboardInterrupt:
            Counted.interrupted = 0
        seen = file_digests(written(directory, "out", subject.precompute, top_k=2, **COUNTING))
        expected = file_digests(written(directory, "expected", subject.precompute, top_k=2, **COUNTING))
    assert seen == expected, "the outputs hold shards of another teacher, whose production was interrupted"


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "text edited in place": (lambda d: (d / "text").write_bytes(bytes(range(1, 101))), "data_sha256 was"),
    "length": (lambda d: {"length": 9}, "length was 8 and is 9"),
    "documents": (lambda d: {"documents": "pack"}, 'documents was null and is "pack"'),
    "temperature": (lambda d: {"temperature": 1.0}, "temperature was 2.0 and is 1.0"),
    "annealed temperature": (lambda d: {"temperature_end": 1.0}, "temperature_end was null and is 1.0"),
    "features": (lambda d: {"feature_weight": 1.0}, "no hidden states"),
    "teacher": (lambda d: {"teacher": d / "other"}, "teacher_sha256 was"),
    "shard cut": (lambda d: cut(d / "outputs" / "outputs-00001.safetensors"), "sizes of the files"),
    "shard changed": (lambda d: flip(d / "outputs" / "outputs-00001.safetensors", -3), "SHA-256"),
    "shard missing": (lambda d: (d / "outputs" / "outputs-00001.safetensors").unlink(), "outputs-00001.safetensors"),
    "no manifest": (lambda d: (d / "outputs" / MANIFEST).unlink(), MANIFEST),
    "other outputs at a resume": (lambda d: _begun(d), "teacher_outputs_sha256 was"),
    "labels of other rows": (lambda d: renumbered(d / "outputs"), "other tokens to predict"),
}
"""What differs from the outputs, by a setting or on the disk, and what the refusal says."""


def _begun(directory: Path) -> dict[str, Any]:
    """Train a step from outputs of the same teacher with more tokens, and return the settings of the next ones."""
    given = {"out": directory / "out", "teacher_outputs": written(directory, "more", top_k=4), "temperature": 2.0}
    run(distill, small(directory, max_steps=1, save_every=1, **given))
    return {"resume": Path("latest"), "force": True, "save_every": 1}


def renumbered(outputs: Path) -> None:
    """Exchange two shards, and their digests."""
    names = [outputs / f"outputs-0000{number}.safetensors" for number in (0, 1)]
    contents = [each.read_bytes() for each in names]
    for path, content in zip(names, reversed(contents), strict=True):
        path.write_bytes(content)
    tree = json.loads((outputs / MANIFEST).read_text())
    tree["shards"][:2] = tree["shards"][1::-1]
    (outputs / MANIFEST).write_text(json.dumps(tree))


@given(kind=st.sampled_from(list(REFUSED)))
def falsify_other_outputs_are_refused(subject: Any, kind: str) -> None:
    change, words = REFUSED[kind]
    with scratch() as directory:
        run(subject, small(directory, out=directory / "other"))  # another model, as a teacher
        outputs = written(directory, "outputs", top_k=3)
        chosen = {"out": directory / "out", "teacher_outputs": outputs, "temperature": 2.0}
        changes = small(directory, **chosen), change(directory)
        settings = changes[0].model_copy(update=changes[1] if isinstance(changes[1], dict) else {})
        kind_of_error = SettingError if words.endswith(("9", '"pack"', "1.0", "was")) else Exception
        assert_refused(kind, lambda: run(subject, settings), words, kind=kind_of_error)
