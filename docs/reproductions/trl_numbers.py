"""trl.SFTTrainer: the numbers that it logs after a resume, and evaluates in batches. No code of `pv`."""

import tempfile

import torch
from datasets import Dataset
from tiny import model, rows
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(64)}, "t1"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t63")
quiet = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": [], "disable_tqdm": True}
quiet |= {"max_length": None, "loss_type": "nll", "per_device_train_batch_size": 2}


def made(model, out, evaluated=None, train=None, **settings):
    train = Dataset.from_list(train or rows(8))
    arguments = SFTConfig(out, **quiet | settings)
    return SFTTrainer(model, arguments, train_dataset=train, eval_dataset=evaluated, processing_class=tokenizer)


out = tempfile.mkdtemp()
for resume in (None, f"{out}/checkpoint-2"):
    trainer = made(model(), out, max_steps=4, logging_steps=1, save_steps=1)
    trainer.train(resume_from_checkpoint=resume)
    tokens = [(row["step"], row["num_tokens"]) for row in trainer.state.log_history if "num_tokens" in row]
    print("14 resumed after step 2" if resume else "14 not cut", tokens)
uncertain = model()
torch.nn.init.normal_(uncertain.lm_head.weight, std=3.0)
for size in (1, 2, 5):
    trainer = made(uncertain, tempfile.mkdtemp(), Dataset.from_list(rows(40)), per_device_eval_batch_size=size)
    seen = trainer.evaluate()
    print("7  evaluated in batches of", size, {name: seen[name] for name in ("eval_loss", "eval_entropy")})
silent = rows(3)
silent[0]["labels"] = [-100] * len(silent[0]["labels"])
trainer = made(
    model(),
    tempfile.mkdtemp(),
    train=silent,
    max_steps=3,
    logging_steps=1,
    per_device_train_batch_size=1,
    learning_rate=0.0,
)
trainer.train()
print(
    "6  logged losses, one of a row without labels", [row["loss"] for row in trainer.state.log_history if "loss" in row]
)
