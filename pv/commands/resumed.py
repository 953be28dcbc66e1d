"""Run a command uncut, and interrupted and resumed, under observation: `pv check --cut K --resume ARGS -- COMMAND`."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pv.contract.wording import count
from pv.errors import UsageError
from pv.observe import launch
from pv.suites.training_run.run import COMPARISONS, Run, read_folder
from pv.workers import tree

OUT = "{out}"
"""Placeholder of the output folder in a command and in the arguments that resume it. Every complete run has a new one.

A complete run is an uncut run, or an interrupted run with all its continuations.
"""
COPY_LIMIT = 200 * 2**20
"""Maximum size in bytes of the working folder, which is copied for every complete run if the command has no `{out}`."""
GRACE_SECONDS = 30.0
"""Seconds to wait for the other ranks after the first rank has reached the step at which all are killed."""
LINKED = ("pyvenv.cfg", "HEAD")
"""Files that mark a virtual environment or a folder of git. Such folders are linked, not copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """The interruptions of a run, and the other runs that it is compared with.

    Attributes:
        cut: The steps after which the run is killed, in ascending order: first the run itself, then its continuations.
        resume: Arguments that are added to the command to resume the run.
        in_save: Whether another run is killed inside the first save at or after the first step of `cut`.
        extend: Arguments that make the run longer. The complete run is resumed with them after its end; "" for none.
        against: A second command, whose steps must have the same examples and updates; "" for none.
    """

    cut: tuple[int, ...] = ()
    resume: str = ""
    in_save: bool = False
    extend: str = ""
    against: str = ""

    def check(self) -> None:
        """Raise `UsageError` for an invalid combination of options, or steps that are not ascending."""
        if list(self.cut) != sorted(set(self.cut)) or any(step < 1 for step in self.cut):
            raise UsageError(f"--cut {' --cut '.join(map(str, self.cut))}: name steps from 1 on, in ascending order")
        if (self.cut or self.extend) and not self.resume:
            raise UsageError(
                "--cut and --extend need --resume: the arguments that resume the run, '--resume {out}/last.pt'"
            )
        if self.resume and not (self.cut or self.extend):
            raise UsageError("--resume needs --cut K: the step after which the run is killed; or --extend ARGS")
        if self.in_save and not self.cut:
            raise UsageError("--in-save needs --cut K: the run is killed inside the first save after K steps")


class ComparedRuns:
    """Runs one command several times for a comparison.

    Args:
        command: The words of the command; `{out}` in the words is replaced.
        folder: The folder for the traces of the first run, with a subfolder for every other run.
        scratch: An empty folder for the output folders of the runs, or for the copies of the working folder.
        options: The options of the observer in every complete run.
    """

    def __init__(self, command: Sequence[str], folder: Path, scratch: Path, options: launch.Options) -> None:
        self.command, self.folder, self.scratch, self.options = list(command), folder, scratch, options

    def run(self, options: Interruptions) -> int:
        """Run the command uncut and, if this run succeeds, all other runs that the comparisons need.

        Args:
            options: The interruptions, and the other runs to compare with.

        Returns:
            The exit status of the first, uncut run.

        Raises:
            UsageError: The options are invalid, or do not fit the run, which has no step after the last cut or saves
                nothing before it is killed; the folder has the runs of another comparison; a run cannot be started, or
                ended before it was killed.
        """
        options.check()
        if any((self.folder / name).exists() for name in ("again", *COMPARISONS)):
            raise UsageError(f"{self.folder} holds the runs of another comparison: use a new folder for --trace")
        resume, extend = shlex.split(options.resume), shlex.split(options.extend)
        in_command = any(OUT in word for word in self.command)
        if not in_command and any(OUT in word for word in (*resume, *extend)):
            raise UsageError(
                "{out} is in --resume and not in the command: write {out} in the command too, as its output folder"
            )
        first = self.new_folders("uncut")
        status = self.observe(self.command, self.folder, first, "uncut run")
        if status:
            return status
        uncut = read_folder(self.folder, complete=True)
        if options.cut:
            self.check_cuts(uncut, options.cut)
        if options.cut or options.against:
            self.observe(self.command, self.folder / "again", self.new_folders("again"), "uncut run, repeated")
        if options.cut:
            self.cut("cut", options.cut, resume)
        if options.in_save:
            self.cut("save", options.cut[:1], resume)
        if extend:
            parts = self.folder / "extended"
            # The first part is the uncut run: copy its traces, but not the folders of other runs.
            (parts / "1").mkdir(parents=True)
            for trace in self.folder.glob("trace-*"):
                shutil.copy2(trace, parts / "1")
            self.observe([*self.command, *extend], parts / "uncut", self.new_folders("longer"), "longer uncut run")
            self.finish([*self.command, *extend, *resume], parts / "2", first, "run that is resumed after its end")
        if options.against:
            folders = self.new_folders("against")
            self.finish(shlex.split(options.against), self.folder / "against/1", folders, "run of --against")
        return status

    def new_folders(self, name: str) -> tuple[str, Path]:
        """Create the folders of a complete run.

        Args:
            name: The name of the new folder in the scratch folder.

        Returns:
            The folder that replaces `{out}`, and the working folder. Without `{out}` in the command, both are a copy of
            the current folder.
        """
        out = self.scratch / name
        if any(OUT in word for word in self.command):
            out.mkdir()
            return str(out), Path.cwd()
        copy_folder(Path.cwd(), out)
        return str(out), out

    def check_cuts(self, uncut: Run, cut: Sequence[int]) -> None:
        """Raise `UsageError` if the uncut run has no later step, or saves nothing before one of these steps."""
        if uncut.steps <= cut[-1]:
            raise UsageError(
                f"--cut {cut[-1]}: the run takes {count(uncut.steps, 'step')}: kill it after an earlier one"
            )
        saves = sorted({e["step"] for process in uncut.processes for e in process.of("save") if e["step"]})
        # Each part must save after its first step and before it is killed. Otherwise the next part would repeat it from
        # the start, and the comparison would end with it.
        after = 0
        for step in cut:
            if not any(after < save < step for save in saves):
                following = next((save for save in saves if save > after), None)
                since, which, other = (f"after step {after} and ", "next", "other ") if after else ("", "first", "")
                hint = (
                    f"the {which} save is after step {following}: use --cut {following + 1} or more"
                    if following
                    else f"no {other}torch.save and no {other}save of safetensors was observed"
                )
                raise UsageError(f"--cut {step}: nothing is saved {since}before this step; {hint}")
            after = max(save for save in saves if save < step)

    def cut(self, kind: str, steps: Sequence[int], resume: Sequence[str]) -> None:
        """Run the command, kill it after each of some steps, and resume it each time.

        Args:
            kind: "cut" to kill the run after a step, "save" to kill it inside the next save.
            steps: The steps, counted from the beginning of the run, in ascending order.
            resume: The arguments that are added to resume the run.
        """
        folders = self.new_folders(kind)
        done = 0
        """The step of the last save, from which the next part continues."""
        command = self.command
        for number, step in enumerate(steps, 1):
            title = f"run that is killed {'inside a save ' if kind == 'save' else ''}after step {step}"
            part = self.folder / kind / str(number)
            # A process counts its steps from 1, so a continuation has taken `step - done` steps when it is killed.
            self.observe(command, part, folders, title, cut=step - done, in_save=kind == "save")
            interrupted = read_folder(part, complete=False)
            done += max((e["step"] for process in interrupted.processes for e in process.of("save")), default=0)
            command = [*self.command, *resume]
        self.finish(command, self.folder / kind / str(len(steps) + 1), folders, "resumed run", done)

    def finish(self, command: Sequence[str], part: Path, folders: tuple[str, Path], title: str, done: int = 0) -> None:
        """Run the last part of a run, and write its exit status beside its traces.

        Args:
            command: The words of the command.
            part: The folder for the traces of the part.
            folders: The folder that replaces `{out}`, and the working folder.
            title: The description of the part in messages.
            done: Number of steps of earlier parts, which count for the limit of steps in the options.
        """
        left = max(0, self.options.steps - done) if self.options.steps else 0
        status = self.observe(command, part, folders, title, steps=left)
        (part / "status").write_text(str(status))

    def observe(
        self,
        command: Sequence[str],
        trace: Path,
        folders: tuple[str, Path],
        title: str,
        *,
        cut: int = 0,
        in_save: bool = False,
        steps: int | None = None,
    ) -> int:
        """Run a command under observation, with a line before its output; return its exit status, 0 if it was killed.

        Args:
            command: The words of the command; `{out}` in the words is replaced.
            trace: The folder for the traces.
            folders: The folder that replaces `{out}`, and the working folder.
            title: The description of the run in messages.
            cut: The step after which the run is killed, counted from the start of this part; 0 not to kill the run.
            in_save: Kill the run inside the first save at or after the step `cut`.
            steps: Maximum number of optimizer steps, 0 for no limit (default: from the options).

        Raises:
            UsageError: The command cannot be run, or ended before it was killed.
        """
        out, folder = folders
        words = [word.replace(OUT, out) for word in command]
        if os.sep in words[0] and folder != Path.cwd() and not (folder / words[0]).exists():
            words[0] = str(Path(words[0]).absolute())  # the program is not in the copied folder
        trace.mkdir(parents=True, exist_ok=True)
        steps = 0 if cut else self.options.steps if steps is None else steps
        options = replace(self.options, steps=steps, cut=cut, cut_in_save=in_save, comparing=True)
        variables = launch.environment(trace, options)
        sys.stderr.write(f"pv: {title}\n")
        try:
            process = subprocess.Popen(words, env={**os.environ, **variables}, cwd=folder)
        except FileNotFoundError as error:
            raise UsageError(f"command not found: {words[0]}") from error
        except OSError as error:
            raise UsageError(f"cannot run {words[0]}: {error.strerror}") from error
        try:
            if not cut:
                status = process.wait()
                return status if status >= 0 else 128 - status
            if not _wait_for_cut(process, trace):
                raise UsageError(f"the {title} ended by itself with status {process.returncode} before it was killed")
            return 0
        finally:
            if process.poll() is None or cut:
                # The workers of torchrun have separate sessions, and the workers of a data loader outlive their parent.
                tree.kill_tree(process.pid)
                if Path("/proc/self/environ").exists():
                    tree.kill_all(tree.find_marked(f"PV_OBSERVE_TRACE={variables['PV_OBSERVE_TRACE']}"))
                process.wait()


def _wait_for_cut(process: "subprocess.Popen[bytes]", trace: Path) -> bool:
    """Wait until all ranks have reached the step to be killed at, or the command ends; return whether a rank has.

    After the first rank, wait at most `GRACE_SECONDS` for the others.
    """
    # At the step, every rank writes a file `cut-*` and waits. Then all ranks are killed together, as by a failure of
    # their node.
    first_mark = None
    while process.poll() is None:
        marks = [json.loads(mark.read_text()) for mark in trace.glob("cut-*")]
        first_mark = first_mark or (time.monotonic() if marks else None)
        if marks and len(marks) >= max(mark["ranks"] for mark in marks):
            break
        if first_mark is not None and time.monotonic() - first_mark > GRACE_SECONDS:
            break
        time.sleep(0.02)
    return any(trace.glob("cut-*"))


def copy_folder(source: Path, target: Path) -> None:
    """Copy a working folder, with links to its virtual environments and its folder of git.

    Args:
        source: The folder to copy.
        target: The copy, which does not exist yet.

    Raises:
        UsageError: The copied files are larger than `COPY_LIMIT`; the message names the largest entry of the folder.
    """
    sizes: dict[str, int] = {}

    def is_linked(folder: Path) -> bool:
        return any((folder / name).is_file() for name in LINKED)

    for entry in source.iterdir():
        for path in [entry] if not entry.is_dir() or entry.is_symlink() else entry.rglob("*"):
            if not path.is_symlink() and path.is_file() and not any(is_linked(p) for p in path.parents if p != source):
                sizes[entry.name] = sizes.get(entry.name, 0) + path.stat().st_size
                if sum(sizes.values()) > COPY_LIMIT:
                    largest = max(sizes, key=lambda name: sizes[name])
                    raise UsageError(
                        f"{source} has more than {COPY_LIMIT // 2**20} MiB, too much to copy for every run ({largest} "
                        f"has {sizes[largest] // 2**20} MiB or more): "
                        "put {out} into the command, as its output folder"
                    )

    def copy(folder: Path, into: Path) -> None:
        into.mkdir()
        for entry in folder.iterdir():
            new = into / entry.name
            if entry.is_symlink():
                new.symlink_to((folder / entry.readlink()).absolute())
            elif entry.is_dir():
                new.symlink_to(entry, target_is_directory=True) if is_linked(entry) else copy(entry, new)
            elif entry.is_file():
                shutil.copy2(entry, new)

    copy(source, target)
