"""fastai: accumulation, schedules, the validation loss, and resumed fits. No code of `pv`."""

import tempfile
import warnings
from functools import partial
from pathlib import Path

import torch
from fastai.callback.core import Callback
from fastai.callback.schedule import ParamScheduler, SchedLin
from fastai.callback.tracker import SaveModelCallback
from fastai.callback.training import GradientAccumulation
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.optimizer import OptimWrapper
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


class Weight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.weight * x


class Steps(Callback):
    order = 90

    def __init__(self):
        self.rates, self.gradients = [], []

    def before_step(self):
        self.rates.append(round(self.opt.hypers[-1]["lr"], 4))
        self.gradients.append(round(self.model.weight.grad.item(), 4))


def learner(train, valid=(), loss=lambda made, _: made.mean(), path="."):
    sgd = partial(OptimWrapper, opt=torch.optim.SGD)
    return Learner(DataLoaders(train, valid), Weight(), loss_func=loss, opt_func=sgd, lr=1.0, path=path)


def fit(made, epochs, *callbacks, start=0):
    steps = Steps()
    with made.no_bar(), made.no_logging():
        made.fit(epochs, cbs=[*callbacks, steps], start_epoch=start)
    return steps


def loader(rows, size, shuffle=False):
    draw = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(rows, rows), size, shuffle=shuffle, generator=draw)


made = learner(loader(torch.ones(5), 1))
fit(made, 1, GradientAccumulation(4))
print("19 weight after 5 batches with mean gradient 1, n_acc 4:", made.model.weight.item(), "expected -2.0")
steps = fit(learner(loader(torch.ones(7), 2)), 2, GradientAccumulation(4))
print("23 gradients of windows of 4 rows with mean gradient 1:", steps.gradients, "expected 1.0 each")
for size, accumulation in ((2, []), (1, [GradientAccumulation(2)])):
    steps = fit(learner(loader(torch.ones(8), size)), 1, ParamScheduler({"lr": SchedLin(1, 0)}), *accumulation)
    print(f"24 rates of 4 steps of 2 rows, in batches of {size}:", steps.rates)


def token_mean(_, target):
    return target[target >= 0].mean()


target = torch.tensor([[1.0, 1.0, 1.0], [5.0, -1.0, -1.0]])
for size in (1, 2):
    made = learner(loader(torch.ones(2), 2), loader(target, size), lambda made, y: made.mean() + token_mean(made, y))
    made.model.weight.requires_grad_(True)
    with made.no_bar(), made.no_logging():
        print(f"7  validation loss in batches of {size}:", made.validate()[0], "expected 2.0, the mean over the tokens")


def weights(folder):
    paths = sorted(folder.glob("models/*"))
    return {path.name: torch.load(path, weights_only=False)["model"]["weight"].item() for path in paths}


def three_epochs(folder, start=0):
    """As the page on schedules resumes: load the checkpoint, and fit again with `start_epoch`."""
    made = learner(loader(torch.ones(8), 2), path=folder)
    if start:
        made.load(f"model_{start - 1}")
    fit(made, 3, SaveModelCallback(every_epoch=True, with_opt=True), start=start)
    return weights(folder)


folder = Path(tempfile.mkdtemp())
print("   checkpoints of three epochs:", three_epochs(folder))
print("   after the third epoch was run again from model_1:", three_epochs(folder, 2))
