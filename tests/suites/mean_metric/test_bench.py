from typing import Any

import pytest

from pv.suites.driving import NotDriven
from pv.suites.mean_metric.bench import Bench
from pv.suites.mean_metric.token_mean import TokenMean


class Without:
    def update(self, value: float) -> None:
        pass


class Logs(Without):
    def compute(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (dict, "it has none of compute"),
        (lambda size: TokenMean(), "missing 1 required positional argument: 'size'"),
        (Without, "it has none of compute, result"),
        (Logs, "TypeError: float.. argument must be"),
    ],
)
def test_what_to_write_is_said_where_it_cannot_be_driven(make: Any, why: str) -> None:
    with pytest.raises(NotDriven, match=rf"(?s)cannot drive .*{why}.*def update\(self, value, weight\)"):
        Bench(make)


def test_a_sum_is_known_by_the_name_of_its_parameter() -> None:
    class Sum(TokenMean):
        def update(self, total: Any, count: int) -> None:  # type: ignore[override]
            super().update(total / count, count)

    bench = Bench(Sum)
    assert bench.sums and bench.weight == "count"
    assert bench.filled([(2.0, 3), (4.0, 1)]).mean() == 2.5
