"""The plan of a validation, without workers: which attempts follow from which results, and what is kept of them."""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.contract.finding import Location
from pv.contract.load import load
from pv.contract.model import Contract, Target
from pv.contract.suites import for_other_subject, suites
from pv.engines.trial import Reads, Trial, TrialStatus
from pv.execution.attempt import Attempt, Attempts
from pv.execution.consumers import EvidenceWriter, Journal, Progress
from pv.execution.plan import Answer, Cancelled, Finished, Queued, Result, Started
from pv.execution.validation import Validation, supports
from pv.results import store
from pv.results.evidence import STOPPED, DeviceInfo
from pv.results.outcome import Selection
from pv.results.reuse.dependencies import Source
from pv.source.project import find_project
from tests.results.handmade import FOUND, trial
from tests.support.projects import Project

BOTH = {"cpu": DeviceInfo(), "cuda": DeviceInfo(name="NVIDIA H200")}


@pytest.fixture
def folder(project: Project) -> Path:
    return project("small")


@pytest.fixture
def contract(folder: Path) -> Contract:
    (loaded,) = load([folder / "contracts"]).contracts
    return loaded


def name(attempt: Attempt) -> str:
    small = " with small arguments" if attempt.small else ""
    device = "" if attempt.device == "cpu" else f" on {attempt.device}"
    return f"{attempt}{small}{device}"


def ended(attempt: Attempt, ends: Mapping[str, TrialStatus]) -> Trial:
    status = ends.get(name(attempt), TrialStatus.REFUTED if attempt.mutant else TrialStatus.HELD)
    mutant = attempt.mutant.id if attempt.mutant is not None else None
    return trial(status, attempt.claim.id, attempt.device, mutant=mutant)


def steps(validation: Validation, ends: Mapping[str, TrialStatus]) -> Iterator[str]:
    """Yield the attempts and results of a plan, whose attempts end as `ends` says: by default as they should."""
    waiting = deque(validation.start())
    runs: dict[Attempt, Trial] = {}
    while waiting:
        step = waiting.popleft()
        if isinstance(step, Result):
            yield f"{name(step.attempt)}: {'failed' if step.failed else 'as it should'}"
            continue
        assert isinstance(step, Attempt)
        if step.run is not None and step.run not in runs:
            yield name(step.run)
            runs[step.run] = ended(step.run, ends)
            waiting.extend(validation.follow(Finished(step.run, runs[step.run])))
        if ends.get(name(step)) is TrialStatus.CANCELLED:
            waiting.extend(validation.follow(Cancelled(step, queued=True)))
            continue
        yield name(step)
        waiting.extend(validation.follow(Finished(step, ended(step, ends))))


def planned(
    folder: Path, contract: Contract, ends: Mapping[str, TrialStatus], **options: Any
) -> tuple[list[str], Validation]:
    stale = frozenset[Location](options.pop("stale", ()))
    selections = {contract.id: Selection(**options)}
    validation = Validation([contract], selections, Attempts(find_project(folder)), stale)
    validation.devices = BOTH
    return list(steps(validation, ends)), validation


WHOLE = """\
C-LIMIT
C-WHOLE
C-COMMAND
run whole
C-RUN
C-RUN-FIRST
C-LIMIT: as it should
C-LIMIT / limit-ignored
C-LIMIT / limit-forgotten
C-WHOLE: as it should
C-WHOLE / epoch-lost
C-COMMAND: as it should
C-COMMAND / epoch-lost
C-RUN: as it should
run whole with small arguments
C-RUN with small arguments
C-RUN-FIRST: as it should
C-RUN-FIRST with small arguments
C-LIMIT / limit-ignored: as it should
C-LIMIT / limit-forgotten: as it should
C-WHOLE / epoch-lost: as it should
C-COMMAND / epoch-lost: as it should
C-RUN / last-step-lost
C-RUN-FIRST / from-zero
C-RUN / last-step-lost: as it should
C-RUN-FIRST / from-zero: as it should
"""


def test_a_claim_that_held_is_tried_on_its_mutants(folder: Path, contract: Contract) -> None:
    shown, validation = planned(folder, contract, {})
    assert shown == WHOLE.splitlines()
    evidence = validation.evidence(contract)
    assert [*evidence.trials] == [(claim.id, "cpu") for claim in contract.claims]
    assert {*evidence.mutants} == {(claim.id, mutant) for claim in contract.claims for mutant in claim.kills}


LIMIT = ["C-LIMIT", "C-LIMIT: as it should", "C-LIMIT / limit-ignored", "C-LIMIT / limit-forgotten"]
KILLED = ["C-LIMIT / limit-ignored: as it should", "C-LIMIT / limit-forgotten: as it should"]
RUN = ["run whole", "C-RUN", "C-RUN: as it should", "run whole with small arguments", "C-RUN with small arguments"]
SCENARIOS: list[tuple[str, dict[str, TrialStatus], dict[str, Any], list[str]]] = [
    ("C-LIMIT", {}, {}, LIMIT + KILLED),
    ("C-LIMIT", {}, {"mutants": False}, LIMIT[:2]),
    ("C-LIMIT", {"C-LIMIT": TrialStatus.REFUTED}, {}, ["C-LIMIT", "C-LIMIT: failed"]),
    ("C-LIMIT", {"C-LIMIT": TrialStatus.SKIPPED}, {}, LIMIT[:2]),
    ("C-LIMIT", {"C-LIMIT": TrialStatus.NOT_CLAIMED}, {}, LIMIT[:2]),
    ("C-LIMIT", {"C-LIMIT": TrialStatus.CANCELLED}, {}, []),
    (
        "C-LIMIT",
        {"C-LIMIT / limit-ignored": TrialStatus.HELD},
        {},
        [*LIMIT, "C-LIMIT / limit-ignored: failed", KILLED[1]],
    ),
    ("C-LIMIT", {"C-LIMIT / limit-ignored": TrialStatus.CANCELLED}, {}, [*LIMIT[:2], LIMIT[3], KILLED[1]]),
    ("C-LIMIT", {}, {"stale": "limit-ignored"}, [*LIMIT[:2], LIMIT[3], KILLED[1]]),
    ("C-RUN", {}, {}, [*RUN, "C-RUN / last-step-lost", "C-RUN / last-step-lost: as it should"]),
    ("C-RUN", {RUN[4]: TrialStatus.REFUTED}, {}, [*RUN, f"{RUN[4]}: failed"]),
    ("C-RUN", {RUN[4]: TrialStatus.CANCELLED}, {}, RUN[:4]),
    ("C-WHOLE", {}, {"devices": ("cuda",)}, ["C-WHOLE on cuda", "C-WHOLE on cuda: as it should"]),
    ("C-LIMIT", {}, {"not_claimed": {"C-LIMIT": "why"}}, []),
    ("C-LIMIT", {}, {"devices": ("cuda",)}, []),
]


@pytest.mark.parametrize(("claim", "ends", "options", "expected"), SCENARIOS)
def test_the_end_of_an_attempt_decides_what_follows(
    folder: Path, contract: Contract, claim: str, ends: dict[str, TrialStatus], options: Any, expected: list[str]
) -> None:
    settings = {**options, "stale": [contract.mutant(options["stale"]).location]} if "stale" in options else options
    shown, validation = planned(folder, contract, ends, falsifiers=frozenset({claim}), **settings)
    assert shown == expected
    evidence = validation.evidence(contract)
    kept = {**evidence.trials, **evidence.mutants}
    cancelled = {name: trial for name, trial in ends.items() if trial is TrialStatus.CANCELLED}
    assert [trial.detail for trial in kept.values() if trial.status is TrialStatus.CANCELLED] == [STOPPED] * len(
        cancelled
    )
    # The clean code with the small arguments of a run is kept as the mutant "" if the claim did not hold there.
    assert ((claim, "") in evidence.mutants) == (RUN[4] in ends)


def test_mutants_are_faults_of_the_own_subject_though_another_one_is_tried(folder: Path, contract: Contract) -> None:
    attempts = Attempts(find_project(folder), {"counting": Target("twice")}, examples=7, seed=3)
    (folder / "twice.py").write_text((folder / "counting.py").read_text())
    limit, run = (next(claim for claim in contract.claims if claim.id == id_) for id_ in ("C-LIMIT", "C-RUN"))
    built = [
        attempts.clean(contract, limit, "cpu"),
        attempts.mutated(contract, limit, contract.mutant("limit-ignored")),
    ]
    built += [attempts.clean(contract, run, "cuda"), attempts.clean(contract, run, small=True)]
    built.append(attempts.mutated(contract, run, contract.mutant("last-step-lost")))
    assert [(str((a.run or a).subject), a.device, a.conditions.examples, a.conditions.seed) for a in built] == [
        ("twice", "cpu", 7, 3),
        ("counting", "cpu", 7, 3),
        ("twice", "cuda", None, 0),
        ("counting", "cpu", None, 0),
        ("counting", "cpu", None, 0),
    ]
    generated = attempts.mutated(contract, replace(limit, kills=()), contract.mutants[0], clean_limit_s=0.5)
    assert (str(generated.subject), generated.limit_s) == ("twice", 0.5)
    assert (generated.conditions.guarded, built[1].conditions.guarded) == (True, False)  # a declared one was read
    runs = [a.run.conditions.execute if a.run is not None else a.conditions.execute for a in built]
    whole, small = ({"epochs": e, "steps": s} for e, s in ((5, 7), (2, 2)))
    assert runs == [None, None, whole, small, small]
    assert attempts.clean(contract, run, "cuda").run is built[2].run
    of_other_contract = attempts.clean(replace(contract, id="other", subject=Target("twice")), run, "cuda").run
    assert of_other_contract is not built[2].run, "a run of another contract may have the same name"
    refutation = replace(trial(TrialStatus.REFUTED), counterexample=FOUND)
    again = attempts.confirmation(built[1], refutation)
    assert (again.conditions.replay, again.replayed, str(again.subject)) == ('{"n": 1}', refutation, "counting")
    assert (again.mutant, again.limit_s) == (built[1].mutant, built[1].limit_s)


def test_progress_counts_attempts_that_a_worker_runs(folder: Path, contract: Contract) -> None:
    seen: list[tuple[int, int, tuple[str, ...]]] = []
    progress = Progress(lambda p: seen.append((p.done, p.total, p.running)))
    one, two, reused = (Attempts(find_project(folder)).clean(contract, claim) for claim in contract.claims[:3])
    ended = Finished(one, trial())
    for event in (Queued(one), Queued(two), Started(one), Started(two), Finished(reused, trial(), reused=True), ended):
        progress(event)
    assert seen == [(0, 2, ("C-LIMIT",)), (0, 2, ("C-LIMIT", "C-WHOLE")), (1, 2, ("C-WHOLE",))]


def test_a_claim_on_a_run_has_the_coverage_times_and_files_of_the_run(folder: Path, contract: Contract) -> None:
    attempt = Attempts(find_project(folder)).clean(contract, contract.claims[3])
    read = trial(seconds=1.0, cpu_s=0.5, files=frozenset("a"), reached=frozenset("p"), valid=1)
    run = trial(seconds=2.0, cpu_s=1.5, files=frozenset("b"), reached=frozenset("r"), valid=9)
    both = replace(read, seconds=3.0, cpu_s=2.0, files=frozenset("ab"), reached=frozenset("r"))
    assert Finished(attempt, read, run=run).combined_trial == both
    assert Finished(attempt, read).combined_trial == read


class Kept:
    """A cache that lists what is stored in it: the name, and since when opened files count."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []
        self.outcomes: list[tuple[str, bool]] = []

    def end(self, _: object) -> int:
        return 5

    def key(self, _: object) -> str:
        return ""

    def store(self, _: str, name: str, kept: Trial, source: Source, since: int) -> None:
        assert kept.reads is None and source.trials
        self.stored.append((name, since))

    def record_outcome(self, claim: str, *, failed: bool) -> None:
        self.outcomes.append((claim, failed))


def test_a_trial_is_kept_under_its_name_if_it_was_measured_on_the_clean_code(folder: Path, contract: Contract) -> None:
    cache, attempts = Kept(), Attempts(find_project(folder))
    journal = Journal(cache, supports)
    limit, run = contract.claims[0], contract.claims[3]
    clean, reading = attempts.clean(contract, limit), attempts.clean(contract, run)
    mutated = attempts.mutated(contract, limit, contract.mutant("limit-ignored"))
    held, refuted = trial(reads=Reads()), trial(TrialStatus.REFUTED, reads=Reads())
    for attempt, kept, measured_run in (
        *((clean, held, None), (reading, held, held), (mutated, refuted, None)),
        (attempts.confirmation(clean, replace(refuted, counterexample=FOUND)), held, None),
        *((clean, refuted, None), (mutated, held, None)),  # these do not support the claim
        *((reading.run, held, None), (attempts.clean(contract, contract.claims[1], "cuda"), held, None)),
    ):
        journal(Finished(attempt, kept, run=measured_run))
    journal(Finished(clean, held, reused=True))
    assert cache.stored == [("C-LIMIT", 5), ("C-RUN", 0), ("", 5), ("", 5)]
    for attempt in (clean, mutated, reading.run):
        journal(Result(attempt, held, failed=attempt is clean))
    assert cache.outcomes == [("C-LIMIT", True)]


def test_results_of_other_devices_are_written_as_evidence(folder: Path, contract: Contract) -> None:
    project, attempts = find_project(folder), Attempts(find_project(folder))
    write, claim = EvidenceWriter(project, BOTH), contract.claims[1]
    path = store.record_path(project, contract, "cuda")
    write(Result(attempts.clean(contract, claim), trial(id_=claim.id), failed=False))
    write(Finished(attempts.clean(contract, claim, "cuda"), trial(id_=claim.id, device="cuda")))
    small = attempts.clean(contract, contract.claims[3], "cuda", small=True)
    write(Result(small, trial(id_="C-RUN", device="cuda"), failed=False))
    assert not project.evidence.exists()
    write(Result(attempts.clean(contract, claim, "cuda"), trial(id_=claim.id, device="cuda"), failed=False))
    assert [file.name for file in project.evidence.iterdir()] == [path.name]
    content = json.loads(path.read_text())
    assert (content["hardware"], [result["falsifier"] for result in content["results"]]) == ("NVIDIA H200", [claim.id])


def test_a_subject_that_cannot_be_tried_answers_the_queued_claims_on_it(folder: Path, contract: Contract) -> None:
    (suite,) = load([suites()["training-loop"]]).contracts
    subjects = {"TL-DATA-001": contract.subject}
    claims = (replace(claim, subject=subjects.get(claim.id)) for claim in for_other_subject(suite).falsifiers)
    contract = replace(suite, falsifiers=tuple(claims), mutants=())
    attempts = Attempts(find_project(folder))
    validation = Validation([contract], {contract.id: Selection()}, attempts)
    validation.devices = BOTH
    first, same, clipped, elsewhere = (
        attempts.clean(contract, next(claim for claim in contract.falsifiers if claim.id == id_))
        for id_ in ("TL-GRAD-001", "TL-STEP-001", "TL-CLIP-001", "TL-DATA-001")
    )
    skipped = trial(TrialStatus.SKIPPED, "TL-GRAD-001", detail="no module", independent_features=frozenset({"clip"}))
    (answer,) = (step for step in validation.follow(Finished(first, skipped)) if isinstance(step, Answer))
    answered = answer.trial_of(same)
    assert answered is not None and (answered.falsifier, answered.detail) == ("TL-STEP-001", "no module")
    # A claim about an independent feature, and a claim about another subject, are tried.
    assert answer.trial_of(clipped) is None
    assert answer.trial_of(elsewhere) is None
