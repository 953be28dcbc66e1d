"""transformers.Trainer: unequal rows, accumulation, evaluation, saves.

needs: transformers accelerate
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(61)
config = GPT2Config(vocab_size=24, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
rows = [torch.randint(1, 24, (n,)) for n in torch.randint(4, 14, (34,)).tolist()]


def collate(batch):
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
    mask = (ids != 0).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=2, learning_rate=1e-2,
    eval_strategy="epoch", save_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=2,
    load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=False,
)  # fmt: skip
data = [{"input_ids": row} for row in rows]
model = GPT2LMHeadModel(config)
trainer = Trainer(model, arguments, train_dataset=data[:28], eval_dataset=data[28:], data_collator=collate)
trainer.train()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))
