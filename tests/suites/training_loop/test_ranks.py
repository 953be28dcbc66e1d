from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import SkipTest

import pytest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.oracle import START, norm, sums
from pv.suites.training_loop.run import Run

Benches = Callable[[object], Bench]
Jobs = Callable[..., Job]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def first_ratio(runs: list[Run]) -> float:
    """Return the length of the first gradient, divided by that of the token mean over all ranks."""
    named = {each.name: each for each in runs[0].job.train}
    right = sums(START, [named[name] for run in runs for name in run.steps[0].names])
    return norm(runs[0].steps[0].gradient) * right.tokens / norm(right.gradient)


def test_ranks_share_the_examples_and_take_the_same_steps(bench: Benches, job: Jobs) -> None:
    from ddp_loop import DDP

    runs = bench(DDP()).ranks(job(unequal=True, batch=1, accumulate=2), 2)
    names = [name for run in runs for step in run.steps for name in step.names]
    assert sorted(names) == list(range(1, 9))
    assert [len(run.steps) for run in runs] == [2, 2]
    assert first_ratio(runs) == pytest.approx(1.0, rel=1e-9)
    assert all((runs[0].weights[name] == runs[1].weights[name]).all() for name in runs[0].weights)


def test_tokens_of_one_rank_are_told_from_those_of_all(bench: Benches, job: Jobs) -> None:
    from ddp_loop import OwnTokens

    assert first_ratio(bench(OwnTokens()).ranks(job(unequal=True, batch=1, accumulate=2), 2)) != pytest.approx(
        1, rel=1e-3
    )


def test_failure_of_one_rank_ends_the_others_and_names_its_error(bench: Benches, job: Jobs) -> None:
    from ddp_loop import Broken

    with pytest.raises(RuntimeError, match=r"(?s)rank 1 of 2 ended with status 1.*no such rank"):
        bench(Broken()).ranks(job(), 2)


def test_job_that_one_rank_cannot_run_is_skipped_with_its_reason(bench: Benches, job: Jobs) -> None:
    from ddp_loop import Unable

    with pytest.raises(SkipTest, match="no such job"):
        bench(Unable()).ranks(job(), 2)


def test_adapter_of_no_module_is_skipped(bench: Benches, job: Jobs) -> None:
    class Local:
        lacks: Mapping[str, str] = {}
        not_claimed: Mapping[str, str] = {}
        tolerance = 1e-9

        def run(self, job: Job) -> Report:
            raise NotImplementedError

    with pytest.raises(SkipTest, match="define it in a module"):
        bench(Local()).ranks(job(), 2)
