from hypothesis import given
from hypothesis import strategies as st

lists = st.lists(st.integers(0, 3), max_size=5)


@given(data=st.data())
def falsify_drawn(subject, data):
    assert subject.drain(data.draw(lists, "values"))


def prove_drain(subject, values):
    return subject.drain(values)


@given(n=st.integers(0, 9))
def falsify_die(subject, n):
    subject.die(n)


@given(n=st.integers(0, 1))
def falsify_halve(subject, n):
    assert subject.halve(n) == 1


def prove_halve(subject, n):
    return subject.halve(n) == 1


def start(subject, *, device, directory, trace, values, n):
    subject.drain(values)
    subject.die(n)
    return {}


def falsify_run(run):
    assert not run.arguments["values"] == [1, 2, 3]
