"""Functions with failing asserts, in a module whose asserts pytest does not rewrite."""

from hypothesis import given, settings
from hypothesis import strategies as st


def consumes():
    numbers = iter([1, 2, 2])
    assert next(numbers) == 2


class Average:
    """Its value changes with every update, and it shows it."""

    def __init__(self):
        self.value = 0.0

    def __repr__(self):
        return f"Average({self.value})"

    def update(self, x):
        self.value = 0.5 * self.value + 0.5 * x
        return self.value


def changes(n=1.0):
    average = Average()
    assert average.update(n) == n + 0.0


def chained(low=0, value=5, base=10):
    assert low <= value <= int("4", base=base)


def draws_twice():
    numbers = iter(range(9))
    assert next(numbers) == next(numbers)


def with_a_message():
    assert len("") == 1, "said"


def cannot_be_repeated():
    calls = []

    def once():
        if calls:
            raise ValueError
        calls.append(1)

    assert once()


@settings(max_examples=50, database=None, deadline=None, print_blob=True)
@given(data=st.data(), offset=st.integers(0, 3))
def draws(data, offset):
    n = data.draw(st.integers(0, 100), label="n")
    m = data.draw(st.integers(0, 100))
    data.draw(st.just(7), label="n")
    print("tried", n)
    assert n + offset < 10 + 0 * m


def of_arrays():
    import torch

    actual, wanted = {"weight": torch.tensor([2.0, 4.0]), "bias": None}, {"weight": torch.tensor([1.0, 2.0])}
    assert torch.equal(actual["weight"], wanted["weight"])


def of_named_arrays():
    import torch

    torch.testing.assert_close({"a": torch.ones(2), "b": torch.ones(2)}, {"a": torch.ones(2), "b": torch.zeros(2)})
