"""Attacks on distillations of the default parts that are cut and resumed. The subject is `pipeline.distill`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.resume.runs import Cut, assert_same_end
from falsifiers.support.histories import assert_same_history
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import found, refused, run, small
from reference_trainer import Callback

TEXT = b"".join(b"%d, %d.\n\n" % (k, k * k) + b"so it goes. " * (k % 3) for k in range(16))
CADENCE = {"save_every": 1, "log_every": 1, "eval_every": 2, "hang_after": 600}
EVERY: dict[str, Any] = {**CADENCE, "epochs": 2, "length": 16, "warmup": 2, "lr": 0.01}
VARIED: dict[str, Any] = {
    "accumulate": 2,
    "clip": 0.05,
    "dtype": "bfloat16",
    "anneal": "cosine",
    "temperature_end": 1.0,
}
VARIED |= {"feature_weight": 0.5, "feature_weight_end": 2.0, "feature_distance": "l2", "teacher_width": 32}
DOCUMENTS = st.sampled_from([None, "pad", "pack"])


class Reading(Callback):
    """Callback that adds to a file each batch that the student reads, by a hook of torch, and in which mode.

    beside: the classes of all callbacks of each run that it is attached to.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.beside = path, list[list[str]]()

    def attach(self, pipeline: Any) -> None:
        self.student = pipeline.student
        self.beside.append([type(each).__name__ for each in pipeline.callbacks if not isinstance(each, Cut)])

    def on_train_begin(self, context: Any) -> None:
        self.hook = self.student.register_forward_pre_hook(self.note, with_kwargs=True)

    def on_train_end(self, context: Any) -> None:
        self.hook.remove()

    def note(self, student: Any, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        tokens, segments = arguments[0], options.get("segments")
        if tokens.device.type == "meta":  # its operations are counted
            return
        batch = {"training": student.training, "tokens": tokens.tolist()}
        with self.path.open("a") as file:
            print(json.dumps(batch | ({} if segments is None else {"segments": segments.tolist()})), file=file)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the batches in a file of `Reading`."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=2, unique=True),
    seed=st.integers(0, 9),
    documents=DOCUMENTS,
    varied=st.sets(st.sampled_from(sorted(VARIED))),
)
@example(cuts=[1, 4], seed=1, documents=None, varied=set(VARIED))
@example(cuts=[2], seed=2, documents="pack", varied=set(VARIED) - {"dtype", "accumulate"})
def falsify_cut_run_of_default_parts_ends_like_the_straight_one(
    subject: Any, cuts: list[int], seed: int, documents: str | None, varied: set[str]
) -> None:
    with scratch() as directory:
        chosen = {**EVERY, "seed": seed, "documents": documents, **{each: VARIED[each] for each in sorted(varied)}}
        ours, theirs = Reading(directory / "seen"), Reading(directory / "expected")
        straight = run(subject, _settings(directory, "straight", chosen), callbacks=[theirs])
        cut = _resumed(subject, directory, chosen, [ours, Cut(*cuts)])
        when = f"seed {seed}, documents {documents} and {sorted(varied)}, cut after {sorted(cuts)}"
        assert_same_history(f"{when}, what the student reads", read(ours.path), read(theirs.path))
        others = [each for each in ours.beside if each != theirs.beside[0]]
        assert not others, f"{when}, a run has the callbacks {others[:1]}; the straight one has {theirs.beside[0]}"
        assert_same_end(when, directory, ("cut", (None, cut)), ("straight", (None, straight)))
        assert cut.held_back == straight.held_back, f"{when}, {cut.held_back} is evaluated; {straight.held_back}"
        written = [(directory / out / "model.safetensors").read_bytes() for out in ("cut", "straight")]
        assert written[0] == written[1], f"{when}, the exported weights differ"


def _resumed(subject: Any, directory: Path, chosen: dict[str, Any], callbacks: Sequence[Callback]) -> Any:
    """Return the result of a run in legs, each of which but the first resumes from the latest checkpoint."""
    resume = None
    while True:
        try:
            return run(subject, _settings(directory, "cut", {**chosen, "resume": resume}), callbacks=callbacks)
        except KeyboardInterrupt:
            resume = Path("latest")


def _settings(directory: Path, out: str, chosen: dict[str, Any]) -> Any:
    settings = small(directory, out=directory / out, trace=directory / f"{out}.trace", force=True, **chosen)
    settings.data.write_bytes(TEXT)
    return settings


@given(place=st.sampled_from([0, 50, 99]))
def falsify_another_text_is_refused(subject: Any, place: int) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "out", save_every=1))
        settings = small(directory, out=directory / "out", save_every=1, resume=Path("latest"), force=True)
        text = bytearray(settings.data.read_bytes())
        text[place] += 1
        settings.data.write_bytes(text)
        before, said = found(directory), refused(subject, settings)
        assert "data_sha256 was" in said, f"byte {place} of the text is another: {said or 'the run is resumed'!r}"
        changed = sorted(set(found(directory).items()) ^ set(before.items()))
        assert not changed, f"byte {place} of the text is another: the run is refused, and changed {changed}"
