"""transformers.Trainer, resumed from its newest checkpoint in the middle of an epoch.

needs: transformers accelerate
cut: 7
runs: --resume
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(61)
config = GPT2Config(vocab_size=24, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
rows = torch.randint(1, 24, (40, 8))
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=1, learning_rate=1e-2, warmup_steps=3, save_steps=3,
    report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=20, dataloader_pin_memory=False,
)  # fmt: skip
data = [{"input_ids": row, "labels": row} for row in rows]
model = GPT2LMHeadModel(config)
Trainer(model, arguments, train_dataset=data).train(resume_from_checkpoint="--resume" in sys.argv)
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))
