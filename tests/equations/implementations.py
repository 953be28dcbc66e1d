"""Ordinary implementations of the formulas: float32 PyTorch, with other operations and orders than the equations."""

import math

import torch
from torch.nn import functional as F


def log_softmax(x):
    return F.log_softmax(x, -1)


def kl(log_p, log_q):
    return F.kl_div(log_q, log_p, log_target=True, reduction="sum")


def kd_loss(s, t, y, tau, ce_weight, kd_weight):
    keep = y != -100
    hard = F.cross_entropy(s[keep], y[keep])
    soft = F.kl_div(log_softmax(s[keep] / tau), log_softmax(t[keep] / tau), log_target=True, reduction="batchmean")
    return ce_weight * hard + kd_weight * tau**2 * soft


def gjsd(s, t, beta):
    log_p, log_q = log_softmax(t), log_softmax(s)
    log_m = torch.logsumexp(torch.stack([log_p + math.log(beta), log_q + math.log1p(-beta)]), 0)
    return beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)


def topk_kl(s, t, size):
    ids = t.topk(size).indices
    log_p, log_q = log_softmax(t)[ids], log_softmax(s)[ids]
    tail_p, tail_q = torch.log1p(-log_p.exp().sum()), torch.log1p(-log_q.exp().sum())
    tail = tail_p.exp() * (tail_p - tail_q) if tail_p > -math.inf else 0.0
    return (log_p.exp() * (log_p - log_q)).sum() + tail


def weighted_mean(pairs):
    return sum(total for total, _ in pairs) / sum(count for _, count in pairs)


def perplexity(nll, scored):
    return nll[scored].mean().clamp(max=20).exp()


def cosine(step, max_steps, start, end):
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(step / max_steps, 1)))


def linear(step, max_steps, start, end):
    return start + (end - start) * min(step / max_steps, 1)


def warmup_cosine(step, warmup, max_steps, peak):
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * min((step - warmup) / (max_steps - warmup), 1)))


def acceptance(accepted, offered):
    return (accepted.sum(0) / offered.sum(0)).cumprod(0).sum()


def layernorm(x, gamma, beta, eps):
    return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def clip_gradients(gradients, max_norm):
    norm = torch.cat(gradients).norm()
    return tuple(gradient * min(1.0, max_norm / (float(norm) + 1e-6)) for gradient in gradients)


def attention(q, k, v, seen):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=seen[None])[0]


def huber(a, delta):
    return F.huber_loss(a, torch.zeros_like(a), reduction="none", delta=delta)


def bce(p, y):
    return F.binary_cross_entropy(p, y.float())


def top_p(prob, order, keep):
    p = prob[order]
    return p * (p.cumsum(0) - p < keep)


def rope(a, b, pos, freq):
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(freq), pos * freq)
    return turned.real, turned.imag
