"""Attacks on atomic writes, on exclusive use of an output directory, and on checkpoints written in the background.

A claim is the use of an output directory as `exclusive_directory`: one run at a time.
"""

import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import Raising
from falsifiers.checkpoint_files.saved import assert_same
from falsifiers.resume.runs import STEPS, Cut, run_to_end, settings
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.interruptions import LINES_AT_MOST, in_child, kill
from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import acting, scratch
from reference_trainer import Callback, OutputError, StopRequestedError
from reference_trainer.storage.checkpoints import DISK, read_checkpoint, saved_steps

OLD, NEW = b"old" * 1000, b"the new one" * 1000


@contextmanager
def place(old: bytes | None = None) -> Iterator[Path]:
    """Yield the path of a file in a new directory; the file exists if it has `old` content."""
    with scratch() as directory:
        path = directory / "file"
        if old is not None:
            path.write_bytes(old)
        yield path


def fill(path: Path, content: bytes = NEW) -> None:
    """Write the content in four flushed pieces, so that an interruption can leave an incomplete file."""
    with path.open("wb") as file:
        for start in range(0, len(content), len(content) // 4):
            file.write(content[start : start + len(content) // 4])
            file.flush()


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@given(old=st.sampled_from([None, OLD]), after=st.integers(0, 3))
def falsify_failed_write_keeps_old_file(subject: Any, old: bytes | None, after: int) -> None:
    def fail(path: Path) -> None:
        fill(path, NEW[: after * 100 + 4])
        raise OSError(errno.ENOSPC, "on purpose")

    with place(old) as path:
        message = refusal(partial(subject.atomic_write, path, fail), OSError)
        assert_equal("the error of a write without space", message, f"[Errno {errno.ENOSPC}] on purpose")
        assert_equal("files after a failed write", _contents(path.parent), {} if old is None else {path.name: old})
        subject.atomic_write(path, fill)
        assert_equal("files after a write", _contents(path.parent), {path.name: NEW})


def falsify_write_ended_at_any_line_is_atomic(subject: Any) -> None:
    """Kill a write before line 1, 2, ... that it executes in the subject, in `fill`, and in the copies of shutil."""
    files = [subject.__file__, __file__, shutil.__file__]
    for line in range(1, LINES_AT_MOST):
        with place(OLD) as path:
            status = in_child(partial(subject.atomic_write, path, fill), line, kill, *files)
            case, content = f"killed before executed line {line}", path.read_bytes() if path.exists() else None
            assert content in (OLD, NEW), f"{case}, the file has {content and len(content)} bytes; expected old or new"
            others = [p.name for p in path.parent.iterdir() if p != path and not p.match(".*.partial")]
            assert_equal(f"{case}, other files in its directory", others, [])
            if status == "done":
                assert content == NEW, f"an uninterrupted write left {content[:9]!r}...; expected the new content"
                break
            assert_equal(f"{case}, how the process ended", status, "killed")
    else:
        raise AssertionError(f"a write executes {LINES_AT_MOST} lines or more, so not every line was tested")


@given(old=st.sampled_from([None, OLD]))
def falsify_file_is_synced_before_rename(subject: Any, old: bytes | None) -> None:
    synced: list[tuple[str, bytes | None]] = []

    def record(descriptor: int) -> None:
        file = Path(f"/proc/self/fd/{descriptor}").resolve()
        is_complete = file.is_file() and file.read_bytes() == NEW
        kind = "the directory" if file == path.parent.resolve() else "the new file" if is_complete else "another file"
        synced.append((kind, path.read_bytes() if path.exists() else None))

    with place(old) as path:
        subject.atomic_write(path, fill, fsync=record)
    sizes, expected = (
        [(kind, content and len(content)) for kind, content in log]
        for log in (synced, [("the new file", old), ("the directory", NEW)])
    )
    assert_equal("synced files, and the size of the file under the final name at that time", sizes, expected)


UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)
"""Error numbers of a sync on a file system without sync."""


@given(
    number=st.sampled_from([*UNSUPPORTED, errno.EIO, errno.ENOSPC, errno.EDQUOT]),
    of=st.sampled_from(["the file", "the directory"]),
)
def falsify_sync_errors_are_raised(subject: Any, number: int, of: str) -> None:

    def fail(descriptor: int) -> None:
        directory = Path(f"/proc/self/fd/{descriptor}").resolve().is_dir()
        if of == ("the directory" if directory else "the file"):
            raise OSError(number, os.strerror(number))

    case, is_raised = f"syncing {of} fails with {os.strerror(number)!r}", number not in UNSUPPORTED
    with place(OLD) as path:
        message = refusal(partial(subject.atomic_write, path, fill, fsync=fail), OSError)
        assert_equal(f"{case}, the error", message, f"[Errno {number}] {os.strerror(number)}" * is_raised)
        expected = OLD if is_raised and of == "the file" else NEW
        assert_equal(f"{case}, bytes of the file", len(path.read_bytes()), len(expected))


def _claim(subject: Any, path: Path, *, force: bool = False) -> Any:
    return subject.exclusive_directory(path, force=force, bytes_needed=1)


def _claim_refusal(subject: Any, path: Path, *, force: bool = False) -> str:
    """Return the message of a refused claim; "" if it is granted. A granted claim ends at once."""

    def claim() -> None:
        with _claim(subject, path, force=force):
            pass

    return refusal(claim, OSError)


@given(other=st.sampled_from(["", ".model.partial", ".x.12.partial.txt"]))
def falsify_stale_partial_files_are_removed(subject: Any, other: str) -> None:
    """other: a file that is no partial file of the trainer, or "" for none."""
    stale = [".config.json.7.partial", ".model.safetensors.12.partial"]
    with scratch() as directory:
        path = directory / "out"
        path.mkdir()
        for name in [*stale, *filter(None, [other])]:
            (path / name).write_bytes(b"half")
        message = _claim_refusal(subject, path)
        files = sorted(p.name for p in path.iterdir()) if path.exists() else []
    assert bool(message) == bool(other), f"with {stale} and {other!r}, the claim is refused with {message!r}"
    assert_equal("files after the claim", files, sorted([*stale, other]) if other else [])


def falsify_force_accepts_nonempty_directory(subject: Any) -> None:
    with scratch() as directory:
        (directory / "model").write_bytes(b"old")
        assert _claim_refusal(subject, directory), "without force, a directory with a file is accepted"
        assert_equal("with force, the refusal", _claim_refusal(subject, directory, force=True), "")
        assert_equal("files after a forced claim", _contents(directory), {"model": b"old"})


@given(force=st.booleans(), exists=st.booleans())
def falsify_second_claim_is_refused(subject: Any, force: bool, exists: bool) -> None:
    """exists: whether the directory exists before the first claim."""
    with scratch() as directory:
        path = directory / "runs" / "out"
        if exists:
            path.mkdir(parents=True)
        with _claim(subject, path, force=force):
            message = _claim_refusal(subject, path, force=force)
            assert str(path) in message, f"the second claim is refused with {message!r}; expected the path {path}"
        assert_equal("refusal of a claim after the first one", _claim_refusal(subject, path, force=force), "")
        assert_equal("whether the directory exists after the claims", [*directory.iterdir()] != [], exists)
        path.mkdir(parents=True, exist_ok=True)

        # Another run removes and makes the directory, or writes its model, after the check and before the lock.
        def renew() -> None:
            path.rmdir()
            path.mkdir()

        message = _refusal_after(renew, subject, path, force=force)
        case = f"another run removed and made the directory just before the lock, {force=}: refused with {message!r}"
        assert "removed" in message, f"{case}; expected a refusal, because the lock is not of the new directory"
        message = _refusal_after((path / "manifest.json").touch, subject, path, force=force)
        case = f"another run completed just before the lock, {force=}: refused with {message!r}"
        assert ("complete run" in message) is not force, f"{case}; expected a refusal unless force"


def _refusal_after(act: Callable[[], object], subject: Any, path: Path, *, force: bool) -> str:
    """Return the message of a refused claim, before whose lock another run acts."""
    lock = fcntl.flock

    def act_and_lock(descriptor: int, operation: int) -> None:
        act()
        lock(descriptor, operation)

    with mock.patch("fcntl.flock", act_and_lock):
        return _claim_refusal(subject, path, force=force)


def _touch(path: Path) -> Path:
    path.touch()
    return path


NO_ROOM, NO_LOCK, NO_MKDIR = "a full disk", "a file system without locks", "a directory that cannot be made"
UNUSABLE: dict[str, Callable[[Path], Path]] = {
    "a file": _touch,
    "a path below a file": lambda path: _touch(path) / "out",
    "a file system without permission": lambda path: Path("/sys/out"),
    "a directory that is not writable": lambda path: Path("/proc/self"),
    NO_ROOM: lambda path: path / "out",
    NO_LOCK: lambda path: path / "out",
    NO_MKDIR: lambda path: path / "out",
}


@given(kind=st.sampled_from(sorted(UNUSABLE)))
def falsify_unfit_directories_are_refused(subject: Any, kind: str) -> None:
    error = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    make = Raising(os.mkdir, "", 2, error) if kind == NO_MKDIR else os.mkdir
    lock = Raising(fcntl.flock, "", 1, error) if kind == NO_LOCK else fcntl.flock
    with scratch() as root, mock.patch("fcntl.flock", lock), mock.patch("os.mkdir", make):
        path = UNUSABLE[kind](root / "place")
        before = sorted(root.rglob("*"))
        needed = 2**62 if kind == NO_ROOM else 1
        claim = subject.exclusive_directory(path, force=False, bytes_needed=needed)
        assert_refused(kind, claim.__enter__, str(path), kind=OutputError)
        assert_equal(f"files after {kind} is refused", sorted(root.rglob("*")), before)


def _step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint, or of its partial directory."""
    return int(path.name.rsplit("-step")[1].split(".")[0])


@contextmanager
def before_writes(before: Callable[[int], object]) -> Iterator[None]:
    """Call before(step) before each file of a checkpoint is written."""
    original = DISK.write

    def write(path: Path, content: bytes) -> None:
        before(_step_of(path.parent))
        original(path, content)

    with mock.patch.object(DISK, "write", write):
        yield


class Steps(Callback):
    """Callback by which another thread can wait for a step, and which copies the tensors of each save."""

    def __init__(self) -> None:
        self.last = self.taken = 0
        self.changed = threading.Condition()
        self.tensors: dict[int, dict[str, Any]] = {}

    def attach(self, pipeline: Any) -> None:
        self.run = pipeline

    def on_optimizer_step(self, context: Any) -> None:
        self.last = context.step
        self._set(context.step)

    def on_save(self, context: Any) -> None:
        student, state = self.run.student, self.run.optimizer.state
        tensors = {f"student.{name}": weight for name, weight in student.state_dict().items()}
        for name, parameter in student.named_parameters():
            tensors |= {f"optimizer.student.{name}.{key}": value for key, value in state[parameter].items()}
        self.tensors[context.step] = {name: tensor.clone() for name, tensor in tensors.items()}

    def on_train_end(self, context: Any) -> None:
        self._set(STEPS + 1)

    def _set(self, step: int) -> None:
        with self.changed:
            self.taken = step
            self.changed.notify_all()

    def wait_for(self, step: int) -> None:
        """Wait until a step is taken; a correct trainer takes it at once, even while the caller blocks the disk."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.taken >= step, 5.0), f"step {step} waits for the disk: 5 s passed"


@given(save_every=st.integers(1, 3))
def falsify_step_waits_for_a_copy(subject: Any, save_every: int) -> None:
    """Block each save until the next step is taken, and compare the saved weights with copies made at the save."""
    steps = Steps()

    # `free` is the first operation of a save, before its tensors are read.
    def free(directory: Path) -> int:
        steps.wait_for(_step_of(directory) + 1)
        return 2**40

    with scratch() as directory, mock.patch.object(DISK, "free", free):
        run_to_end(subject, settings(directory, "out", save_every=save_every, keep=0), [steps])
        checkpoints = directory / "out" / "checkpoints"
        due = list(range(save_every, STEPS + 1, save_every))
        assert_equal("saved steps", saved_steps(checkpoints, "student"), due)
        for step in due:
            tensors = read_checkpoint(checkpoints / f"student-step{step}").tensors
            assert_same(f"the checkpoint of step {step}", tensors, steps.tensors[step])


def _writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("writer")]


@given(saves=st.integers(1, STEPS), save_every=st.integers(1, 3))
@example(saves=1, save_every=3)
def falsify_failed_write_ends_the_run(subject: Any, saves: int, save_every: int) -> None:
    """Fail the write of one checkpoint: number `saves`, or the checkpoint of the last step."""
    steps, failing, has_failed = Steps(), min(saves * save_every, STEPS), threading.Event()

    def fail(step: int) -> None:
        if step == failing:
            has_failed.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # The step of the failed save continues only after its writer has failed, so that the run can notice the failure.
    def wait() -> None:
        assert has_failed.wait(60), f"the write of step {failing} did not begin within 60 s"
        for thread in _writers():
            thread.join(60)

    with scratch() as directory, before_writes(fail):
        chosen = settings(directory, "out", keep=0, save_every=save_every)
        call = partial(run_to_end, subject, chosen, [steps, acting(wait, step=failing)])
        case = f"saved every {save_every} steps, where step {failing} cannot be written"
        assert_refused(case, call, f"student-step{failing}", os.strerror(errno.ENOSPC), kind=OutputError)
        # The error is raised at the latest when the next checkpoint is due.
        last = failing + max(1, save_every - 1)
        assert steps.last <= last, f"{case}, the run continues to step {steps.last}; expected at most {last}"
        saved = saved_steps(directory / "out" / "checkpoints", "student")
        assert_equal(f"{case}, the checkpoints", saved, list(range(save_every, failing, save_every)))
        assert_equal(f"{case}, whether a model is written", (directory / "out" / "manifest.json").exists(), False)


@given(step=st.integers(1, STEPS))
def falsify_interrupted_run_finishes_its_checkpoint(subject: Any, step: int) -> None:
    """Interrupt a run whose writes take 30 ms a file; its last checkpoint must be complete when the run has ended."""
    with scratch() as directory, before_writes(lambda step: threading.Event().wait(0.03)):
        call = partial(run_to_end, subject, settings(directory, "out", keep=0), [Cut(step)])
        assert refusal(call, KeyboardInterrupt), "the interrupted run raised nothing; expected KeyboardInterrupt"
        checkpoints = directory / "out" / "checkpoints"
        assert_equal(f"interrupted in step {step}, threads that still write", _writers(), [])
        steps = saved_steps(checkpoints, "student")
        assert_equal(f"interrupted in step {step}, the checkpoints", steps, list(range(1, step + 1)))
        read_checkpoint(checkpoints / f"student-step{step}")


@given(
    failure=st.sampled_from([None, OSError, SystemExit]),
    cause=st.sampled_from([None, StopRequestedError, KeyboardInterrupt, RuntimeError]),
    is_awaited=st.booleans(),
)
@example(failure=OSError, cause=RuntimeError, is_awaited=False)
@example(failure=OSError, cause=StopRequestedError, is_awaited=False)
@example(failure=OSError, cause=None, is_awaited=True)
@example(failure=SystemExit, cause=None, is_awaited=False)
def falsify_request_to_stop_needs_its_checkpoint(subject: Any, failure: Any, cause: Any, is_awaited: bool) -> None:
    """Let the second of two background works fail with `failure`, and the block that waits for it raise `cause`.

    The failure is raised if the block raises nothing or StopRequestedError, and always if it is SystemExit; otherwise,
    the cause is raised with the failure as a note. If the block itself has waited for the works (`is_awaited`), the
    failure is raised there, and not again.
    """
    case = f"the work raises {failure}{' earlier' * is_awaited}, and the block {cause}: the error"
    finished, at_start = list[str](), list[str]()

    def first() -> None:
        time.sleep(0.002)
        finished.append("the first work")

    def second() -> None:
        at_start.extend(finished)
        if failure is not None:
            raise failure("the disk is full")

    raised: BaseException | None = None
    try:
        with subject.Background() as background:
            background.start(first, "writer")
            background.start(second, "writer")
            if is_awaited:
                message = refusal(background.wait, OSError, SystemExit)
                assert_equal("the error of wait()", message, "the disk is full" * (failure is not None))
                failure = None
            if cause is not None:
                raise cause("the block")
    except (OSError, SystemExit, StopRequestedError, KeyboardInterrupt, RuntimeError) as error:
        raised = error
    assert_equal("finished when the second work began", at_start, ["the first work"])
    is_replaced = cause in (None, StopRequestedError) or failure is SystemExit
    expected = failure if failure is not None and is_replaced else cause
    assert_equal(case, None if raised is None else type(raised), expected)
    notes = "".join(getattr(raised, "__notes__", []))
    has_note = failure is not None and expected is not failure
    assert_equal(f"{case}: whether the failure is in the notes {notes!r}", "the disk is full" in notes, has_note)
