"""The claim of the suite."""

from pv_tables.doubling.bench import Bench


def falsify_sum(bench: Bench) -> None:
    assert bench.call(3) == 6
