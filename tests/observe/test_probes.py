"""What a probe reads from the outputs of a model."""

import pytest

torch = pytest.importorskip("torch", reason="the observer needs torch")

from pv.observe import probes  # noqa: E402 (it imports torch)


@pytest.mark.parametrize(("positions", "classes", "is_found"), [(6, 9, True), (9, 6, True), (7, 7, False)])
@pytest.mark.parametrize("is_first", [True, False])
def test_logits_are_read_by_their_classes_unless_positions_are_as_many(
    positions: int, classes: int, is_found: bool, is_first: bool
) -> None:
    logits = torch.randn(3, positions, classes)
    output = logits.transpose(1, 2) if is_first else logits
    tokens, labels = torch.zeros(3, positions), torch.zeros(3, positions - 1)
    read = probes._logits([output], probes._Recorder(), tokens, labels, (classes, 0))
    assert (read is not None) == is_found
    if read is not None:
        assert torch.equal(read, logits[:, :-1])
