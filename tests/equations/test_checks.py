"""The keys `checks` and `result_dtype`."""

from pv.equations.checks import Check, Checks, checks


def test_nothing_is_checked_by_default() -> None:
    assert checks({}) == Checks()
    assert checks({}).dtype("bfloat16") == ""


def test_checks_are_read_by_name_and_the_dtype_may_follow_the_arrays() -> None:
    found = checks({"checks": ["repeatable", "inputs_unchanged"], "result_dtype": "input"})
    assert found.names == {Check.REPEATABLE, Check.INPUTS_UNCHANGED}
    assert found.dtype("bfloat16") == "bfloat16"
    assert checks({"result_dtype": "float32"}).dtype("bfloat16") == "float32"
