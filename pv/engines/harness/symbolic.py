"""Prove a harness with CrossHair: the parameters are symbolic values within their bounds, the subject is concrete.

The claim is proved only if CrossHair confirms every postcondition. CrossHair checks its time limit rarely, so the
worker has a limit too. CrossHair assumes that calls share no state, so some points are tried concretely after a proof.
"""

import ast
import importlib
import importlib.util
import inspect
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from pv.contract.harness_bounds import Bound, Box, Point, Value
from pv.engines.harness.point import Claim, arguments
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus

MISSING = "CrossHair is not installed; install the extra `symbolic` of pv-contracts"
MODULE = "pv_symbolic_harness"
# After a proof, the points that fulfil `requires` among the first SEARCHED_POINTS of the box are tried concretely, at
# most CONCRETE_POINTS. This detects most state that is kept between calls, and costs less than an enumeration.
CONCRETE_POINTS, SEARCHED_POINTS = 200, 10_000
# Shrinking takes at most SHRINK_S of CPU time. It first tries all points that combine the CORNER smallest values of
# every bound.
CORNER, SHRINK_S = 4, 2.0
FAILED = {"POST_FAIL", "EXEC_ERR", "POST_ERR"}
"""The states of CrossHair's messages that contain a counterexample."""


def prove(claim: Claim, box: Box, limit_s: float, stream: Stream) -> dict[str, object]:
    """Search for a counterexample with CrossHair.

    Args:
        claim: The predicate with its subject.
        box: The bounds, which become symbolic values, and the condition `requires`.
        limit_s: The limit on CPU time, in seconds; CrossHair checks it rarely.
        stream: Receives a counterexample before it is shrunk.

    Returns:
        The record of the trial: held only if CrossHair confirmed every path.
    """
    if importlib.util.find_spec("crosshair") is None:
        return {"status": TrialStatus.SKIPPED.value, "detail": MISSING}
    start = time.process_time()
    messages, paths, complete = _analyse(claim, box, limit_s)
    seconds = time.process_time() - start
    states = {state for state, _ in messages}
    if states == {"CONFIRMED"}:
        return _confirmation_record(claim, box, paths, seconds)
    for state, text in messages:
        if state in FAILED:
            return {**_refutation_record(claim, box, text, stream), "valid": paths}
    if states == {"PRE_UNSAT"} and complete:
        return _empty_box_record(box)
    return _undecided_record(messages, paths, seconds, limit_s)


def _analyse(claim: Claim, box: Box, limit_s: float) -> tuple[list[tuple[str, str]], int, bool]:
    """Analyse the claim with CrossHair.

    Returns:
        The state and the text of each message, one per postcondition; the number of paths that were analysed; and
        whether these are all paths. The state PRE_UNSAT means that no path was inside the box: either the box is empty,
        or the time limit was reached first.
    """
    from crosshair.core_and_libs import analyze_function, run_checkables
    from crosshair.options import AnalysisKind, AnalysisOptionSet

    stats: Counter[str] = Counter()
    # report_all: include messages without a counterexample, such as CANNOT_CONFIRM.
    options = AnalysisOptionSet(
        analysis_kind=[AnalysisKind.PEP316], per_condition_timeout=limit_s, report_all=True, stats=stats
    )
    # CrossHair reads preconditions from docstrings (PEP 316), so the box becomes source code.
    module = _module(box, claim.holds)
    messages = run_checkables(analyze_function(module.harness, options))
    answers = [(message.state.name, message.message) for message in messages]
    return answers, stats["num_paths"], bool(stats["exhaustion"])


def _module(box: Box, holds: Callable[[Point], bool]) -> ModuleType:
    """Return a module with the function to analyse. CrossHair reads its source, so the module is loaded from a file."""
    path = Path(tempfile.mkdtemp()) / f"{MODULE}.py"
    path.write_text(source(box), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    module.__dict__["_holds"] = holds
    return module


def source(box: Box) -> str:
    """Return the source of the function: bounds and `requires` are preconditions, the claim is the postcondition."""
    conditions = [bound.condition(name) for name, bound in box.bounds.items()]
    conditions += [box.requires] if box.requires else []
    return "\n".join(
        [
            f"def harness({', '.join(f'{name}: {bound.type}' for name, bound in box.bounds.items())}) -> bool:",
            '    """',
            *(f"    pre: {condition}" for condition in conditions),
            "    post: __return__",
            '    """',
            f"    return _holds({{{', '.join(f'{name!r}: {name}' for name in box.bounds)}}})",
            "",
        ]
    )


def _confirmation_record(claim: Claim, box: Box, paths: int, seconds: float) -> dict[str, object]:
    """Return the record of a confirmed proof, after trying some points concretely."""
    # CrossHair resets the state that the code keeps between calls, so confirmed code can still fail here.
    for point in _points_in_box(box):
        failure = claim.failure(point)
        if failure is not None:
            at = ", ".join(f"{name} = {value}" for name, value in point.items())
            detail = f"CrossHair confirmed the claim, which fails at {at}: does the subject keep state between calls?"
            return {**failure, "status": TrialStatus.ERROR.value, "detail": detail}
    detail = f"CrossHair {version('crosshair-tool')}: confirmed over {paths:,} paths in {seconds:.2f} s"
    return {"status": TrialStatus.HELD.value, "detail": detail, "valid": paths}


def _points_in_box(box: Box) -> Iterator[Point]:
    """Yield the first points of the box that fulfil `requires`, at most `CONCRETE_POINTS`."""
    return islice(filter(box.admits, islice(box.points(), SEARCHED_POINTS)), CONCRETE_POINTS)


def _empty_box_record(box: Box) -> dict[str, object]:
    """Return the record for a box in which CrossHair found no point."""
    # Enumeration must find no point either.
    inside = next(_points_in_box(box), None)
    if inside is not None:
        return {
            "status": TrialStatus.INCONCLUSIVE.value,
            "detail": f"CrossHair found no point in the box, but {inside} is in the box",
        }
    where = f"with `requires: {box.requires}`" if box.requires else "within its bounds"
    return {"status": TrialStatus.NO_EXAMPLES.value, "detail": f"the box is empty: CrossHair found no point {where}"}


def _undecided_record(messages: list[tuple[str, str]], paths: int, seconds: float, limit_s: float) -> dict[str, object]:
    """Return the record for messages that neither confirm nor refute the claim: timeout, inconclusive or error."""
    answers = "; ".join(f"{state}: {text}" for state, text in messages) or "no answer"
    if {state for state, _ in messages} <= {"CONFIRMED", "CANNOT_CONFIRM", "PRE_UNSAT"} and messages:
        if seconds > 0.95 * limit_s:
            detail = f"CrossHair confirmed nothing within its limit of {limit_s:g} s of CPU time, after {paths:,} paths"
            return {"status": TrialStatus.TIMEOUT.value, "detail": detail, "valid": paths}
        detail = f"CrossHair cannot confirm the claim, after {paths:,} paths in {seconds:.2f} s of {limit_s:g} s"
        return {"status": TrialStatus.INCONCLUSIVE.value, "detail": detail, "valid": paths}
    return {"status": TrialStatus.ERROR.value, "detail": f"CrossHair could not analyse the claim: {answers[:2000]}"}


def _refutation_record(claim: Claim, box: Box, text: str, stream: Stream) -> dict[str, object]:
    """Return the record of the shrunk counterexample from a text of CrossHair.

    The parent process replays the counterexample in a new worker, so it is recorded even if it does not fail here.
    """
    point = parse_counterexample(text, box)
    if point is None:
        return {
            "status": TrialStatus.ERROR.value,
            "detail": f"CrossHair refuted the claim without a counterexample: {text[:2000]}",
        }
    counterexample = {"arguments": arguments(point), "exact": True, "error": f"CrossHair: {text[:2000]}"}
    # Send the counterexample now, since the worker may reach its time limit while it shrinks.
    stream.put("counterexample", status=TrialStatus.REFUTED.value, **counterexample)
    failure = claim.failure(point)
    if failure is None:
        return {"status": TrialStatus.REFUTED.value, "detail": "", **counterexample}
    smaller = _shrink(claim, box, point, failure["status"])
    failure = claim.failure(smaller) or {"status": TrialStatus.REFUTED.value, "detail": "", **counterexample}
    return {**failure, "shrunk": True}


def parse_counterexample(text: str, box: Box) -> dict[str, Value] | None:
    """Return the point in a message such as `false when calling harness(5, [3]) (which returns False)`.

    CrossHair reports a counterexample only in the text of a message. The result is None if the message contains no
    call, such as for a predicate that does not take the same path twice, or if the names do not match the bounds.
    """
    start = text.rfind("when calling harness(")
    # The message continues after the call, and values in the call may contain brackets: find the longest text that
    # parses as a call.
    for end in range(len(text), start, -1):
        if start >= 0 and text[end - 1] == ")":
            try:
                call = ast.parse(text[start + len("when calling ") : end], mode="eval").body
            except SyntaxError:
                continue
            return _bound_arguments(call, box) if isinstance(call, ast.Call) else None
    return None


def _bound_arguments(call: ast.Call, box: Box) -> dict[str, Value] | None:
    """Return the arguments of a call by the names of the bounds; None if they are no literals or have other names."""
    names = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in box.bounds]
    try:
        values = [ast.literal_eval(argument) for argument in call.args]
        named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
        return dict(inspect.Signature(names).bind(*values, **named).arguments)
    except (ValueError, TypeError):
        return None


def _shrink(claim: Claim, box: Box, point: Point, status: object) -> dict[str, Value]:
    """Return a point that refutes the claim with the same `status`, and whose values are simpler if possible.

    1. Try the points that combine the smallest values of every bound.
    2. Replace one value at a time by one of its `_simpler_values`, until no replacement refutes the claim or the time
       limit is reached.
    """
    deadline = time.process_time() + SHRINK_S

    def refutes(candidate: Point) -> bool:
        return box.admits(candidate) and (claim.failure(candidate) or {}).get("status") == status

    corner = (small for small in box.corner(CORNER) if time.process_time() < deadline and refutes(small))
    best = next(corner, dict(point))
    improved = True
    while improved:
        improved = False
        for name, bound in box.bounds.items():
            for value in _simpler_values(bound, best[name]):
                if time.process_time() > deadline:
                    return best
                candidate = {**best, name: value}
                if refutes(candidate):
                    best, improved = candidate, True
                    break
    return best


def _simpler_values(bound: Bound, value: Any) -> Iterator[Any]:
    """Yield values of a bound that are simpler than `value`.

    For a number: the allowed value nearest to zero, the value halfway to it, and the next value towards it. For a list:
    the list without one of its items, and the list with one item replaced by a simpler one.
    """
    if bound.most is not None:
        yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
        item_bound = Bound(bound.low, bound.high, bound.boolean)
        for index, item in enumerate(value):
            simpler_items = _simpler_values(item_bound, item)
            yield from ([*value[:index], simpler, *value[index + 1 :]] for simpler in simpler_items)
        return
    nearest = min(max(0, bound.low), bound.high)
    distance = int(value) - nearest
    for shorter in dict.fromkeys((0, distance // 2, distance - (1 if distance > 0 else -1))):
        if abs(shorter) < abs(distance):
            yield bool(nearest + shorter) if bound.boolean else nearest + shorter
