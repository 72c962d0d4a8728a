"""The operations of the other papers' kinds, plainly and from their formulas; used by make_golden.py.

kinds.safetensors, B = 2, N = 20 tokens, h = 2 heads; names and gradients as in ops.safetensors
    op.soft_scale.               x (2,20,8) s (2,1,4)                               y (2,20,8)
    op.focused_features.         x (2,20,8), power 3        op.focused_features_half.  power 2.5
    op.polar_features.           x (2,20,8) s (2,1,4): [x+, x-] twice               y (2,20,32)
    op.polar_features_crossed.   the same: [x+, x-], [x-, x+]
    op.cosine_features.          x (2,20,8)                                         y (2,20,16)
    op.positive_features_q.      x (2,20,8) w (5,4), w without a gradient           y (2,20,10)
    op.positive_features_k.      the same of keys
    op.given_attention.          q k (2,20,6) v (2,20,8), none of q and k negative  y (2,20,8)
"""
import math

import torch

HEADS = 2


def by_head(function):
    """A map of one head's (N, d) to (N, D), as one of (B, N, h d) to (B, N, h D); further arguments are (h, ...)."""
    def whole(x, *others):
        return torch.stack([torch.cat([function(head, *(o[i] for o in others)) for i, head in
                                       enumerate(image.chunk(HEADS, -1))], -1) for image in x])
    return whole


def soft_scale(x, s):
    return by_head(lambda head, own: head / torch.log(1 + torch.exp(own)))(x, s)


def focused(power):
    """The power of the features, every row brought back to the length that it had."""
    def map_head(head):
        rows = []
        for row in torch.relu(head) + 1e-6:
            raised = torch.stack([value ** power for value in row])
            rows.append(raised * torch.sqrt((row * row).sum()) / torch.sqrt((raised * raised).sum()))
        return torch.stack(rows)
    return by_head(map_head)


def polar(crossed):
    def map_head(head, own):
        power = 1 + 4 / (1 + torch.exp(-own))
        plus = torch.where(head > 0, head, torch.zeros(())) ** power
        minus = torch.where(head < 0, -head, torch.zeros(())) ** power
        return torch.cat((plus, minus) + ((minus, plus) if crossed else (plus, minus)), -1)
    return by_head(map_head)


def cosine(x):
    """Position i of N, counted from 1, turns by pi i / (2 N)."""
    def map_head(head):
        angle = math.pi / 2 * torch.arange(1, len(head) + 1)[:, None] / len(head)
        return torch.cat((torch.relu(head) * torch.cos(angle), torch.relu(head) * torch.sin(angle)), -1)
    return by_head(map_head)(x)


def positive(query):
    def map_head(head, w):
        head = head / head.shape[-1] ** 0.25
        inner = torch.stack([(head * row).sum(-1) for row in w], -1)               # (N, m)
        largest = inner.max(-1, keepdim=True)[0] if query else inner.max()
        exponent = inner - (head * head).sum(-1, keepdim=True) / 2 - largest
        return (torch.exp(exponent) + 1e-6) / math.sqrt(len(w))
    return lambda x, w: by_head(map_head)(x, [w] * HEADS)


def given_attention(q, k, v):
    """Every pair of tokens weighed by the product of its features."""
    images = []
    for image in zip(q, k, v):
        heads = []
        for fq, fk, values in zip(*(t.chunk(HEADS, -1) for t in image)):
            weight = fq @ fk.t() / len(fk)
            heads.append(weight @ values / (weight.sum(-1, keepdim=True) + 1e-6))
        images.append(torch.cat(heads, -1))
    return torch.stack(images)


def add_all(add, n):
    """add, n: of make_golden.py."""
    tokens, scale = (2, 20, 8), (HEADS, 1, 4)
    add('soft_scale', soft_scale, x=n(*tokens), s=n(*scale))
    add('focused_features', focused(3), x=n(*tokens))
    add('focused_features_half', focused(2.5), x=n(*tokens))
    add('polar_features', lambda x, s: polar(False)(x, s), x=n(*tokens), s=n(*scale))
    add('polar_features_crossed', lambda x, s: polar(True)(x, s), x=n(*tokens), s=n(*scale))
    add('cosine_features', cosine, x=n(*tokens))
    add('positive_features_q', positive(True), fixed=('w',), x=n(*tokens), w=n(5, 4))
    add('positive_features_k', positive(False), fixed=('w',), x=n(*tokens), w=n(5, 4))
    add('given_attention', given_attention, q=n(2, 20, 6).abs(), k=n(2, 20, 6).abs(), v=n(*tokens))
