import pytest
import torch

from pv.suites.training_loop.claims.cases import equal, job, saved_job
from pv.suites.training_loop.diagnosis import different, explain_order, explain_rates, first_difference, table
from tests.suites.training_loop.planting import correct, refutation


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("order-of-seed-plus-epoch", "TL-DATA-005", "an order depends on seed + epoch only"),
        ("dropout-without-seed", "TL-DATA-003", "same examples, another gradient"),
        ("evaluation-draws-numbers", "TL-EVAL-003", "same examples, another gradient"),
        ("resume-starts-epoch-over", "TL-RESUME-001", "from its start"),
        ("resume-in-first-order", "TL-RESUME-001", "it is the order of epoch 1 without its first"),
        ("resume-skips", "TL-RESUME-001", "the order of its epoch, of which 2 examples after the cut are skipped"),
        ("resume-replays", "TL-RESUME-001", "of which 2 examples are replayed"),
        ("rate-per-micro-batch", "TL-RATE-005", "it is a schedule that advances with every micro-batch"),
        ("resume-next-in-first-order", "TL-RESUME-009", "it is the order of epoch 1 from its start"),
        (
            "resume-without-schedule",
            "TL-RESUME-002",
            "it is the schedule of a run that has taken 0 steps (last_epoch 0)",
        ),
        ("steps-twice", "TL-STEP-001", "it is a second step of the optimizer without a micro-batch (step 2)"),
        ("resume-without-logs", "TL-RESUME-005", "it is without the logs before the cut"),
        ("resume-without-window", "TL-RESUME-005", "it is the mean over the steps after the cut only"),
        ("resume-counts-tokens-anew", "TL-RESUME-006", "it is tokens counted from 0 after the cut"),
        ("resume-without-moments", "TL-RESUME-003", "another state of the optimizer: embed.weight.step (1, not 2)"),
    ],
)
def test_cause_of_a_wrong_run(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)


def test_replayed_examples_and_the_rate_of_a_new_optimizer_are_named() -> None:
    run = correct().run(saved_job())
    names, rates = [name for step in run.order for name in step], [step.rate for step in run.steps]
    assert explain_order(names[3:7], run, 4) == ("the order of its epoch, of which 1 examples are replayed",)
    assert explain_order(names[4:7], run, 4) == ("the order of epoch 1 without its first 4 examples",)
    assert "the rate of a new optimizer in the first step" in explain_rates([rates[0], *rates[3:]], run)[0]
    assert explain_rates(rates[2:], run) != explain_rates([rates[0], *rates[3:]], run)


def test_table_shows_every_step() -> None:
    lines = table(correct().run(job(equal(3), batch=1, accumulate=2))).splitlines()
    assert lines[0].split() == ["step", "examples", "scored", "loss", "norm", "rate"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2"]
    assert "|" in lines[1] and "6" in lines[1].split()


def test_missing_and_changed_tensors_are_named() -> None:
    one, two = torch.ones(2), torch.tensor(2.0)
    assert different({"a": one}, {"a": one}) == ""
    assert different({"a": one}, {"a": one * 3, "b": two}) == "a (off by up to 2), b (missing)"
    assert different({"b": two}, {"b": two + 1}) == "b (2, not 3)"


def test_same_runs_do_not_differ() -> None:
    run = correct().run(job(equal(3)))
    assert first_difference(run, run) == "no step differs"
