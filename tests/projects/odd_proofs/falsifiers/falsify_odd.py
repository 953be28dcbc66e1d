"""The same claims, with random examples."""

from hypothesis import given
from hypothesis import strategies as st

tenths = st.integers(0, 1000)


@given(a=tenths, b=tenths, c=tenths)
def falsify_order_of_adding_is_free(subject, a, b, c):
    a, b, c = subject.share(a, 10), subject.share(b, 10), subject.share(c, 10)
    assert (a + b) + c == a + (b + c)


@given(number=st.integers(0, 10**12))
def falsify_unlike(subject, number):
    assert subject.same(number) != 741_001 * 57_013
