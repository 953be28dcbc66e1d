"""Claims about the precision in which layers compute."""

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Run


@claim("TR-PRECISION-001", "no layer of matrix products ran in an autocast region in training")
def autocast_reaches_the_layers(run: Run, record: Record) -> None:
    """Layers are called inside an autocast region, but multiply matrices in float32.

    Layers that are sensitive to rounding, such as a router, a head or the last layers, may opt out on purpose. Two
    cases falsify the claim:

    1. A layer of a class of torch, without hooks, multiplies in float32.
    2. At least 75 % of the multiplications and more than half of the layers are in float32, and a later layer computes
       in half precision. Autocast is therefore on, and the layers in float32 are more than a small last part.
    """
    for process in run.processes:
        for event in {e["model"]: e for e in process.of("parameters")}.values():
            facts = event["autocast"]
            record.tried += facts["layers"]
            if not facts["single"]:
                continue
            # Work is counted in multiplications, so that many small layers do not outweigh one large layer.
            share = facts["single_work"] / max(facts["work"], 1e-300)
            is_most = share >= 0.75 and 2 * facts["single"] > facts["layers"] and facts["half_after"]
            add = record.falsify if facts["stock"] or is_most else record.hint
            at = next((f["at"] for f in process.of("forward") if f["model"] == event["model"] and f["grad"]), "")
            add(
                at,
                f"{facts['single']} of {facts['layers']} layers of {process.kinds.get(event['model'])} run inside an "
                f"autocast region but multiply in float32 ({', '.join(facts['names'][:4])}); these layers do "
                f"{100 * share:.0f} % of all multiplications",
                "remove autocast(enabled=False) and .float() around these layers",
            )
