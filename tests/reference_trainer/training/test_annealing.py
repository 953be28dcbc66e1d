"""The example in the docstring of annealed values."""

import doctest

from reference_trainer.training import annealing


def test_example_in_the_docstring_is_true() -> None:
    results = doctest.testmod(annealing)
    assert results.attempted > 0
    assert results.failed == 0
