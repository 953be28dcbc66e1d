"""transformers.Trainer with weights of rows, which the model does not name; the collator measures lengths anew.

needs: transformers accelerate
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import Trainer, TrainingArguments

torch.manual_seed(63)


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids, labels=None):
        return {"logits": self.head(self.embedding(ids).mean(1))}


class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weights, lengths = inputs.pop("weight"), inputs.pop("length")
        outputs = model(**inputs)
        losses = F.cross_entropy(outputs["logits"], inputs["labels"], reduction="none")
        loss = (losses * weights * (lengths > 2)).mean()
        return (loss, outputs) if return_outputs else loss


def collate(rows):
    ids = [torch.tensor(row["ids"]) for row in rows]
    return {
        "ids": nn.utils.rnn.pad_sequence(ids, batch_first=True),
        "labels": torch.tensor([row["labels"] for row in rows]),
        "weight": torch.tensor([row.get("weight", 1.0) for row in rows]),
        "length": torch.tensor([len(row) for row in ids]),
    }


data = []
for n in torch.randint(3, 9, (40,)).tolist():
    ids = torch.randint(1, 20, (n,)).tolist()
    data.append({"ids": ids, "labels": ids[0] % 3, "weight": 2.0 if n > 5 else 0.5, "length": n, "name": str(n)})
arguments = TrainingArguments(
    "out", per_device_train_batch_size=8, num_train_epochs=1, learning_rate=1e-2, save_strategy="no", report_to=[],
    remove_unused_columns=False, use_cpu=True, disable_tqdm=True,
)  # fmt: skip
model = Mean()
Weighted(model, arguments, train_dataset=data, data_collator=collate).train()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))
