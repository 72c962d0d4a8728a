"""PyTorch twin of mirrorla's models: loads, trains on and saves the weights of the C program.  Needs torch alone.

    import torch, mirrorla
    model = mirrorla.load('weights.safetensors')            # `mirrorla export`, or a checkpoint
    logits = model(images)                                  # (B, 3, S, S) normalised -> (B, classes)
    mirrorla.save(model, 'trained.safetensors')             # `mirrorla eval` and `mirrorla import` read it
    model = mirrorla.Model(mirrorla.preset('study', kind='mirror'))         # a new one

As a program (docs/formats.md):
    python3 mirrorla.py info FILE                           what is in a file
    python3 mirrorla.py to-pt FILE OUT.pt                   its weights as a state_dict for torch.load
    python3 mirrorla.py from-pt IN.pt OUT.safetensors       the way back

Shapes: B images, N = H W tokens in raster order, C channels, h heads, d = C / h.  A token is a row
vector; an isometry P acts on it from the right.  H(v) = I - 2 v'v / (v v' + 1e-12) is the
reflection at the hyperplane orthogonal to the row v.

A spec is a plain dictionary (anything left out has the default of DEFAULTS):
    family      'vit' (one stage) or 'pvt' (a pyramid: every later stage halves the side)
    image, classes, patch, dims, depths, heads, mlp_ratio      dims ... heads: one entry a stage
    drop_path   rate of the last block's stochastic depth, in training; norm_eps: inside every LayerNorm
    attention   kind        one of ATTENTION's names below, or a list of one a stage
                dwconv      side of the depthwise convolution of v, 0 = none; linear kinds only
                eps         floor of the linear-attention denominator
                qkv_bias    bias of the qkv projection (and of the gate)
                gate        the output times a linear map of x; linear kinds only, pola always has it
                performer   features: random features of a head, 'auto': d ln d
                focused     factor: power of the focusing map
                agent       side: side x side agents
                mirror      block, reflections, variance_angle, angle_max, angle_gain, cross_head, and the options
                            that `mirrorla config model.attention.mirror` explains
"""
import argparse
import copy
import ctypes
import json
import math
import os
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

TINY = 1e-12                 # makes the reflection of a zero vector the identity
VARIANCE_EPS = 1e-6          # keeps the logarithm of a constant channel's variance finite

DEFAULTS = dict(
    family='vit', image=32, classes=10, patch=4, dims=[64], depths=[4], heads=[4], mlp_ratio=4,
    drop_path=0.0, norm_eps=1e-6,
    attention=dict(
        kind='mirror', dwconv=5, eps=1e-6, qkv_bias=True, gate=False,
        performer=dict(features='auto'), focused=dict(factor=3.0), agent=dict(side=4),
        mirror=dict(block=8, reflections=2, variance_angle=True, angle_max=math.pi / 2,
                    angle_gain=1.0, cross_head=2, block_init='pair', cross_init='pair',
                    angle_planes='pairs', angle_source='shared', qk_norm='none', scale_modulation=False,
                    fold=0, feature='relu', twin_init='random', twin_reflections='auto', power='none',
                    exponent=3.0, retention_loss=0.0)))

PRESETS = dict(
    study=dict(family='vit', image=32, patch=4, dims=[64], depths=[4], heads=[4], mlp_ratio=2),
    pvt_nano=dict(family='pvt', image=32, patch=2, dims=[64, 128, 256], depths=[2, 4, 2],
                  heads=[2, 4, 8], mlp_ratio=4),
    vit_tiny=dict(family='vit', image=32, patch=4, dims=[192], depths=[9], heads=[6], mlp_ratio=4),
    vit_long=dict(family='vit', image=64, patch=2, dims=[128], depths=[4], heads=[4], mlp_ratio=4),
)


def preset(name, kind='mirror', **attention):
    """A fresh spec of the named preset with this attention kind (and other attention keys)."""
    return resolve({**PRESETS[name], 'attention': {'kind': kind, **attention}})


def resolve(spec, defaults=DEFAULTS, path=''):
    """The spec with every default filled in; a key that is not known is an error."""
    full = copy.deepcopy(defaults)
    for key, value in spec.items():
        if key not in defaults:
            raise KeyError(f'{path}{key}: unknown key, expected one of {", ".join(defaults)}')
        nested = isinstance(defaults[key], dict)
        full[key] = resolve(value, defaults[key], f'{path}{key}.') if nested else value
    return full


def kinds_of(spec):
    """The attention kind of every stage."""
    kind, stages = spec['attention']['kind'], len(spec['dims'])
    kinds = [kind] * stages if isinstance(kind, str) else list(kind)
    if len(kinds) != stages:
        raise ValueError(f'{len(kinds)} attention kinds for {stages} stages')
    return kinds


# ---- isometries ---------------------------------------------------------------------------------

def reflections(v):
    """v (..., r, b) -> W (..., r, b) with H(v_1) H(v_2) ... H(v_r) = I - v' W  (compact WY form).

    W = T v, where the inverse of T is upper triangular: half the squared norms on the diagonal, the
    inner products above it.  Two thin products apply all r reflections at once.
    """
    gram = v @ v.transpose(-2, -1)
    half = torch.diag_embed(0.5 * (gram.diagonal(dim1=-2, dim2=-1) + TINY))
    return torch.linalg.solve_triangular(gram.triu(1) + half, v, upper=True)


def fold_blocks(weight, bias, v):
    """The qkv projection followed by the block isometry of q and k, as one projection.

    weight (3C, C), bias (3C) or None, v (h, blocks, r, b).  The isometry P is static, so rows of q
    and k become P' times themselves once a step instead of q P, k P once a token.
    """
    h, blocks, _, b = v.shape
    rows = 2 * h * blocks * b
    turn = torch.eye(b, dtype=v.dtype, device=v.device) - reflections(v).transpose(-2, -1) @ v

    def fold(t):
        qk = turn @ t[:rows].view(2, h, blocks, b, -1)
        return torch.cat((qk.reshape(t[:rows].shape), t[rows:]))

    return fold(weight), None if bias is None else fold(bias)


def angles(qk, width, a, c, angle_max, own=False):
    """qk (B, N, 2, C), a and c (M = C / width) -> angle (B, 1 or 2, M) of every plane of every image.

    The log variance over the tokens of `width` neighbouring channels, of q and k together or, with
    `own` angles, of each, relative to its mean over the planes: a common factor on q and k changes
    nothing.  The mean token is detached because the variance is stationary in it.
    """
    variance = (qk - qk.mean(1, keepdim=True).detach()).square().mean(1)            # (B, 2, C)
    variance = variance if own else variance.mean(1, keepdim=True)
    level = (variance.unflatten(-1, (-1, width)).mean(-1) + VARIANCE_EPS).log()
    return angle_max * torch.tanh(a * (level - level.mean(-1, keepdim=True)) + c)


def turn_pairs(qk, angle):
    """qk (B, N, 2, C), angle (B, 1 or 2, C/2): channels (2i, 2i+1) of q and of k turn by angle_i.

    A pair is read as one complex number: a single pass over memory, and no copy of a strided qk.
    """
    pairs = torch.view_as_complex(qk.unflatten(-1, (-1, 2)))
    phase = torch.complex(angle.cos(), angle.sin())[:, None]
    return torch.view_as_real(pairs * phase).flatten(-2)


def turn_planes(qk, angle, u, w):
    """qk (B, N, 2, C), angle (B, 1 or 2, M), u and w (h, blocks, b): every block turns by its angle
    in the plane that its u and w span, from u (of length one) towards w (made orthogonal to it)."""
    u = F.normalize(u.flatten(0, 1), dim=-1)
    w = w.flatten(0, 1)
    w = F.normalize(w - (w * u).sum(-1, keepdim=True) * u, dim=-1)
    x = qk.unflatten(-1, u.shape)                                                   # (B, N, 2, M, b)
    along, across = (x * u).sum(-1), (x * w).sum(-1)
    less, sine = angle.cos()[:, None] - 1, angle.sin()[:, None]
    x = x + (less * along - sine * across)[..., None] * u + (less * across + sine * along)[..., None] * w
    return x.flatten(-2)


def reflect_conditionally(qk, v):
    """qk (B, N, 2, C), v (h, blocks, f, b): x - 2 min(0, x . u) u for each of a block's mirrors u."""
    x = qk.unflatten(-1, (-1, v.shape[-1]))
    for u in F.normalize(v, dim=-1).flatten(0, 1).unbind(1):
        x = x - 2 * (x * u).sum(-1, keepdim=True).clamp(max=0) * u
    return x.flatten(-2)


def random_vectors(*shape):
    """Unit vectors (..., r, b), each uniform on the sphere."""
    return nn.Parameter(F.normalize(torch.randn(*shape), dim=-1))


def paired_vectors(*shape):
    """Unit vectors (..., r, b): odd ones are near copies of the one before, so that the product of
    the reflections starts near the identity."""
    r, b = shape[-2:]
    v = F.normalize(torch.randn(*shape)[..., ::2, :], dim=-1)
    v = v.repeat_interleave(2, dim=-2)[..., :r, :]
    return nn.Parameter(F.normalize(v + 0.1 * b ** -0.5 * torch.randn(*shape), dim=-1))


# ---- attention ----------------------------------------------------------------------------------

class SoftmaxAttention(nn.Module):
    """x (B, N, C) -> (B, N, C): softmax(q k' / sqrt(d)) v in every head."""

    def __init__(self, dim, heads, options):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=options['qkv_bias'])
        self.proj = nn.Linear(dim, dim)

    def by_head(self, t):
        """(B, N, ..., h D) -> (..., B, h, N, D), a view."""
        t = t.unflatten(-1, (self.heads, -1)).transpose(1, -2)
        return t if t.dim() == 4 else t.permute(2, 0, 1, 3, 4)

    def forward(self, x, side):
        q, k, v = (self.by_head(t) for t in self.qkv(x).chunk(3, dim=-1))
        share = torch.softmax((q * self.width ** -0.5) @ k.transpose(-2, -1), dim=-1)
        return self.proj((share @ v).transpose(1, 2).flatten(2))


class LinearAttention(SoftmaxAttention):
    """fq S / (fq z' + eps) with S = mean_n fk_n' v_n and z = mean_n fk_n, plus a depthwise
    convolution of v on the token grid.  Means and not sums: the floor does not depend on N."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        self.eps, self.kind, k = options['eps'], options['kind'], options['dwconv']
        self.dwconv = nn.Conv2d(dim, dim, k, groups=dim, padding=k // 2) if k else None
        gated = options['gate'] or self.kind == 'pola'
        self.gate = nn.Linear(dim, dim, bias=options['qkv_bias']) if gated else None

    def projection(self):
        return self.qkv.weight, self.qkv.bias

    def features(self, qk):
        """qk (B, N, 2, C) -> non-negative features (B, N, 2, h D), for relu and elu1 D = d."""
        return F.elu(qk) + 1.0 if self.kind == 'elu1' else F.relu(qk)

    def quotient(self, fq, fk, v):
        """fq and fk (B, h, N, D), v (B, h, N, e) -> (B, h, N, e)"""
        state = fk.transpose(-2, -1) @ (v / v.shape[2])                        # (B, h, D, e)
        total = fk.mean(2).unsqueeze(-1)                                       # (B, h, D, 1)
        return (fq @ state) / (fq @ total + self.eps)

    def attend(self, qk, v, side):
        """qk (B, N, 2, C), v (B, h, N, d) -> (B, h, N, d)"""
        return self.quotient(*self.by_head(self.features(qk)).unbind(0), v)

    def forward(self, x, side):
        B, N, C = x.shape
        qkv = F.linear(x, *self.projection()).view(B, N, 3, C)
        # Split rather than indexed: the backward of a split fills no zeros.
        qk, tokens = qkv.split((2, 1), dim=2)
        tokens = tokens.squeeze(2)
        y = self.attend(qk, self.by_head(tokens), side).transpose(1, 2).reshape(B, N, C)
        if self.dwconv is not None:
            # Contiguous NCHW is the layout that reaches the fast depthwise kernel on a CPU.
            grid = tokens.transpose(1, 2).reshape(B, C, side, side)
            y = y + self.dwconv(grid).flatten(2).transpose(1, 2)
        return self.proj(y if self.gate is None else y * self.gate(x))


def orthogonal_rows(m, d):
    """(m, d): every d rows in turn an orthogonal basis, uniformly random, each row as long as d normal numbers."""
    bases = [torch.linalg.qr(torch.randn(d, d))[0].t() for _ in range(-(-m // d))]
    return torch.cat(bases)[:m] * torch.randn(m, d).norm(dim=1, keepdim=True)


class PerformerAttention(LinearAttention):
    """Positive orthogonal random features (FAVOR+, Choromanski et al., arXiv 2009.14794): fq fk' estimates
    exp(q k' / sqrt(d)).  The projection is drawn once and belongs to the weights, untrained."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        d, m = self.width, options['performer']['features']
        m = max(1, int(d * math.log(d))) if m == 'auto' else m
        self.register_buffer('projection_matrix', orthogonal_rows(m, d))
        self.eps = 0.0                  # no feature is zero, and all are small: a floor would take the output away

    def features(self, qk):
        x = qk.unflatten(-1, (self.heads, self.width)) * self.width ** -0.25           # (B, N, 2, h, d)
        inner = x @ self.projection_matrix.t()                                         # (B, N, 2, h, m)
        q, k = inner.unbind(2)
        # What is largest is taken off, for q in every token, for k over all: a factor that cancels.
        largest = torch.stack((q.amax(-1, keepdim=True), k.amax((1, 3), keepdim=True).expand(-1, q.shape[1], -1, -1)), 2)
        f = torch.exp(inner - x.square().sum(-1, keepdim=True) / 2 - largest) + 1e-6
        return (f * f.shape[-1] ** -0.5).flatten(-2)


class CosformerAttention(LinearAttention):
    """relu features weighed with cos(pi/2 (i - j) / N) by position (Qin et al., arXiv 2202.08791)."""

    def features(self, qk):
        f = F.relu(qk).unflatten(-1, (self.heads, self.width))
        N = qk.shape[1]
        angle = (math.pi / 2 / N * torch.arange(1, N + 1, dtype=qk.dtype, device=qk.device)).view(-1, 1, 1, 1)
        return torch.cat((f * angle.cos(), f * angle.sin()), -1).flatten(-2)


class FocusedAttention(LinearAttention):
    """relu features to a power, each row with the norm that it had (FLatten, Han et al., arXiv 2308.00442)."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        self.qk_scale = nn.Parameter(torch.zeros(heads, 1, self.width))
        self.factor = options['focused']['factor']

    def scaled(self, qk):
        """(B, N, 2, C) -> (B, N, 2, h, d) over a learned scale."""
        return qk.unflatten(-1, (self.heads, self.width)) / F.softplus(self.qk_scale).squeeze(1)

    def features(self, qk):
        r = F.relu(self.scaled(qk)) + 1e-6
        direction = F.normalize((r / r.amax(-1, keepdim=True)) ** self.factor, dim=-1)
        return (r.norm(dim=-1, keepdim=True) * direction).flatten(-2)


class PolaAttention(FocusedAttention):
    """Positive and negative halves with a learned power: half of v is read where q and k agree in sign, half where they
    are opposite (PolaFormer, Meng et al., arXiv 2501.15061); gated."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        if self.width % 2:
            raise ValueError(f'pola halves the channels of a head, head width {self.width} is odd')
        self.power = nn.Parameter(torch.zeros(heads, 1, self.width))

    def features(self, qk):
        x, power = self.scaled(qk), 1 + 4 * torch.sigmoid(self.power).squeeze(1)
        return torch.cat((F.relu(x) ** power, F.relu(-x) ** power), -1).flatten(-2)

    def attend(self, qk, v, side):
        q, k = self.by_head(self.features(qk)).unbind(0)                       # (B, h, N, 2 d)
        crossed = q.roll(self.width, -1)
        return torch.cat([self.quotient(own, k, half) for own, half in zip((q, crossed), v.chunk(2, -1))], -1)


class EfficientAttention(LinearAttention):
    """q as a softmax over the channels of a head, k over the tokens: no denominator (Shen et al., arXiv 1812.01243)."""

    def attend(self, qk, v, side):
        q, k = self.by_head(qk).unbind(0)
        return torch.softmax(q, -1) @ (torch.softmax(k, -2).transpose(-2, -1) @ v)


class InlineAttention(LinearAttention):
    """Injective linear attention: the similarities q k' / (N sqrt(d)) less their mean over the keys, plus 1 / N
    (Han et al., arXiv 2412.06590).  The means are taken off k and v before their product."""

    def attend(self, qk, v, side):
        q, k = self.by_head(qk).unbind(0)
        mean = v.mean(2, keepdim=True)
        state = (k - k.mean(2, keepdim=True)).transpose(-2, -1) @ (v - mean)
        return mean + (q * (self.width ** -0.5 / v.shape[2])) @ state


class AgentAttention(LinearAttention):
    """Agents, means of q over the cells of a grid, read the tokens, and the tokens read the agents
    (Han et al., arXiv 2312.08874, without position biases)."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        self.agents = options['agent']['side']

    def attend(self, qk, v, side):
        q, k = self.by_head(qk).unbind(0)
        grid = qk[:, :, 0].transpose(1, 2).unflatten(-1, (side, side))
        if self.agents > side:
            raise ValueError(f'{self.agents} x {self.agents} agents on a grid of {side} x {side} tokens')
        agents = self.by_head(F.adaptive_avg_pool2d(grid, self.agents).flatten(2).transpose(1, 2))
        scale = self.width ** -0.5
        gathered = torch.softmax(agents * scale @ k.transpose(-2, -1), -1) @ v
        return torch.softmax(q * scale @ agents.transpose(-2, -1), -1) @ gathered


class MirrorAttention(LinearAttention):
    """Linear attention whose q and k pass reflections before relu: block isometry (static),
    variance-dependent turn of channel pairs or planes, isometry across the heads.  q and k share
    all but a turn of their own.  After a training pass `retention` holds the share of energy that
    relu cuts off, mirror.retention_loss times whose mean over the layers belongs to the loss."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        self.mirror = mirror = options['mirror']
        self.block = block = mirror['block'] or self.width
        blocks, r = self.width // block, mirror['reflections']
        if self.width % block:
            raise ValueError(f'mirror.block {block} does not divide the head width {self.width}')
        self.retention = None
        vectors = dict(pair=paired_vectors, random=random_vectors)
        learned = mirror['angle_planes'] == 'learned'
        for name in ('block_v', 'angle_a', 'angle_c', 'plane_u', 'plane_w', 'cross_v', 'fold_v', 'twin_v', 'gamma',
                     'power', 'qk_gain'):
            self.register_parameter(name, None)
        if r:
            self.block_v = vectors[mirror['block_init']](heads, blocks, r, block)
        if mirror['variance_angle']:
            planes = dim // block if learned else dim // 2
            self.angle_a = nn.Parameter(torch.full((planes,), float(mirror['angle_gain'])))
            self.angle_c = nn.Parameter(torch.zeros(planes))
        if mirror['variance_angle'] and learned:
            self.plane_u, self.plane_w = random_vectors(heads, blocks, block), random_vectors(heads, blocks, block)
        if mirror['cross_head']:
            self.cross_v = vectors[mirror['cross_init']](mirror['cross_head'], dim)
        if mirror['fold']:
            self.fold_v = random_vectors(heads, blocks, mirror['fold'], block)
        if mirror['feature'] == 'twin':
            self.twin_v = self.twin_vectors(heads, blocks, block)
        if mirror['scale_modulation']:
            self.gamma = nn.Parameter(torch.zeros(dim))
        if mirror['power'] == 'learned':
            self.power = nn.Parameter(torch.zeros(heads, 1, self.width))
        if mirror['qk_norm'] == 'rms':
            self.qk_gain = nn.Parameter(torch.ones(2, dim))

    def twin_vectors(self, heads, blocks, block):
        """At random, or the axes: their product is -I, and the twin the mirror image."""
        negative = self.mirror['twin_init'] == 'negative'
        r = self.mirror['twin_reflections']
        if r == 'auto':
            r = block if negative else max(1, self.mirror['reflections'])
        if not negative:
            return random_vectors(heads, blocks, r, block)
        if r < block or (r - block) % 2:
            raise ValueError(f'{r} reflections of blocks of {block} can not make -I')
        axes = torch.eye(block).expand(heads, blocks, block, block)
        rest = paired_vectors(heads, blocks, r - block, block) if r > block else axes[:, :, :0]
        return nn.Parameter(torch.cat((axes, rest), 2).clone())

    def projection(self):
        weight, bias = super().projection()
        return (weight, bias) if self.block_v is None else fold_blocks(weight, bias, self.block_v)

    def reorient(self, qk):
        """qk (B, N, 2, C), which has passed the blocks -> what relu gets."""
        mirror = self.mirror
        if self.qk_gain is not None:
            heads = qk.unflatten(-1, (self.heads, self.width))
            qk = (heads * (heads.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).flatten(-2) * self.qk_gain
        if self.gamma is not None:
            qk = qk * (qk.var(1, unbiased=False, keepdim=True) + VARIANCE_EPS) ** -self.gamma
        if self.angle_a is not None:
            turn = self.angle_a, self.angle_c, mirror['angle_max'], mirror['angle_source'] == 'own'
            if self.plane_u is None:
                qk = turn_pairs(qk, angles(qk, 2, *turn))
            else:
                qk = turn_planes(qk, angles(qk, self.block, *turn), self.plane_u, self.plane_w)
        if self.fold_v is not None:
            qk = reflect_conditionally(qk, self.fold_v)
        if self.cross_v is not None:
            qk = qk - (qk @ self.cross_v.t()) @ reflections(self.cross_v)
        return qk

    def features(self, qk):
        qk = self.reorient(qk)
        heads = qk.unflatten(-1, (self.heads, self.width))
        f = F.relu(heads)
        if self.mirror['retention_loss'] and self.training:
            self.retention = 1 - (f.square().sum((1, 4)) / (heads.square().sum((1, 4)) + 1e-6)).mean()
        if self.mirror['feature'] == 'split':
            f = torch.cat((f, F.relu(-heads)), -1)
        elif self.mirror['feature'] == 'twin':
            blocks = qk.unflatten(-1, (self.heads, -1, self.block)).unsqueeze(-2)
            turned = blocks - (blocks @ self.twin_v.transpose(-2, -1)) @ reflections(self.twin_v)
            f = torch.cat((f, F.relu(turned.squeeze(-2).flatten(-2))), -1)
        return self.sharpen(f).flatten(-2)

    def sharpen(self, f):
        """f (B, N, 2, h, D) to the power that the options say; both halves of D share learned ones."""
        power = self.mirror['power']
        if power == 'learned':
            exponent = (1 + 4 * torch.sigmoid(self.power)).squeeze(1)
            return (f + 1e-6) ** exponent.repeat(1, f.shape[-1] // self.width)
        if power == 'focused':
            f = f + 1e-6
            cube = f ** 3
            return cube * (f.norm(dim=-1, keepdim=True) / cube.norm(dim=-1, keepdim=True))
        return f ** self.mirror['exponent'] if power == 'fixed' else f


ATTENTION = dict(softmax=SoftmaxAttention, elu1=LinearAttention, relu=LinearAttention, performer=PerformerAttention,
                 cosformer=CosformerAttention, efficient=EfficientAttention, focused=FocusedAttention,
                 pola=PolaAttention, inline=InlineAttention, agent=AgentAttention,
                 mirror=MirrorAttention)


# ---- models -------------------------------------------------------------------------------------

class Mlp(nn.Module):
    """(B, N, C) -> (B, N, C) with the exact (erf) GELU between two linear layers."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """Pre-norm transformer block, (B, N, C) -> (B, N, C)."""

    def __init__(self, dim, heads, mlp_ratio, options, eps=1e-6, drop_path=0.0):
        super().__init__()
        self.drop_path = drop_path
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = ATTENTION[options['kind']](dim, heads, options)
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, int(mlp_ratio * dim))

    def drop(self, branch):
        """Drops the branch for some images in training; what is kept grows so that the mean stays."""
        if not self.training or not self.drop_path:
            return branch
        keep = 1 - self.drop_path
        return branch * (torch.rand(len(branch), 1, 1, device=branch.device) < keep).to(branch.dtype) / keep

    def forward(self, x, side):
        x = x + self.drop(self.attn(self.norm1(x), side))
        return x + self.drop(self.mlp(self.norm2(x)))


class PatchEmbed(nn.Module):
    """(B, cin, S, S) -> (B, (S/p)^2, C): stride = kernel, so the convolution is one product of the
    cut-out patches with the flattened weight; a LayerNorm follows in a pvt."""

    def __init__(self, cin, dim, patch, norm, eps=1e-6):
        super().__init__()
        self.proj = nn.Conv2d(cin, dim, patch, stride=patch)
        self.norm = nn.LayerNorm(dim, eps=eps) if norm else nn.Identity()

    def forward(self, x):
        B, cin, S, _ = x.shape
        p = self.proj.stride[0]
        side = S // p
        patches = x.reshape(B, cin, side, p, side, p).permute(0, 2, 4, 1, 3, 5)
        patches = patches.reshape(B, side * side, cin * p * p)
        return self.norm(F.linear(patches, self.proj.weight.flatten(1), self.proj.bias))


class Stage(nn.Module):
    """Patch and position embedding, then blocks: (B, cin, S, S) -> (B, side^2, C)."""

    def __init__(self, spec, i, cin, side):
        super().__init__()
        dim, heads = spec['dims'][i], spec['heads'][i]
        ratio = spec['mlp_ratio']
        ratio = ratio[i] if isinstance(ratio, (list, tuple)) else ratio
        patch = spec['patch'] if i == 0 else 2
        self.side = side // patch
        options = {**spec['attention'], 'kind': kinds_of(spec)[i]}
        eps, total, first = spec['norm_eps'], sum(spec['depths']), sum(spec['depths'][:i])
        self.patch_embed = PatchEmbed(cin, dim, patch, spec['family'] == 'pvt', eps)
        self.pos_embed = nn.Parameter(torch.empty(1, self.side ** 2, dim))
        self.blocks = nn.ModuleList(
            Block(dim, heads, ratio, options, eps, spec['drop_path'] * (b / (total - 1) if total > 1 else 1))
            for b in range(first, first + spec['depths'][i]))

    def forward(self, x):
        x = self.patch_embed(x) + self.pos_embed
        for block in self.blocks:
            x = block(x, self.side)
        return x


class Model(nn.Module):
    """Images (B, 3, S, S) -> logits (B, classes): stages, mean token, LayerNorm, linear head.

    A vit is its only stage, so the stage's names stand at the top of the state_dict; those of a
    pvt stand under stages.0, stages.1, ...
    """

    def __init__(self, spec):
        super().__init__()
        self.spec, self.metadata = resolve(spec), {}        # metadata: of the file it was loaded from
        spec = self.spec
        if spec['family'] not in ('vit', 'pvt') or not set(kinds_of(spec)) <= set(ATTENTION):
            raise ValueError(f'unknown family or attention kind in {spec}')
        stages, cin, side = [], 3, spec['image']
        for i, dim in enumerate(spec['dims']):
            stages.append(Stage(spec, i, cin, side))
            cin, side = dim, stages[-1].side
        if spec['family'] == 'pvt':
            self.stages = nn.ModuleList(stages)
        else:
            (stage,) = stages
            self.side = stage.side
            self.patch_embed, self.pos_embed = stage.patch_embed, stage.pos_embed
            self.blocks = stage.blocks
        self.fc_norm = nn.LayerNorm(cin, eps=spec['norm_eps'])
        self.head = nn.Linear(cin, spec['classes'])
        self.initialise()

    @torch.no_grad()
    def initialise(self):
        """Normal weights of deviation fan_in^-1/2, which is 1/side for a depthwise convolution
        (head and positions 0.02), zero biases; reflections and angles start where they are made."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                fan_in = module.weight[0].numel()
                module.weight.normal_(std=0.02 if module is self.head else fan_in ** -0.5)
                if module.bias is not None:
                    module.bias.zero_()
        for name, parameter in self.named_parameters():
            if name.endswith('pos_embed'):
                parameter.normal_(std=0.02)

    def forward(self, x):
        if self.spec['family'] == 'vit':
            x = Stage.forward(self, x)
        else:
            for i, stage in enumerate(self.stages):
                if i:                           # tokens of the last stage back to an image
                    x = x.transpose(1, 2).unflatten(-1, (self.stages[i - 1].side, -1))
                x = stage(x)
        return self.head(self.fc_norm(x.mean(1)))


def decay_groups(model, weight_decay):
    """Parameter groups for an optimiser: weight decay acts on the matrices of linear layers and of
    patch embeddings; not on biases, norms, positions, the depthwise convolution, or the mirror (the
    length of a reflection vector means nothing)."""
    decayed, free = [], []
    for module in model.modules():
        matrix = isinstance(module, nn.Linear) or isinstance(module, nn.Conv2d) and module.groups == 1
        for name, parameter in module.named_parameters(recurse=False):
            (decayed if matrix and name == 'weight' else free).append(parameter)
    return [dict(params=decayed, weight_decay=weight_decay), dict(params=free, weight_decay=0.0)]


# ---- files --------------------------------------------------------------------------------------

# Types of safetensors that torch has, too.
DTYPES = dict(F64=torch.float64, F32=torch.float32, F16=torch.float16, BF16=torch.bfloat16, I64=torch.int64,
              I32=torch.int32, I16=torch.int16, I8=torch.int8, U8=torch.uint8, BOOL=torch.bool)
HEADER_LIMIT = 100_000_000
# What a model's weights do not change, when they are saved again.
KEPT = ('mirrorla.version', 'architecture', 'config', 'classes', 'mean', 'std', 'size', 'folded')


def read_header(file, path):
    """(entries, metadata, start of the data) of an open safetensors file; nothing in it is believed."""
    try:
        return check_header(file)
    except (ValueError, TypeError, KeyError, AttributeError) as why:
        raise ValueError(f'{path}: not a safetensors file, or a damaged one: {why}') from None


def check_header(file):
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = struct.unpack('<Q', start)[0] if len(start) == 8 else 0
    if not 2 <= length <= min(size - 8, HEADER_LIMIT):
        raise ValueError(f'a header of {length} bytes in a file of {size}')

    def unique(pairs):
        if len(dict(pairs)) != len(pairs):
            raise ValueError('a name stands twice in the header')
        return dict(pairs)

    entries = json.loads(file.read(length).decode('utf-8'), object_pairs_hook=unique)
    metadata = entries.pop('__metadata__', None) or {}
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]['data_offsets']):
        begin, end = entry['data_offsets']
        if entry['dtype'] not in DTYPES:
            raise ValueError(f'{name}: type {entry["dtype"]} is not supported')
        width = torch.empty(0, dtype=DTYPES[entry['dtype']]).element_size()
        if begin != position or end - begin != width * math.prod(entry['shape']) or min(entry['shape'], default=0) < 0:
            raise ValueError(f'{name}: bytes {begin} to {end} do not fit its shape, or leave a hole or overlap')
        position = end
    if position != size - 8 - length:
        raise ValueError(f'{size - 8 - length} bytes of data, {position} belong to tensors')
    return entries, metadata, 8 + length


def read(path):
    """({name: tensor} in the types of the file, {key: text}) of a safetensors file."""
    tensors = {}
    with open(path, 'rb') as file:
        entries, metadata, start = read_header(file, path)
        for name, entry in entries.items():
            begin, end = entry['data_offsets']
            file.seek(start + begin)
            data = bytearray(file.read(end - begin))
            dtype = DTYPES[entry['dtype']]
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            tensors[name] = flat.view(entry['shape'])
    return tensors, metadata


def write(path, tensors, metadata):
    """Writes a safetensors file, whole or not at all."""
    names, entries, position = {dtype: name for name, dtype in DTYPES.items()}, {}, 0
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        end = position + tensor.numel() * tensor.element_size()
        entries[name] = dict(dtype=names[tensor.dtype], shape=list(tensor.shape), data_offsets=[position, end])
        position = end
    text = json.dumps({'__metadata__': {**metadata, 'format': 'pt'}, **entries}, ensure_ascii=False).encode()
    text += b' ' * (-(8 + len(text)) % 64)
    temporary = f'{path}.{os.getpid()}.tmp'
    try:
        with open(temporary, 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text)
            for tensor in tensors.values():
                file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def parse_config(text):
    """The nested dictionary of a resolved config, as the program writes it: `key: value` lines, two spaces a level."""
    root, levels = {}, [{}]
    levels[0] = root
    for line in text.splitlines():
        key, _, value = line.strip().partition(':')
        depth = (len(line) - len(line.lstrip(' '))) // 2
        levels[depth + 1:], value = [], value.strip()
        if not value:
            levels.append(levels[depth].setdefault(key, {}))
            continue
        try:
            levels[depth][key] = json.loads(value)
        except ValueError:
            words = value[1:-1].split(', ') if value[0] == '[' else value       # names are not quoted
            levels[depth][key] = words
    return root


def spec_of(metadata):
    """The spec of the model that a file of mirrorla holds."""
    if 'config' not in metadata:
        raise ValueError('the file does not say which model it is of: make a Model and load_state_dict(read(path)[0])')
    return resolve({**parse_config(metadata['config'])['model'], 'image': int(metadata['size']),
                    'classes': len(json.loads(metadata['classes']))})


def weights_of(tensors, weights='auto'):
    """The weights among a checkpoint's tensors in float32: 'raw', the 'average', or 'auto': that where one is kept."""
    averaged = any(name.startswith('ema.') for name in tensors) and weights != 'raw'
    if weights == 'average' and not averaged:
        raise ValueError('the file holds no weight average')
    prefix = 'ema.' if averaged else ''
    return {name[len(prefix):]: tensor.float() for name, tensor in tensors.items()
            if name.startswith(prefix) and not name.startswith('optim.') and (averaged or not name.startswith('ema.'))}


def load(path, weights='auto'):
    """A Model with the weights of an export, a checkpoint, or what `save` wrote; evaluation mode.

    model.metadata holds the texts of the file: json.loads(metadata['classes']), ['mean'], ['std'], metadata['size'].
    """
    tensors, metadata = read(path)
    model = Model(spec_of(metadata))
    model.load_state_dict(weights_of(tensors, weights), strict=True)
    model.metadata = metadata
    return model.eval()


def metadata_for(spec, metadata):
    """What may be said of weights of this spec, out of the metadata of the file that they began with."""
    same = 'config' in metadata and spec_of(metadata) == spec
    kept = {key: metadata[key] for key in KEPT if same and key in metadata}
    if kept:
        kept['weight_hash'] = 'none'        # the program knows then that there is nothing to verify
    return {'architecture': spec['family'], **kept}


def save(model, path, dtype=torch.float32):
    """Writes the weights for `mirrorla eval` and `mirrorla import`, as float32, bfloat16 or float16."""
    state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    write(path, state, {**metadata_for(model.spec, model.metadata),
                        'dtype': {value: key for key, value in DTYPES.items()}[dtype]})


# ---- the program --------------------------------------------------------------------------------

def info(path):
    tensors, metadata = read(path)
    for key, value in sorted(metadata.items()):
        text = value if len(value) < 200 else value[:200] + ' ...'
        print(f'{key}: {text}'.replace('\n', '\n    '))
    for name, tensor in tensors.items():
        print(f'{name}  {str(tensor.dtype)[6:]}  {tuple(tensor.shape)}')
    count = sum(tensor.numel() for tensor in tensors.values())
    print(f'{len(tensors)} tensors, {count} values')


def from_pt(source, path, like):
    """A .pt or .pth of a state_dict (alone, or under 'model' or 'state_dict') as safetensors."""
    state = torch.load(source, map_location='cpu', weights_only=True)
    for key in ('state_dict', 'model'):
        state = state[key] if isinstance(state.get(key), dict) else state
    state = {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}
    kept = {}
    if like:
        tensors, metadata = read(like)
        if {n: t.shape for n, t in weights_of(tensors).items()} != {n: t.shape for n, t in state.items()}:
            raise ValueError(f'{source}: its tensors are not those of {like}, whose metadata can not stand for them')
        kept = metadata_for(spec_of(metadata), metadata)
    write(path, state, kept)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog='mirrorla.py', description='Weights of mirrorla in PyTorch.')
    commands = parser.add_subparsers(dest='command', required=True)
    commands.add_parser('info', help='what is in a safetensors file').add_argument('file')
    to = commands.add_parser('to-pt', help='the weights of a file as a state_dict for torch.load')
    to.add_argument('file')
    to.add_argument('out')
    to.add_argument('--weights', choices=('auto', 'raw', 'average'), default='auto')
    back = commands.add_parser('from-pt', help='a state_dict as safetensors, for `mirrorla import`')
    back.add_argument('file')
    back.add_argument('out')
    back.add_argument('--like', metavar='FILE', help='take config and classes from this export, for `mirrorla eval`')
    args = parser.parse_args(arguments)
    try:
        if args.command == 'info':
            info(args.file)
        elif args.command == 'to-pt':
            torch.save(weights_of(read(args.file)[0], args.weights), args.out)
        else:
            from_pt(args.file, args.out, args.like)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f'mirrorla.py: {error}')


if __name__ == '__main__':
    main()
