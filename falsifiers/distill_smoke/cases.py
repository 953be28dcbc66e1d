"""A small distillation in a directory of its own, and its observable results.

A place is a directory with everything that a run could write to: text, output, cache, home, working directory and
temporary files.
"""

import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from falsifiers.support.run_lines import SMOKE_SUMMARY, matcher
from falsifiers.support.small_runs import SMALL
from reference_trainer.callbacks.lines import Lines
from reference_trainer.config.settings import Settings

TINY = {**SMALL, "teacher_steps": 2, "length": 16, "epochs": 3, "log_every": 0}
VARIABLES = ("REFERENCE_TRAINER_", "APR_DISTILL_")
TEXT = bytes(97 + k * k % 26 for k in range(170))
SEQUENCES = 10
"""Of TEXT: 153 bytes to learn from, a byte of context, and 15 more in each sequence of length 16."""


def steps_per_epoch(batch_size: int = TINY["batch_size"]) -> int:
    return -(-SEQUENCES // batch_size)


def planned(*, batch_size: int = TINY["batch_size"], epochs: int = TINY["epochs"]) -> int:
    return epochs * steps_per_epoch(batch_size)


class Place:
    """The files below `tree` are watched; traces lie beside it."""

    def __init__(self, root: Path) -> None:
        self.root, self.tree = root, root / "tree"
        self.text, self.out, self.cache = (self.tree / name for name in ("text.txt", "out", "cache"))
        self.home, self.temporary, self.work = (self.tree / name for name in ("home", "temporary", "work"))

    def listing(self) -> dict[str, str]:
        """Return every path below `tree`: a directory, or a file with its size, digest and modification time."""
        return {str(path.relative_to(self.tree)): _described(path) for path in sorted(self.tree.rglob("*"))}

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {"data": self.text, "out": self.out, "teacher_cache": self.cache, **TINY, **changes}

    def flags(self, **changes: Any) -> list[str]:
        """Return the same as flags; a setting that is None is left out."""
        given = {name: value for name, value in self.settings(**changes).items() if value is not None}
        return [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]

    def environment(self, **variables: str) -> dict[str, str | None]:
        """Return the directories of a run, `variables`, and None for every other variable of the trainer."""
        unset = dict.fromkeys(name for name in os.environ if name.startswith(VARIABLES))
        places = {"HOME": self.home, "XDG_CACHE_HOME": self.home / "xdg", "TMPDIR": self.temporary}
        drivers = {"CUDA_CACHE_DISABLE": "1"}  # else the driver writes compiled kernels to the home directory
        return {**unset, **{name: str(path) for name, path in places.items()}, **drivers, **variables}


@contextmanager
def place(root: Path | None = None) -> Iterator[Place]:
    """Create a place in `root`, or in a temporary directory."""
    with tempfile.TemporaryDirectory(dir=root) as temporary:
        found = Place(Path(temporary))
        found.tree.mkdir()
        for directory in (found.work, found.home, found.temporary):
            directory.mkdir()
        found.text.write_bytes(TEXT)
        yield found


def _described(path: Path) -> str:
    if path.is_dir():
        return "directory"
    return f"{path.stat().st_size} bytes {hashlib.sha256(path.read_bytes()).hexdigest()} at {path.stat().st_mtime_ns}"


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the paths that were added, removed or changed, except the empty directory that importing torch creates."""
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    torchs = re.compile("temporary/torchinductor_[^/]*")
    return [path for path in changed if not (torchs.fullmatch(path) and after.get(path) == "directory")]


@dataclass(frozen=True, slots=True)
class Ran:
    """A distillation through the library: result or exception, lines, and the events of its trace."""

    result: Any
    error: BaseException | None
    lines: list[str]
    events: list[dict[str, Any]]

    @property
    def losses(self) -> list[float]:
        return [event["loss"] for event in self.events if event["event"] == "on_step_end"]

    def starting_with(self, text: str) -> list[str]:
        return [line for line in self.lines if line.startswith(text)]

    def reported_steps(self) -> list[str]:
        """Return the number of steps in each summary line, parsed without the trainer."""
        return [match["steps"] for line in self.lines if (match := matcher(SMOKE_SUMMARY).fullmatch(line))]


def distilled(
    subject: Any, where: Place, *, callbacks: Sequence[Any] = (), traced: bool = True, **settings: Any
) -> Ran:
    """Run `subject.distill` in a place, with a trace beside it. Keep the exception that it raises."""
    stream, trace = io.StringIO(), where.root / f"trace-{len(list(where.root.iterdir()))}.jsonl"
    result: Any = None
    error: BaseException | None = None
    try:
        made = Settings(**where.settings(trace=trace if traced else None, **settings))
        result = subject.distill(made, callbacks=callbacks, lines=Lines(stream))
    except (Exception, KeyboardInterrupt) as caught:
        error = caught
    return Ran(result, error, stream.getvalue().splitlines(), read_trace(trace))


def finished(subject: Any, where: Place, **settings: Any) -> Ran:
    """Run it and fail if it raises."""
    ran = distilled(subject, where, **settings)
    assert ran.error is None, f"a run with {settings} ended with {ran.error!r}; expected it to finish"
    return ran


def read_trace(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def invoked(subject: Any, where: Place, *arguments: str, run: Any = None, **variables: str) -> Result:
    """Run `distill` of the subject's command line in this process and restore the environment.

    run: called instead of the distillation.
    """
    return CliRunner(env=where.environment(**variables)).invoke(subject.main, ["distill", *arguments], obj=run)
