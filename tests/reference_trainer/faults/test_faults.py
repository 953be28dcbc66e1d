"""A few of the faults of `campaign`."""

from tests.reference_trainer.faults import campaign
from tests.reference_trainer.forked import in_child


def _failures(every: int) -> int:
    count, complaints = campaign.carried_out(every)
    assert count >= 12
    return len(complaints)


def test_runs_end_alike_after_some_faults_of_every_kind() -> None:
    """In a child, because a patched `open` would stay."""
    assert in_child(lambda: _failures(70)) == 0
