"""Equal values, with a message that names both, and the message of a refusal."""

from collections.abc import Callable


def assert_equal(name: str, actual: object, expected: object) -> None:
    """Assert that two values are equal."""
    assert actual == expected, f"{name}: {actual!r}; expected {expected!r}"


def refusal(call: Callable[[], object], *kinds: type[BaseException]) -> str:
    """Return the message of the exception of these kinds that the call raises, or "" if it returns."""
    try:
        call()
    except kinds as error:
        return str(error) or type(error).__name__
    return ""
