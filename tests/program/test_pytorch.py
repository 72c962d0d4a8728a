"""Out to PyTorch and back: the twin (tools/mirrorla.py) and plain PyTorch models compute what the program computes.

Needs PyTorch (python3-torch): with none at hand it is taken from Debian's own Python if that has one, and otherwise this
script is skipped, or fails where MLA_REQUIRE_TORCH is set, as in continuous integration.
"""
import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import zlib

try:
    import torch
except ImportError:
    DEBIAN = '/usr/bin/python3'
    if os.path.exists(DEBIAN) and os.path.realpath(DEBIAN) != os.path.realpath(sys.executable):
        os.execv(DEBIAN, [DEBIAN, *sys.argv])
    if os.environ.get('MLA_REQUIRE_TORCH'):
        sys.exit('PyTorch is missing: apt-get install python3-torch')
    print('skipped: PyTorch is missing (python3-torch)')
    sys.exit(77)

import support
from support import SOURCE, flow, make_cifar, summary

sys.path.insert(0, os.path.join(SOURCE, 'tools'))
import mirrorla

torch.set_num_threads(1)
TWIN = os.path.join(SOURCE, 'tools', 'mirrorla.py')
VIT = dict(family='vit', patch=8, dims=[16], depths=[2], heads=[2], mlp_ratio=2, norm_eps=1e-4)
PVT = dict(family='pvt', patch=4, dims=[8, 16], depths=[1, 2], heads=[1, 2], mlp_ratio=3, drop_path=0.2)
KINDS = (dict(kind='softmax'), dict(kind='relu', dwconv=3), dict(kind='elu1', dwconv=0, qkv_bias=False),
         dict(kind='performer', dwconv=3), dict(kind='cosformer', dwconv=3, gate=True),
         dict(kind='performer', dwconv=0, qkv_bias=False, performer=dict(features=3)),
         dict(kind='focused', dwconv=3), dict(kind='focused', dwconv=0, focused=dict(factor=2.5)), dict(kind='pola', dwconv=3),
         dict(kind='efficient', dwconv=3), dict(kind='inline', dwconv=0), dict(kind='agent', dwconv=3, gate=True),
         dict(kind='agent', dwconv=0, agent=dict(side=3)), dict(kind='mirror', dwconv=5),
         dict(kind='mirror', dwconv=3, mirror=dict(block=0, reflections=1, variance_angle=False, cross_head=0)),
         dict(kind='mirror', dwconv=3, mirror=dict(reflections=0, cross_head=3)),
         dict(kind='mirror', dwconv=0, mirror=dict(reflections=2, variance_angle=False, cross_head=2)),
         dict(kind='mirror', dwconv=3, mirror=dict(feature='split', angle_planes='learned', qk_norm='rms', retention_loss=0.1)),
         dict(kind='mirror', dwconv=3, mirror=dict(feature='twin', angle_source='own', fold=2, power='fixed', exponent=1.5)),
         dict(kind='mirror', dwconv=3, mirror=dict(feature='twin', twin_init='negative', scale_modulation=True,
                                                   power='learned', block_init='random', cross_init='random')))


class Case(support.Case):
    def eval(self, name):
        """(logits, images counted right) of the program."""
        out = self.run_program('eval', name, '--json', '--logits', 'logits.safetensors').out
        logits, _ = mirrorla.read(self.path('logits.safetensors'))
        return logits['logits'], json.loads(out)['correct']

    def close(self, a, b, bound, what=''):
        self.assertEqual(a.shape, b.shape)
        self.assertLess((a - b).abs().max().item(), bound, what)


class Twin(Case):
    IMAGES = 16

    def setUp(self):
        super().setUp()
        make_cifar(self.path('cifar'), train=40, test=self.IMAGES)
        records = torch.tensor(list(self.read('cifar', 'test_batch.bin')), dtype=torch.uint8).view(self.IMAGES, 3073)
        self.labels, self.pixels = records[:, 0].long(), records[:, 1:].view(self.IMAGES, 3, 32, 32).float() / 255

    def train_one(self, shape, attention, run):
        # The default eps of 1e-6 lets a query without positive features take its output from rounding: heads of width 8 have some.
        self.write('c.yaml', f'model: {flow({**shape, "attention": {"eps": 1e-3, **attention}})}\ndata: {{set: cifar10, path: cifar}}\n'
                             'optim: {lr: 1e-2, ema: 0.5}\ntrain: {epochs: 1, batch: 8}\n')
        return summary(self.train('c.yaml', out=run).out)['checkpoint']

    def images(self, metadata):
        mean, std = (torch.tensor(json.loads(metadata[key])).view(3, 1, 1) for key in ('mean', 'std'))
        return (self.pixels - mean) / std

    @torch.no_grad()
    def theirs(self, model):
        return model.eval()(self.images(model.metadata))

    def test_there_and_back(self):
        """export -> PyTorch -> import -> eval: every kind of both families."""
        for family in (VIT, PVT):
            for i, attention in enumerate(KINDS):
                with self.subTest(family=family['family'], **attention):
                    checkpoint = self.train_one(family, attention, f'{family["family"]}{i}')
                    ours, correct = self.eval(checkpoint)
                    self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'w.safetensors')
                    model = mirrorla.load(self.path('w.safetensors'))
                    self.close(self.theirs(model), ours, 1e-5)
                    self.close(self.theirs(mirrorla.load(self.path(checkpoint))), ours, 1e-5)
                    mirrorla.save(model, self.path('t.safetensors'))
                    for logits, right in (self.eval('t.safetensors'), self.bring('t.safetensors')):
                        self.close(logits, ours, 1e-5)
                        self.assertEqual(right, correct)
                    self.run_program('diff', 'w.safetensors', 'back.safetensors', code=0)

    def test_a_kind_a_stage(self):
        checkpoint = self.train_one(PVT, dict(kind=['pola', 'performer'], dwconv=3), 'run')
        ours, _ = self.eval(checkpoint)
        model = mirrorla.load(self.path(checkpoint))
        self.assertEqual(model.spec['attention']['kind'], ['pola', 'performer'])
        self.close(self.theirs(model), ours, 1e-5)
        self.assertRaises(ValueError, mirrorla.Model, {**VIT, 'attention': dict(kind=['relu', 'pola'])})

    def bring(self, name, *arguments):
        self.run_program('import', name, 'c.yaml', '-o', 'back.safetensors', *arguments)
        return self.eval('back.safetensors')

    def test_folded_twin(self):
        """A twin that took its number of reflections from the block isometry keeps it when that is folded away."""
        checkpoint = self.train_one(VIT, dict(kind='mirror', dwconv=3, mirror=dict(reflections=3, feature='twin')), 'run')
        self.run_program('export', checkpoint, '--to', 'safetensors', '--fuse', '-o', 'w.safetensors')
        model = mirrorla.load(self.path('w.safetensors'))
        mirror = model.spec['attention']['mirror']
        self.assertEqual((mirror['reflections'], mirror['twin_reflections']), (0, 3))
        self.close(self.theirs(model), self.eval(checkpoint)[0], 1e-5)
        # the norm stands between the block isometry and that of the heads, which has to stay
        options = dict(variance_angle=False, qk_norm='rms')
        checkpoint = self.train_one(VIT, dict(kind='mirror', dwconv=3, mirror=options), 'norm')
        self.run_program('export', checkpoint, '--to', 'safetensors', '--fuse', '-o', 'w.safetensors')
        model = mirrorla.load(self.path('w.safetensors'))
        self.assertIsNotNone(model.blocks[0].attn.cross_v)
        self.close(self.theirs(model), self.eval(checkpoint)[0], 1e-5)

    def test_folded_and_narrow(self):
        for i, family in enumerate((VIT, PVT)):
            checkpoint = self.train_one(family, dict(kind='mirror', dwconv=3), f'run{i}')
            ours, _ = self.eval(checkpoint)
            self.run_program('export', checkpoint, '--to', 'safetensors', '--fuse', '-o', 'w.safetensors')
            model = mirrorla.load(self.path('w.safetensors'))
            self.assertEqual(model.spec['attention']['mirror']['reflections'], 0)
            self.close(self.theirs(model), ours, 1e-5)
            whole = mirrorla.load(self.path(checkpoint))
            for dtype, kind in (('bf16', torch.bfloat16), ('f16', torch.float16)):
                self.run_program('export', checkpoint, '--to', 'safetensors', '--dtype', dtype, '-o', 'n.safetensors')
                tensors, _ = mirrorla.read(self.path('n.safetensors'))
                for name, tensor in whole.state_dict().items():     # torch rounds to nearest even, too
                    self.assertEqual(tensors[name].dtype, kind)
                    self.assertTrue(torch.equal(tensors[name], tensor.to(kind)), name)
                narrow = mirrorla.load(self.path('n.safetensors'))
                self.close(self.theirs(narrow), self.eval('n.safetensors')[0], 1e-5)
                mirrorla.save(narrow, self.path('t.safetensors'), kind)
                self.close(self.bring('t.safetensors')[0], self.theirs(narrow), 1e-5)

    def test_trains_on(self):
        for i, family in enumerate((VIT, PVT)):
            checkpoint = self.train_one(family, dict(kind='mirror', dwconv=3), f'run{i}')
            model = mirrorla.load(self.path(checkpoint), 'raw').train()
            optimiser = torch.optim.AdamW(mirrorla.decay_groups(model, 0.05), lr=1e-2)
            for _ in range(5):
                loss = torch.nn.functional.cross_entropy(model(self.images(model.metadata)), self.labels)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            mirrorla.save(model, self.path('t.safetensors'))
            self.run_program('diff', 't.safetensors', checkpoint, '--weights', 'raw', code=1)
            self.close(self.bring('t.safetensors')[0], self.theirs(model), 1e-5)
            self.train('c.yaml', '--finetune', 't.safetensors', out=f'tuned{i}')

    def test_a_model_made_in_pytorch(self):
        self.train_one(VIT, dict(kind='relu', dwconv=3), 'run')
        spec = {**VIT, 'image': 32, 'classes': 10, 'attention': dict(kind='relu', dwconv=3, eps=1e-3)}
        model = mirrorla.Model(spec)
        mirrorla.save(model, self.path('t.safetensors'))
        logits, _ = self.bring('t.safetensors')
        model.metadata = mirrorla.read(self.path('back.safetensors'))[1]
        self.close(logits, self.theirs(model), 1e-5)
        other = mirrorla.load(self.path('back.safetensors'))
        other.spec['attention']['kind'] = 'elu1'            # another model: the config no longer speaks for it
        mirrorla.save(other, self.path('t.safetensors'))
        self.assertNotIn('config', mirrorla.read(self.path('t.safetensors'))[1])

    def twin(self, command, *files, like=None):
        """What the twin's program prints, or the sentence that it ends with."""
        words = [command, *(self.path(name) for name in files), *(('--like', self.path(like)) if like else ())]
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                mirrorla.main(words)
        except SystemExit as end:
            return str(end)
        return out.getvalue()

    def test_program(self):
        checkpoint = self.train_one(VIT, dict(kind='mirror', dwconv=3), 'run')
        ours, correct = self.eval(checkpoint)
        self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'w.safetensors')
        shown = self.twin('info', 'w.safetensors')
        for word in ('architecture: vit', 'blocks.0.attn.block_v  float32  (2, 1, 2, 8)', 'kind: mirror', 'tensors, '):
            self.assertIn(word, shown)
        for source in ('w.safetensors', checkpoint):
            self.twin('to-pt', source, 'w.pt')
            state = torch.load(self.path('w.pt'), weights_only=True)
            mirrorla.load(self.path('w.safetensors')).load_state_dict(state, strict=True)
            torch.save({'model': state, 'epoch': 3}, self.path('nested.pt'))
            for name in ('w.pt', 'nested.pt'):
                self.twin('from-pt', name, 'from.safetensors')
                self.run_program('diff', 'w.safetensors', 'from.safetensors', code=0)
                logits, right = self.bring('from.safetensors')
                self.close(logits, ours, 1e-5)
                self.assertEqual(right, correct)
                self.twin('from-pt', name, 'like.safetensors', like='w.safetensors')
                self.close(self.eval('like.safetensors')[0], ours, 1e-5)
        del state['head.bias']
        torch.save(state, self.path('short.pt'))
        self.assertIn('are not those of', self.twin('from-pt', 'short.pt', 'x.safetensors', like='w.safetensors'))
        self.assertFalse(os.path.exists(self.path('x.safetensors')))
        for name, content in (('pickle', b'\x80\x04.' + bytes(99)), ('empty', b''), ('cut', self.read('w.safetensors')[:-4]),
                              ('list', struct.pack('<Q', 2) + b'[]'), ('text', struct.pack('<Q', 2) + b'{x'),
                              ('entry', struct.pack('<Q', 7) + b'{"w":1}')):
            self.write('bad', content)
            self.assertIn(f'mirrorla.py: {self.path("bad")}: not a safetensors file', self.twin('info', 'bad'), name)
        done = subprocess.run([sys.executable, TWIN, 'info', 'bad'], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('mirrorla.py: bad: not a safetensors file', done.stderr)


# ---- a vision transformer as anyone writes it, under timm's names ---------------------------------

class Attention(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(dim, 3 * dim)
        self.proj = torch.nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        share = (q @ k.transpose(-2, -1) * (C // self.heads) ** -0.5).softmax(-1)
        return self.proj((share @ v).transpose(1, 2).reshape(B, N, C))


class Mlp(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1 = torch.nn.Linear(dim, 4 * dim)
        self.fc2 = torch.nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.fc2(torch.nn.functional.gelu(self.fc1(x)))


class Block(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = torch.nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbed(torch.nn.Module):
    def __init__(self, dim, patch):
        super().__init__()
        self.proj = torch.nn.Conv2d(3, dim, patch, stride=patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class DeitTiny(torch.nn.Module):
    """DeiT-Tiny with the mean over the tokens instead of the class token (timm: global_pool='avg', class_token=False)."""

    def __init__(self, classes, side=224):
        super().__init__()
        self.patch_embed = PatchEmbed(192, 16)
        self.pos_embed = torch.nn.Parameter(torch.zeros(1, (side // 16) ** 2, 192))
        self.blocks = torch.nn.Sequential(*(Block(192, 3) for _ in range(12)))
        self.fc_norm = torch.nn.LayerNorm(192, eps=1e-6)
        self.head = torch.nn.Linear(192, classes)

    def forward(self, x):
        return self.head(self.fc_norm(self.blocks(self.patch_embed(x) + self.pos_embed).mean(1)))


def png(pixels):
    """(3, S, S) bytes as an 8-bit RGB PNG."""
    side = pixels.shape[-1]
    rows = b''.join(b'\0' + bytes(row.flatten().tolist()) for row in pixels.permute(1, 2, 0))

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows, 1)) + chunk(b'IEND', b''))


class Deit(Case):
    CONFIG = ('model: {family: vit, patch: 16, dims: [192], depths: [12], heads: [3], mlp_ratio: 4, '
              'attention: {kind: softmax}}\ndata: {set: imagefolder, path: images, size: 224}\n')

    def setUp(self):
        super().setUp()
        torch.manual_seed(3)
        self.pixels = torch.randint(0, 256, (4, 3, 224, 224), generator=torch.Generator().manual_seed(5))
        self.pixels = torch.nn.functional.avg_pool2d(self.pixels.float(), 9, 1, 4).round()     # smooth, as pictures are
        for split in ('train', 'val'):
            for i, image in enumerate(self.pixels.byte()):
                self.write(f'images/{split}/class{i}/x.png', png(image))
        self.write('deit.yaml', self.CONFIG)

    def make(self, side=224):
        model = DeitTiny(4, side).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
                scale = fan_in ** -0.5 if name.endswith('weight') and parameter.dim() > 1 else 0.2
                parameter.normal_(1.0 if 'norm' in name and name.endswith('weight') else 0.0, scale)
        return model

    @torch.no_grad()
    def compare(self, model):
        logits, _ = self.eval('c.safetensors')
        meta = mirrorla.read(self.path('c.safetensors'))[1]
        mean, std = (torch.tensor(json.loads(meta[key])).view(3, 1, 1) for key in ('mean', 'std'))
        expected = model((self.pixels / 255 - mean) / std)
        self.assertGreater(expected.std().item(), 0.3)                  # logits that say something
        self.close(logits, expected, 1e-4)

    def test_average_pooling(self):
        model = self.make()
        mirrorla.write(self.path('deit.safetensors'), model.state_dict(), {})
        self.run_program('import', 'deit.safetensors', 'deit.yaml', '-o', 'c.safetensors')
        self.compare(model)

    def test_positions_of_another_size(self):
        small, model = self.make(160), self.make()
        state = small.state_dict()
        mirrorla.write(self.path('deit.safetensors'), state, {})
        self.run_program('import', 'deit.safetensors', 'deit.yaml', '-o', 'c.safetensors')
        grid = state['pos_embed'].view(1, 10, 10, 192).permute(0, 3, 1, 2)
        grid = torch.nn.functional.interpolate(grid, size=(14, 14), mode='bicubic', antialias=True)
        model.load_state_dict({**state, 'pos_embed': grid.permute(0, 2, 3, 1).reshape(1, 196, 192)})
        self.compare(model)

    def test_class_token(self):
        """DeiT as it is published is another model: refused, unless what is left out is named."""
        state = self.make().state_dict()
        state['norm.weight'], state['norm.bias'] = state.pop('fc_norm.weight'), state.pop('fc_norm.bias')
        state['cls_token'], state['pos_embed'] = torch.zeros(1, 1, 192), torch.cat((torch.ones(1, 1, 192), state['pos_embed']), 1)
        mirrorla.write(self.path('deit.safetensors'), state, {})
        result = self.run_program('import', 'deit.safetensors', 'deit.yaml', '-o', 'c.safetensors', code=2)
        self.assertIn('no class token', result.err)
        self.run_program('import', 'deit.safetensors', 'deit.yaml', '-o', 'c.safetensors', '--drop', 'cls_token', '--rename',
                         'norm.=fc_norm.')
        taken = mirrorla.load(self.path('c.safetensors')).state_dict()
        self.assertTrue(torch.equal(taken['pos_embed'], state['pos_embed'][:, 1:]))


if __name__ == '__main__':
    support.main()
