"""The text that ships with the trainer."""

from reference_trainer.data.text import frozen_text


def test_frozen_text_is_english_and_long_enough() -> None:
    text = frozen_text()
    assert len(text) > 300_000
    assert text.count(b" the ") > 2000
