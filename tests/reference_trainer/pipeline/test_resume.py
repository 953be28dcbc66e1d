"""What a command line needs to resume or begin with a checkpoint, and how its refusal says so."""

import json

FLAGS = ("--epochs", "2", "--accumulate", "2", "--log-every", "1", "--save-every", "1", "--keep", "2")


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
    hint = f"; to continue from the previous checkpoint, use --rewind --resume out/checkpoints/{before.name}"
    assert hint in done.stderr
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
    """A run that starts over, or resumes from an earlier step, needs --force and --rewind."""
    done = trainer.run("--out", "out", *FLAGS, "--max-steps", "3", "--keep", "0")
    assert done.returncode == 0, done.stderr
    earlier = ("--resume", "out/checkpoints/student-step2")
    for more in ((), earlier):
        done = trainer.run("--out", "out", *FLAGS, *more)
        assert done.returncode == 1
        both = "use --force and --rewind, which sets checkpoints aside, to write into it"
        assert done.stderr == f"error: out has the files of a complete run; choose another --out, or {both}\n"
    done = trainer.run("--out", "out", *FLAGS, "--resume", "best")
    assert done.stderr == "error: out/checkpoints: no best checkpoint to resume (saved steps: [1, 2, 3])\n"
    done = trainer.run("--out", "out", *FLAGS, *earlier, "--force")
    assert "cannot go on from step 2, because step 3 is saved too" in done.stderr and "or add --rewind" in done.stderr
    done = trainer.run("--out", "out", *FLAGS, "--resume", "latest")
    assert (
        done.stderr
        == "error: out has the files of a complete run; choose another --out, or use --force to write into it\n"
    )
    done = trainer.run("--out", "out", *FLAGS, "--max-steps", "3", "--force", "--rewind", *earlier)
    assert done.returncode == 0, done.stderr
    done = trainer.run("--out", "out", *FLAGS, "--max-steps", "3", "--force", "--resume", "latest")
    assert "the run had ended with step 3, so it takes no further step" in done.stdout
