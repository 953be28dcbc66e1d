"""Predicates over bounded boxes: which checkpoints are kept, best, resumed and refused.

The subject has the public names of `storage.retention`, and `CheckpointError`. Sets of steps are bit masks.
"""

import math
from collections.abc import Callable
from typing import Any

RUNS = ("a", "a-step1", "[ab]*", "a-step", "step2-step", "\N{GREEK SMALL LETTER TAU}?")
NO_STEPS = ("", "-1", "01", "1 ", "+1", "1_0", "1.0", "\N{ARABIC-INDIC DIGIT ONE}", "1.5.partial", "x", "latest", "1\n")
SCORES = (math.nan, math.inf, -math.inf, 1.0, 1.25, 1.5, -1.0)


def _steps(mask: int) -> list[int]:
    return [step for step in range(mask.bit_length()) if mask >> step & 1]


def _refused(subject: Any, call: Callable[[], object]) -> bool:
    try:
        call()
    except subject.CheckpointError:
        return True
    return False


def prove_kept(subject: Any, saved: int, keep: int, best: int) -> None:
    steps, wanted = _steps(saved), None if best == 7 else best
    stays = [s for s in steps if keep == 0 or s == wanted or sum(t > s for t in steps) < max(keep, 1)]
    for order in (steps, steps[::-1]):
        dropped = subject.steps_to_remove(order, keep=keep, best=wanted)
        left = [step for step in steps if step not in dropped]
        assert left == stays and len(dropped) == len(set(dropped)), f"of {order}, {left} are left, not {stays}"


def prove_names(subject: Any, run: int, other: int, step: int) -> None:
    """Steps up to 99 are themselves, later ones powers of ten; a number of more than 18 digits is none."""
    mine, theirs, step = RUNS[run], RUNS[other], step if step < 100 else 10 ** (step - 100)
    name = subject.checkpoint_name(mine, step)
    assert name == f"{mine}-step{step}", f"the checkpoint of step {step} of {mine!r} is called {name!r}"
    no_steps = [f"{mine}-step{text}" for text in NO_STEPS]
    names = [subject.checkpoint_name(theirs, step + 1), *no_steps, mine, f"{step}", name]
    seen = subject.steps_of(mine, names)
    expected = [number for number in ([step, step + 1] if mine == theirs else [step]) if number < 10**18]
    assert seen == expected, f"{mine!r} has the steps {seen} among {names}; expected {expected}"


def prove_best(subject: Any, first: int, second: int, third: int, fourth: int, highest: int, delta: int) -> None:
    mode, min_delta = ("min", "max")[highest], delta / 4
    scores = [SCORES[index] for index in (first, second, third, fourth)]
    best, expected = None, None
    for step, score in enumerate(scores, 1):
        best = subject.update_best(best, step=step, score=score, mode=mode, min_delta=min_delta)
        if math.isfinite(score):
            gain = 0.0 if expected is None else (score - expected[1]) * (1 if highest else -1)
            expected = (step, score) if expected is None or gain > min_delta else expected
    seen = None if best is None else (best.step, best.score)
    assert seen == expected, f"the best of {scores} is {seen} with mode {mode}, min_delta {min_delta}; not {expected}"


def prove_step_to_resume(subject: Any, saved: int, wanted: int, best: int) -> None:
    steps, word = [9 + step for step in _steps(saved)], ("latest", "best", "newest")[wanted]
    valid = {"latest": steps[-1:], "best": [9 + best] if 9 + best in steps else []}.get(word, [])
    seen, best_step = [], None if best == 4 else 9 + best
    refused = _refused(subject, lambda: seen.append(subject.step_to_resume(word, steps[::-1], best_step)))
    assert seen == valid and refused == (not valid), f"{word} of {steps}, best {9 + best}, is {seen}; expected {valid}"


def prove_steps_to_set_aside(subject: Any, saved: int, start: int) -> None:
    """9 stands for a run that starts over."""
    steps, after = _steps(saved), None if start == 9 else start
    expected = [step for step in steps if after is None or step > after][::-1]
    for order in (steps, steps[::-1]):
        seen = subject.steps_to_set_aside(order, after)
        assert seen == expected, f"of {order}, {seen} are set aside after step {after}; expected {expected}"
