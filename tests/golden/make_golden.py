"""Golden values for the C tests, made by PyTorch: needs tools/mirrorla.py, torch and numpy.

    make_golden.py            write the .safetensors files next to this script
    make_golden.py --check    compute everything again and compare with the files; 1 if they differ

Inputs and weights are float32 numbers from a generator whose stream is frozen; everything else is
computed from them in float64 and stored as float32, so a stored result is right to half a unit in
the last place.  No weight has its initial value: biases, norms, positions, angles and the lengths of
reflection vectors are random, because a factor that is one and a term that is zero test nothing.
Scalars have shape (1).  `dx` is the gradient of `x`.

{vit,pvt}_{every attention kind}.safetensors, and mirror_{...}.safetensors for the options of the mirror,
B = 6 images of 3 x 8 x 8, K = 5 classes; the
metadata key "spec" holds the model as JSON
    weight.<name>        the state_dict
    input                (B, 3, 8, 8), already normalised
    target, target_soft  (B) class numbers; (B, K) probabilities, each row sums to one
    logits               (B, K)
    loss                 (1) cross-entropy on target, label smoothing 0.1, mean over the batch; with the retention loss
    loss_soft            (1) cross-entropy on target_soft, no smoothing, mean over the batch
    grad.<name>          gradient of loss
    adamw_loss           (10) loss before each of ten AdamW steps on this batch: rate 1e-3, betas 0.9
                         and 0.999, eps 1e-8, decay 0.05 (matrices of linear layers and patch
                         embeddings only), gradient times min(1, 1 / (global norm + 1e-6))
    adamw_final.<name>   the weights after the tenth step
PyTorch in float32 differs from these by at most 2e-6 (logits), 1e-5 of a tensor's largest value (grad),
1e-6 (adamw_loss) and 3e-6 (adamw_final).  One exception: Adam divides by the size of the gradient, and
the gradient of k's bias under softmax is zero by symmetry, so float32 rounding alone moves that
third of qkv.bias by up to the rate a step; nothing else depends on it.

optim.safetensors, n = 37 values, T = 8 steps; hyperparameters in the metadata under the same names
    initial (n), grads (T, n)
    sgd, sgd_momentum, sgd_nesterov, adamw     (T, n), the values after each step

positions.safetensors: position tables resized by interpolate(mode='bicubic', antialias=True), sides s and t
    s.t.in (1, s*s, 3)   s.t.out (1, t*t, 3)

kinds.safetensors: operations of the other papers' kinds, see golden_kinds.py
mirror_ops.safetensors: operations of the mirror's options, see golden_mirror.py

ops.safetensors, B = 2, N = 20 tokens of a grid of H = 4 rows and W = 5 columns, h = 2 heads.  Every
operation has its inputs, output y, upstream gradient dy, and the gradient of every real input.
    op.layer_norm.        x (2,20,6) weight (6) bias (6)                             y (2,20,6)
    op.gelu.              x (2,20,6), the exact form with erf                        y (2,20,6)
    op.dwconv3. dwconv5.  x (2,20,6) weight (6,1,k,k) bias (6), zero padding         y (2,20,6)
    op.softmax_attention. op.relu_attention. op.elu1_attention.
                          q k v (2,20,8), head j has channels 4j .. 4j+3             y (2,20,8)
                          relu and elu1: q, k before the feature map; floor 1e-6 on the token mean
    op.variance_angle.    q k (2,20,8) a (4) c (4), angle_max pi/2            y_q y_k (2,20,8)
    op.cross_head.        x (2,20,8) v (3,8)                                         y (2,20,8)
    op.block_fold.        weight (48,16) bias (48) v (2,2,3,4) = h, blocks, r, b
                                                            y_weight (48,16) y_bias (48)
    op.cross_entropy.     logits (6,5) target (6), smoothing 0.1                     y (1)
    op.cross_entropy_soft.  logits (6,5) target_soft (6,5), no smoothing             y (1)
    op.patch_embed.       x (2,3,8,8) weight (6,3,2,2) bias (6)                      y (2,16,6)

ops_other.safetensors, B = 2, h = 2 heads; the attentions N = 20 tokens, agents and pools a grid of 5 x 5
    op.efficient. op.inline.  q k v (2,20,8)                                         y (2,20,8)
    op.few_keys.              q (2,20,8), k v (2,3,8): softmax attention             y (2,20,8)
    op.agent2. op.agent3.     q k v (2,25,8), 2 x 2 and 3 x 3 agents                 y (2,25,8)
    op.grid_pool2. op.grid_pool3.  x (2,25,6)                             y (2,4,6) (2,9,6)
The operations are written here a second time, plainly and from their definitions (reflections as
matrices, attention as a matrix of weights), and not through the module that makes the models.
"""
import argparse
import json
import math
import os
import struct
import sys
import zlib

import numpy as np
import torch
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'tools'))
sys.dont_write_bytecode = True
import golden_kinds  # noqa: E402
import golden_mirror  # noqa: E402
import mirrorla  # noqa: E402

SMOOTHING, STEPS, CLASSES = 0.1, 10, 5
TOLERANCE = 1e-6             # of --check, relative to max(|value|, 1): other BLAS, other torch
# Of six tried, the one for which float32 stays closest to float64 over the ten steps: a model that
# passes near a kink of relu amplifies rounding.
SALT = 'c'
RESALTED = dict(pvt_focused='d', mirror_focused_power='d')   # those keep too near a kink with the common one

SHAPES = dict(vit=dict(dims=[16], depths=[2], heads=[2]),
              pvt=dict(dims=[16, 32], depths=[1, 1], heads=[2, 4]))
MIRROR = dict(block=4, reflections=2, variance_angle=True, angle_max=math.pi / 2, angle_gain=1.0,
              cross_head=2)
# Models with options of the mirror: every option stands in one of them.
MIRROR_OPTIONS = dict(
    mirror_split=('vit', dict(feature='split', angle_source='own', retention_loss=0.3)),
    mirror_split_alone=('pvt', dict(feature='split', reflections=0, variance_angle=False, cross_head=0)),
    mirror_twin=('vit', dict(feature='twin', twin_reflections=3, angle_planes='learned', angle_source='own', qk_norm='rms')),
    mirror_planes=('pvt', dict(fold=2, scale_modulation=True, angle_planes='learned', retention_loss=0.5)),
    mirror_learned_power=('vit', dict(feature='split', power='learned', scale_modulation=True, cross_head=3)),
    mirror_fixed_power=('pvt', dict(feature='twin', power='fixed', exponent=1.5, qk_norm='rms', reflections=0)),
    mirror_focused_power=('vit', dict(power='focused', fold=1, block=0)))

# Of other kinds, where the file is to say more than the default.
OPTIONS = dict(cosformer=dict(gate=True, eps=1e-3), performer=dict(performer=dict(features=6)),
               focused=dict(focused=dict(factor=3.0)), agent=dict(agent=dict(side=2)))


# ---- files --------------------------------------------------------------------------------------

def write_safetensors(path, tensors, metadata):
    """tensors: name -> float32 or uint8 array.  Length of the header, JSON header, data end to end."""
    header, offset = {'__metadata__': {'format': 'pt', **metadata}}, 0
    for name, t in tensors.items():
        header[name] = dict(dtype='U8' if t.dtype == np.uint8 else 'F32', shape=list(t.shape), data_offsets=[offset, offset + t.nbytes])
        offset += t.nbytes
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)                                    # the data starts aligned
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for t in tensors.values():
            f.write(t.astype('u1' if t.dtype == np.uint8 else '<f4').tobytes())


def read_safetensors(path):
    """-> (tensors, metadata) as given to write_safetensors."""
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    metadata = header.pop('__metadata__')
    metadata.pop('format')
    types = {'F32': '<f4', 'U8': 'u1'}
    return {name: np.frombuffer(data[slice(*entry['data_offsets'])], types[entry['dtype']]).reshape(entry['shape'])
            for name, entry in header.items()}, metadata


def stored(t):
    """A tensor or number as the float32 array that is stored."""
    return np.atleast_1d(np.asarray(torch.as_tensor(t).detach(), np.float32))


class Numbers:
    """Random float64 tensors whose values are float32 numbers, the same on every machine."""

    def __init__(self, name):
        self.stream = np.random.RandomState(zlib.crc32((name + SALT).encode()))

    def __call__(self, *shape, scale=1.0, mean=0.0):
        x = (mean + scale * self.stream.standard_normal(shape)).astype(np.float32)
        return torch.from_numpy(x.astype(np.float64))

    def classes(self, count):
        return torch.from_numpy(self.stream.randint(0, CLASSES, count))

    def probabilities(self, *shape):
        p = torch.softmax(2 * self(*shape), -1).float().double()
        p[..., -1] = 1 - p[..., :-1].sum(-1)           # float32 numbers that sum to one
        return p.float().double()


# ---- models -------------------------------------------------------------------------------------

def random_weight(name, like, numbers):
    """A weight that is nowhere near special, with activations and logits of order one."""
    leaf = name.split('.')[-1]
    if 'norm' in name and leaf == 'weight':
        return numbers(*like.shape, scale=0.2, mean=1.0)
    if leaf in ('angle_a', 'qk_gain'):
        return numbers(*like.shape, scale=0.3, mean=1.0)
    if leaf in ('bias', 'pos_embed', 'angle_c', 'gamma'):
        return numbers(*like.shape, scale=0.3)
    if leaf in ('block_v', 'cross_v', 'plane_u', 'plane_w', 'fold_v', 'twin_v', 'projection_matrix'):
        return numbers(*like.shape)
    if leaf in ('qk_scale', 'power'):
        return numbers(*like.shape, scale=0.5)
    return numbers(*like.shape, scale=like[0].numel() ** -0.5)


def retention_of(model):
    """What the layers' retention losses add to the loss of a pass in training."""
    terms = [m.mirror['retention_loss'] * m.retention for m in model.modules() if getattr(m, 'retention', None) is not None]
    return sum(terms) / len(terms) if terms else 0


def model_file(family, kind, name=None, mirror={}):
    """-> (tensors, metadata) of one model: see the head of this file.  mirror: its options, beyond MIRROR."""
    name = name or f'{family}_{kind}'
    numbers = Numbers(name + RESALTED.get(name, ''))
    attention = dict(kind=kind, dwconv=3, eps=1e-6, qkv_bias=True, mirror={**MIRROR, **mirror})
    spec = dict(family=family, image=8, classes=CLASSES, patch=2, mlp_ratio=2, **SHAPES[family],
                attention={**attention, **OPTIONS.get(kind, {})})
    model = mirrorla.Model(spec)
    model.load_state_dict({n: random_weight(n, p, numbers) for n, p in model.state_dict().items()})
    x, target = numbers(6, 3, 8, 8), numbers.classes(6)
    soft = numbers.probabilities(6, CLASSES)

    def loss():
        return F.cross_entropy(model(x), target, label_smoothing=SMOOTHING) + retention_of(model)

    out = {f'weight.{n}': stored(p) for n, p in model.state_dict().items()}
    logits = model(x)
    out.update(input=stored(x), target=stored(target), target_soft=stored(soft), logits=stored(logits),
               loss=stored(loss()), loss_soft=stored(F.cross_entropy(logits, soft)))
    loss().backward()
    out.update({f'grad.{n}': stored(p.grad) for n, p in model.named_parameters()})

    optimiser, losses = torch.optim.AdamW(mirrorla.decay_groups(model, 0.05), lr=1e-3), []
    for _ in range(STEPS):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(value.item())
    out['adamw_loss'] = stored(losses)
    out.update({f'adamw_final.{n}': stored(p) for n, p in model.state_dict().items()})
    return out, dict(spec=json.dumps(spec))


# ---- optimisers ---------------------------------------------------------------------------------

OPTIMISERS = dict(
    sgd=(torch.optim.SGD, dict(lr=0.1)),
    sgd_momentum=(torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
    sgd_nesterov=(torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2)),
    adamw=(torch.optim.AdamW, dict(lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05)))


def optim_file():
    numbers = Numbers('optim')
    initial, grads = numbers(37), numbers(8, 37)
    out = dict(initial=stored(initial), grads=stored(grads))
    for name, (kind, options) in OPTIMISERS.items():
        value = initial.clone().requires_grad_()
        optimiser, rows = kind([value], **options), []
        for g in grads:
            value.grad = g.clone()
            optimiser.step()
            rows.append(value.detach().clone())
        out[name] = stored(torch.stack(rows))
    return out, {name: json.dumps(options) for name, (_, options) in OPTIMISERS.items()}


# ---- operations ---------------------------------------------------------------------------------

H, W, HEADS = 4, 5, 2


def reflection_product(v):
    """v (r, b) -> the (b, b) matrix H(v_1) H(v_2) ... H(v_r)."""
    product = torch.eye(v.shape[-1])
    for row in v:
        product = product @ (torch.eye(len(row)) - 2 * torch.outer(row, row) / (row @ row + 1e-12))
    return product


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return weight * centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt() + bias


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def dwconv(x, weight, bias):
    """y[r, s] = bias + sum_ij weight[i, j] x[r + i - k/2, s + j - k/2], every channel by itself."""
    k = weight.shape[-1]
    grid = F.pad(x.view(-1, H, W, x.shape[-1]), (0, 0, k // 2, k // 2, k // 2, k // 2))
    y = bias + sum(weight[:, 0, i, j] * grid[:, i:i + H, j:j + W] for i in range(k) for j in range(k))
    return y.flatten(1, 2)


def per_head(attention):
    """Turn a map of (N, d) q, k, v into one of (B, N, C)."""
    def whole(q, k, v):
        return torch.stack([torch.cat([attention(*head) for head in zip(
            *(t.chunk(HEADS, -1) for t in image))], -1) for image in zip(q, k, v)])
    return whole


@per_head
def softmax_attention(q, k, v):
    return torch.softmax(q @ k.t() / math.sqrt(q.shape[-1]), -1) @ v


def linear_attention(feature):
    @per_head
    def attention(q, k, v):
        share = feature(q) @ feature(k).t() / len(k)                   # (N, N)
        return share @ v / (share.sum(-1, keepdim=True) + 1e-6)
    return attention


@per_head
def efficient_attention(q, k, v):
    """Shen et al., arXiv 1812.01243: rho_q(Q) (rho_k(K)' V), softmax over channels and over tokens."""
    context = torch.softmax(k, 0).t() @ v
    return torch.softmax(q, 1) @ context


@per_head
def inline_attention(q, k, v):
    """Han et al., arXiv 2412.06590, equation 5: similarities less their mean over the keys, plus 1/N;
    the similarity is q'k / (N sqrt d)."""
    similarity = q @ k.t() / (len(k) * math.sqrt(q.shape[-1]))
    return (similarity - similarity.mean(1, keepdim=True) + 1 / len(k)) @ v


def pooling(side, out):
    """-> (out^2, side^2): row k has 1 / |cell k| at the tokens of cell k."""
    share = torch.zeros(out, side)
    for i in range(out):
        first, end = i * side // out, -(-(i + 1) * side // out)
        share[i, first:end] = 1 / (end - first)
    return torch.kron(share, share)


def agent_attention(agents):
    """Han et al., arXiv 2312.08874, equation 3 without biases: softmax(Q A') softmax(A K') V."""
    def attention(q, k, v):
        a = pooling(5, agents) @ q
        gathered = softmax_attention(a, k, v)
        return softmax_attention(q, a, gathered)
    return attention


def variance_angle(q, k, a, c):
    """-> (y_q, y_k): channels (2i, 2i+1) turn by the angle of pair i of the image."""
    turned = []
    for image in zip(q, k):
        spread = sum(t.var(0, unbiased=False) for t in image) / 2
        level = ((spread[0::2] + spread[1::2]) / 2 + 1e-6).log()
        t = math.pi / 2 * torch.tanh(a * (level - level.mean()) + c)
        for x in image:
            even = x[:, 0::2] * t.cos() - x[:, 1::2] * t.sin()
            odd = x[:, 0::2] * t.sin() + x[:, 1::2] * t.cos()
            turned.append(torch.stack((even, odd), -1).flatten(1))
    return torch.stack(turned[0::2]), torch.stack(turned[1::2])


def block_fold(weight, bias, v):
    """-> (y_weight, y_bias) of the projection whose q and k are already turned, x W' P per block."""
    C = weight.shape[1]
    turn = torch.block_diag(*(reflection_product(block) for head in v for block in head))   # (C, C)
    whole = torch.block_diag(turn, turn, torch.eye(C))
    return whole.t() @ weight, bias @ whole


def cross_entropy(logits, target):
    probability = torch.full_like(logits, SMOOTHING / CLASSES)
    probability[torch.arange(len(target)), target.long()] += 1 - SMOOTHING
    return cross_entropy_soft(logits, probability)


def cross_entropy_soft(logits, target_soft):
    return -(target_soft * torch.log_softmax(logits, -1)).sum(-1).mean(0, keepdim=True)


def patch_embed(x, weight, bias):
    return F.conv2d(x, weight, bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)


def adder(out, numbers):
    """The function that adds an operation to `out`."""
    def add(name, function, results=('y',), fixed=(), **inputs):
        """Store inputs, outputs, upstream and input gradients; `fixed` inputs have none."""
        for key, t in inputs.items():
            t.requires_grad_(key not in fixed)
        values = function(**inputs)
        values = values if isinstance(values, tuple) else (values,)
        upstream = [numbers(*y.shape) for y in values]
        torch.autograd.backward(values, upstream)
        stem = f'op.{name}.'
        out.update({stem + key: stored(t) for key, t in inputs.items()})
        out.update({stem + key: stored(y) for key, y in zip(results, values)})
        out.update({f'{stem}d{key}': stored(dy) for key, dy in zip(results, upstream)})
        out.update({f'{stem}d{key}': stored(t.grad) for key, t in inputs.items() if key not in fixed})
    return add


def ops_other_file():
    n, out = Numbers('ops_other'), {}
    add = adder(out, n)
    add('efficient', efficient_attention, q=n(2, 20, 8), k=n(2, 20, 8), v=n(2, 20, 8))
    add('inline', inline_attention, q=n(2, 20, 8), k=n(2, 20, 8, mean=1.0), v=n(2, 20, 8, mean=-1.0))
    add('few_keys', softmax_attention, q=n(2, 20, 8), k=n(2, 3, 8), v=n(2, 3, 8))
    for agents in (2, 3):
        add(f'agent{agents}', agent_attention(agents), q=n(2, 25, 8), k=n(2, 25, 8), v=n(2, 25, 8))
        add(f'grid_pool{agents}', lambda x, out=agents: pooling(5, out) @ x, x=n(2, 25, 6))
    return out, {}


def ops_file():
    numbers, out = Numbers('ops'), {}
    add = adder(out, numbers)
    n, N = numbers, H * W
    add('layer_norm', layer_norm, x=n(2, N, 6, mean=0.5), weight=n(6), bias=n(6))
    add('gelu', gelu, x=n(2, N, 6, scale=2.0))
    for k in (3, 5):
        add(f'dwconv{k}', dwconv, x=n(2, N, 6), weight=n(6, 1, k, k, scale=1 / k), bias=n(6))
    for name, function in dict(softmax=softmax_attention, relu=linear_attention(torch.relu),
                               elu1=linear_attention(lambda x: F.elu(x) + 1)).items():
        add(f'{name}_attention', function, q=n(2, N, 8), k=n(2, N, 8), v=n(2, N, 8))
    channels = torch.tensor([0.3, 1, 2, 0.5, 1, 1.5, 0.2, 0.7]).float().double()   # unlike variances
    add('variance_angle', variance_angle, ('y_q', 'y_k'),
        q=(n(2, N, 8) * channels).float().double(), k=(n(2, N, 8) * channels).float().double(),
        a=n(4, mean=1.0, scale=0.3), c=n(4, scale=0.3))
    add('cross_head', lambda x, v: x @ reflection_product(v), x=n(2, N, 8), v=n(3, 8))
    add('block_fold', block_fold, ('y_weight', 'y_bias'),
        weight=n(48, 16, scale=0.25), bias=n(48), v=n(2, 2, 3, 4))
    add('cross_entropy', cross_entropy, fixed=('target',),
        logits=n(6, CLASSES, scale=2.0), target=n.classes(6).double())
    add('cross_entropy_soft', cross_entropy_soft, fixed=('target_soft',),
        logits=n(6, CLASSES, scale=2.0), target_soft=n.probabilities(6, CLASSES))
    add('patch_embed', patch_embed, x=n(2, 3, 8, 8), weight=n(6, 3, 2, 2, scale=0.3), bias=n(6))
    return out, {}


def kinds_file():
    numbers, out = Numbers('kinds'), {}
    golden_kinds.add_all(adder(out, numbers), numbers)
    return out, {}


def mirror_ops_file():
    numbers, out = Numbers('mirror_ops'), {}
    golden_mirror.add_all(adder(out, numbers), numbers, reflection_product)
    return out, {}


# ---- position tables ----------------------------------------------------------------------------

SIDES = ((4, 6), (6, 4), (3, 8), (8, 3), (7, 5), (14, 16), (16, 14), (1, 3), (5, 1))


def positions_file():
    numbers, out = Numbers('positions'), {}
    for before, after in SIDES:
        table = numbers(1, before * before, 3)
        grid = table.view(1, before, before, 3).permute(0, 3, 1, 2)
        resized = F.interpolate(grid, size=(after, after), mode='bicubic', align_corners=False, antialias=True)
        out[f'{before}.{after}.in'] = stored(table)
        out[f'{before}.{after}.out'] = stored(resized.permute(0, 2, 3, 1).reshape(1, after * after, 3))
    return out, {}


# ---- program ------------------------------------------------------------------------------------

def differences(made, found):
    """Sentences on what differs between two (tensors, metadata)."""
    (made, made_meta), (found, found_meta) = made, found
    if made_meta != found_meta:
        yield 'metadata differ'
    for name in sorted(set(made) | set(found)):
        a, b = made.get(name), found.get(name)
        if a is None or b is None:
            yield f'{name}: {"not made any more" if a is None else "missing in the file"}'
        elif a.shape != b.shape:
            yield f'{name}: shape {b.shape} in the file, {a.shape} made'
        else:
            gap = np.max(np.abs(a.astype(np.float64) - b) / np.maximum(np.abs(a), 1))
            if not gap <= TOLERANCE:                                   # also when it is not a number
                yield f'{name}: differs by {gap:.2e}'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--check', action='store_true', help='compare with the files, write nothing')
    check = parser.parse_args().check
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    makers = {f'{family}_{kind}': lambda f=family, k=kind: model_file(f, k)
              for family in SHAPES for kind in mirrorla.ATTENTION}
    makers.update({name: lambda n=name, f=family, o=mirror: model_file(f, 'mirror', n, o)
                   for name, (family, mirror) in MIRROR_OPTIONS.items()})
    makers.update(optim=optim_file, ops=ops_file, ops_other=ops_other_file, kinds=kinds_file, mirror_ops=mirror_ops_file,
                  positions=positions_file)
    failed = 0
    for name, make in makers.items():
        path, made = os.path.join(HERE, name + '.safetensors'), make()
        if not check:
            write_safetensors(path, *made)
            print(f'{name}: {len(made[0])} tensors, {os.path.getsize(path)} bytes')
            continue
        wrong = list(differences(made, read_safetensors(path))) if os.path.exists(path) else ['no file']
        failed += bool(wrong)
        print(f'{name}: {"; ".join(wrong) or "same"}')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
