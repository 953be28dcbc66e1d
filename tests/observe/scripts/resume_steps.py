"""Steps without epochs or loaders: rates by hand, batches drawn by the number of the step, an average of weights.

cut: 11
runs: --init-from resume
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WARM_UP, ACCUMULATE = 16, 4, 2
torch.manual_seed(9)
text = torch.randint(12, (400,))
net = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 12))
average = {name: p.detach().clone() for name, p in net.named_parameters()}
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.95))
begin = 0
if sys.argv[1:] == ["--init-from", "resume"]:
    state = torch.load("ckpt.pt")
    net.load_state_dict({name.removeprefix("_orig_mod."): p for name, p in state["model"].items()})
    optimizer.load_state_dict(state["optimizer"])
    average, begin = state["average"], state["step"]


def rate(step):
    if step < WARM_UP:
        return 1e-2 * (step + 1) / WARM_UP
    return 1e-3 + 4.5e-3 * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP)))


for step in range(begin, STEPS):
    if step % 5 == 0 and step > begin:
        model = {f"_orig_mod.{name}": p for name, p in net.state_dict().items()}
        torch.save({"model": model, "optimizer": optimizer.state_dict(), "average": average, "step": step}, "ckpt.pt")
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    generator = torch.Generator().manual_seed(step)
    for _ in range(ACCUMULATE):
        starts = torch.randint(len(text) - 9, (6,), generator=generator)
        batch = torch.stack([text[i : i + 9] for i in starts])
        loss = F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        (loss / ACCUMULATE).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for name, p in net.named_parameters():
            average[name].lerp_(p, 0.1)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))
