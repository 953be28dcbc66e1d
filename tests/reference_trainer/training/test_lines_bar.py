"""The progress bar that a terminal shows below the lines of a run."""

import io
import os
import re
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.progress import Progress

from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill
from reference_trainer.training.callbacks import Context
from reference_trainer.training.lines import BarCallback, Lines, _LossAndSpeed

WIDE = {"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
WIDE |= {"COLUMNS": "120"}
ERASED = "\x1b[2K"
NANOSECOND = 1e-9


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


def context(**changes) -> Context:
    values = {"step": 10, "epoch": 1, "loss": 1.23456, "learning_rate": 0.1, "best_loss": 1.0, "elapsed_s": 4.0}
    return Context(
        **{
            **values,
            "tokens": 20480,
            "epochs": 2,
            "steps_per_epoch": 5,
            "total_steps": 10,
            "metrics": {"loss": 1.0},
            **changes,
        }
    )


def drawn(stream: Terminal, title: str, now: Context) -> str:
    """Draw the bar of a run without log lines that ends with this context; return all that was written."""
    with patch.dict(os.environ, WIDE):
        callback = BarCallback(Lines(stream), title)
        callback.on_train_begin(context(step=0, loss=None))
        callback.on_step_end(now)
        callback.on_train_end(now)
    return stream.getvalue()


@settings(max_examples=15, deadline=None)
@given(
    title=st.sampled_from(["student", "teacher"]),
    step=st.integers(0, 10),
    loss=st.floats(0, 1e4) | st.none(),
    elapsed_s=st.sampled_from([0.0, 0.25, 1.0, 3.0]),
)
def test_bar_shows_title_percentage_loss_and_speed_and_is_erased(
    title: str, step: int, loss: float | None, elapsed_s: float
) -> None:
    seen = drawn(Terminal(), title, context(step=step, tokens=step, loss=loss, elapsed_s=elapsed_s))
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "\n")
    frames = [line.rstrip() for line in plain.split("\n") if line.strip()]
    reading = "" if loss is None else rf"loss {loss:.4f}  {step / max(elapsed_s, NANOSECOND):,.0f} tokens/s "
    assert re.fullmatch(rf"{title} [━╸╺]+ +{10 * step}% {reading} ?[0-9:-]+", frames[-1])
    assert seen.endswith(ERASED)


@pytest.mark.parametrize("step", [0, 3, 10])
def test_bar_uses_only_characters_of_the_encoding_of_the_terminal(step: int) -> None:
    seen = drawn(AsciiTerminal(), "student", context(step=step))
    assert f"{10 * step}%" in seen
    assert seen.isascii()


def test_run_shows_a_bar_for_each_model(tmp_path: Path) -> None:
    stream, text = Terminal(), tmp_path / "text"
    text.write_bytes(bytes(range(100)))
    tiny = {"layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "teacher_steps": 2}
    chosen = Settings(data=text, teacher_cache=tmp_path, smoke=2, length=8, device="cpu", log_every=0, **tiny)
    with patch.dict(os.environ, WIDE):
        distill(chosen, lines=Lines(stream))
    assert all(re.search(rf"{title} \S*[━╸╺].*100%", stream.getvalue()) for title in ("student", "teacher"))


def shown(values: Context | None) -> str:
    progress = Progress(auto_refresh=False)
    progress.add_task("student", context=values)
    return str(_LossAndSpeed().render(progress.tasks[0]))


def test_column_shows_loss_and_tokens_per_second() -> None:
    assert shown(context()) == "loss 1.2346  5,120 tokens/s"


def test_column_is_empty_without_a_loss() -> None:
    assert shown(None) == ""
    assert shown(context(loss=None)) == ""


def test_zero_elapsed_seconds_do_not_divide_by_zero() -> None:
    assert shown(context(elapsed_s=0.0)).startswith("loss 1.2346  ")
