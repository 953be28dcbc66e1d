from hypothesis import given
from hypothesis import strategies as st


@given(prices=st.lists(st.integers(0, 9)))
def falsify_total(subject, prices):
    left = 0
    for price in prices:
        left += price
    assert subject.total(prices) == left


def sell(subject, *, device, directory, trace, prices):
    return subject.total(prices)


def falsify_day(run):
    assert run.result == sum(run.arguments["prices"])
