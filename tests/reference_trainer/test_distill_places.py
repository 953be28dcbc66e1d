"""Places that can't take the results: full and read-only disks, what is there already, two runs at once."""

import os
import subprocess
import time
from pathlib import Path

WHOLE = ["config.json", "manifest.json", "model.safetensors"]


def fill(disk: Path, leave_kib: int) -> None:
    space = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - (leave_kib << 10))))


def assert_refused(done, *says: str) -> None:
    """One line that names the place, before anything was trained."""
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(each in line for each in says), line
    assert done.stdout == ""


def test_an_out_that_is_too_small_is_refused_before_training(trainer, small_disk) -> None:
    disk = small_disk(40)
    done = trainer.run("--out", f"{disk}/new/out")
    assert_refused(done, f"{disk}/new/out has", "bytes free, the results need", "make room or give another --out")
    assert list(disk.iterdir()) == []


def test_a_disk_that_fills_up_during_the_run_leaves_nothing_of_it(trainer, small_disk) -> None:
    disk = small_disk(400)
    process = trainer.start("--out", f"{disk}/new/out", "--epochs", "3")
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if line.startswith("  Step 10"):
            fill(disk, 8)
            break
    process.stdout.read()
    complaints = process.stderr.read()
    assert process.wait() == 1, complaints
    (line,) = complaints.splitlines()
    assert line == f"error: {disk}/new/out/model.safetensors could not be written: No space left on device"
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_trace_on_a_full_disk_ends_the_run(trainer, small_disk) -> None:
    disk = small_disk(40)
    fill(disk, 4)
    done = trainer.run("--trace", f"{disk}/trace", "--epochs", "3")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {disk}/trace can't be written any further: No space left on device"), line
    assert trainer.left() == []


def test_a_cache_that_takes_no_teacher_costs_no_run(trainer, small_disk) -> None:
    disk = small_disk(40)
    fill(disk, 4)
    done = trainer.run("--teacher-cache", str(disk))
    assert done.returncode == 0, done.stderr
    assert "not kept for the next run: " in done.stdout and "No space left on device" in done.stdout
    assert trainer.left() == WHOLE
    assert [path.name for path in disk.rglob("*") if path.is_file()] == ["filler"]


def test_a_read_only_disk_takes_nothing(trainer, small_disk) -> None:
    disk = small_disk(400)
    (disk / "empty").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert_refused(trainer.run("--out", f"{disk}/empty"), f"{disk}/empty: Read-only file system")
    assert_refused(trainer.run("--trace", f"{disk}/trace"), f"{disk}/trace can't be written: Read-only file system")
    done = trainer.run("--teacher-cache", str(disk))
    assert done.returncode == 0, done.stderr
    assert "not kept for the next run: " in done.stdout and "Read-only file system" in done.stdout


def test_what_is_there_already_is_left_alone(trainer) -> None:
    folder = trainer.folder
    (folder / "full").mkdir()
    (folder / "full" / "mine").write_text("mine")
    (folder / "link").symlink_to("full")
    (folder / "dangling").symlink_to("nowhere")
    before = sorted(folder.rglob("*"))
    for out, says in {
        "text/below": "text/below can't be made: Not a directory; give another --out",
        "link": "link isn't empty; give another --out, or --force to write into it",
        "dangling": "dangling can't be made: ",
    }.items():
        assert_refused(trainer.run("--out", out), says)
    assert_refused(
        trainer.run("--trace", "full/mine"), "full/mine exists; give another --trace, or --force to write over it"
    )
    assert_refused(trainer.run("--out", "new/deep", "--trace", "no/trace"), "no/trace can't be written: No such file")
    assert sorted(folder.rglob("*")) == before


def test_one_run_after_the_other(trainer) -> None:
    """A second run is refused; with --force, and through a link, it takes the place of the first entirely."""
    assert trainer.run("--out", "new/deep/out").returncode == 0
    assert trainer.left("new/deep/out") == WHOLE
    assert_refused(trainer.run("--out", "new/deep/out"), "new/deep/out isn't empty")
    before = {name: (trainer.folder / "new/deep/out" / name).read_bytes() for name in WHOLE}
    (trainer.folder / "link").symlink_to("new/deep/out")
    assert trainer.run("--out", "link", "--force", "--width", "32").returncode == 0
    after = {name: (trainer.folder / "new/deep/out" / name).read_bytes() for name in WHOLE}
    assert trainer.left("link") == WHOLE
    assert all(before[name] != after[name] for name in WHOLE)
    again = trainer.run("--out", "second", "--teacher", "new/deep/out", "--smoke", "2")
    assert again.returncode == 0, again.stderr
    assert trainer.left("second") == []


def test_of_two_runs_at_once_the_second_is_refused(trainer) -> None:
    first = trainer.start("--epochs", "1000")
    assert first.stdout is not None
    while not first.stdout.readline().startswith("  Step"):
        assert first.poll() is None
    start = time.monotonic()
    try:
        assert_refused(trainer.run("--force"), "another run is writing into out; give another --out")
        assert time.monotonic() - start < 30
        assert first.poll() is None
    finally:
        first.terminate()
        first.communicate()
    assert first.returncode == 130
    assert trainer.left() == [] and not (trainer.folder / "out").exists()


def test_a_teacher_that_is_half_a_model_is_refused(trainer) -> None:
    (trainer.folder / "teacher").mkdir()
    (trainer.folder / "teacher" / "config.json").write_text('{"model_type": "reference_trainer.decoder"')
    assert_refused(trainer.run("--teacher", "teacher"), "teacher/config.json can't be read", "expected the directory")
    assert not (trainer.folder / "out").exists()
