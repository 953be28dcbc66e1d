"""A few of the faults of `campaign`, and the order of operations that it relies on.

    python -m tests.reference_trainer.faults.campaign

injects all of them.
"""

from tests.reference_trainer.faults import campaign
from tests.reference_trainer.forked import in_child

EVERY_FAULT_OF = 45
"""P is the directory of a checkpoint that is not published yet."""


def test_runs_end_alike_after_some_faults_of_every_kind() -> None:
    """In a child, because a patched `open` would stay."""
    assert in_child(lambda: _failures(EVERY_FAULT_OF)) == 0


def _failures(every: int) -> int:
    table, complaints = campaign.carried_out(every)
    assert sum(count for count, _ in table.values()) >= 15, table
    return len(complaints)
