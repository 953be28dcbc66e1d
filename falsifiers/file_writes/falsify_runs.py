"""Attacks on checkpoints written in the background. The subject is `pipeline.distill` or `storage.background`."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.resume.runs import STEPS, Cut, ended, settings
from falsifiers.support.acting import acting
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from reference_trainer import Callback, OutputError
from reference_trainer.errors import StopRequestedError
from reference_trainer.storage.checkpoint_files import read_checkpoint, saved_steps
from reference_trainer.storage.checkpoints import DISK

PATIENCE_S = 5.0
"""How long a write waits for a step that should not wait for it; a right subject never needs it."""


@contextmanager
def writing(write: Callable[[Callable[..., object], int, Path, bytes], object]) -> Iterator[None]:
    """Write files of checkpoints by write(original, step, path, content)."""
    original = DISK.write

    def replaced(path: Path, content: bytes) -> None:
        step = int(path.parent.name.rsplit("-step")[1].split(".")[0])
        write(original, step, path, content)

    with mock.patch.object(DISK, "write", replaced):
        yield


class Steps(Callback):
    """Callback that lets others wait until a step is taken, and keeps the weights of each save."""

    def __init__(self) -> None:
        self.last = self.taken = 0
        self.changed = threading.Condition()
        self.weights: dict[int, dict[str, Any]] = {}
        self.run: Any = None

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_optimizer_step(self, context: Any) -> None:
        self.last = context.step
        self._set(context.step)

    def on_save(self, context: Any) -> None:
        state = self.run.student.state_dict()
        self.weights[context.step] = {f"student.{name}": each.clone() for name, each in state.items()}

    def on_train_end(self, context: Any) -> None:
        self._set(STEPS + 1)

    def _set(self, step: int) -> None:
        with self.changed:
            self.taken = step
            self.changed.notify_all()

    def wait_for(self, step: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.taken >= step, PATIENCE_S), f"step {step} waits for the disk"


@given(save_every=st.integers(1, 3))
def falsify_step_waits_for_a_copy(subject: Any, save_every: int) -> None:
    steps = Steps()

    def free(partial: Path) -> int:  # the first operation of a save, before its tensors are read
        steps.wait_for(int(partial.name.rsplit("-step")[1].split(".")[0]) + 1)
        return 2**40

    with scratch() as directory, mock.patch.object(DISK, "free", free):
        ended(subject, settings(directory, "out", save_every=save_every, keep=0), [steps])
        place = directory / "out" / "checkpoints"
        due = [step for step in range(1, STEPS + 1) if step % save_every == 0]
        assert saved_steps(place, "student") == due, f"the steps {saved_steps(place, 'student')} are saved"
        for step in due:
            tensors = read_checkpoint(place / f"student-step{step}").tensors
            seen = {name: each for name, each in tensors.items() if name.startswith("student.")}
            assert_same(f"the checkpoint of step {step}", seen, steps.weights[step])


@given(saves=st.integers(1, STEPS), save_every=st.integers(1, 3))
@example(saves=1, save_every=3)
def falsify_failed_write_ends_the_run(subject: Any, saves: int, save_every: int) -> None:
    steps, failing, failed = Steps(), min(saves * save_every, STEPS), threading.Event()

    def write(original: Callable[..., object], step: int, path: Path, content: bytes) -> None:
        if step == failing:
            failed.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(path, content)

    def wait() -> None:
        assert failed.wait(60), f"step {failing} is not written"
        for each in threading.enumerate():
            if each.name.startswith("writer"):
                each.join(60)

    with scratch() as directory, writing(write):
        chosen = settings(directory, "out", keep=0, save_every=save_every)
        call = partial(ended, subject, chosen, [steps, acting(wait, step=failing)])
        when = f"saved every {save_every} steps, of which {failing} cannot be written"
        assert_refused(when, call, f"student-step{failing}", os.strerror(errno.ENOSPC), kind=OutputError)
        assert steps.last <= failing + max(1, save_every - 1), f"{when}, the run goes on to step {steps.last}"
        seen = saved_steps(directory / "out" / "checkpoints", "student")
        assert seen == list(range(save_every, failing, save_every)), f"{when}, the checkpoints {seen} are there"
        assert not (directory / "out" / "manifest.json").exists(), f"{when}, a model is written"


@given(step=st.integers(1, STEPS))
def falsify_interrupted_run_finishes_its_checkpoint(subject: Any, step: int) -> None:
    """A faulty subject still writes while the directory is removed."""

    def write(original: Callable[..., object], step: int, path: Path, content: bytes) -> None:
        threading.Event().wait(0.03)
        original(path, content)

    with scratch() as directory, writing(write):
        try:
            ended(subject, settings(directory, "out", keep=0), [Cut(step)])
        except KeyboardInterrupt:
            place = directory / "out" / "checkpoints"
            threads = [each.name for each in threading.enumerate() if each.name.startswith("writer")]
            assert not threads, f"interrupted in step {step}, {threads} go on"
            seen = saved_steps(place, "student")
            assert seen == list(range(1, step + 1)), f"interrupted in step {step}, the checkpoints {seen} are there"
            read_checkpoint(place / f"student-step{step}")
        else:
            raise AssertionError("the interrupt is lost")


@given(fails=st.booleans())
def falsify_request_to_stop_needs_its_checkpoint(subject: Any, fails: bool) -> None:
    def work() -> None:
        if fails:
            raise OSError("the disk is full")

    request = StopRequestedError("stopped on request")
    try:
        with subject.Background() as background:
            background.start(work, "writer")
            raise request
    except (OSError, StopRequestedError) as error:
        seen: BaseException = error
    expected = OSError if fails else StopRequestedError
    assert type(seen) is expected, f"with {'a failed' if fails else 'its'} checkpoint, the run ended with {seen!r}"
