import pytest

from pv.suites.training_loop.claims.cases import EVALUATED, equal, example, unequal
from pv.suites.training_loop.job import IGNORED


def test_bits_of_the_mask_say_which_tokens_are_scored() -> None:
    found = example(5, 4, 0b101)
    assert found.name == 5 and [label != IGNORED for label in found.labels] == [False, True, False, True]
    assert example(5, 4, 0, first=True).labels[0] == 5 and example(5, 4, 0, first=True).scored == 0


@pytest.mark.parametrize("n", [1, 7, 10])
def test_examples_have_names_from_one_and_a_scored_token(n: int) -> None:
    for examples in (equal(n), unequal(n)):
        assert [each.name for each in examples] == list(range(1, n + 1))
        assert all(each.labels[-1] == each.tokens[-1] for each in examples)
    assert len({each.scored for each in equal(n)}) == 1


def test_evaluated_examples_are_none_of_the_trained() -> None:
    assert not {each.name for each in EVALUATED} & {each.name for each in unequal(12)}
