"""The operations of the mirror's options, plainly and from their definitions; used by make_golden.py.

mirror_ops.safetensors, B = 2, N = 20 tokens, names and gradients as in ops.safetensors; qk (2,20,16): q and k side by
side, h = 2 heads of 4 channels, blocks of 2, or of 4 with planes; angles are at most pi/2
    op.own_angle.         qk a (4) c (4)                                             y (2,20,16)
    op.plane_angle. op.own_plane_angle.  qk a (2) c (2) u w (2,1,4)                  y (2,20,16)
    op.scale_modulation.  qk gamma (8)                                               y (2,20,16)
    op.head_norm.         qk gain (2,8)                                              y (2,20,16)
    op.fold_reflect.  qk v (2,2,3,2)                                          y (2,20,16)
    op.block_turn.        qk v (2,2,3,2)                                             y (2,20,16)
    op.split. op.twin.    qk, twin (2,20,16)                                         y (2,20,32)
    op.learned_power.     f (2,20,32) power (2,1,4)                                  y (2,20,32)
    op.fixed_power.       f (2,20,16), exponent 2.5                                  y (2,20,16)
    op.retention.         qk                                                         y (2)
"""
import math

import torch

N, HEADS = 20, 2


def side_by_side(one):
    """Turn a map of one side (B, N, C) into one of q and k side by side; `side` is 0 or 1."""
    def both(qk, **parameters):
        return torch.cat([one(x, side, **parameters) for side, x in enumerate(qk.chunk(2, -1))], -1)
    return both


def block_matrices(x, matrices):
    """Every block of x (..., C) times its own matrix."""
    return x @ torch.block_diag(*matrices)


def plane_rotation(product, u, w, t):
    """The matrix that turns u towards w by t, as H(u) H(u cos(t/2) + w' sin(t/2)), w' the part of w across u."""
    u = u / u.norm()
    w = w - (w @ u) * u
    return product(torch.stack((u, u * (t / 2).cos() + w / w.norm() * (t / 2).sin())))


def angle_of(sides, a, c):
    """sides: (N, C) of what turns together -> the angles (M) of an image, M = len(a)."""
    spread = torch.stack([x.var(0, unbiased=False).view(len(a), -1).mean(1) for x in sides]).mean(0)
    level = (spread + 1e-6).log()
    return math.pi / 2 * torch.tanh(a * (level - level.mean()) + c)


def turned(product, own, planes):
    def function(qk, a, c, **vectors):
        out = []
        for image in qk:
            sides = image.chunk(2, -1)
            rows = []
            for x in sides:
                t = angle_of([x] if own else sides, a, c)
                u, w = planes(**vectors)
                rows.append(block_matrices(x, [plane_rotation(product, *each) for each in zip(u, w, t)]))
            out.append(torch.cat(rows, -1))
        return torch.stack(out)
    return function


def learned_planes(u, w):
    return u.flatten(0, 1), w.flatten(0, 1)


def channel_pairs():
    return torch.tensor([[1.0, 0.0]] * 4), torch.tensor([[0.0, 1.0]] * 4)


@side_by_side
def scale_modulation(x, side, gamma):
    return x / torch.exp(gamma * (x.var(1, unbiased=False, keepdim=True) + 1e-6).log())


@side_by_side
def head_norm(x, side, gain):
    heads = x.unflatten(-1, (HEADS, -1))
    return (heads / (heads.square().mean(-1, keepdim=True) + 1e-6).sqrt()).flatten(-2) * gain[side]


def fold_reflect(x, product, v):
    blocks = []
    for x, mirrors in zip(x.unflatten(-1, (4, 2)).unbind(2), v.flatten(0, 1)):
        for mirror in mirrors:
            behind = (x @ mirror < 0)[..., None]
            x = torch.where(behind, x @ product(mirror[None]), x)
        blocks.append(x)
    return torch.cat(blocks, -1)


def block_turn(x, product, v):
    return block_matrices(x, [product(block) for head in v for block in head])


def heads_of(x):
    """(B, N, 2C) -> a list of the heads of q, then those of k."""
    return x.chunk(2 * HEADS, -1)


def split(qk):
    return torch.cat([part for x in heads_of(qk) for part in ((x + x.abs()) / 2, (x.abs() - x) / 2)], -1)


def twin(qk, twin):
    return torch.cat([torch.relu(part) for pair in zip(heads_of(qk), heads_of(twin)) for part in pair], -1)


def learned_power(f, power):
    exponents = [1 + 4 / (1 + torch.exp(-p[0])) for p in power]
    return torch.cat([torch.exp(torch.cat((e, e)) * (x + 1e-6).log())
                      for x, e in zip(heads_of(f), exponents + exponents)], -1)


def retention(qk):
    return torch.stack([1 - sum(torch.relu(x).square().sum() / (x.square().sum() + 1e-6) for x in heads_of(image)) / 4
                        for image in qk])


def add_all(add, n, product):
    """add: as in make_golden.py; n: random numbers; product(v (r, b)): the matrix of a product."""
    scales = torch.tensor([0.3, 1, 2, 0.5, 1, 1.5, 0.2, 0.7]).repeat(2).float().double()

    def qk():
        return (n(2, N, 16) * scales).float().double()

    def angle(planes):
        return dict(qk=qk(), a=n(planes, mean=1.0, scale=0.3), c=n(planes, scale=0.3))

    add('own_angle', turned(product, True, channel_pairs), **angle(4))
    add('plane_angle', turned(product, False, learned_planes), **angle(2), u=n(2, 1, 4), w=n(2, 1, 4))
    add('own_plane_angle', turned(product, True, learned_planes), **angle(2), u=n(2, 1, 4), w=n(2, 1, 4))
    add('scale_modulation', scale_modulation, qk=qk(), gamma=n(8, scale=0.5))
    add('head_norm', head_norm, qk=qk(), gain=n(2, 8, mean=1.0, scale=0.3))
    add('fold_reflect', side_by_side(lambda x, side, v: fold_reflect(x, product, v)), qk=qk(), v=n(2, 2, 3, 2))
    add('block_turn', side_by_side(lambda x, side, v: block_turn(x, product, v)), qk=qk(), v=n(2, 2, 3, 2))
    add('split', split, qk=qk())
    add('twin', twin, qk=qk(), twin=qk())
    add('learned_power', learned_power, f=(n(2, N, 32).abs() + 0.05).float().double(), power=n(2, 1, 4))
    add('fixed_power', lambda f: f ** 2.5, f=n(2, N, 16).abs())
    add('retention', retention, qk=qk())
