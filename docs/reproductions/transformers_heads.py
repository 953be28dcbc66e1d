"""transformers: heads whose forward takes keyword arguments, and drops the count of labels. No code of `pv`."""

import tempfile

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, Trainer, TrainingArguments

SIZES = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
CONFIG = BertConfig(**SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def norm(head: type, label: list[int] | int, accumulated: int) -> float:
    """Return the norm that one step over 8 rows logs, read in `accumulated` micro-batches."""
    torch.manual_seed(0)
    rows = [{"input_ids": [3, 4, 5, 6], "labels": label}] * 8
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=1,
            per_device_train_batch_size=8 // accumulated,
            gradient_accumulation_steps=accumulated,
            max_grad_norm=1e9,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(head(CONFIG), arguments, train_dataset=rows)
        trainer.train()
        return next(entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry)


for head, label in ((BertForMaskedLM, [-100, 4, 5, -100]), (BertForSequenceClassification, 1)):
    norms = [norm(head, label, accumulated) for accumulated in (1, 2, 4)]
    print("25 ", head.__name__, "8 rows in 1, 2, 4 micro-batches: norm times", [round(x / norms[0], 3) for x in norms])
