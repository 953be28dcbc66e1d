"""Test the texts of findings, and the numbers that these texts state."""

from pv.suites.training_run.attacks.drawn import Plan, numbered, traces
from pv.suites.training_run.claims import judge, run_of

PLAN = Plan((((((8,),),) * 3),) * 2, scale=1.0, clip=False, logits=False, stream=False)


def test_normalization_that_eval_does_not_reach_is_not_called_dropout() -> None:
    (events,) = traces(PLAN)
    evaluation = next(e for e in events if e["event"] == "forward" and e["model"] == 2 and not e["grad"])
    fields = {"model": 2, "forward": evaluation["n"], "rate": None, "explicit": False, "on_input": False}
    events.append({"event": "unreached", "n": -1, "at": "t.py:3", "kind": "BatchNorm1d", **fields})
    (finding,) = judge(run_of([numbered(events)], complete=True), "TR-MODE-003")["TR-MODE-003"].proofs
    assert finding.seen == "BatchNorm1d uses the statistics of the batch in Net, although Net is in eval mode"


def test_large_eps_is_compared_with_the_mean_variance_of_all_batches() -> None:
    layer = {"name": "norm", "kind": "BatchNorm1d", "eps": 0.6, "momentum": None, "batches": 20.0}
    for variance, count in ((100.0, 0), (0.5, 1)):
        (events,) = traces(PLAN)
        (statistics,) = (e for e in events if e["event"] == "statistics" and e["model"] == 2)
        statistics["unusual"] = [layer | {"variance": variance}]
        events.append(statistics | {"n": -1})
        record = judge(run_of([numbered(events)], complete=True), "TR-NORM-003")["TR-NORM-003"]
        assert len(record.proofs) == count
