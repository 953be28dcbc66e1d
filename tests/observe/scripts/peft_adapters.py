"""peft: LoRA on a language model.

needs: transformers peft
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(63)
config = GPT2Config(vocab_size=24, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
model = get_peft_model(GPT2LMHeadModel(config), LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model.train()
for step in range(8):
    ids = torch.randint(0, 24, (4, 9))
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))
