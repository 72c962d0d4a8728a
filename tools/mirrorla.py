"""PyTorch twin of mirrorla's models: loads and makes the checkpoints that the C program exports.

    import torch, mirrorla
    model = mirrorla.Model(mirrorla.preset('study', kind='mirror'))
    model.load_state_dict(weights, strict=True)
    logits = model(images)                      # (B, 3, S, S) normalised -> (B, classes)

Shapes: B images, N = H W tokens in raster order, C channels, h heads, d = C / h.  A token is a row
vector; an isometry P acts on it from the right.  H(v) = I - 2 v'v / (v v' + 1e-12) is the
reflection at the hyperplane orthogonal to the row v.

A spec is a plain dictionary (anything left out has the default of DEFAULTS):
    family      'vit' (one stage) or 'pvt' (a pyramid: every later stage halves the side)
    image, classes, patch, dims, depths, heads, mlp_ratio      dims ... heads: one entry a stage
    attention   kind        'softmax' | 'relu' | 'elu1' | 'mirror'
                dwconv      side of the depthwise convolution of v, 0 = none; linear kinds only
                eps         floor of the linear-attention denominator
                qkv_bias    bias of the qkv projection
                mirror      block, reflections, variance_angle, angle_max, angle_gain, cross_head
"""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

NORM_EPS = 1e-6              # inside every LayerNorm's square root
TINY = 1e-12                 # makes the reflection of a zero vector the identity
VARIANCE_EPS = 1e-6          # keeps the logarithm of a constant channel's variance finite

DEFAULTS = dict(
    family='vit', image=32, classes=10, patch=4, dims=[64], depths=[4], heads=[4], mlp_ratio=4,
    attention=dict(
        kind='mirror', dwconv=5, eps=1e-6, qkv_bias=True,
        mirror=dict(block=8, reflections=2, variance_angle=True, angle_max=math.pi / 2,
                    angle_gain=1.0, cross_head=2)))

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


def pair_angles(qk, a, c, angle_max):
    """qk (B, N, 2, C), a and c (C/2) -> angle (B, C/2) of every channel pair of every image.

    The log variance over the tokens, relative to its mean over the pairs: a common factor on q and
    k changes nothing.  The mean token is detached because the variance is stationary in it.
    """
    variance = (qk - qk.mean(1, keepdim=True).detach()).square().mean((1, 2))       # (B, C)
    level = (variance.unflatten(-1, (-1, 2)).mean(-1) + VARIANCE_EPS).log()
    return angle_max * torch.tanh(a * (level - level.mean(-1, keepdim=True)) + c)


def turn_pairs(qk, angle):
    """qk (B, N, 2, C), angle (B, C/2): channels (2i, 2i+1) of q and of k turn by angle_i.

    A pair is read as one complex number: a single pass over memory, and no copy of a strided qk.
    """
    pairs = torch.view_as_complex(qk.unflatten(-1, (-1, 2)))
    phase = torch.complex(angle.cos(), angle.sin())[:, None, None, :]
    return torch.view_as_real(pairs * phase).flatten(-2)


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
        """(B, N, ..., C) -> (..., B, h, N, d), a view."""
        t = t.unflatten(-1, (self.heads, self.width)).transpose(1, -2)
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

    def projection(self):
        return self.qkv.weight, self.qkv.bias

    def features(self, qk):
        """qk (B, N, 2, C) -> non-negative features of the same shape."""
        return F.elu(qk) + 1.0 if self.kind == 'elu1' else F.relu(qk)

    def forward(self, x, side):
        B, N, C = x.shape
        qkv = F.linear(x, *self.projection()).view(B, N, 3, C)
        # Split rather than indexed: the backward of a split fills no zeros.
        qk, tokens = qkv.split((2, 1), dim=2)
        tokens = tokens.squeeze(2)
        features = self.features(qk).view(B, N, 2, self.heads, self.width)
        fq, fk = features.permute(2, 0, 3, 1, 4).unbind(0)                     # (B, h, N, d) each
        v = tokens.view(B, N, self.heads, self.width).transpose(1, 2)
        state = fk.transpose(-2, -1) @ (v / N)                                 # (B, h, d, d)
        total = fk.mean(2).unsqueeze(-1)                                       # (B, h, d, 1)
        y = ((fq @ state) / (fq @ total + self.eps)).transpose(1, 2).reshape(B, N, C)
        if self.dwconv is not None:
            # Contiguous NCHW is the layout that reaches the fast depthwise kernel on a CPU.
            grid = tokens.transpose(1, 2).reshape(B, C, side, side)
            y = y + self.dwconv(grid).flatten(2).transpose(1, 2)
        return self.proj(y)


class MirrorAttention(LinearAttention):
    """Linear attention whose q and k pass reflections before relu: block isometry (static),
    variance-dependent turn of channel pairs, isometry across the heads.  q and k share all."""

    def __init__(self, dim, heads, options):
        super().__init__(dim, heads, options)
        mirror = options['mirror']
        block = mirror['block'] or self.width
        if self.width % block:
            raise ValueError(f'mirror.block {block} does not divide the head width {self.width}')
        self.angle_max = mirror['angle_max']
        self.block_v = self.angle_a = self.angle_c = self.cross_v = None
        if mirror['reflections']:
            self.block_v = paired_vectors(heads, self.width // block, mirror['reflections'], block)
        if mirror['variance_angle']:
            self.angle_a = nn.Parameter(torch.full((dim // 2,), float(mirror['angle_gain'])))
            self.angle_c = nn.Parameter(torch.zeros(dim // 2))
        if mirror['cross_head']:
            self.cross_v = paired_vectors(mirror['cross_head'], dim)

    def projection(self):
        weight, bias = super().projection()
        return (weight, bias) if self.block_v is None else fold_blocks(weight, bias, self.block_v)

    def features(self, qk):
        if self.angle_a is not None:
            qk = turn_pairs(qk, pair_angles(qk, self.angle_a, self.angle_c, self.angle_max))
        if self.cross_v is not None:
            qk = qk - (qk @ self.cross_v.t()) @ reflections(self.cross_v)
        return F.relu(qk)


ATTENTION = dict(softmax=SoftmaxAttention, relu=LinearAttention, elu1=LinearAttention,
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

    def __init__(self, dim, heads, mlp_ratio, options):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attn = ATTENTION[options['kind']](dim, heads, options)
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, int(mlp_ratio * dim))

    def forward(self, x, side):
        x = x + self.attn(self.norm1(x), side)
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """(B, cin, S, S) -> (B, (S/p)^2, C): stride = kernel, so the convolution is one product of the
    cut-out patches with the flattened weight; a LayerNorm follows in a pvt."""

    def __init__(self, cin, dim, patch, norm):
        super().__init__()
        self.proj = nn.Conv2d(cin, dim, patch, stride=patch)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS) if norm else nn.Identity()

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
        self.patch_embed = PatchEmbed(cin, dim, patch, norm=spec['family'] == 'pvt')
        self.pos_embed = nn.Parameter(torch.empty(1, self.side ** 2, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, ratio, spec['attention'])
                                    for _ in range(spec['depths'][i]))

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
        self.spec = spec = resolve(spec)
        if spec['family'] not in ('vit', 'pvt') or spec['attention']['kind'] not in ATTENTION:
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
        self.fc_norm = nn.LayerNorm(cin, eps=NORM_EPS)
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
