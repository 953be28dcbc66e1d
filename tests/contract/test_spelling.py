"""Suggestions for a misspelt name."""

import time

from pv.contract.spelling import nearest


def test_similar_name_is_suggested() -> None:
    assert nearest("equatoin", ["equation", "obligation", "run"]) == "equation"


def test_no_name_is_suggested_where_none_is_similar() -> None:
    assert nearest("xyz", ["equation", "run"]) == ""
    assert nearest("equation", []) == ""


def test_time_is_bounded_for_long_names() -> None:
    start = time.process_time()
    assert nearest("a" * 10**6, ["b" * 10**6] * 10**4) == ""
    assert time.process_time() - start < 5.0
