"""`reference-trainer`, and the text that ships with it."""

from click.testing import CliRunner

from reference_trainer import losses
from reference_trainer.cli import main
from reference_trainer.data import frozen_text


def test_gradcheck_agrees_here() -> None:
    done = CliRunner().invoke(main, ["gradcheck"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "agree: at most 1e-10 is rounding"


def test_gradcheck_sees_a_temperature_too_many(monkeypatch) -> None:
    right = losses.kd_logit_gradient

    def wrong(*args, temperature, **others):
        return temperature * right(*args, temperature=temperature, **others)

    monkeypatch.setattr(losses, "kd_logit_gradient", wrong)
    done = CliRunner().invoke(main, ["gradcheck"])
    assert done.exit_code == 1
    assert done.output.splitlines()[-1].startswith("DIFFER")


def test_a_device_that_is_not_there_is_refused_in_one_line() -> None:
    done = CliRunner().invoke(main, ["gradcheck", "--device", "abacus"])
    assert done.exit_code == 2
    assert "'abacus' cannot be used" in done.output


def test_the_frozen_text_is_english_and_long_enough() -> None:
    text = frozen_text()
    assert len(text) > 300_000
    assert text.count(b" the ") > 2000
