"""An attack on windows with features over gloo ranks. The subject is `reference_trainer.training.window`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from falsifiers.feature_training.windows import FeatureWindow, feature_windows
from falsifiers.support.ranks import run_ranks
from falsifiers.support.windows import UNEVEN, V, assert_gradients, dealt
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.training.parallel import DataParallel


@given(window=feature_windows(), ranks=st.sampled_from([2, 3]))
def falsify_ranks_have_the_gradient_with_features(subject: Any, window: FeatureWindow, ranks: int) -> None:
    window = window.but(case=window.case.but(samples=UNEVEN, split=dealt(len(UNEVEN), ranks, 2)))

    def work(rank: int) -> dict[str, Any]:
        module, matching = DistributedDataParallel(window.student()), window.matching()
        projections = [DistributedDataParallel(each) for each in matching.projections]
        subject.kd_window(
            window.teacher(),
            ModuleStudent(module, V),
            window.case.batches(rank),
            window.weights,
            parallel=DataParallel(module),
            features=replace(matching, projections=projections),
        )
        named = [(name, each) for name, each in module.module.named_parameters()]
        for pair, projection in enumerate(projections):
            named += [(f"{pair}.{name}", each) for name, each in projection.module.named_parameters()]
        return {name: each.grad for name, each in named}

    expected, allowed = window.gradients()
    for rank, gradients in enumerate(run_ranks(ranks, work)):
        assert_gradients(f"rank {rank} of {ranks}, {window.distance}", gradients, expected, allowed)
