"""The output of one example is kept, and written as before."""

import sys

from pv.engines.printing import MAX_PRINTED, kept_output


def test_output_is_kept_and_written(capsys) -> None:
    with kept_output() as kept:
        print("seen", 1)
    print("later")
    assert kept.getvalue() == "seen 1\n"
    assert capsys.readouterr().out == "seen 1\nlater\n"


def test_kept_output_is_bounded_and_all_of_it_written(capsys) -> None:
    with kept_output() as kept:
        for _ in range(3):
            print("x" * MAX_PRINTED)
    assert len(kept.getvalue()) == MAX_PRINTED
    assert len(capsys.readouterr().out) == 3 * (MAX_PRINTED + 1)


def test_stream_keeps_its_other_attributes(capsys) -> None:
    before = sys.stdout
    with kept_output():
        assert sys.stdout.encoding == before.encoding
        assert sys.stdout.isatty() is False
    assert sys.stdout is before
