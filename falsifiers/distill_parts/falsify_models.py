"""Attacks on the default student and teacher of a distillation. The subject is `pipeline.distill`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from falsifiers.support.small_runs import run, small

SHAPES = st.tuples(st.integers(1, 2), st.sampled_from([32, 64, 96]))
"""Layers, and a width that has a head for every 32 features."""


@given(student=SHAPES, teacher=SHAPES)
def falsify_models_are_made_and_trained_as_the_settings_say(
    subject: Any, student: tuple[int, int], teacher: tuple[int, int]
) -> None:
    trained_on = set[int]()

    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and isinstance(module, nn.Embedding) and arguments[0].device.type != "meta":
            trained_on.update(arguments[0].flatten().tolist())

    hook = register_module_forward_pre_hook(note)
    try:
        with tempfile.TemporaryDirectory() as name:
            shapes = {"layers": student[0], "width": student[1], "teacher_layers": teacher[0]}
            shapes |= {"teacher_width": teacher[1], "teacher_steps": 4}
            result = run(subject, small(Path(name), out=Path(name) / "out", **shapes))
    finally:
        hook.remove()
    for what, model, (layers, width) in (("student", result.student, student), ("teacher", result.teacher, teacher)):
        config = model.config
        seen, expected = (config.layers, config.width, config.heads), (layers, width, width // 32)
        assert seen == expected, f"layers, width and heads of the {what} are {seen}; expected {expected}"
    held_back = sorted(trained_on & set(range(90, 100)))  # each byte of the text is its own offset
    assert not held_back, f"of 100 bytes, a model is trained on the held-back ones {held_back}"
