"""PyTorch's own optimizers, as subjects."""

from torch.optim import SGD as SGD
from torch.optim import Adam as Adam
from torch.optim import AdamW as AdamW
