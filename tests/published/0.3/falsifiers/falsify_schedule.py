"""Attacks on the plan of a run."""

from hypothesis import given
from hypothesis import strategies as st

few = st.integers(1, 9)


@given(epochs=few, per_epoch=few)
def falsify_every_epoch_is_run(subject, device, epochs, per_epoch):
    assert subject.steps(epochs, per_epoch) == epochs * per_epoch


@given(epochs=few, per_epoch=few, limit=st.integers(0, 99))
def falsify_limit_is_kept(subject, epochs, per_epoch, limit):
    assert subject.steps(epochs, per_epoch, limit) == min(limit, epochs * per_epoch)


@given(epochs=few)
def falsify_too_little(subject, epochs):
    assert subject.steps(epochs, 1) >= 0


def train(subject, *, device, directory, trace, epochs, per_epoch):
    """Run the subject, and trace each step."""
    last = subject.train(epochs, per_epoch, lambda step, rate: trace({"step": step, "rate": rate}))
    return {"rate": last}


def falsify_every_step_is_reported(run):
    planned = run.arguments["epochs"] * run.arguments["per_epoch"]
    assert [event["step"] for event in run.trace] == list(range(1, planned + 1))


def prove_last_is_kept(subject, written, keep):
    return subject.is_kept(written, written, keep)


def prove_first_is_dropped(subject, written, keep):
    assert not subject.is_kept(1, written, keep)
