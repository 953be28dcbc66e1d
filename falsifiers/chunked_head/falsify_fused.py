"""Attacks on the Triton kernel of a chunk's loss: compiled for a GPU, elsewhere on the CPU by Triton's interpreter."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import SkipTest, mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.chunked_head.falsify_chunks import ALLOWED, NAMED, SEEDS
from falsifiers.chunked_head.models import Tiny, V, assert_gradients, batches_of, oracle, window
from falsifiers.support.assertions import assert_equal
from reference_trainer import Weights
from reference_trainer.distillation.heads import FUSED

USUAL = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)
WEIGHTS = st.builds(
    Weights,
    temperature=st.sampled_from([1.0, 2.5]),
    ce_weight=st.sampled_from([0.0, 0.3]),
    kd_weight=st.sampled_from([0.0, 1.0]),
)


FUSED_MODULE = "reference_trainer.distillation.fused"


@contextmanager
def kernel_on(device: str) -> Iterator[Any]:
    """Yield the module of the kernel, which a step then uses; on the CPU with a copy that is interpreted.

    Triton's functions are compiled or interpreted for good when triton is imported, which torch may have done before.
    The copy is therefore imported with a second triton; its binary extension cannot be loaded twice.
    """
    try:
        fused: Any = import_module(FUSED_MODULE)
    except ImportError as error:
        raise SkipTest(f"{error}; install triton") from error
    with mock.patch.dict(os.environ, {FUSED: "1"}), mock.patch.dict(sys.modules):
        if device == "cuda":
            yield fused
            return
        os.environ["TRITON_INTERPRET"] = "1"
        for name in [FUSED_MODULE, *(name for name in sys.modules if name.split(".")[0] == "triton")]:
            if not name.startswith("triton._C"):
                del sys.modules[name]
        interpreted: Any = import_module(FUSED_MODULE)
        sys.modules[FUSED_MODULE] = fused
        with mock.patch.object(fused, "row_loss", interpreted.row_loss):
            yield fused


@given(
    seed=SEEDS,
    weights=WEIGHTS,
    change=st.sampled_from([None, *sorted(NAMED)]),
    tile=st.sampled_from([4, 64]),
    scored=st.sampled_from([0.6, 1.0]),
)
@example(seed=0, weights=USUAL, change="the soft cap logits_soft_cap", tile=4, scored=0.6)
def falsify_fused_chunks_give_the_gradient_of_all_logits(
    subject: Any, device: str, seed: int, weights: Weights, change: str | None, tile: int, scored: float
) -> None:
    """tile: tokens of 11 that a program reads at once. Steps on the CPU choose the scored rows before the kernel."""
    with kernel_on(device) as fused:
        scored_C = torch.tensor([True, False, True], device=device)
        logits_CV = torch.linspace(-3, 3, 3 * V, device=device).view(3, V)
        labels_C = torch.tensor([0, V, V - 1], device=device)
        numbers = fused.fused_loss(logits_CV, logits_CV.flip(0), labels_C, scored_C, weights, 1.0, None)
        unscored = torch.cat([numbers[:, 1], logits_CV[1]]).tolist()
        assert_equal("numbers and gradient of an unscored row", unscored, [0.0] * len(unscored))
        student, teacher = Tiny(seed, bias=True), Tiny(seed + 1)
        for model in (student, teacher) if change else ():
            keys, model.after = NAMED[change or ""]
            settings: Any = model
            settings.config = mock.Mock(spec=list(keys), **keys)
        batches = batches_of(seed, [(3, 5), (2, 7)], scored)
        expected = oracle(student, teacher, batches, weights)
        with (
            mock.patch.object(fused, "TILE", tile),
            mock.patch.object(fused, "fused_loss", wraps=fused.fused_loss) as kernel,
        ):
            sums = window(subject, student.to(device), teacher.to(device), batches, weights, rows=3).sums
    case = f"{change} with {weights} on {device}"
    assert kernel.called, f"{case}: the kernel did not run"
    for name in sums.keys() & expected.sums.keys():
        apart, wanted = abs(float(sums[name]) - expected.sums[name]), expected.sums[name]
        assert apart <= ALLOWED["float32"] * max(abs(wanted), 1.0), f"{case}: {name} is {sums[name]}; not {wanted}"
    assert_gradients(case, student.cpu(), expected, ALLOWED["float32"])
