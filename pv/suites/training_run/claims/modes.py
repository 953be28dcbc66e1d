"""Claims about training mode and eval mode."""

from collections import defaultdict
from itertools import pairwise

from pv.suites.training_run.record import Record, claim
from pv.suites.training_run.run import Event, Run


@claim("TR-MODE-001", "no model with dropout or batch normalization was trained")
def trained_in_training_mode(run: Run, record: Record) -> None:
    """Trained in eval mode after an evaluation. Without the evaluation, eval mode may be meant (frozen statistics).

    Only forwards count whose gradient a step used: an attack or a calibration after the training takes none. The model
    must have been trained in training mode before.
    """
    for process in run.processes:
        by_model: dict[int, list[tuple[Event, int]]] = defaultdict(list)
        for forward, step in process.training_forwards:
            if forward["training_layers"] + forward["eval_layers"]:
                by_model[forward["model"]].append((forward, step))
        for model, forwards in by_model.items():
            record.tried += len(forwards)
            users = process.users
            before = set().union(*(users[f["n"]] for f, _ in forwards if f["training_layers"]))
            wrong = [(f, step) for f, step in forwards if not f["training_layers"] and not f["training"]]
            # An optimizer of another phase, such as a calibration, may want eval mode.
            wrong = [(f, step) for f, step in wrong if not before or users[f["n"]] & before]
            if not wrong:
                continue
            first, step = wrong[0]
            switches = [
                e for e in process.of("mode") if e["model"] == model and not e["training"] and e["n"] < first["n"]
            ]
            evaluated = switches and any(
                e["model"] == model and switches[-1]["n"] < e["n"] < first["n"] for e, _ in process.evaluations
            )
            seen = (
                f"{len(wrong)} of {len(forwards)} forwards that train {process.kinds.get(model)} are in eval "
                "mode, from step "
                f"{step + 1} on: {first['eval_layers']} layers of dropout or normalization are off"
            )
            right = "call model.train() after every evaluation"
            trained = switches and any(f["training_layers"] and f["n"] < switches[-1]["n"] for f, _ in forwards)
            if evaluated and trained and switches[-1]["before"]:
                record.falsify(switches[-1]["at"], f"{seen}; eval() was called here for an evaluation", right)
            else:
                record.hint(switches[-1]["at"] if switches else first["at"], seen, right)


@claim("TR-MODE-002", "no trained model with dropout or batch normalization was evaluated")
def evaluated_in_eval_mode(run: Run, record: Record) -> None:
    """A whole pass over data that is never trained on, with losses, in training mode.

    MC dropout switches layers of a model in eval mode, or calls the model several times for one input; new statistics
    of batch normalization need no loss. A call of train() since the last training shows intent, and a GAN is tested
    with the statistics of its batches.
    """
    for process in run.processes:
        trained = {forward["model"] for forward, _ in process.training_forwards}
        loaders = {forward["loader"] for forward, _ in process.training_forwards}
        data = {event["loader"]: (event["data"], event["examples"]) for event in process.of("loader")}
        loaders |= {loader for loader in data if data[loader] in {data.get(other) for other in loaders}}
        ended = {event["loader"] for event in process.of("pass_end")}
        for model in trained:
            forwards = [
                (f, loss)
                for f, loss in process.evaluations
                if f["model"] == model and f["training_layers"] + f["eval_layers"]
            ]
            record.tried += len(forwards)
            wrong = [(f, loss) for f, loss in forwards if f["training_layers"] and f["training"]]
            sure = [f for f, loss in wrong if loss and f["loader"] in ended - loaders - {None}]
            # Draws for one input follow each other; passes of several epochs do not.
            draws = any(f["times"] > 1 and len(set(map(str, f["inputs"]))) < len(f["inputs"]) for f, _ in wrong) or any(
                a["inputs"] == b["inputs"] for (a, _), (b, _) in pairwise(wrong)
            )
            intended = any(
                e["training"]
                and e["model"] == model
                and any(e["n"] < f["n"] for f in sure)
                and not any(
                    e["n"] < t["n"] < f["n"]
                    for t, _ in process.training_forwards
                    for f in [next(f for f in sure if e["n"] < f["n"])]
                )
                for e in process.of("mode")
            )
            if draws or intended or sum(bool(windows) for windows in process.windows.values()) > 1:
                sure = []
            if not wrong:
                continue
            count = sum(f["times"] for f, _ in wrong)
            seen = (
                f"{count} forwards without gradients evaluate {process.kinds.get(model)} with "
                f"{wrong[0][0]['training_layers']} layers "
                "of dropout or batch normalization in training mode"
            )
            right = "call model.eval() before an evaluation, and model.train() after it"
            if len(sure) >= 2:
                record.falsify(sure[0]["at"], f"{seen}, on data that is never trained on", right)
            elif any(loss for _, loss in wrong):
                record.hint(wrong[0][0]["at"], seen, right)
