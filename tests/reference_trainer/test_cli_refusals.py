"""What the command line refuses, how it says so, and how soon: wrong settings without loading torch."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = {
    "--config=missing": "cannot read missing: No such file or directory",
    "--config=/dev/zero": "/dev/zero has more than 1,048,576 bytes; expected a TOML file of settings",
    "--config=broken": (
        "invalid TOML in broken: Invalid value (at line 2, column 6); only TOML is read, such as lr = 0.001"
    ),
}


def _command(*arguments: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command in an interpreter that can't import torch."""
    without = "import sys; sys.modules['torch'] = None; from reference_trainer.__main__ import run; run()"
    return subprocess.run(
        [sys.executable, "-c", without, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("argument", SETTINGS)
def test_a_wrong_setting_is_refused_in_one_line(argument: str, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("seed = 1\nlr = \n")
    done = _command("distill", argument, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {SETTINGS[argument]}\n"


def test_an_unknown_argument_is_refused_with_a_hint(tmp_path: Path) -> None:
    done = _command("distill", "--epoch", "3", folder=tmp_path)
    assert done.returncode == 2
    assert "Usage: reference-trainer" in done.stderr and "--epochs" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("argument", ["--help", "schema"])
def test_what_only_prints_needs_no_torch(argument: str, tmp_path: Path) -> None:
    done = _command(argument, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--device", "cuda:999"), 2, "invalid value 'cuda:999' for 'device': "),
        (
            ("--data", "empty"),
            1,
            "empty holds 0 bytes; sequences of 16 need at least 151, because a tenth is held back",
        ),
        (("--data", "fifo"), 1, "fifo is not a regular file; expected a text file"),
        (("--data", "missing"), 1, "cannot read missing: No such file or directory"),
    ],
)
def test_device_or_data_that_cannot_be_used_is_refused_in_one_line(
    trainer, flags: tuple[str, str], code: int, says: str
) -> None:
    (trainer.folder / "empty").touch()
    os.mkfifo(trainer.folder / "fifo")
    done = trainer.run(*flags)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {says}")
    assert not (trainer.folder / "out").exists()


def test_a_model_larger_than_the_memory_is_no_bug_of_ours(trainer) -> None:
    limit = 4 << 30  # or a machine with more would begin to fill it
    done = trainer.spawn(
        "--width", "65536", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    )
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and "can't allocate memory" in line


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    without = "import sys; sys.modules['pydantic'] = None; from reference_trainer.__main__ import run; run()"
    done = subprocess.run([sys.executable, "-c", without], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: pydantic is not installed: pip install 'pv-contracts[trainer]'\n"
