"""transformers.Trainer: orders of neighbouring seeds; random numbers after evaluations and cuts. No code of `pv`."""

import torch
from tiny import collate, every_step, model, rows, trainer


def forwards(made):
    """Train, and return the first two tokens of the rows of each forward."""
    seen = []

    def note(module, given, named):
        seen.append(named["input_ids"][:, :2].tolist())

    made.model.register_forward_pre_hook(note, with_kwargs=True)
    return seen


def orders(seed):
    made = trainer(model(), rows(8), num_train_epochs=2, seed=seed)
    seen = forwards(made)
    made.train()
    names = [row[0] for batch in seen for row in batch]
    return names[:8], names[8:]


def noisy(batch):
    made = collate(batch)
    made["input_ids"][:, 1] = torch.randint(2, 60, (len(batch),))
    return made


print("2  seed 1, epoch 2", orders(1)[1], "seed 2, epoch 1", orders(2)[0])

ends = []
for strategy in ("no", "steps"):
    made = trainer(
        model(dropout=0.3), rows(8), rows(3), eval_strategy=strategy, eval_steps=1, max_steps=3, learning_rate=0.1
    )
    made.train()
    ends.append(torch.cat([each.detach().flatten() for each in made.model.parameters()]))
print("8  weights with and without evaluations differ by up to", (ends[0] - ends[1]).abs().max().item())

settings = {"max_steps": 5, "learning_rate": 0.1, **every_step("save")}
straight = trainer(model(), rows(10), collator=noisy, **settings)
seen = forwards(straight)
straight.train()
again = trainer(model(), rows(10), collator=noisy, **settings, output_dir=straight.args.output_dir)
rest = forwards(again)
again.train(resume_from_checkpoint=f"{straight.args.output_dir}/checkpoint-2")
print("15 batches after step 2", rest, "of the run not cut", seen[2:])
