"""Windows whose step matches hidden states, and their gradient in closed form.

The student has two layers: h0(k) = E[k] after token k, and h1(k) = M · E[k] with a fixed M. With a projection P, b, and
with d the derivative of the distance by P · h + b at one scored position of token k,

    dE[k] += Mᵀ · Pᵀ · d,  dP += d · hᵀ,  db += d,  each divided by the scored tokens and by the number of pairs

The distance and its derivative come from `falsifiers.feature_matching.cases`, in plain Python.
Shape letters: K = V vocabulary, W width of the student, U width of the teacher.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.feature_matching.cases import derivative, distance
from falsifiers.support.cases import IGNORED, Case, tensors
from falsifiers.support.steps import EXACT, HALF, TinyModel, V, W, WindowCase, window_cases
from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.losses import Weights
from reference_trainer.distillation.protocols import Batch, Outputs


class Layered(TinyModel):
    """A `TinyModel` with two layers; it counts the forwards that are asked for hidden states."""

    def __init__(self, embedding: Tensor, head: Tensor, bias: Tensor, mix: Tensor) -> None:
        super().__init__(embedding, head, bias)
        self.register_buffer("mix", mix.clone())
        self.asked = 0

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        logits, state = super().forward(tokens), self.embedding(tokens)
        self.asked += output_hidden_states
        return Outputs(logits, [state, state @ self.mix.T]) if output_hidden_states else logits


class LayeredTeacher:
    """A table of logits with tables of hidden states; it counts how often it is asked for states."""

    vocab_size = V

    def __init__(self, logits: Tensor, states: list[Tensor]) -> None:
        self.table, self.states, self.asked = logits, states, 0

    def logits(self, batch: Batch) -> Tensor:
        return self.table[batch.tokens]

    def outputs(self, batch: Batch) -> Outputs:
        self.asked += 1
        return Outputs(self.table[batch.tokens], [state[batch.tokens] for state in self.states])


@dataclass(frozen=True, slots=True, eq=False)
class FeatureWindow(Case):
    """A window, the hidden states of the teacher [K, U] for each layer, and what is matched.

    projection: weight [U, W] and bias [U], used for every pair; None if the states are compared as they are.
    """

    case: WindowCase
    mix: Tensor
    states: list[Tensor]
    layers: tuple[tuple[int, int], ...]
    distance: str
    projection: tuple[Tensor, Tensor] | None
    feature_weight: float

    @property
    def weights(self) -> Weights:
        return replace(self.case.weights, feature_weight=self.feature_weight)

    def student(self, device: str = "cpu") -> Layered:
        return Layered(self.case.embedding, self.case.head, self.case.bias, self.mix).to(device)

    def teacher(self, device: str = "cpu") -> LayeredTeacher:
        return LayeredTeacher(self.case.teacher.to(device), [state.to(device) for state in self.states])

    def matching(self, device: str = "cpu") -> FeatureMatching:
        """Return what is matched, with a projection module for each pair."""
        projections = [] if self.projection is None else [_linear(*self.projection).to(device) for _ in self.layers]
        return FeatureMatching(layers=self.layers, distance=self.distance, projections=projections)

    def _positions(self) -> list[int]:
        """Return the tokens after which a token is scored."""
        pairs = (pair for sample in self.case.samples for pair in itertools.pairwise(sample))
        return [token for (token, _), (_, label) in pairs if label != IGNORED]

    def _pair(self, token: int, pair: int) -> tuple[Tensor, list[float], list[float]]:
        """Return the student's state of one pair, and the two vectors that are compared."""
        i, j = self.layers[pair]
        state = self.case.embedding[token] if i % 2 == 0 else self.mix @ self.case.embedding[token]
        shown = state if self.projection is None else self.projection[0] @ state + self.projection[1]
        return state, shown.tolist(), self.states[j][token].tolist()

    def feature_sum(self) -> float:
        """Return the distance, averaged over pairs and summed over scored positions."""
        pairs = [self._pair(token, pair) for token in self._positions() for pair in range(len(self.layers))]
        return math.fsum(distance(self.distance, h, g) for _, h, g in pairs) / len(self.layers)

    def gradients(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the gradient of each parameter, and its largest rounding error; projections by their pair."""
        expected = self.case.gradient()
        size = {name: bound / EXACT for name, bound in self.case.allowed().items()}
        for pair, (i, _) in enumerate(self.layers):
            for token in self._positions():
                state, h, g = self._pair(token, pair)
                d = torch.tensor(derivative(self.distance, h, g), dtype=torch.float64)
                d *= self.feature_weight / len(self.layers) / self.case.count()
                back = d if self.projection is None else self.projection[0].T @ d
                back = back if i % 2 == 0 else self.mix.T @ back
                row = torch.zeros(V, W, dtype=torch.float64).index_put((torch.tensor(token),), back)
                parts = {"embedding.weight": row}
                if self.projection is not None:
                    parts |= {f"{pair}.weight": torch.outer(d, state), f"{pair}.bias": d}
                for name, part in parts.items():
                    expected[name] = expected.get(name, 0.0) + part
                    size[name] = size.get(name, 0.0) + part.abs() + d.abs().max() * 8
        return expected, {name: EXACT * (bound + 1) for name, bound in size.items()}


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(*weight.shape[::-1], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


@st.composite
def feature_windows(draw: st.DrawFn) -> FeatureWindow:
    """Draw a window with one to three pairs of layers, with a projection to a teacher of another width or without."""
    case, projected = draw(window_cases()), draw(st.booleans())
    U = draw(st.sampled_from([1, 3])) if projected else W
    states = [draw(tensors((V, U), HALF, torch.float64)) for _ in range(2)]
    projection = tuple(draw(tensors(shape, HALF, torch.float64)) for shape in ((U, W), (U,))) if projected else None
    pair = st.tuples(st.integers(-2, 1), st.integers(-2, 1))
    layers = tuple(draw(st.lists(pair, min_size=1, max_size=3)))
    mix = draw(tensors((W, W), HALF, torch.float64))
    name, weight = draw(st.sampled_from(["cosine", "l2"])), draw(st.floats(0.25, 4))
    return FeatureWindow(case, mix, states, layers, name, projection, weight)
