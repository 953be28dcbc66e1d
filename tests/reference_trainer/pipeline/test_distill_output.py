"""Output directories that cannot be used: full and read-only disks, existing files, concurrent runs."""

import os
import subprocess
from pathlib import Path

FILES = ["config.json", "manifest.json", "metrics.jsonl", "model.safetensors"]
WHOLE = ["checkpoints", *FILES]


def fill(disk: Path, leave_kib: int) -> None:
    space = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - (leave_kib << 10))))


def assert_refused(done, *says: str) -> None:
    """Assert one line that names the path, before any training."""
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(words in line for words in says), line
    assert done.stdout == ""


def test_output_disk_without_space_is_refused_before_training(trainer, small_disk) -> None:
    disk = small_disk(40)
    done = trainer.run("--out", f"{disk}/new/out")
    assert_refused(done, f"{disk}/new/out has", "bytes free, the results need", "free space or choose another --out")
    assert list(disk.iterdir()) == []


def test_disk_full_during_run_leaves_no_model(trainer, small_disk) -> None:
    disk = small_disk(400)
    process = trainer.fork("--out", f"{disk}/new/out", "--epochs", "3", "--save-every", "0")
    for line in process.stdout:
        if line.startswith("  Step 10"):
            fill(disk, 8)
            break
    process.stdout.read()
    complaints = process.stderr.read()
    assert process.wait() == 1, complaints
    (line,) = complaints.splitlines()
    assert line == f"error: cannot write {disk}/new/out/model.safetensors: No space left on device"
    assert sorted(path.name for path in disk.rglob("*") if path.is_file()) == ["filler", "metrics.jsonl"]


def test_trace_on_full_disk_ends_run(trainer, small_disk) -> None:
    disk = small_disk(40)
    fill(disk, 4)
    done = trainer.run("--trace", f"{disk}/trace", "--epochs", "3")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: cannot write to {disk}/trace: No space left on device"), line
    assert trainer.left() == ["metrics.jsonl"]


def test_full_cache_disk_does_not_end_run(trainer, small_disk) -> None:
    disk = small_disk(40)
    fill(disk, 4)
    done = trainer.run("--teacher-cache", str(disk))
    assert done.returncode == 0, done.stderr
    assert "not cached for the next run: " in done.stdout and "No space left on device" in done.stdout
    assert trainer.left() == WHOLE
    assert [path.name for path in disk.rglob("*") if path.is_file()] == ["filler"]


def test_read_only_disk_is_refused(trainer, small_disk) -> None:
    disk = small_disk(400)
    (disk / "empty").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert_refused(trainer.run("--out", f"{disk}/empty"), f"{disk}/empty: Read-only file system")
    assert_refused(trainer.run("--trace", f"{disk}/trace"), f"cannot write {disk}/trace: Read-only file system")


def test_second_run_needs_force_and_replaces_model(trainer) -> None:
    """A second run is refused; with --force and --rewind, also through a link, it replaces every file of the first."""
    assert trainer.run("--out", "new/deep/out").returncode == 0
    assert trainer.left("new/deep/out") == WHOLE
    assert_refused(trainer.run("--out", "new/deep/out"), "new/deep/out")
    assert_refused(trainer.run("--out", "new/deep/out", "--force"), "checkpoints up to step", "--rewind")
    before = {name: (trainer.folder / "new/deep/out" / name).read_bytes() for name in FILES}
    (trainer.folder / "link").symlink_to("new/deep/out")
    assert trainer.run("--out", "link", "--force", "--rewind", "--width", "32").returncode == 0
    after = {name: (trainer.folder / "new/deep/out" / name).read_bytes() for name in FILES}
    assert trainer.left("link") == WHOLE
    assert all(before[name] != after[name] for name in FILES)
