"""Predicates over bounded boxes."""


def prove_loop_is_the_closed_form(subject, epochs, steps, limit):
    seen, expected = subject.limited(epochs, steps, limit), min(limit, epochs * steps)
    assert seen == expected, f"{epochs} epochs of {steps} steps, limited to {limit}: {seen} steps, not {expected}"


def prove_never_beyond(subject, epochs, steps, limit):
    return subject.planned(epochs, steps, limit) <= limit and subject.planned(epochs, steps, limit) <= epochs * steps


def prove_shares_fit(subject, total, parts):
    assert subject.share(total, parts) * parts <= total


def prove_either(subject, left, right):
    assert subject.either(left, right) == (left + right == 1)


def prove_sum(subject, counts):
    assert subject.total(counts) == sum(counts)
