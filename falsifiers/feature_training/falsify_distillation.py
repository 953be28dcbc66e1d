"""Attacks on distillations that match hidden states. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import reference_trainer
from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import small


def _prepared(subject: Any, directory: Path, **settings: Any) -> Any:
    settings = {"feature_weight": 1.0, "teacher_width": 32, "lr": 0.01, "warmup": 0, **settings}
    made = small(directory, out=directory / "out", force=True, **settings)
    return subject.Distillation(made, lines=reference_trainer.Lines(io.StringIO()))


def _copies(parameters: Any) -> list[torch.Tensor]:
    return [each.detach().clone() for each in parameters]


@given(
    seed=st.integers(0, 9), distance=st.sampled_from(["cosine", "l2"]), dtype=st.sampled_from(["float32", "float64"])
)
def falsify_a_projection_is_made_trained_and_not_exported(subject: Any, seed: int, distance: str, dtype: str) -> None:
    first, moved = [], []
    with scratch() as root:
        for process_seed in (1, 2):
            torch.manual_seed(process_seed)
            settings = {"seed": seed, "feature_distance": distance, "dtype": dtype}
            with _prepared(subject, root, **settings) as work:
                work.prepare()
                shapes = [(tuple(each.shape), str(each.dtype)) for each in work.features.parameters]
                kind = f"torch.{dtype}"
                assert shapes == [((32, 16), kind), ((32,), kind)], f"the projection has {shapes}; expected 16 to 32"
                first.append(_copies(work.features.parameters))
                teacher = _copies(work.teacher.parameters())
                work.conclude(work.run())
                moved = [not torch.equal(*both) for both in zip(first[-1], work.features.parameters, strict=True)]
                same = all(map(torch.equal, teacher, work.teacher.parameters()))
                names = set(dict(work.student.named_parameters()))
            written = set(load_file(root / "out" / "model.safetensors"))
    assert moved == [True, True], f"weight and bias of the projection changed: {moved}; expected both"
    assert same, "the teacher was trained"
    assert written == names, f"the exported model has {sorted(written ^ names)} besides the student's parameters"
    assert all(map(torch.equal, *first)), f"two projections of seed {seed} differ: they depend on another generator"


@given(end=st.floats(0.25, 4), teacher_width=st.sampled_from([16, 32]), distance=st.sampled_from(["cosine", "l2"]))
def falsify_a_weight_that_rises_from_zero_is_matched(
    subject: Any, end: float, teacher_width: int, distance: str
) -> None:
    given = {"feature_weight": 0.0, "feature_weight_end": end, "anneal": "linear", "feature_distance": distance}
    logged = {"log_every": 1, "teacher_width": teacher_width}
    seen = list[dict[str, float]]()

    def act(callback: int, event: str, context: Any) -> None:
        if event == "on_step_end":
            seen.append(dict(context.metrics))

    with scratch() as root, _prepared(subject, root, **given, **logged) as work:
        work.prepare()
        matched = (work.features.distance, len(work.features.projections))
        assert matched == (distance, int(teacher_width != 16)), f"{matched}: {distance} between 16 and {teacher_width}"
        work.callbacks = (*work.callbacks, *recording_callbacks(1, act))
        work.run()
    weights = [metrics.get("feature_weight", 0.0) for metrics in seen]
    assert weights == [0.0, end / 2, end], f"the weights of three steps are {weights}; expected a rise from 0 to {end}"
    present = ["feature" in metrics for metrics in seen]
    assert present == [False, True, True], f"steps with a feature: {present}; expected all but the first"
