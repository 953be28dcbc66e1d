"""The texts of findings say what was seen."""

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
