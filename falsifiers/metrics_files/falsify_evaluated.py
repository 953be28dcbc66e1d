"""Attacks on the lines of evaluated steps. The subject is `training.metrics_file`, or has its names."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.metrics_files.lines import METRICS, SOME, begin, context, directory, in_json

STEPS = st.lists(st.tuples(METRICS | st.just({}), st.none() | METRICS | st.just({})), min_size=1, max_size=5)
"""Metrics of each step, and those on held-back text; None for a step that is not evaluated."""


@given(steps=STEPS)
@example(steps=[({"loss": 1.0}, None), ({}, {"eval/loss": 2.0}), ({"loss": 3.0}, {"eval/loss": 4.0}), ({}, {})])
def falsify_evaluated_step_has_one_line(subject: Any, steps: list[Any]) -> None:
    with directory() as place:
        path, expected = place / "metrics", dict[int, dict[str, Any]]()
        callback = subject.MetricsCallback(path)
        begin(callback)
        for step, (metrics, held_back) in enumerate(steps, 1):
            fields = {**SOME, "metrics": metrics}
            if metrics:
                callback.on_log(context(step, fields))
                expected[step] = metrics
                _assert_lines(callback, path, expected, f"after step {step} was logged")
            if held_back is not None:
                callback.on_evaluate(context(step, {**fields, "validation_metrics": held_back}))
                if held_back:
                    expected[step] = {**metrics, **held_back}
            _assert_lines(callback, path, expected, f"after step {step} with {metrics} and {held_back}")
        callback.close()
        read = [line.step for line in subject.read_metrics(path)] if path.exists() else []
        assert read == list(expected), f"the reader returns the steps {read}; expected {list(expected)}"


def _assert_lines(callback: Any, path: Any, expected: dict[int, dict[str, Any]], when: str) -> None:
    content = path.read_bytes()
    seen = {line["step"]: line["metrics"] for line in map(json.loads, content.splitlines())}
    wanted = {step: in_json(metrics) for step, metrics in expected.items()}
    assert seen == wanted and content.count(b"\n") == len(wanted), f"{when}, the lines are {seen}; expected {wanted}"
    assert callback.length == len(content), f"{when}, length is {callback.length}; the file has {len(content)} bytes"
