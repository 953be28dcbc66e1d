import math

from pv.suites.mean_metric.token_mean import TokenMean


def test_mean_of_all_tokens() -> None:
    one, other = TokenMean(), TokenMean()
    assert math.isnan(one.compute())
    one.update(2.0, 3)
    other.update(math.nan, 0)
    other.update(4.0, 1)
    one.merge(other)
    assert one.compute() == 2.5
