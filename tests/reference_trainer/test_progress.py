"""What the progress bar shows of a run, given what it was told last."""

from rich.progress import Progress

from reference_trainer.callbacks import Context
from reference_trainer.progress import _Reading


def context(**changes) -> Context:
    told = {"step": 10, "epoch": 1, "loss": 1.23456, "learning_rate": 0.1, "best_loss": 1.0, "elapsed_s": 4.0}
    return Context(**{**told, "tokens": 20480, "epochs": 3, "steps_per_epoch": 7, "total_steps": 21, **changes})


def shown(told: Context | None) -> str:
    progress = Progress(auto_refresh=False)
    progress.add_task("student", context=told)
    return str(_Reading().render(progress.tasks[0]))


def test_it_shows_the_loss_and_tokens_per_second() -> None:
    assert shown(context()) == "loss 1.2346  5,120 tokens/s"


def test_it_shows_nothing_before_there_is_something() -> None:
    assert shown(None) == ""
    assert shown(context(loss=None)) == ""


def test_no_time_is_no_division_by_zero() -> None:
    assert shown(context(elapsed_s=0.0)).startswith("loss 1.2346  ")
