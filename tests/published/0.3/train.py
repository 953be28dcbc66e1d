"""Trains a small classifier."""

import argparse
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy


def update(model, optimizer, inputs, labels):
    """Take one step on a batch."""
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(options.steps):
        update(model, optimizer, torch.randn(8, 3), torch.randint(2, (8,)))
    torch.save(model.state_dict(), options.out / "model.pt")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
