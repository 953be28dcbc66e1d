"""pytorch-ignite: accumulation, resumed trainers, and the best checkpoint. No code of `pv`."""

import tempfile
import warnings

import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.utils import manual_seed
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


class Weight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.seen = torch.nn.Parameter(torch.zeros(1)), []

    def forward(self, x):
        self.seen.append([int(each) for each in x])
        return self.weight * x


def trainer(accumulate=1, **settings):
    model = Weight()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    engine = create_supervised_trainer(
        model, optimizer, lambda made, _: made.mean(), gradient_accumulation_steps=accumulate, **settings
    )
    return engine, model, {"trainer": engine, "model": model, "optimizer": optimizer}


def loader(rows=8, workers=0, shuffle=True):
    x = torch.arange(float(rows)) if shuffle else torch.ones(rows)
    return DataLoader(TensorDataset(x, x), 2 if shuffle else 1, shuffle=shuffle, num_workers=workers)


def two_epochs(folder, resume=None, workers=0):
    """As examples/mnist/mnist_save_resume_engine.py, with a checkpoint after every iteration."""
    engine, model, objects = trainer(deterministic=True)
    saver = Checkpoint(objects, DiskSaver(folder, require_empty=False), n_saved=None)
    engine.add_event_handler(Events.ITERATION_COMPLETED, saver)
    if resume:
        Checkpoint.load_objects(objects, torch.load(resume, weights_only=False))
    manual_seed(15)
    engine.run(loader(workers=workers), max_epochs=2)
    return model.seen


engine, model, _ = trainer(accumulate=4)
engine.run(loader(5, shuffle=False), max_epochs=1)
print("19 weight after 5 batches with mean gradient 1, accumulation 4:", model.weight.item(), "expected -2.0")
for workers in (0, 2):
    folder = tempfile.mkdtemp()
    straight = two_epochs(folder, workers=workers)
    for cut in (2, 4):
        rows = two_epochs(tempfile.mkdtemp(), f"{folder}/checkpoint_{cut}.pt", workers)
        print(f"20 {workers} workers, resumed after batch {cut}: {rows}, expected {straight[cut:]}")
rows = two_epochs(tempfile.mkdtemp(), f"{folder}/checkpoint_8.pt")
print(f"21 a finished run that is resumed takes {len(rows)} batches, expected 0")
engine, scores = Engine(lambda *_: None), iter([float("nan"), -3.0, -2.0])
best = Checkpoint(
    {"model": Weight()}, DiskSaver(tempfile.mkdtemp()), score_function=lambda _: next(scores), score_name="score"
)
engine.add_event_handler(Events.ITERATION_COMPLETED, best)
engine.run([0, 1, 2])
print("22 the best of the scores NaN, -3.0, -2.0:", best.last_checkpoint.name)
for load in (torch.load, lambda path: Checkpoint.load_objects(trainer(deterministic=True)[2], path)):
    try:
        load(f"{folder}/checkpoint_8.pt")
    except Exception as error:
        print("   a checkpoint of a deterministic trainer is refused:", str(error).splitlines()[0][:24])
