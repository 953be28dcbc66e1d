"""Ranks are processes of their own; what is wrong between them is named."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import pytest

from pv.suites.training_loop import processes
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims import together
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.loop import Loop
from pv.suites.training_loop.oracle import sums
from pv.suites.training_loop.probe import Step
from pv.suites.training_loop.processes import FAILED, ForkServer, _serve, run_ranks
from pv.suites.training_loop.run import Run
from tests.suites.training_loop.conftest import Benches, Jobs


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_failure_of_one_rank_ends_the_others_and_names_its_error(bench: Benches, job: Jobs) -> None:
    from ddp_loop import Broken

    error = r"rank 1 of 2: ArithmeticError: no such rank\nat \S*ddp_loop.py:\d+ in total: raise Arith"
    with pytest.raises(RuntimeError, match=error):
        bench(Broken()).ranks(job(), 2)


class Refuses(ForkServer):
    """Forks ranks that fail, as the ranks of a process that cannot be forked do."""

    def __init__(self, status: int | None) -> None:
        self.status = status

    def run(self, directory: Path, size: int, environment: Mapping[str, str]) -> int | None:
        return self.status


def test_ranks_that_no_fork_can_run_have_an_interpreter(job: Jobs, tmp_path: Path) -> None:
    from ddp_loop import DDP

    both = run_ranks(DDP(), replace(job(), directory=tmp_path), 2, Refuses(FAILED))
    assert len(both) == 2 and both[0].order != both[1].order and len(both[0].steps) == len(both[1].steps) > 0


def test_ranks_that_do_not_end_are_an_error(job: Jobs, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^2 ranks have not ended after 600 s$"):
        run_ranks(Loop(), replace(job(), directory=tmp_path), 2, Refuses(None))


def test_late_task_of_a_fork_server_gives_no_later_task_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_run_task", lambda directory, size, environment: time.sleep(size) or os._exit(7))
    monkeypatch.setattr(processes, "RANKS_LIMIT_S", 0.2)
    server = ForkServer()
    assert [server.run(tmp_path, size, {}) for size in (1, 0)] == [None, FAILED]


class Interrupted:
    """A connection whose reader is interrupted, as by Ctrl-C in a terminal."""

    def recv(self) -> object:
        raise KeyboardInterrupt


def test_interrupted_fork_server_exits_and_does_not_run_the_code_of_its_parent() -> None:
    if not (child := os.fork()):
        try:
            _serve(cast(Connection, Interrupted()))
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


CLAIMS = (
    together.falsify_examples_of_two_ranks,
    together.falsify_weights_of_two_ranks,
    together.falsify_gradient_of_two_ranks,
)
RESUME = together.falsify_resume_of_two_ranks
EVALUATION = together.falsify_evaluation_of_two_ranks
USED = together.falsify_no_example_is_never_used
TOGETHER, TOGETHER_RESUMED = together.falsify_features_in_two_ranks, together.falsify_features_in_two_ranks_after_a_cut
Change = Callable[[Run, int, Step], Step]


class TwoRanks(Bench):
    """Shows a run with the doubled batch as a run of two ranks, where the second rank may be wrong."""

    def __init__(self, change: Change = lambda run, k, step: step, *, both: bool = False) -> None:
        super().__init__(Loop())
        self.change, self.both = change, both

    def ranks(self, job: Job, size: int) -> list[Run]:
        run = self.run(replace(job, batch=size * job.batch))
        steps = [
            tuple(replace(step, batches=tuple(batch[rank : rank + 1] for batch in step.batches)) for step in run.steps)
            for rank in range(size)
        ]
        wrong = [self.both, True]
        return [
            replace(run, steps=tuple(self.change(run, k, step) for k, step in enumerate(part)) if wrong[rank] else part)
            for rank, part in enumerate(steps)
        ]

    def resume_ranks(self, straight: list[Run], step: int) -> list[Run]:
        return [
            replace(run, steps=tuple(self.change(run, k, s) for k, s in enumerate(run.steps))[step:])
            for run in straight
        ]


def scaled(run: Run, k: int, step: Step) -> Step:
    return replace(step, gradient={name: grad if grad is None else 2 * grad for name, grad in step.gradient.items()})


def running_average(run: Run, k: int, step: Step) -> Step:
    halves = [sums(run.before(k), run.examples(batch[rank] for batch in run.steps[k].batches)) for rank in (0, 1)]
    parts = [{n: g / half.tokens for n, g in half.gradient.items()} for half in halves]
    return replace(step, gradient={n: (parts[0][n] + parts[1][n]) / 2 for n in parts[0]})


@pytest.mark.parametrize("claim", [*CLAIMS, RESUME, EVALUATION, USED, TOGETHER, TOGETHER_RESUMED])
def test_claim_holds_for_ranks_that_share_a_batch(claim: Callable[[Bench], None]) -> None:
    claim(TwoRanks())


@pytest.mark.parametrize(
    ("change", "both", "claim", "cause"),
    [
        (lambda run, k, step: replace(step, batches=((1,), (2,))), True, USED, r"the examples \[3, 4, 5, 6, 7\] of 7"),
        (
            lambda run, k, step: replace(step, batches=((1,), (2,))),
            False,
            CLAIMS[0],
            "uses of the examples in an epoch",
        ),
        (lambda run, k, step: replace(step, weights=run.steps[0].weights), False, CLAIMS[1], "after step 2"),
        (scaled, True, CLAIMS[2], "counted twice, or a sum over two ranks"),
        (running_average, True, CLAIMS[2], "it is the mean of the ranks' means"),
        (lambda run, k, step: replace(step, batches=run.steps[0].batches), False, RESUME, "continues with the"),
        (lambda run, k, step: replace(step, batches=run.steps[k - 1].batches), False, RESUME, "the data start again"),
        (scaled, True, TOGETHER, r"rank 0: the gradient of step 1 has norm 0\.999998, not 0\.5"),
        (lambda run, k, step: replace(step, rates=run.steps[0].rates), False, TOGETHER, "rank 1: step 2 has the rates"),
        (
            lambda run, k, step: replace(step, batches=run.steps[0].batches),
            False,
            TOGETHER_RESUMED,
            r"resumed after step 3: examples",
        ),
    ],
)
def test_wrong_ranks_have_their_cause(change: Change, both: bool, claim: Callable[[Bench], None], cause: str) -> None:
    with pytest.raises(AssertionError, match=cause):
        claim(TwoRanks(change, both=both))


def test_an_evaluation_of_each_ranks_own_part_is_refuted(tmp_path: Path) -> None:
    from ddp_loop import OwnEvaluation

    with pytest.raises(AssertionError, match="it is the loss of its own part"):
        EVALUATION(Bench(OwnEvaluation(), tmp_path))
