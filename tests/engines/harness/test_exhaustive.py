"""Enumeration tries every admitted point, nearest to zero first, and stops at a refutation or at its limit."""

import time
from pathlib import Path
from typing import Any

from pv.contract.bounds import box
from pv.engines.blame import Blame
from pv.engines.harness import exhaustive
from pv.engines.harness.point import Claim


def prove(predicate: Any, bounds: dict[str, str], requires: str = "", limit_s: float = 60.0) -> dict[str, Any]:
    claim = Claim(predicate, None, Blame(Path(__file__).parent, []))
    return exhaustive.prove(claim, box(bounds, requires), limit_s)


def test_every_admitted_point_is_tried() -> None:
    seen: list[int] = []
    record = prove(lambda _, n: seen.append(n), {"n": "-2..2"}, "n != 1")
    assert sorted(seen) == [-2, -1, 0, 2]
    assert (record["status"], record["valid"], record["invalid"]) == ("held", 4, 1)
    assert record["detail"].startswith("exhaustive: all 4 points in ")


def test_refutation_is_the_point_nearest_to_zero() -> None:
    record = prove(lambda _, n: abs(n) < 3, {"n": "-9..9"})
    assert (record["status"], record["arguments"], record["shrunk"]) == ("refuted", {"n": 3}, True)


def test_box_without_an_admitted_point_proves_nothing() -> None:
    record = prove(lambda _, n: True, {"n": "0..3"}, "n > 3")
    assert record["status"] == "no examples"
    assert "admits none of its 4 points" in record["detail"]


def test_search_ends_at_its_limit() -> None:
    record = prove(lambda _, n: True, {"n": "0..1000"}, limit_s=-1.0)
    assert (record["status"], record["valid"]) == ("timeout", 0)


def test_limit_does_not_count_time_in_which_the_search_waits() -> None:
    record = prove(lambda _, n: time.sleep(0.002), {"n": "0..600"}, limit_s=1.0)
    assert (record["status"], record["valid"]) == ("held", 601)
