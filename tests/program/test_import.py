"""Weights in and out of the program: narrow and folded exports, import, fine-tuning, differences, hostile files."""
import json
import os
import random
import resource
import signal
import shutil
import struct
import subprocess
import sys

import support
from support import TINY, Safetensors, flow, make_folder, summary, write_safetensors

KINDS = (dict(kind='softmax'), dict(kind='relu', dwconv=3), dict(kind='elu1', dwconv=0), dict(kind='mirror', dwconv=3),
         dict(kind='performer', dwconv=3), dict(kind='pola', dwconv=0),
         dict(kind='mirror', dwconv=3, mirror=dict(block=0, reflections=1, variance_angle=False, cross_head=0)),
         dict(kind='mirror', dwconv=0, mirror=dict(reflections=2, variance_angle=False, cross_head=2)),
         dict(kind='mirror', dwconv=3, mirror=dict(reflections=0)))
SHAPES = (dict(family='vit', patch=8, dims=[16], depths=[2], heads=[2], mlp_ratio=2),
          dict(family='pvt', patch=4, dims=[8, 16], depths=[1, 1], heads=[1, 2], mlp_ratio=2))
REST = ('data: {set: twins, size: 16, twins: {grid: 2, train: 40, test: 20}}\naugment: {crop_padding: 0, flip: 0}\n'
        'optim: {lr: 1e-2, ema: 0.5}\ntrain: {epochs: 1, batch: 8, lanes: 2, shard: 2}\n')
# A vit under timm's names, with average pooling and without class token: 2 x 2 tokens of 8 channels, 3 classes.
DIM, HIDDEN, DEPTH = 8, 16, 2
TIMM_CONFIG = """\
model: {family: vit, patch: 8, dims: [8], depths: [2], heads: [2], mlp_ratio: 2, attention: {kind: softmax}}
data: {set: imagefolder, path: images, size: 16}
train: {batch: 4, lanes: 2, shard: 2, epochs: 1}
"""


def fnv(data):
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % 2 ** 64
    return f'{value:016x}'


def floats(rng, *shape, scale=0.3):
    count = 1
    for n in shape:
        count *= n
    return 'F32', shape, struct.pack(f'<{count}f', *(rng.uniform(-scale, scale) for _ in range(count)))


def timm_weights(classes=3, tokens=4, seed=5):
    rng = random.Random(seed)
    out = {'pos_embed': floats(rng, 1, tokens, DIM), 'patch_embed.proj.weight': floats(rng, DIM, 3, 8, 8),
           'patch_embed.proj.bias': floats(rng, DIM)}
    for i in range(DEPTH):
        for name, shape in (('norm1.weight', (DIM,)), ('norm1.bias', (DIM,)), ('attn.qkv.weight', (3 * DIM, DIM)),
                            ('attn.qkv.bias', (3 * DIM,)), ('attn.proj.weight', (DIM, DIM)), ('attn.proj.bias', (DIM,)),
                            ('norm2.weight', (DIM,)), ('norm2.bias', (DIM,)), ('mlp.fc1.weight', (HIDDEN, DIM)),
                            ('mlp.fc1.bias', (HIDDEN,)), ('mlp.fc2.weight', (DIM, HIDDEN)), ('mlp.fc2.bias', (DIM,))):
            out[f'blocks.{i}.{name}'] = floats(rng, *shape)
    for name, shape in (('fc_norm.weight', (DIM,)), ('fc_norm.bias', (DIM,)), ('head.weight', (classes, DIM)),
                        ('head.bias', (classes,))):
        out[name] = floats(rng, *shape)
    return out


class Weights(support.Case):
    def setUp(self):
        super().setUp()
        self.write('tiny.yaml', TINY)

    def logits(self, name, *arguments):
        self.run_program('eval', name, '--logits', 'logits.safetensors', *arguments)
        file = Safetensors(self.path('logits.safetensors'))
        return file.floats('logits')

    def export(self, checkpoint, name, *arguments, **options):
        return self.run_program('export', checkpoint, '--to', 'safetensors', '-o', name, *arguments, **options)

    def header(self, name):
        data = self.read(name)
        length, = struct.unpack_from('<Q', data)
        header = json.loads(data[8:8 + length])
        return header.pop('__metadata__'), header, data[8 + length:]

    def rewrite(self, name, to, change):
        """Writes the tensors of a file that `change` has changed; the hash would no longer fit."""
        file = Safetensors(self.path(name))
        tensors = {n: (file.dtype[n], file.shape[n], file.data[n]) for n in file.data}
        change(tensors)
        write_safetensors(self.path(to), tensors, {**file.metadata, 'weight_hash': 'none'})


class Exports(Weights):
    def test_every_kind_and_type(self):
        """Every export comes back by import: the same logits, or as near as its type allows."""
        for shape in SHAPES:
            for attention in KINDS:
                with self.subTest(family=shape['family'], **attention):
                    self.write('c.yaml', f'model: {flow({**shape, "attention": attention})}\n{REST}')
                    out = f'run{len(os.listdir(self.folder))}'
                    checkpoint = summary(self.train('c.yaml', out=out).out)['checkpoint']
                    expected = self.logits(checkpoint)
                    for dtype, bound in (('f32', 0), ('bf16', 0.3), ('f16', 0.03)):
                        self.export(checkpoint, 'w.safetensors', '--dtype', dtype)
                        self.assertLessEqual(far(self.logits('w.safetensors'), expected), bound)
                        self.run_program('import', 'w.safetensors', 'c.yaml', '-o', 'back.safetensors')
                        self.assertEqual(self.logits('back.safetensors'), self.logits('w.safetensors'))
                    self.check_folded(checkpoint, expected, attention)

    def check_folded(self, checkpoint, expected, attention):
        err = self.export(checkpoint, 'w.safetensors', '--fuse').err
        mirror = {'reflections': 2, 'variance_angle': True, 'cross_head': 2, **attention.get('mirror', {})}
        blocks = attention['kind'] == 'mirror' and mirror['reflections'] > 0
        cross = attention['kind'] == 'mirror' and mirror['cross_head'] > 0 and not mirror['variance_angle']
        file = Safetensors(self.path('w.safetensors'))
        self.assertEqual('folded' in file.metadata, blocks or cross)
        self.assertEqual('nothing can be folded' in err, not blocks and not cross)
        self.assertFalse([n for n in file.data if n.endswith('block_v')] if blocks else [])
        self.assertFalse([n for n in file.data if n.endswith('cross_v')] if cross else [])
        self.assertLess(far(self.logits('w.safetensors'), expected), 1e-5)
        if blocks:
            self.assertIn('reflections: 0', file.metadata['config'])
            result = self.run_program('import', 'w.safetensors', 'c.yaml', '-o', 'x.safetensors', code=2)
            self.assertIn('exported with --fuse', support.last_message(result.err))
            sets = ['--set', 'model.attention.mirror.reflections=0'] + \
                   (['--set', 'model.attention.mirror.cross_head=0'] if cross else [])
            self.run_program('import', 'w.safetensors', 'c.yaml', '-o', 'x.safetensors', *sets)
            self.assertLess(far(self.logits('x.safetensors'), expected), 1e-5)

    def test_hash_is_of_the_stored_bytes(self):
        checkpoint = summary(self.train('tiny.yaml', out='run').out)['checkpoint']
        for dtype in ('f32', 'bf16', 'f16'):
            self.export(checkpoint, 'w.safetensors', '--dtype', dtype)
            meta, header, data = self.header('w.safetensors')
            self.assertEqual({entry['dtype'] for entry in header.values()}, {dtype.upper()})
            self.assertEqual((meta['dtype'], meta['weights'], meta['format']), (dtype.upper(), 'raw', 'pt'))
            # the order of the data is that of the model
            self.assertEqual(meta['weight_hash'], fnv(data))
            self.assertEqual(meta['source_weight_hash'], Safetensors(self.path(checkpoint)).metadata['weight_hash'])

    def test_overflow_and_not_finite(self):
        checkpoint = summary(self.train('tiny.yaml', out='run').out)['checkpoint']
        self.export(checkpoint, 'w.safetensors')

        def put(value):
            def change(tensors):
                dtype, shape, data = tensors['head.bias']
                tensors['head.bias'] = dtype, shape, data[:12] + struct.pack('<f', value) + data[16:]
            return change
        self.rewrite('w.safetensors', 'large.safetensors', put(1e6))
        self.refused('export', 'large.safetensors', '--to', 'safetensors', '--dtype', 'f16', '-o', 'out.safetensors',
                     words=['"head.bias" holds 1000000 at element 3', 'too large for F16', 'bf16'], lines=1)
        self.export('large.safetensors', 'out.safetensors', '--dtype', 'bf16')
        for value, word in ((float('nan'), 'NaN'), (float('inf'), 'infinity')):
            self.rewrite('w.safetensors', 'bad.safetensors', put(value))
            for words in (['eval', 'bad.safetensors'], ['import', 'bad.safetensors', 'tiny.yaml', '-o', 'x.safetensors'],
                          ['train', 'tiny.yaml', '--finetune', 'bad.safetensors', '--out', 'x'],
                          ['export', 'bad.safetensors', '--to', 'safetensors', '-o', 'x.safetensors']):
                self.refused(*words, words=['tensor "head.bias" holds ' + word + ' at element 3'])

    def test_options(self):
        for words, expected in ((['--to', 'safetensors', '--dtype', 'int8'], 'f32, bf16 or f16'),
                                (['--to', 'gguf'], "--to: expected safetensors"), ([], '--to is missing')):
            self.refused('export', 'x.safetensors', *words, words=[expected])

    def test_full_disk(self):
        checkpoint = summary(self.train('tiny.yaml', out='run').out)['checkpoint']
        for command in (['export', checkpoint, '--to', 'safetensors', '-o', 'w.safetensors'],
                        ['export', checkpoint, '--to', 'safetensors', '--dtype', 'bf16', '-o', 'w.safetensors'],
                        ['import', checkpoint, 'tiny.yaml', '-o', 'w.safetensors']):
            self.run_program(*command)
            size = os.path.getsize(self.path('w.safetensors'))

            def limit(most=size - 1000):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            # the old file stays as it is, and no other is left
            self.refused(*command, code=1, words=['File too large', 'needed'], preexec_fn=limit, restore_signals=False)

    def test_peak_memory(self):
        """A checkpoint of four times the model is exported in little more than the model."""
        self.write('big.yaml', 'model: {family: vit, patch: 8, dims: [384], depths: [4], heads: [6], attention: {dwconv: 3}}\n'
                               'data: {set: twins, size: 16, twins: {grid: 2, train: 4, test: 4}}\n'
                               'augment: {crop_padding: 0, flip: 0}\noptim: {ema: 0.9}\ncheckpoint: {best: false}\n'
                               'train: {epochs: 1, batch: 4, lanes: 1, shard: 4}\n')
        checkpoint = summary(self.train('big.yaml', out='run').out)['checkpoint']
        small = peak_kib(self, 'version')
        for options in ([], ['--fuse'], ['--dtype', 'bf16'], ['--fuse', '--dtype', 'f16']):
            peak = peak_kib(self, 'export', checkpoint, '--to', 'safetensors', '-o', 'w.safetensors', *options)
            model = os.path.getsize(self.path(checkpoint)) / 4 / 1024
            self.assertGreater(model, 25 * 1024)
            self.assertLess(peak, small + model + 16 * 1024, options)


def far(a, b):
    if len(a) != len(b) or not a:
        raise ValueError('other images')
    return max(abs(x - y) for x, y in zip(a, b))


def peak_kib(case, *arguments):
    """VmHWM of a run of the program."""
    code = ('import resource, subprocess, sys; '
            'subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); '
            'print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)')
    out = subprocess.run([sys.executable, '-c', code, support.PROGRAM, *arguments], check=True, cwd=case.folder,
                         env=support.environment(case.folder), capture_output=True)
    return int(out.stdout)


class Imports(Weights):
    def setUp(self):
        super().setUp()
        make_folder(self.path('images'), classes=('ant', 'bee', 'cat'), train=2, val=2)
        self.write('timm.yaml', TIMM_CONFIG)

    def put(self, name='timm.safetensors', metadata=None, **changes):
        tensors = {**timm_weights(), **changes}
        write_safetensors(self.path(name), {k: v for k, v in tensors.items() if v}, metadata)

    def bring(self, *arguments, code=0, name='timm.safetensors', config='timm.yaml'):
        return self.run_program('import', name, config, '-o', 'c.safetensors', *arguments, code=code)

    def test_names_of_timm(self):
        self.put()
        result = self.bring()
        self.assertIn('31 tensors: 31 taken, 0 initialised', result.out)
        self.assertIn('does not name its classes', result.err)
        file, tensors = support.read_checkpoint(self.path('c.safetensors')), timm_weights()
        self.assertEqual(set(file.data), set(tensors))
        for name, (_, shape, data) in tensors.items():
            self.assertEqual((file.shape[name], file.data[name]), (shape, data))
        self.assertEqual(file.counters()['step'], 0)
        self.assertEqual(json.loads(file.metadata['classes']), ['ant', 'bee', 'cat'])
        self.run_program('eval', 'c.safetensors')
        self.run_program('inspect', 'c.safetensors')
        self.train('timm.yaml', '--finetune', 'c.safetensors', out='run')
        self.refused('train', 'timm.yaml', '--resume=c.safetensors', '--out', 'other', words=['--finetune'])

    def test_strict(self):
        self.put(**{'blocks.1.norm2.bias': None, 'blocks.0.ls1.gamma': ('F32', (8,), bytes(32)), 'fc_norm.bias': ('F32', (4,), bytes(16))})
        result = self.bring(code=2)
        for line in ('missing: blocks.1.norm2.bias (8)', 'unexpected: blocks.0.ls1.gamma (8)',
                     'of another shape: fc_norm.bias is (4), expected (8)'):
            self.assertIn(line + '\n', result.err)
        self.assertIn('1 missing, 1 unexpected, 1 of another shape', support.last_message(result.err))
        self.assertFalse(os.path.exists(self.path('c.safetensors')))
        allowed = ['--allow-missing', '*.norm2.bias', '--allow-missing', 'fc_norm.bias', '--drop', 'blocks.*.ls1.*']
        self.bring(*allowed, code=2)
        out = self.bring(*allowed, '--drop', 'fc_norm.b*').out
        self.assertIn('29 taken, 2 initialised (seed 0), 2 of the file left out', out)
        self.assertEqual(set(Safetensors(self.path('c.safetensors')).floats('blocks.1.norm2.bias')), {0})
        for rule, word in ((['--drop', 'nothing'], "--drop: 'nothing'"), (['--rename', 'x.=y.'], "--rename: 'x.=y.'"),
                           (['--allow-missing', 'blocks.7.*'], "--allow-missing: 'blocks.7.*'")):
            result = self.bring(*allowed, '--drop', 'fc_norm.b*', *rule, code=2)
            self.assertIn(word, support.last_message(result.err))
        self.refused('import', 'timm.safetensors', 'timm.yaml', '--rename', 'x', words=['FROM=TO'])
        self.refused('import', 'timm.safetensors', 'timm.yaml', '-o', 'timm.safetensors', words=['is the file that is read'])
        self.refused('import', 'timm.safetensors', words=['expected FILE and CONFIG'])

    def test_class_token_is_not_ours(self):
        tensors = timm_weights(tokens=5)
        tensors['cls_token'] = 'F32', (1, 1, DIM), bytes(4 * DIM)
        tensors['norm.weight'], tensors['norm.bias'] = tensors.pop('fc_norm.weight'), tensors.pop('fc_norm.bias')
        write_safetensors(self.path('timm.safetensors'), tensors)
        result = self.bring(code=2)
        for line in ('unexpected: cls_token (1, 1, 8)', 'unexpected: norm.weight (8)', 'missing: fc_norm.bias (8)'):
            self.assertIn(line + '\n', result.err)
        self.assertNotIn('another shape: pos_embed', result.err)
        self.assertIn('no class token', support.last_message(result.err))
        self.bring('--drop', 'cls_token', code=2)
        result = self.bring('--drop', 'cls_token', '--rename', 'norm.=fc_norm.')
        self.assertIn('the first 1 rows', result.err)
        file = Safetensors(self.path('c.safetensors'))
        self.assertEqual(file.data['pos_embed'], tensors['pos_embed'][2][4 * DIM:])
        self.assertEqual(file.data['fc_norm.weight'], tensors['norm.weight'][2])

    def test_prefix_and_types(self):
        wide = {}
        for name, (_, shape, data) in timm_weights().items():
            values = struct.unpack(f'<{len(data) // 4}f', data)
            wide['module.' + name] = 'F64', shape, struct.pack(f'<{len(values)}d', *values)
        write_safetensors(self.path('timm.safetensors'), wide)
        self.bring(code=2)
        self.bring('--rename', 'module.=')
        file = Safetensors(self.path('c.safetensors'))
        for name, (_, _, data) in timm_weights().items():
            self.assertEqual(file.data[name], data)
        wide['head.bias'] = wide['module.head.bias']
        write_safetensors(self.path('timm.safetensors'), wide)
        self.assertIn('two tensors would become head.bias',
                      support.last_message(self.bring('--rename', 'module.=', code=2).err))
        self.put(**{'head.bias': ('I32', (3,), bytes(12))})
        self.assertIn('"head.bias" is of type I32', support.last_message(self.bring(code=2).err))

    def test_head_of_other_classes(self):
        make_folder(self.path('images'), classes=('dog',), train=2, val=2)
        self.put()
        result = self.bring()
        self.assertIn('note: head: 3 other classes in timm.safetensors, 4 here: it starts anew', result.err)
        self.assertEqual(Safetensors(self.path('c.safetensors')).shape['head.weight'], (4, DIM))
        # by name: the three that are known keep their rows, in another order
        self.put(metadata=None)
        names = self.train_named(['ant', 'bee', 'cat', 'dog'])
        for wanted in (['cat', 'ant'], ['dog', 'cat', 'bee', 'ant']):
            self.keep_folders(wanted)
            result = self.run_program('import', names, 'timm.yaml', '-o', 'c.safetensors')
            self.assertTrue('by name' in result.err or len(wanted) == 4, result.err)
            old, new = Safetensors(self.path(names)), Safetensors(self.path('c.safetensors'))
            order = json.loads(new.metadata['classes'])
            self.assertEqual(order, sorted(wanted))
            for row, name in enumerate(order):
                place = json.loads(old.metadata['classes']).index(name)
                width = 4 * DIM
                self.assertEqual(new.data['head.weight'][row * width:(row + 1) * width],
                                 old.data['head.weight'][place * width:(place + 1) * width])
        self.keep_folders(['ant', 'eel', 'cat', 'dog'])
        result = self.run_program('import', names, 'timm.yaml', '-o', 'c.safetensors')
        self.assertIn('4 other classes', result.err)

    def train_named(self, classes):
        self.keep_folders(classes)
        return summary(self.train('timm.yaml', out='named').out)['checkpoint']

    def keep_folders(self, classes):
        shutil.rmtree(self.path('images'))
        make_folder(self.path('images'), classes=classes, train=2, val=2)

    def test_other_grids(self):
        for shape, stages in ((SHAPES[0], 1), (SHAPES[1], 2)):
            self.write('c.yaml', f'model: {flow({**shape, "attention": dict(kind="relu")})}\n{REST}')
            checkpoint = summary(self.train('c.yaml', out='run' + str(stages)).out)['checkpoint']
            bigger = ['--set', 'data.size=32', '--set', 'data.twins.grid=4']
            result = self.bring(*bigger, name=checkpoint, config='c.yaml')
            self.assertEqual(result.err.count('pos_embed: interpolated from'), stages, result.err)
            self.run_program('eval', 'c.safetensors')
            self.train('c.yaml', *bigger, '--finetune', checkpoint, out='big' + str(stages))
        # a constant table stays constant
        self.put(pos_embed=('F32', (1, 4, DIM), struct.pack('<8f', *range(8)) * 4))
        self.bring('--set', 'data.size=40')
        values = Safetensors(self.path('c.safetensors')).floats('pos_embed')
        self.assertLess(far(values, tuple(range(8)) * 25), 1e-6)

    def test_other_kind(self):
        self.write('relu.yaml', TINY.replace('kind: mirror', 'kind: relu'))
        relu = summary(self.train('relu.yaml', out='relu').out)['checkpoint']
        result = self.bring(name=relu, config='tiny.yaml', code=2)
        self.assertIn('note: model.attention.kind is relu', result.err)
        self.assertIn('missing: blocks.0.attn.cross_v (2, 16)\n', result.err)
        self.refused('train', 'tiny.yaml', '--finetune', relu, '--out', 'x', words=['4 missing', 'mirrorla import'])
        out = [self.bring('--allow-missing', 'blocks.*.attn.*_?', name=relu, config='tiny.yaml',
                          *(['--set', f'train.seed={seed}'])) and self.read('c.safetensors') for seed in (0, 0, 1)]
        self.assertEqual(out[0], out[1])
        self.assertNotEqual(out[0], out[2])
        self.train('tiny.yaml', '--finetune', 'c.safetensors', out='run')
        # the drawn vectors are those that the same seed gives a new run
        self.bring('--allow-missing', '*_?', name=relu, config='tiny.yaml')
        self.train('tiny.yaml', out='new', set=['train.epochs=1', 'train.max_steps=1', 'optim.lr=0', 'schedule.min_lr=0',
                                                 'optim.weight_decay=0'])
        new, brought = (Safetensors(self.path(n)) for n in ('new/checkpoints/step-00000001.safetensors', 'c.safetensors'))
        for name in ('block_v', 'cross_v', 'angle_a', 'angle_c'):
            self.assertEqual(new.data['blocks.0.attn.' + name], brought.data['blocks.0.attn.' + name])

    def test_without_the_data(self):
        self.put()
        os.rename(self.path('images'), self.path('moved'))
        self.bring(code=1)
        os.rename(self.path('moved'), self.path('images'))
        checkpoint = summary(self.train('timm.yaml', out='run').out)['checkpoint']
        os.rename(self.path('images'), self.path('moved'))
        result = self.bring(name=checkpoint)
        self.assertIn(f'class names, mean and deviation are those of {checkpoint}', result.err)
        self.assertIn(' of 6)', self.run_program('eval', 'c.safetensors', '--data', 'moved').out)

    def test_hostile_files(self):
        good = {'w': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}
        cases = {
            'zip': (b'PK\3\4' + bytes(30), 'zip archive'), 'pickle': (b'\x80\x04\x95\x1f' + bytes(30), 'pickle'),
            'empty': (b'', 'the file is empty'), 'tar': (bytes([1, 2, 3]) + bytes(254) + b'ustar' + bytes(300), 'tar archive'),
            'length': (struct.pack('<Q', 1 << 40) + b'{}', 'claims a header of 1099511627776 bytes'),
            'overlap': (pack({'v': good['w'], 'w': {**good['w'], 'data_offsets': [4, 12]}}, 12), 'overlap'),
            'hole': (pack({'w': {**good['w'], 'data_offsets': [4, 12]}}, 12), 'belong to no tensor'),
            'end': (pack({'w': {**good['w'], 'data_offsets': [0, 800]}}, 8), 'ends at byte 800'),
            'shape': (pack({'w': {**good['w'], 'shape': [3]}}, 8), 'need 12 bytes'),
            'huge': (pack({'w': {**good['w'], 'shape': [1 << 40, 1 << 40]}}, 8), 'more elements than can be counted'),
            'twice': (pack(None, 8, b'{"w":{"dtype":"F32"},"w":{"dtype":"F32"}}'), 'stands twice'),
        }
        for name, (content, word) in cases.items():
            with self.subTest(name):
                self.write('bad.safetensors', content)
                for words in (['import', 'bad.safetensors', 'timm.yaml'], ['diff', 'bad.safetensors', 'bad.safetensors'],
                              ['eval', 'bad.safetensors'], ['train', 'timm.yaml', '--finetune', 'bad.safetensors']):
                    self.refused(*words, words=[word])


def pack(header, data_bytes, text=None):
    text = text or json.dumps(header).encode()
    return struct.pack('<Q', len(text)) + text + bytes(data_bytes)


class Finetune(Weights):
    SET = ['train.epochs=3', 'optim.ema=0.9']

    def test_goes_on_and_resumes_exactly(self):
        source = summary(self.train('tiny.yaml', out='source', set=['train.seed=7']).out)['checkpoint']
        whole = summary(self.train('tiny.yaml', '--finetune', source, out='whole', set=self.SET).out)
        record = json.loads(self.read('whole', 'finetune.json'))
        self.assertEqual(record['checkpoint'], os.path.realpath(self.path(source)))
        self.assertEqual((record['weights'], record['weight_hash']),
                         ('raw', Safetensors(self.path(source)).metadata['weight_hash']))
        # stopped in between
        self.train('tiny.yaml', '--finetune', source, out='parts', set=[*self.SET, 'train.max_steps=5'])
        parts = summary(self.train('tiny.yaml', '--resume', out='parts', set=self.SET).out)
        self.assertEqual((parts['weights'], self.read('parts', 'log.jsonl')), (whole['weights'], self.read('whole', 'log.jsonl')))
        # stopped before its first checkpoint: the weights are taken again, from the same file alone
        self.strip('parts')
        again = self.train('tiny.yaml', '--resume', out='parts', set=self.SET)
        self.assertIn('the run starts over', again.err)
        self.assertEqual(summary(again.out)['weights'], whole['weights'])
        self.assertEqual(self.read('parts', 'log.jsonl'), self.read('whole', 'log.jsonl'))
        self.strip('parts')
        other = summary(self.train('tiny.yaml', out='other', set=['train.seed=8']).out)['checkpoint']
        os.replace(self.path(other), self.path(source))
        self.refused('train', 'tiny.yaml', '--resume', '--out', 'parts', *sum((['--set', s] for s in self.SET), []),
                     words=['it is another file now'])
        # another start of the folder leaves no record of this one
        fresh = summary(self.train('tiny.yaml', out='fresh', set=self.SET).out)
        self.assertFalse(os.path.exists(self.path('fresh', 'finetune.json')))
        self.assertNotEqual(fresh['weights'], whole['weights'])

    def strip(self, run):
        """What a kill before the first checkpoint leaves."""
        for name in os.listdir(self.path(run, 'checkpoints')):
            os.remove(self.path(run, 'checkpoints', name))
        for name in ('log.jsonl', 'timing.jsonl'):
            open(self.path(run, name), 'w').close()

    def test_average_or_raw(self):
        source = summary(self.train('tiny.yaml', out='source', set=['optim.ema=0.9']).out)['checkpoint']
        file = support.read_checkpoint(self.path(source))
        still = ['train.max_steps=1', 'optim.lr=0', 'optim.weight_decay=0', 'schedule.min_lr=0']
        for choice, prefix in (('auto', 'ema.'), ('average', 'ema.'), ('raw', '')):
            run = 'run-' + choice
            self.train('tiny.yaml', '--finetune', source, '--weights', choice, out=run, set=still)
            start = support.read_checkpoint(self.path(run, 'checkpoints', 'step-00000001.safetensors'))
            for name in start.data:
                if not name.startswith('optim.'):
                    self.assertEqual(start.data[name], file.data[prefix + name])
            self.assertEqual(json.loads(self.read(run, 'finetune.json'))['weights'], 'average' if prefix else 'raw')
        self.refused('train', 'tiny.yaml', '--finetune', 'run-raw/checkpoints/step-00000001.safetensors', '--weights',
                     'average', words=['holds no weight average'])

    def test_options(self):
        self.refused('train', 'tiny.yaml', '--finetune', 'x', '--resume', words=['--finetune starts a run'])
        self.refused('train', 'tiny.yaml', '--weights', 'raw', words=['--weights is for --finetune'])
        self.refused('train', 'tiny.yaml', '--finetune', 'none.safetensors', words=['none.safetensors'], code=1)


class Diff(Weights):
    def diff(self, *arguments, code):
        return self.run_program('diff', *arguments, code=code).out

    def test_configs(self):
        self.write('other.yaml', 'base: tiny.yaml\noptim: {lr: 5e-3}\nmodel: {attention: {kind: relu}}\n')
        out = self.diff('tiny.yaml', 'other.yaml', code=1)
        self.assertIn('config: model.attention.kind: mirror | relu\n', out)
        self.assertIn('config: optim.lr: 0.002 | 0.005\n', out)
        self.assertIn('different: 2 of ', out)
        self.assertEqual(self.diff('tiny.yaml', 'tiny.yaml', code=0).split(':')[0], 'equal')

    def test_checkpoints(self):
        last = summary(self.train('tiny.yaml', out='run').out)['checkpoint']
        first = 'run/checkpoints/step-00000004.safetensors'
        self.assertEqual(self.diff(last, last, code=0).split(':')[0], 'equal')
        self.assertEqual(self.diff('tiny.yaml', last, code=0).split(':')[0], 'equal')
        self.export(last, 'w.safetensors')
        self.assertIn('(weights alone)', self.diff(last, 'w.safetensors', code=0))
        self.run_program('import', 'w.safetensors', 'tiny.yaml', '-o', 'i.safetensors')
        self.diff('w.safetensors', 'i.safetensors', code=0)
        found = json.loads(self.diff(first, last, '--json', code=1))
        self.assertEqual((found['equal'], found['weights_alone']), (False, False))
        a, b = Safetensors(self.path(first)), Safetensors(self.path(last))
        self.assertEqual(found['compared_tensors'], len(a.data))
        self.assertEqual([k['key'] for k in found['keys']], ['counters'])
        for tensor in found['tensors']:
            x, y = a.floats(tensor['name']), b.floats(tensor['name'])
            gaps = [abs(p - q) for p, q in zip(x, y)]
            norm = (sum(g * g for g in gaps) / sum(p * p for p in x)) ** 0.5 if any(x) else None
            self.assertAlmostEqual(tensor['max_abs'], max(gaps), delta=1e-8 + 1e-6 * max(gaps))
            self.assertAlmostEqual(tensor['mean_abs'], sum(gaps) / len(gaps), delta=1e-8)
            if norm is not None:
                self.assertAlmostEqual(tensor['relative_norm'] / norm, 1, delta=1e-5)
            self.assertEqual(tensor['differing'], sum(p != q for p, q in zip(x, y)))
        weights = json.loads(self.diff(first, last, '--weights', 'raw', '--json', code=1))
        self.assertEqual(weights['compared_tensors'], len([n for n in a.data if not n.startswith('optim.')]))
        self.export(last, 'h.safetensors', '--dtype', 'bf16', '--fuse')
        out = self.diff('w.safetensors', 'h.safetensors', code=1)
        self.assertIn('tensor: blocks.0.attn.block_v: only in A: F32 (2, 1, 2, 8)\n', out)
        self.assertIn('tensor: head.bias: F32 (10) | BF16 (10)\n', out)
        self.assertIn('config: model.attention.mirror.reflections: 2 | 0\n', out)

    def test_other_files_and_errors(self):
        nan = struct.pack('<2f', 1, float('nan'))
        write_safetensors(self.path('a.safetensors'), {'w': ('F32', (2,), nan), 'i': ('I32', (1,), bytes(4))})
        write_safetensors(self.path('b.safetensors'), {'w': ('F32', (1, 2), nan), 'i': ('I32', (1,), b'\1' + bytes(3))})
        self.assertIn('equal', self.diff('a.safetensors', 'a.safetensors', code=0))
        out = self.diff('a.safetensors', 'b.safetensors', code=1)
        self.assertIn('tensor: w: F32 (2) | F32 (1, 2)\n', out)
        self.assertIn('tensor: i: 1 of 4 bytes differ\n', out)
        for words, word in ((['a.safetensors', 'tiny.yaml'], 'nothing in common'), (['a.safetensors'], 'expected A and B'),
                            (['none.yaml', 'tiny.yaml'], 'none.yaml'), (['none.safetensors', 'a.safetensors'], 'none'),
                            (['a.safetensors', 'a.safetensors', '--weights', 'x'], '--weights')):
            self.refused('diff', *words, words=[word])


if __name__ == '__main__':
    support.main()
