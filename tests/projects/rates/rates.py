"""Learning rates."""

import math


def warm(step, warmup, peak):
    return peak * min(step / warmup, math.sqrt(warmup / step))


def named(x, kind, limit):
    return math.log(x) if kind == "log" and limit is None else x
