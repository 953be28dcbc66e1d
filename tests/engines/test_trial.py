"""The output of a worker is shown with the number of bytes that were left out."""

from pv.engines.trial import Output


def test_whole_output_is_shown_unchanged() -> None:
    assert Output(head="a\nb\n", size=4).text == "a\nb\n"


def test_shortened_output_names_the_bytes_left_out() -> None:
    assert Output(head="a", tail="z", size=12, dropped=10).text == "a\n... 10 bytes left out ...\nz"
