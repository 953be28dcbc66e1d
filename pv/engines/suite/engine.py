"""The engine for claims of conformance suites. A test takes a bench, which runs the subject; claims share the runs."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pv.contract.model import Binding, Contract, Falsifier
from pv.contract.wording import count, did_you_mean
from pv.engines.code import Function, ResolvedCode
from pv.engines.engine import ENDED_EARLY, Conditions, Depends, Engine, Worker
from pv.engines.failures import describe_error
from pv.engines.seed import seed_of
from pv.engines.stream import Record, Silent, Stream
from pv.engines.trial import Trial, TrialStatus
from pv.errors import PvError

if TYPE_CHECKING:
    from pv.suites.bench import SuiteBench

FAILED = (TrialStatus.REFUTED, TrialStatus.RAISED)
CANNOT_LOAD = "the subject cannot be loaded"
SCRIPT_HINT = "; a subject is imported, so move the code of a script into a function"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTest:
    """The test of a claim, with the features of the subject that it needs, and the number and seed of its examples."""

    test: Function
    needs: tuple[str, ...]
    examples: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePayload:
    """The payload of a claim of a suite.

    Attributes:
        claim: The id of the claim in its suite.
        ids: The ids of all claims of the suite.
        bench: The function that creates the bench of the subject.
        main: The test of the claim.
        premises: The tests of the premises by id, with their own examples and seeds, so that runs are shared.
        replay: The example to replay; "" for none.
    """

    claim: str
    ids: tuple[str, ...]
    bench: Function
    main: SuiteTest
    premises: Mapping[str, SuiteTest]
    replay: str


class SuiteEngine(Engine[SuitePayload]):
    """Tries a claim of a suite; not if the subject lacks a feature that the claim needs, or if a premise fails."""

    name = "suite"
    depends_on = Depends.SHARED
    section = "falsifiers"
    keys = ("needs", "premises")
    payload_type = SuitePayload
    asserts = True

    def takes(self, claim: Falsifier) -> bool:
        return claim.test is not None and "needs" in claim.options

    def payload(self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> SuitePayload:
        claims = {claim.id: claim for claim in contract.claims}
        return SuitePayload(
            claim=_id_in_suite(claim.id),
            ids=tuple(_id_in_suite(id_) for id_, claim in claims.items() if self.takes(claim)),
            bench=code.function(bench_of(claim)),
            main=_suite_test(code, claim, conditions),
            premises={id_: _suite_test(code, claims[id_], conditions) for id_ in claim.options.get("premises", ())},
            replay=conditions.replay,
        )

    def attack(self, payload: SuitePayload, worker: Worker) -> Record:
        from pv.engines.property.attack import Settings, attack, load_profile, with_examples

        load_profile(payload.main.examples, shrink=not worker.mutated)
        suite_tests = {**payload.premises, payload.claim: payload.main}
        functions = {id_: with_examples(worker.function(t.test), t.examples) for id_, t in suite_tests.items()}
        bench: SuiteBench | None = None
        try:
            bench = _bench(payload, worker)
            worker.ready()
            if reason := bench.missing(payload.claim, payload.main.needs):
                return {"status": TrialStatus.NOT_CLAIMED.value, "detail": reason}
            _warm_up(bench, payload.main.needs, worker)
        except PvError as error:  # the subject cannot be tried; the message has the reason or a correction
            record: Record = {"status": TrialStatus.SKIPPED.value, "detail": str(error)}
            # With `independent_features`, other claims that need none of these get this status without being tried.
            independent = sorted(getattr(bench, "independent_features", ()))
            if not {*independent}.intersection(payload.main.needs):
                record["independent_features"] = independent
            return record

        def try_claim(id_: str, stream: Stream, replay: str = "") -> Record:
            examples, seed = suite_tests[id_].examples, suite_tests[id_].seed
            options = Settings(
                examples=examples, seed=seed, stop_at_first=worker.mutated, replay=replay, skips_examples=True
            )
            return attack(functions[id_], {"bench": bench}, options, worker.failures, stream)

        # If a premise fails, the claim is likely to fail too: report the fault once, under the premise. On a mutant,
        # try no premises: the fault of the mutant may break a premise too, and would then not count as killed.
        for id_, premise in () if worker.mutated else payload.premises.items():
            reason = bench.missing(_id_in_suite(id_), premise.needs)
            if reason and _id_in_suite(id_) not in bench.not_claimed:
                continue  # a premise about a missing feature is skipped
            result = try_claim(id_, Silent())
            status = TrialStatus(result["status"])
            if status is TrialStatus.SKIPPED and not reason:
                return {"status": status.value, "detail": result["detail"]}  # a report groups equal details
            if status in FAILED and reason:
                detail = f"its premise {id_} is not claimed: {reason}"
                return {"status": TrialStatus.NOT_CLAIMED.value, "detail": detail}
            if status in FAILED:
                return {"status": TrialStatus.NO_PREMISE.value, "detail": f"its premise {id_} does not hold"}
        bench.used.clear()
        record = try_claim(payload.claim, worker.stream, payload.replay)
        # A run that several examples share counts once.
        runs = len({id(run) for run in bench.used})
        return record | {"valid": runs, "asked": runs}

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        return ("bench",)

    def judged(self, claim: Falsifier) -> bool:
        return bool(claim.kills)

    def effort(self, trial: Trial) -> str:
        if trial.status in ENDED_EARLY:
            return super().effort(trial)
        skipped = f" ({trial.detail})" if trial.status is TrialStatus.HELD and trial.detail else ""
        return f"{count(trial.valid, 'run')}{skipped}, seed {trial.seed}, {trial.seconds:.2f} s"


class UnknownClaim(PvError):
    """`not_claimed` of a subject has an id that no claim of the suite has."""


class CannotRun(PvError):
    """The subject raised an exception before a claim was tried, so the claims are undecided."""


def _bench(payload: SuitePayload, worker: Worker) -> "SuiteBench":
    """Create the bench of the subject. Raise PvError if the user's code raises, or `not_claimed` has an unknown id."""
    with _cannot_run_on_error(CANNOT_LOAD, worker):
        bench: SuiteBench = worker.function(payload.bench)(worker.subject(), worker.shared)
    refuse_unknown(bench.not_claimed, payload.ids)
    return bench


def refuse_unknown(not_claimed: Iterable[str], ids: Sequence[str]) -> None:
    """Raise `UnknownClaim` for an id that no claim of the suite has, since such an id would have no effect."""
    for id_ in not_claimed:
        if id_ not in ids:
            near = did_you_mean(id_, ids)
            raise UnknownClaim(f"`not_claimed` names an unknown claim {id_!r}; {near}")


def _warm_up(bench: "SuiteBench", needs: Sequence[str], worker: Worker) -> None:
    """Run the simplest job, if the bench has `warm_up`; not on a mutant, since an exception must kill the mutant.

    A failure is stored in the shared folder, so that the workers of other claims do not run the job again. It is not
    stored if the claim needs an independent feature, since only the claims with this feature may be affected.
    """
    if not hasattr(bench, "warm_up") or worker.mutated:
        return
    shared = None if bench.independent_features.intersection(needs) else worker.shared
    failure = shared / "cannot-run" if shared else None
    if failure and failure.exists():
        raise CannotRun(failure.read_text())
    try:
        with _cannot_run_on_error(bench.warm_up_failure, worker):
            bench.warm_up(needs)
    except CannotRun as error:
        if failure:
            _publish(failure, str(error))
        raise


def _publish(path: Path, text: str) -> None:
    """Write a file atomically: a concurrent reader sees the whole text or no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


@contextmanager
def _cannot_run_on_error(action: str, worker: Worker) -> Iterator[None]:
    """Turn an exception inside the context into `CannotRun` with the innermost line of the user's code.

    Errors of `pv` itself and exceptions on a mutant propagate unchanged. So does an error while the subject is loaded,
    if it was not raised in the user's code.

    Args:
        action: The start of the message, such as `CANNOT_LOAD`.
        worker: The worker.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        frame = worker.failures.user_frame(error)
        if worker.mutated or isinstance(error, PvError) or (action == CANNOT_LOAD and not frame):
            raise
        hint = SCRIPT_HINT if action == CANNOT_LOAD and isinstance(error, SystemExit) else ""
        raise CannotRun(f"{action}: {describe_error(error)}{hint}" + (f"\nat {frame}" if frame else "")) from error


def _suite_test(code: ResolvedCode, claim: Falsifier, conditions: Conditions) -> SuiteTest:
    """Return the test of a claim with its examples and seed."""
    return SuiteTest(
        test=code.test(claim),
        needs=tuple(claim.options["needs"]),
        examples=conditions.examples or claim.examples,
        seed=seed_of(claim.id, conditions.seed),
    )


def _id_in_suite(claim: str) -> str:
    """Return the id of a claim in its suite, without the id of the contract that applies the suite."""
    return claim.rpartition(".")[2]


def bench_of(claim: Falsifier) -> Binding:
    """Return the function of the claim's suite that creates the bench of a subject.

    A suite has its tests in `claims.py` or in a folder `claims`, and its bench in `bench.py` next to it. A small suite
    has tests and bench in one module, whose name does not begin with `claims`.
    """
    assert claim.test is not None
    folder, has_claims, _ = claim.test.file.rpartition("/claims")
    return Binding(f"{folder}/bench.py" if has_claims else claim.test.file, "bench")
