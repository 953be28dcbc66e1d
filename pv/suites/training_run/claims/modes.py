"""Claims about training mode and eval mode."""

import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim
from pv.suites.training_run.run import Event, Process, Run


@claim("TR-MODE-001", "no model with dropout or batch normalization was trained")
def trained_in_training_mode(run: Run, record: Record) -> None:
    """A model is trained in eval mode after an evaluation.

    Without an evaluation, eval mode may be intended, to freeze statistics. This is ruled out if all statistics keep
    their initial values, mean 0 and variance 1, until the end: no layer of the model has then been in training mode, or
    has loaded statistics from a file.

    Only forwards whose gradient a step used count, which excludes an attack or a calibration after the training. Before
    the evaluation, the model must have been trained in training mode.
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
                f"{len(wrong)} of {len(forwards)} training forwards of {process.kinds.get(model)} run in eval mode, "
                f"from step {step + 1} on: {first['eval_layers']} layers of dropout or normalization are in eval mode"
            )
            right = "call model.train() after every evaluation"
            trained = max((f["n"] for f, _ in forwards if f["training_layers"] and f["n"] < first["n"]), default=None)
            # An evaluation may call eval() again for every batch: the first call since the training counts.
            ended_training = [e for e in switches if trained is not None and e["n"] > trained and e["before"]]
            initial = _initial_statistics(process).get(model)
            if initial and len(wrong) == len(forwards) and model in _trained_networks(process):
                seen = (
                    f"{seen}; {initial} of these layers normalize by their initial statistics, mean 0 and variance 1, "
                    "which no batch has ever updated"
                )
                record.falsify(
                    switches[-1]["at"] if switches else first["at"], seen, "call model.train() before the training"
                )
            elif evaluated and ended_training:
                record.falsify(ended_training[-1]["at"], f"{seen}; eval() was called here for an evaluation", right)
            else:
                record.hint(switches[-1]["at"] if switches else first["at"], seen, right)


def _initial_statistics(process: Process) -> dict[int, int]:
    """Return, by model, the number of normalization layers if all of them have initial statistics at the end."""
    last = {event["model"]: event for event in process.of("statistics")}
    return {model: event["layers"] for model, event in last.items() if event["initial"] == event["layers"]}


def _trained_networks(process: Process) -> set[int]:
    """Return the models with a parameter that had a gradient at a step."""
    return {event["model"] for event in process.of("network") if event["trained"]}


@claim("TR-MODE-002", "no trained model with dropout or batch normalization was evaluated")
def evaluated_in_eval_mode(run: Run, record: Record) -> None:
    """An evaluation runs in training mode.

    The evaluation is a whole pass over data that is never trained on, or a separate block of forwards between steps.
    In these cases training mode may be intended, and the finding is at most a hint:

    - MC dropout calls the model several times for one input, or puts only its dropout layers into training mode.
    - A GAN is tested with the statistics of its batches. Optimizers of different models alternate in a GAN.
    - The script has called train() since the last training. Without normalization layers, a call that ends an
      evaluation in eval mode does not count.
    - The model computes labels for its own training: the pass has no loss, and a loader that is constructed after the
      first evaluation in training mode is trained on.
    - The pass computes new statistics of batch normalization (for a target domain, or an average of weights), which an
      evaluation in eval mode uses. A pass without a loss or dropout is therefore judged only if the model has no
      evaluation in eval mode.
    - A cached gradient (GradCache, open_clip) needs the outputs of all parts of a batch before the forwards with
      gradients: the next step trains on the same inputs, at least two of them.
    - Without a loader, the evaluation may compute the losses of candidates, to select what is trained on next. Such
      evaluations are judged only if they are at least three steps apart, on inputs that are never trained on, of a
      model with dropout that is never put into eval mode; and only in blocks of two or more forwards with a loss that
      has a reduction, or in three or more blocks with the same inputs.
    """
    for process in run.processes:
        trained = {forward["model"] for forward, _ in process.training_forwards}
        steps = sorted(forward["n"] for forward, _ in process.training_forwards)
        data = {event["loader"]: (event["data"], event["examples"]) for event in process.of("loader")}
        loaders = {forward["loader"] for forward, _ in process.training_forwards}
        # A loader may be constructed again for the same data set: it is a training loader too.
        loaders |= {loader for loader in data if data[loader] in {data.get(other) for other in loaders}}
        ended = {event["loader"] for event in process.of("pass_end")} - loaders - {None}
        training_inputs = {(f["model"], x) for f, _ in process.training_forwards for x in f["inputs"]}
        cached = _forwards_of_cached_gradients(process)
        evaluations = [(f, loss) for f, loss in _evaluations(process) if f["n"] not in cached]
        for model in sorted(trained):
            forwards = [(f, loss) for f, loss in evaluations if f["model"] == model and _has_modes(f)]
            record.tried += len(forwards)
            switches = [e for e in process.of("mode") if e["model"] == model]
            eval_calls = [e["n"] for e in switches if not e["training"]]
            wrong = [
                (f, loss)
                for f, loss in forwards
                # A root in eval mode that no call has put there: `model.training = False` reaches no layer.
                if f["training_layers"]
                and (f["training"] or not (f["eval_layers"] or any(n < f["n"] for n in eval_calls)))
            ]
            if not wrong:
                continue
            is_evaluated = any(f["eval_layers"] and not f["training"] for f, _ in forwards)
            # A loader that is made after the first evaluation, and then trained on.
            made_later = any(
                event["n"] > wrong[0][0]["n"] and event["loader"] in loaders for event in process.of("loader")
            )
            partners = _partners(process, model)
            # Sure: a whole pass over data that is never trained on; or a partner of the model, such as the encoder of a
            # head, is in eval mode in the same block of forwards between two steps.
            sure = []
            for f, loss in wrong:
                whole = f["loader"] in ended and (loss or (not made_later and (f["dropouts"] or not is_evaluated)))
                block = bisect(steps, f["n"])
                together = any(
                    g["model"] in partners and bisect(steps, g["n"]) == block and g["eval_layers"] and not g["training"]
                    for g, _ in evaluations
                )
                if whole or together:
                    sure.append(f)
            if not sure and not is_evaluated and not eval_calls:
                sure = _evaluation_blocks(process, wrong, steps, training_inputs)
            is_intended = _is_intended(sure, steps, switches, forwards)
            if _repeats_an_input(wrong, steps) or is_intended or _is_adversarial(process):
                sure = []
            count = sum(f["times"] for f, _ in wrong)
            seen = (
                f"{process.kinds.get(model)} is evaluated {count} times (no backward pass follows) with "
                f"{wrong[0][0]['training_layers']} layers of dropout or batch normalization in training mode"
            )
            right = "call model.eval() before an evaluation, and model.train() after it"
            if sum(f["times"] for f in sure) >= 2:
                where = "on data that is never trained on" if sure[0]["loader"] in ended else "between steps"
                record.falsify(sure[0]["at"], f"{seen}, {where}", right)
            elif any(loss or f["loader"] in ended or f["dropouts"] for f, loss in wrong):
                record.hint(wrong[0][0]["at"], seen, right)


def _is_intended(
    sure: Sequence[Event], steps: Sequence[int], switches: Sequence[Event], forwards: Sequence[tuple[Event, bool]]
) -> bool:
    """Return whether the script has called train() between the last training and the first forward of `sure`.

    Without normalization layers, a call that ends an evaluation in eval mode does not count. steps: the positions of
    the training forwards, in order. forwards: the evaluating forwards of the model, and whether they have a loss.
    """
    first = min((f["n"] for f in sure), default=0)
    last_step = max((n for n in steps if n < first), default=-1)
    train_calls = [e["n"] for e in switches if e["training"] and last_step < e["n"] < first]
    has_statistics = any(f["training_layers"] > f["dropouts"] for f in sure)
    evaluated = (f["n"] for f, _ in forwards if f["eval_layers"] and not f["training"])
    in_eval_mode = [n for n in evaluated if last_step < n < first]
    return bool(train_calls) and (has_statistics or not in_eval_mode or min(in_eval_mode) > min(train_calls))


def _has_modes(forward: Event) -> bool:
    """Return whether the model of a forward has layers that depend on the mode."""
    return bool(forward["training_layers"] + forward["eval_layers"])


def _evaluations(process: Process) -> list[tuple[Event, bool]]:
    """Return the forwards without gradients, and the forwards with gradients of passes without a backward pass."""
    evaluations = list(process.evaluations)
    open_passes: dict[int, list[Event]] = {}
    for event in process.events:
        kind = event["event"]
        if kind == "pass":
            open_passes[event["loader"]] = []
        elif kind == "forward" and event["grad"] and event["loader"] in open_passes:
            open_passes[event["loader"]].append(event)
        elif kind == "backward":
            open_passes.clear()
        elif kind == "pass_end":
            evaluations += [(forward, False) for forward in open_passes.pop(event["loader"], [])]
    return sorted(evaluations, key=lambda pair: int(pair[0]["n"]))


def _forwards_of_cached_gradients(process: Process) -> set[int]:
    """Return the positions of forwards without gradients whose inputs are some of those that the same step trains on.

    A script that caches gradients first needs the outputs for all parts of a batch.
    """
    ends = sorted(window.event["n"] for windows in process.windows.values() for window in windows)
    trained_on: dict[tuple[int, int], set[float]] = defaultdict(set)
    for forward, _ in process.training_forwards:
        trained_on[forward["model"], bisect(ends, forward["n"])].update(forward["inputs"])
    cached = set()
    for forward, _ in process.evaluations:
        inputs = trained_on[forward["model"], bisect(ends, forward["n"])] - {0}
        if len(inputs) > 1 and set() < set(forward["inputs"]) <= inputs:
            cached.add(forward["n"])
    return cached


def _partners(process: Process, model: int) -> set[int]:
    """Return the models that the same optimizers train, in training mode, together with a model."""
    users: dict[int, set[int]] = defaultdict(set)
    for forward, _ in process.training_forwards:
        if forward["training_layers"] and not forward["eval_layers"]:
            users[forward["model"]] |= process.users[forward["n"]]
    return {other for other, optimizers in users.items() if other != model and optimizers & users[model]}


def _is_adversarial(process: Process) -> bool:
    """Return whether optimizers of different models alternate, as in a GAN."""
    # Spans of steps overlap, and some model is used by the steps of only one of the optimizers.
    spans = {number: (windows[0].n, windows[-1].n) for number, windows in process.windows.items() if windows}
    users: dict[int, set[int]] = defaultdict(set)
    for forward, _ in process.training_forwards:
        users[forward["model"]] |= process.users[forward["n"]] & set(spans)
    return any(
        spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]
        for using in users.values()
        for a in using
        for b in set(spans) - using
    )


def _repeats_an_input(forwards: list[tuple[Event, bool]], steps: list[int]) -> bool:
    """Return whether a model gets one input several times in its first block of forwards between two steps.

    MC dropout does so. Later blocks may repeat an evaluation, such as the last one of a run.
    """
    first = [f for f, _ in forwards if bisect(steps, f["n"]) == bisect(steps, forwards[0][0]["n"])]
    inputs = [x for f in first for x in f["inputs"]]
    return len(set(inputs)) < len(inputs)


def _evaluation_blocks(
    process: Process, forwards: list[tuple[Event, bool]], steps: list[int], trained_on: Set[object]
) -> list[Event]:
    """Return the forwards with dropout that come in blocks at least three steps apart, if they are evaluations.

    Either each block has two or more forwards with a loss, or three or more blocks have the inputs of the first block.
    A loss without a reduction does not count: the losses of single tokens may be the log-probabilities of a policy.
    """
    scored, last = set(), -1
    for event in process.of("forward", "evaluation_loss"):
        if event["event"] == "forward":
            last = event["n"]
        elif event["reduction"] != "none":
            scored.add(last)
    blocks: dict[int, list[Event]] = defaultdict(list)
    for forward, _ in forwards:
        if forward["dropouts"] and not any((forward["model"], x) in trained_on for x in forward["inputs"]):
            blocks[bisect(steps, forward["n"])].append(forward)
    starts = sorted(blocks)
    if not starts or any(b - a < 3 for a, b in pairwise(starts)):
        return []
    losses = [sum(forward["times"] for forward in blocks[start] if forward["n"] in scored) for start in starts]
    inputs = [{x for forward in blocks[start] for x in forward["inputs"]} for start in starts]
    # A single block must come after the last step.
    has_losses = min(losses) >= 2 and (len(starts) > 1 or starts[0] == len(steps))
    has_input = len(starts) >= 3 and all(inputs[0] <= later for later in inputs) and inputs[0] != {0}
    return [forward for start in starts for forward in blocks[start]] if has_losses or has_input else []


@claim(
    "TR-MODE-003", "no trained model with dropout or statistics was evaluated in eval mode", premises=("TR-MODE-002",)
)
def eval_mode_reaches_every_layer(run: Run, record: Record) -> None:
    """Dropout is active, or a normalization uses the batch, in the forward of a model in eval mode.

    The cause is a dropout function that is called without `training` (its default is True), attention with a rate that
    does not depend on the mode, or a layer in a Python list, which eval() does not reach.

    Three cases may be intended, and are hints: MC dropout, which passes training=True, or calls the model several times
    for one input; noise on the input itself, or a mask that is drawn by dropout of a constant; and a process in which
    optimizers of different models alternate, as in a GAN.
    """
    for process in run.processes:
        steps = sorted(forward["n"] for forward, _ in process.training_forwards)
        trained = {forward["model"] for forward, _ in process.training_forwards}
        evaluations = [(f, loss) for f, loss in process.evaluations if f["model"] in trained and not f["training"]]
        record.tried += sum(f["training_layers"] + f["eval_layers"] > 0 for f, _ in evaluations)
        of_input = {event["at"] for event in process.of("unreached") if event["on_input"]}
        for event in process.of("unreached"):
            if event["model"] not in trained:
                continue
            is_layer = event["rate"] is None or event["kind"][:1].isupper()
            model = process.kinds.get(event["model"])
            if event["rate"] is None:
                seen = f"{event['kind']} uses the statistics of the batch in {model}, although {model} is in eval mode"
            else:
                seen = f"{event['kind']}({event['rate']}) drops values in {model}, although {model} is in eval mode"
            right = "keep the layer in an nn.ModuleList, so that eval() reaches it"
            if not is_layer:
                right = "pass training=self.training"
                if event["kind"].startswith("scaled"):
                    right = "pass dropout_p=rate if self.training else 0.0"
            repeats = _repeats_an_input([pair for pair in evaluations if pair[0]["model"] == event["model"]], steps)
            if event["explicit"] or event["at"] in of_input or repeats or _is_adversarial(process):
                record.hint(event["at"], seen, right)
            else:
                record.falsify(event["at"], seen, right)


@claim("TR-MODE-004", "no part of a trained model with batch normalization is frozen")
def frozen_statistics_stay(run: Run, record: Record) -> None:
    """The running statistics of a part change, although the part has no trainable parameter and its weights are fixed.

    Statistics that follow new data may be intended (AdaBN) if a script leaves frozen parts in training mode. Two
    sequences of events rule this out:

    1. The script puts the part into eval mode by a separate call, and a later call on an enclosing module undoes this,
       before any forward or after other parts were trained while the part was in eval mode.
    2. No call of train(), and no separate call of eval(), has ever reached the part, so the part is in the initial mode
       of modules. Nothing trainable comes before the part in the model, and the model is evaluated with the changed
       statistics.
    """
    for process in run.processes:
        ends = {(event["model"], event["part"]): event for event in process.of("frozen_statistics")}
        events: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in process.of("frozen_part"):
            events[event["model"], event["part"]].append(event)
        # By line, and by whether the finding falsifies the claim: names and changes of parts; then cause and model.
        findings: dict[tuple[str, bool], list[tuple[str, float]]] = defaultdict(list)
        shown: dict[tuple[str, bool], tuple[str, int]] = {}
        for (model, part), history in events.items():
            end = ends.get((model, part))
            if end is None:
                continue
            record.tried += 1
            moving = [event for event in history if event["training"]]
            # Less than a thousandth of a standard deviation is no visible change.
            if not moving or end["moved"] < 1e-3 or not end["frozen"] or end["written"]:
                continue
            first = moving[0]
            undone, last = first["asked_eval"], first["last"]
            # The script called eval() on the part; a later call on an enclosing module undid this before any forward,
            # or after other parts were trained while the part was in eval mode.
            is_undone = (
                undone
                and last["training"]
                and not first["asked_training"]
                and (undone["forwards"] == last["forwards"] or not history[0]["training"])
            )
            # No call ever reached the part, and the evaluated model uses the statistics that have changed.
            is_default = (
                not any(event["reached_by_training"] or event["asked_eval"] for event in history)
                and first["fixed_inputs"]
                and not end["trained"]
                and any(f["model"] == model and f["eval_layers"] and not f["training"] for f, _ in process.evaluations)
            )
            sure = bool(is_undone or is_default) and not first["asked_training"]
            at = last["at"] if is_undone else first["at"]
            findings[at, sure].append((part, end["moved"]))
            cause = (
                f"this call undoes the eval() at {undone['at']}"
                if is_undone
                else "no call of train() or eval() has reached this part, so it is in training mode"
                if is_default
                else "this part is in training mode"
            )
            shown[at, sure] = (cause, model)
        for (at, sure), parts in findings.items():
            cause, model = shown[at, sure]
            names = ", ".join(part for part, _ in parts[:3]) + (" ..." if len(parts) > 3 else "")
            seen = (
                f"all parameters of {names} in {process.kinds.get(model)} are frozen, but their running statistics "
                f"change by up to {max(moved for _, moved in parts):.2g} standard deviations: {cause}"
            )
            right = f"call model.{parts[0][0]}.eval() after every model.train(), or override train() to do so"
            (record.falsify if sure else record.hint)(at, seen, right)


@claim("TR-MODE-005", "no network ran beside the training of another one")
def fixed_networks_are_in_eval_mode(run: Run, record: Record) -> None:
    """A network that is not trained, or no longer, runs in training mode on the inputs of a trained model.

    Such a teacher gives noisy targets, or its statistics change. A network whose weights change, such as an average of
    weights or a target network, is not judged, and neither is a GAN. The finding is a hint if the network has the
    shapes of the trained model, or other inputs. A call of train() on the network itself shows that training mode may
    be intended and gives a hint, too, unless the call only ends an evaluation.
    """
    for process in run.processes:
        if _is_adversarial(process):
            continue
        last_trained: dict[int, int] = {}
        for forward, _ in process.training_forwards:
            last_trained[forward["model"]] = forward["n"]
        shapes = {event["model"]: event["shapes"] for event in process.of("network")}
        steps = sorted(forward["n"] for forward, _ in process.training_forwards)
        # Weights that are loaded after the last step are no average.
        last_step = max((window.n for windows in process.windows.values() for window in windows), default=-1)
        restored = min((e["n"] for e in process.of("load") if e["n"] > last_step), default=math.inf)
        by_model: dict[int, list[Event]] = defaultdict(list)
        for event in process.of("forward"):
            if event["n"] > last_trained.get(event["model"], -1) and _has_modes(event):
                if bisect(steps, event["n"]) < len(steps):  # not an evaluation after the training
                    by_model[event["model"]].append(event)
        for model, forwards in by_model.items():
            if len({bisect(steps, f["n"]) for f in forwards}) < 3:
                continue
            second = forwards[1]["n"]  # the first may follow the last step of its own training
            if any(e["model"] == model and second < e["n"] < restored for e in process.of("network")):
                continue
            record.tried += len(forwards)
            wrong = [f for f in forwards if f["training"] and f["training_layers"]]
            inputs = {x for f, _ in process.training_forwards if f["model"] != model for x in f["inputs"] if x}
            students = {f["model"] for f, _ in process.training_forwards if f["n"] > forwards[0]["n"]}
            if len(wrong) < 3:
                continue
            has_same_inputs = sum(any(x in inputs for x in f["inputs"]) for f in wrong) >= 3
            is_copy = any(shapes.get(student) == shapes.get(model) for student in students)
            is_intended = _is_asked_to_train(process, model, last_trained.get(model, -1))
            seen = (
                f"{process.kinds.get(model)}, which is not trained, runs {sum(f['times'] for f in wrong)} times during "
                f"the training with {wrong[0]['training_layers']} layers of dropout or batch normalization in training "
                "mode: its outputs are noisy, or its statistics change"
            )
            right = "call eval() on this network, also after every train() of a module that contains the network"
            sure = has_same_inputs and not is_intended and not is_copy
            (record.falsify if sure else record.hint)(wrong[0]["at"], seen, right)


def _is_asked_to_train(process: Process, model: int, since: int) -> bool:
    """Return whether a call of train() of a model itself does more than end an evaluation."""
    evaluated = in_eval = False
    for event in process.of("mode", "forward"):
        if event["model"] != model:
            continue
        if event["event"] == "forward":
            evaluated = evaluated or (in_eval and not event["grad"])
        elif not event["training"]:
            in_eval, evaluated = True, False
        else:
            if event["n"] > since and not evaluated:
                return True
            in_eval = evaluated = False
    return False


@claim("TR-MODE-006", "no call of train() or eval() was seen")
def modes_freeze_before_training(run: Run, record: Record) -> None:
    """A call of train() or eval() freezes a part of a model that the optimizer had trained until then.

    If a module freezes a part in an override of train(), the optimizer trains this part until train() is called, since
    new modules are in training mode. Only the first such call on the model counts, since a later one may freeze a part
    as planned. A call that freezes all parameters ends the training, and does not count.
    """
    for process in run.processes:
        record.tried += sum(1 for _ in process.of("mode"))
        last = {event["at"]: event for event in process.of("froze")}
        for event in last.values():
            if event["first"] and event["still"] and 0 < event["count"] < event["trained"]:
                record.falsify(
                    event["at"],
                    f"this is the first call of train() or eval(), and it freezes {event['count']} parameters after "
                    f"step {event['step']}, such as {event['names'][0]}, which the optimizer had trained until then",
                    "freeze these parameters in the constructor of the model, or call model.train() before the "
                    "training",
                )
