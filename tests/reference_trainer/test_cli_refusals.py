"""What the command line refuses, how it says so, and how soon: wrong settings without loading torch."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from reference_trainer import read_metrics
from reference_trainer.callbacks.from_file import read_specs
from reference_trainer.config.sources import gather
from reference_trainer.errors import TrainerError
from reference_trainer.huggingface.chats import check_readable, read_template
from reference_trainer.storage.teacher_outputs import SavedOutputs
from tests.support.processes import Ended, python

SETTINGS = {
    "--config=missing": "cannot read missing: No such file or directory; expected a file of settings, or one of "
    "eight-gpus, one-gpu, two-machines",
    "--config=/dev/zero": "/dev/zero has more than 1,048,576 bytes; expected a file of settings in TOML or YAML",
    "--config=bad": (
        "invalid TOML in bad: Invalid value (at line 2, column 6); expected lines such as lr = 0.001; "
        "YAML is read from files whose name ends in .yaml or .yml"
    ),
}


def _command(*arguments: str, folder: Path, without: str = "torch") -> Ended:
    """Run the command in an interpreter that can't import a package."""
    script = f"import sys; sys.modules[{without!r}] = None; from reference_trainer.__main__ import run; run()"
    return python("-c", script, *arguments, cwd=folder)


@pytest.mark.parametrize("kind", ["settings", "callbacks", "chat template", "teacher outputs"])
def test_misspelt_path_is_refused_with_the_path_beside_it(kind: str, tmp_path: Path) -> None:
    (tmp_path / "right").mkdir()
    path = tmp_path / "rigth"
    actions: dict[str, Callable[[], object]] = {
        "settings": lambda: gather({}, {}, path),
        "callbacks": lambda: read_specs(path),
        "chat template": lambda: read_template(path),
        "teacher outputs": lambda: SavedOutputs(path),
    }
    with pytest.raises(TrainerError, match=r"did you mean '.*right"):
        actions[kind]()


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (lambda path: gather({"arguments": path.read_text(encoding="utf-8")}, {}, None), "{0}"),
        (read_specs, "callbacks = {0}"),
        (read_metrics, "{0}\n"),
        (check_readable, '{{"_data_files": {0}'),
    ],
    ids=["setting", "callbacks", "metrics", "dataset"],
)
def test_too_deep_nesting_is_refused(read: Callable[[Path], object], content: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(content.format("[" * 100_000), encoding="utf-8")
    with pytest.raises(TrainerError, match=r"invalid|state\.json"):
        read(tmp_path if read is check_readable else path)


@pytest.mark.parametrize("argument", SETTINGS)
def test_a_wrong_setting_is_refused_in_one_line(argument: str, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("seed = 1\nlr = \n")
    done = _command("distill", argument, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {SETTINGS[argument]}\n"


@pytest.mark.parametrize("argument", ["--help", "schema"])
def test_what_only_prints_needs_no_torch(argument: str, tmp_path: Path) -> None:
    done = _command(argument, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--device", "cuda:999"), 2, "invalid value 'cuda:999' for 'device': "),
        (("--data", "/dev/null"), 1, "/dev/null is not a regular file; expected a text file"),
    ],
)
def test_unusable_device_or_data_is_refused_in_one_line(trainer, flags: tuple[str, str], code: int, says: str) -> None:
    done = trainer.run(*flags)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {says}")
    assert not (trainer.folder / "out").exists()


def test_a_model_larger_than_the_memory_is_no_bug_of_ours(trainer) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))  # or a machine with more would begin to fill it

    process = trainer.start("--width", "65536", preexec_fn=limit)
    output, complaints = process.communicate()
    assert process.returncode == 1 and output == ""
    (line,) = complaints.splitlines()
    assert line.startswith("error: ") and "can't allocate memory" in line


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    done = _command(folder=tmp_path, without="pydantic")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: pydantic is not installed: pip install 'pv-contracts[trainer]'\n"
