"""Real processes that are killed and resumed, and disks that take no checkpoint."""

import hashlib
import json
import signal
import time
from pathlib import Path

from reference_trainer import read_metrics

FLAGS = ("--epochs", "2", "--accumulate", "2", "--log-every", "1", "--save-every", "1", "--keep", "2")


def digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def test_killed_process_is_resumed_to_the_same_model(trainer) -> None:
    straight, cut = trainer.folder / "straight", trainer.folder / "cut"
    done = trainer.run("--out", str(straight), *FLAGS)
    assert done.returncode == 0, done.stderr
    checkpoints = cut / "checkpoints"
    for resume in ([], ["--resume", "latest"]):
        before = sorted(checkpoints.glob("student-step*"))
        process = trainer.fork("--out", str(cut), *FLAGS, *resume)
        while process.poll() is None and sorted(checkpoints.glob("student-step*")) == before:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (cut / "model.safetensors").exists() or process.returncode == 0
    done = trainer.run("--out", str(cut), *FLAGS, "--resume", "latest", "--force")
    assert done.returncode == 0, done.stderr
    assert f"resumed from {checkpoints}/student-step" in done.stdout
    assert digest(cut) == digest(straight)
    steps = [line.step for line in read_metrics(cut / "metrics.jsonl")]
    assert steps == [line.step for line in read_metrics(straight / "metrics.jsonl")] == list(range(1, len(steps) + 1))
    assert len(list(checkpoints.glob("student-step*"))) == 2
    assert (checkpoints / "student-latest").resolve().name == f"student-step{steps[-1]}"


def test_changed_setting_is_refused_with_both_values(trainer) -> None:
    assert trainer.run("--out", "out", *FLAGS, "--max-steps", "1").returncode == 0
    done = trainer.run("--out", "out", *FLAGS, "--resume", "latest", "--force", "--seed", "9")
    assert done.returncode == 2
    assert "seed was 0 and is 9" in done.stderr
    assert "Traceback" not in done.stderr
    before = sorted((trainer.folder / "cache").rglob("*"))
    done = trainer.run("--out", "out", *FLAGS, "--resume", "latest", "--force", "--teacher-steps", "4")
    assert "teacher_steps was 3 and is 4" in done.stderr
    assert (done.stdout, sorted((trainer.folder / "cache").rglob("*"))) == ("", before), "a teacher was trained first"


def test_run_that_was_killed_says_how_to_go_on(trainer) -> None:
    assert trainer.run("--out", "out", *FLAGS).returncode == 0
    for name in ("model.safetensors", "config.json", "manifest.json"):
        (trainer.folder / "out" / name).unlink()
    done = trainer.run("--out", "out", *FLAGS)
    assert done.returncode == 1
    assert "go on with --resume latest, or start over with --rewind, which sets them aside" in done.stderr
    newest = (trainer.folder / "out/checkpoints/student-latest").resolve()
    (newest / "rank-00000.safetensors").write_bytes(b"")
    done = trainer.run("--out", "out", *FLAGS, "--resume", "latest")
    before = newest.with_name(f"student-step{int(newest.name.removeprefix('student-step')) - 1}")
    assert f"; to go on from the one before, use --rewind --resume out/checkpoints/{before.name}" in done.stderr
    done = trainer.run("--out", "out", *FLAGS, "--rewind", "--resume", f"out/checkpoints/{before.name}")
    assert done.returncode == 0, done.stderr


def test_output_directory_is_no_checkpoint(trainer) -> None:
    assert trainer.run("--out", "first", *FLAGS).returncode == 0
    for option, damage in (("--resume", "manifest.json"), ("--init-from", "model.safetensors")):
        (trainer.folder / "first" / damage).unlink()
        done = trainer.run("--out", "second", *FLAGS, option, "first")
        assert done.returncode == 1
        assert "error: cannot read first/manifest.json: No such file or directory; expected a checkpoint" in done.stderr
        assert done.stderr.endswith("; did you mean first/checkpoints/student-latest?\n")
    done = trainer.run("--out", "second", *FLAGS, "--init-from", "first/checkpoints/student-latest")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((trainer.folder / "second/manifest.json").read_text())
    latest = (trainer.folder / "first/checkpoints/student-latest").resolve()
    assert manifest["initial_weights"]["path"] == str(latest), "the path of a link that moves was recorded"


def test_what_is_needed_over_a_finished_run_is_said_at_once(trainer) -> None:
    """A run that starts over, or goes on from an earlier step, needs --force and --rewind."""
    done = trainer.run("--out", "out", *FLAGS, "--max-steps", "3", "--keep", "0")
    assert done.returncode == 0, done.stderr
    earlier = ("--resume", "out/checkpoints/student-step2")
    for more in ((), earlier):
        done = trainer.run("--out", "out", *FLAGS, *more)
        assert done.returncode == 1
        both = "use --force and --rewind, which sets checkpoints aside, to write into it"
        assert done.stderr == f"error: out is not empty; choose another --out, or {both}\n"
    done = trainer.run("--out", "out", *FLAGS, "--resume", "best")
    assert done.stderr == "error: out/checkpoints: no best checkpoint to resume (saved steps: [1, 2, 3])\n"
    done = trainer.run("--out", "out", *FLAGS, *earlier, "--force")
    assert "cannot go on from step 2, because step 3 is saved too" in done.stderr and "or add --rewind" in done.stderr
    done = trainer.run("--out", "out", *FLAGS, "--resume", "latest")
    assert done.stderr == "error: out is not empty; choose another --out, or use --force to write into it\n"
    done = trainer.run("--out", "out", *FLAGS, "--max-steps", "3", "--force", "--rewind", *earlier)
    assert done.returncode == 0, done.stderr
    done = trainer.run("--out", "out", *FLAGS, "--max-steps", "3", "--force", "--resume", "latest")
    assert "the run had ended with step 3, so it takes no further step" in done.stdout


def test_resume_without_a_checkpoint_is_refused(trainer) -> None:
    done = trainer.run("--out", "out", *FLAGS, "--resume", "latest")
    assert done.returncode == 1
    assert "no checkpoint to resume" in done.stderr
    assert trainer.left() == []


def test_checkpoint_on_full_disk_ends_the_run(trainer, small_disk) -> None:
    disk = small_disk(400)  # enough for a checkpoint and a model, not for four checkpoints
    done = trainer.run("--out", str(disk / "out"), *FLAGS, "--keep", "0")
    assert done.returncode == 1, done.stderr
    assert "cannot write" in done.stderr
    assert "student-step" in done.stderr
    assert "bytes are free" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((disk / "out" / "checkpoints").glob(".*"))
