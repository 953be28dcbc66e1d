"""A tiny model of transformers and unequal rows, for the reproductions beside this file."""

import logging
import tempfile
import warnings

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging as transformers_logging

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
transformers_logging.disable_progress_bar()


def model(dropout=0.0):
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, attention_dropout=dropout, **size))


def rows(n):
    """Return rows of 2 to 7 tokens; the first token is the number of the row."""
    ids = [[i + 1, *((7 * i + 5 * j) % 60 + 2 for j in range(1 + 3 * i % 6))] for i in range(n)]
    return [{"input_ids": each, "labels": [-100, *each[1:]]} for each in ids]


def collate(batch):
    width = max(len(row["input_ids"]) for row in batch)

    def padded(values, fill):
        return torch.tensor([[*each, *[fill] * (width - len(each))] for each in values])

    return {
        "input_ids": padded([row["input_ids"] for row in batch], 0),
        "labels": padded([row["labels"] for row in batch], -100),
        "attention_mask": padded([[1] * len(row["input_ids"]) for row in batch], 0),
    }


def trainer(model, train, evaluated=None, collator=collate, **settings):
    given = {"output_dir": tempfile.mkdtemp(), "per_device_train_batch_size": 2, "use_cpu": True, "report_to": []}
    given |= {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "seed": 1} | settings
    arguments = TrainingArguments(**given)
    made = Trainer(model, arguments, data_collator=collator, train_dataset=train, eval_dataset=evaluated)
    made.remove_callback(PrinterCallback)
    return made


def every_step(what):
    return {f"{what}_strategy": "steps", f"{what}_steps": 1}


def token_mean(model, rows):
    """Return the loss over all predicted tokens of rows, each alone."""
    batches = [collate([row]) for row in rows]
    counts = [int((batch["labels"][:, 1:] != -100).sum()) for batch in batches]
    with torch.no_grad():
        sums = [model(**batch).loss.item() * n for batch, n in zip(batches, counts, strict=True) if n]
    return sum(sums) / sum(counts)
