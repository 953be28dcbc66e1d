import torch

from pv.suites.optimizer.adamw import AdamW


def test_steps_are_those_of_pytorch() -> None:
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 7)) for _ in range(3)]
    made = [
        AdamW(weights[:1], lr=0.1),
        AdamW(weights[1:2], lr=0.1, foreach=True),
        torch.optim.AdamW(weights[2:], lr=0.1),
    ]
    for k in range(4):
        for weight, optimizer in zip(weights, made, strict=True):
            weight.grad = torch.linspace(k - 2, k + 1, 7)
            optimizer.step()
    torch.testing.assert_close(weights[0], weights[2])
    assert torch.equal(weights[0], weights[1])
