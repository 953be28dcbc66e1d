"""Loss and speed column of the progress bar."""

from rich.progress import Progress

from reference_trainer.training.callbacks import Context
from reference_trainer.training.progress import _LossAndSpeed


def context(**changes) -> Context:
    values = {"step": 10, "epoch": 1, "loss": 1.23456, "learning_rate": 0.1, "best_loss": 1.0, "elapsed_s": 4.0}
    return Context(**{**values, "tokens": 20480, "epochs": 3, "steps_per_epoch": 7, "total_steps": 21, **changes})


def shown(values: Context | None) -> str:
    progress = Progress(auto_refresh=False)
    progress.add_task("student", context=values)
    return str(_LossAndSpeed().render(progress.tasks[0]))


def test_bar_shows_loss_and_tokens_per_second() -> None:
    assert shown(context()) == "loss 1.2346  5,120 tokens/s"


def test_bar_shows_nothing_without_a_loss() -> None:
    assert shown(None) == ""
    assert shown(context(loss=None)) == ""


def test_zero_elapsed_seconds_do_not_divide_by_zero() -> None:
    assert shown(context(elapsed_s=0.0)).startswith("loss 1.2346  ")
