"""Claims about the statistics of normalization layers."""

from collections import defaultdict

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Event, Run


@claim("TR-NORM-001", "no layer with running statistics was trained")
def layers_normalize_one_distribution(run: Run, record: Record) -> None:
    """One normalization layer runs after several different layers in one forward, on inputs that are far apart.

    The running statistics are then a mixture, so evaluation differs from training. Two branches that share a trunk, and
    the steps of a recurrence, also share the layer before. In parallel branches with separate first layers, one call
    does not depend on the other. The remaining case is one layer at two depths of a network. The finding is a hint if
    the network is never evaluated in eval mode, which uses the statistics.
    """
    for process in run.processes:
        used = {process.kinds.get(f["model"]) for f, _ in process.evaluations if f["eval_layers"] and not f["training"]}
        record.tried += sum(1 for f, _ in process.training_forwards if f["training_layers"])
        by_layer: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in process.of("shared_norm"):
            if event["apart"] is not None:
                by_layer[event["model"], event["layer"]].append(event)
        for (model, layer), events in by_layer.items():
            # Half a standard deviation, or a factor of 2: batches of one distribution are closer than that.
            far = [e["apart"] for e in events if e["apart"]["shift"] > 0.5 or e["apart"]["spread"] > 2]
            if 2 * len(far) <= len(events):
                continue
            first = events[0]
            seen = (
                f"{layer} in {process.kinds.get(model)} runs {first['calls']} times in a forward, after "
                f"{first['layers']} different layers; the means of its inputs are {far[0]['shift']:.2g} standard "
                f"deviations apart, and their variances differ by a factor of {far[0]['spread']:.3g}"
            )
            right = "construct a separate normalization layer for each place"
            sure = all(e["serial"] for e in events) and process.kinds.get(model) in used
            (record.falsify if sure else record.hint)(first["at"], seen, right)


@claim("TR-NORM-002", "no layer with torch.nn.utils.spectral_norm ran")
def spectral_norms_are_estimated(run: Run, record: Record) -> None:
    """A layer divides by an estimate of its spectral norm before any power iteration.

    Power iterations run only in training mode; before the first forward in this mode the estimate is random. One
    forward may only determine shapes, so forwards of several inputs are required.
    """
    for process in run.processes:
        by_line: dict[tuple[str, int], list[Event]] = defaultdict(list)
        inputs: dict[int, set[float]] = defaultdict(set)
        for event in process.of("spectral_norm"):
            record.tried += 1
            used, norm = event["norms"]
            # Power iterations approach the norm from below. The first random vector is far below it.
            if used < 0.3 * norm:
                by_line[event["at"], event["model"]].append(event)
                inputs[event["model"]].add(event["input"])
        for (at, model), events in by_line.items():
            used, norm = events[0]["norms"]
            seen = (
                f"a {events[0]['layer']} with spectral normalization runs in eval mode before its first forward in "
                f"training mode: its weight is divided by {used:.3g}, but its spectral norm is {norm:.3g}"
            )
            right = "call the model once in training mode, or use torch.nn.utils.parametrizations.spectral_norm"
            (record.falsify if len(inputs[model]) > 1 else record.hint)(at, seen, right)
