"""Predicates that do what a predicate should not, or that an engine cannot settle."""


def hidden(subject, first, last):
    """An attribute by a name that stands nowhere."""
    return getattr(subject, first + last)


def prove_forever(subject, number):
    while subject.always(number):
        pass
    return True


def prove_leaving(subject, number):
    return hidden(subject, "le", "ave")(0) is None


def prove_the_first_calls_only(subject, number):
    seen = hidden(subject, "se", "en")
    seen.extend([subject.same(number)])
    return len(seen) < 3


def prove_all_but_the_first(subject, number):
    assert subject.same(number) == 0


def prove_anything(subject, number):
    return subject.same(number) == number


def prove_nothing_of_the_subject(subject, number):
    return number == number


def prove_broken(subject, number):
    return subject.same(number) + undefined  # noqa: F821  (the bug that the predicate is to have)


def prove_with_a_reason(subject, number):
    return (subject.same(number) == -1, "it is the number before zero")
