"""What training writes for people besides its log: measurements of the attention layers, and TensorBoard's event files."""
import glob
import math
import os
import struct

import support
from support import PYRAMID, TINY, read_lines

NUMBERS = ['energy_q', 'energy_k', 'entropy', 'rank', 'rank_kv', 'angle', 'angle_spread', 'moved_block', 'moved_cross', 'moved_twin', 'moved_fold']
MOVED = NUMBERS[7:]
PARAMETERS = ('patch_embed.', 'pos_embed', 'blocks.', 'norm.', 'fc_norm.', 'head.')


class Diagnostics(support.Case):
    def setUp(self):
        super().setUp()
        self.write('tiny.yaml', TINY)
        self.write('pyramid.yaml', PYRAMID)

    def layers(self, run):
        return [line for line in self.log(run) if line['event'] == 'layers']

    def test_lines(self):
        self.train('pyramid.yaml', out='run', set=['diagnostics.images=3'])
        log = self.log('run')
        ends = [i for i, line in enumerate(log) if line['event'] == 'epoch']
        self.assertEqual(len(ends), 2)
        for i in ends:
            line = log[i + 1]
            self.assertEqual((line['event'], line['step'], line['epoch'], line['images']), ('layers', log[i]['step'], log[i]['epoch'], 3))
            self.assertEqual([(layer['kind'], layer['tokens'], layer['heads']) for layer in line['layers']],
                             [('mirror', 16, 1), ('mirror', 4, 2)])
            for layer in line['layers']:
                self.assertEqual(list(layer)[3:], NUMBERS)
                for number in ('energy_q', 'energy_k', 'entropy', 'moved_block', 'moved_cross'):
                    self.assertTrue(0 < layer[number] < 1, (number, layer))
                self.assertTrue(1 <= layer['rank'] <= layer['tokens'] and 1 <= layer['rank_kv'] <= 8, layer)
                self.assertTrue(0 < layer['angle'] <= math.pi / 2 and layer['angle_spread'] > 0, layer)
        timing = read_lines(self.path('run', 'timing.jsonl'))
        self.assertTrue(all(line['diagnostics_seconds'] > 0 for line in timing))

    def test_kinds_have_what_they_have(self):
        for kind, absent in (('softmax', NUMBERS[:2] + NUMBERS[4:]), ('relu', NUMBERS[5:]), ('elu1', NUMBERS[5:])):
            self.train('tiny.yaml', out=kind, set=[f'model.attention.kind={kind}', 'train.epochs=1'])
            layer = self.layers(kind)[0]['layers'][0]
            self.assertEqual([number for number in NUMBERS if layer[number] is None], absent)
        parts = ['variance_angle=false', 'cross_head=0']
        self.train('tiny.yaml', out='block', set=[f'model.attention.mirror.{part}' for part in parts] + ['train.epochs=1'])
        layer = self.layers('block')[0]['layers'][0]
        self.assertEqual([number for number in NUMBERS if layer[number] is None], ['angle', 'angle_spread', *MOVED[1:]])

        options = ['feature=twin', 'fold=2', 'reflections=0', 'variance_angle=false', 'cross_head=0']
        self.train('tiny.yaml', out='twin', set=[f'model.attention.mirror.{option}' for option in options])
        first, last = (line['layers'][0] for line in self.layers('twin'))
        self.assertEqual([number for number in NUMBERS if last[number] is None], ['angle', 'angle_spread', 'moved_block', 'moved_cross'])
        for number in ('moved_twin', 'moved_fold'):
            self.assertTrue(0 < first[number] < last[number] < .5, (number, first, last))

    def test_angles_that_are_known(self):
        """Without a share of the variance the angles are T tanh(c): in every image the same, whatever the planes."""
        reach = 1.2
        for planes in ('pairs', 'learned'):
            self.write('known.yaml', 'base: tiny.yaml\nmodel: {attention: {mirror: {angle_planes: %s, angle_max: %g}}}\n' % (planes, reach))
            self.train('known.yaml', out=planes, set=['train.epochs=1'])
            weights = support.Safetensors(self.path(planes, 'checkpoints', 'best.safetensors'))
            tensors = {name: ('F32', weights.shape[name], data) for name, data in weights.data.items() if name.startswith(PARAMETERS)}
            size = weights.shape['blocks.0.attn.angle_c'][0]
            angles = [-1.1 + 2.2 * (i + .5) / size for i in range(size)]
            for name, values in (('angle_a', [0] * size), ('angle_c', [math.atanh(t / reach) for t in angles])):
                tensors[f'blocks.0.attn.{name}'] = ('F32', [size], struct.pack(f'<{size}f', *values))
            support.write_safetensors(self.path('known.safetensors'), tensors)
            self.run_program('import', 'known.safetensors', 'known.yaml', '-o', f'{planes}.safetensors')
            still = ['optim.lr=0', 'schedule.min_lr=0', 'train.max_steps=4']
            self.train('known.yaml', '--finetune', f'{planes}.safetensors', out=f'{planes}-known', set=still)
            layer = self.layers(f'{planes}-known')[0]['layers'][0]
            self.assertAlmostEqual(layer['angle'], sum(map(abs, angles)) / size, delta=1e-4)
            self.assertLess(layer['angle_spread'], 1e-4)

    def test_nothing_moves_without_a_rate(self):
        still = ['optim.lr=0', 'schedule.min_lr=0']
        self.train('tiny.yaml', out='start', set=['train.epochs=1'])
        self.train('tiny.yaml', '--finetune', 'start/checkpoints/best.safetensors', out='run', set=[*still, 'train.max_steps=4', 'train.seed=7'])
        self.train('tiny.yaml', '--resume', out='run', set=[*still, 'train.max_steps=0', 'train.seed=7'])
        for line in self.layers('run'):
            self.assertLess(max(layer[n] for layer in line['layers'] for n in MOVED[:2]), 1e-6, line)
        first, second = self.layers('run')
        self.assertEqual(first['layers'], second['layers'])
        # Where the start is gone, what is compared with it is not known; the rest goes on.
        self.train('tiny.yaml', '--finetune', 'start/checkpoints/best.safetensors', out='gone', set=['train.max_steps=4'])
        os.rename(self.path('start'), self.path('moved'))
        result = self.train('tiny.yaml', '--resume', out='gone', set=['train.max_steps=0'])
        self.assertIn('how far reflections moved is not known', result.err)
        self.assertEqual([self.layers('gone')[1]['layers'][0][n] for n in MOVED], 4 * [None])

    def test_how_often(self):
        for every, epochs in ((2, [3, 5, 7]), (3, [4, 7]), (7, [7]), (8, [])):
            self.train('tiny.yaml', out=f'run-{every}', set=['train.epochs=7', f'diagnostics.every_epochs={every}'])
            self.assertEqual([line['epoch'] for line in self.layers(f'run-{every}')], epochs)
        self.train('tiny.yaml', out='off', set=['diagnostics.images=0'])
        self.assertEqual(self.layers('off'), [])
        result = self.train('tiny.yaml', out='auto', set=['diagnostics.every_epochs=auto'])
        self.assertIn('the run is too short', result.err)
        self.assertEqual(self.layers('auto'), [])
        # The log is that of the other runs but for these lines.
        rest = [line for line in self.log('run-2') if line['event'] != 'layers']
        self.assertEqual(rest, [line for line in self.log('run-3') if line['event'] != 'layers'])


# ---- event files, read as their format is described

def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(field, value) of a protobuf message: whole numbers, doubles, floats, bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, = struct.unpack({1: '<d', 5: '<f'}[kind], data[at:at + size])
            at += size
        yield key >> 3, value


def records(content):
    at = 0
    while at < len(content):
        size, check = struct.unpack_from('<QI', content, at)
        data = content[at + 12:at + 12 + size]
        end, = struct.unpack_from('<I', content, at + 12 + size)
        if check != masked(content[at:at + 8]) or end != masked(data):
            raise ValueError(f'a checksum is wrong at byte {at}')
        at += 16 + size
        yield dict(fields(data))


def curves(folder):
    """{tag: {step: value}} of all event files, as a reader sees them that forgets what a later session starts at."""
    found = {}
    for name in sorted(glob.glob(os.path.join(folder, 'events.out.tfevents.*'))):
        with open(name, 'rb') as file:
            events = list(records(file.read()))
        if events[0][3] != b'brain.Event:2' or dict(fields(events[1][7])) != {1: 1}:
            raise ValueError(f'{name}: does not begin with its version and a session')
        for values in found.values():
            for step in [step for step in values if step >= events[1][2]]:
                del values[step]
        for event in events[2:]:
            summary = dict(fields(dict(fields(event[5]))[1]))
            found.setdefault(summary[1].decode(), {})[event[2]] = summary[2]
    return found


class TensorBoard(support.Case):
    def check(self, run):
        """Every number of the logs, once, at its step."""
        found, log = curves(self.path(run)), self.log(run)
        expected = {}

        def put(tag, line, value):
            if value is not None:
                expected.setdefault(tag, {})[line['step']] = struct.unpack('<f', struct.pack('<f', value))[0]
        for line in log + read_lines(self.path(run, 'timing.jsonl')):
            if line['event'] == 'step':
                for tag, key in (('loss/train', 'loss'), ('lr', 'lr'), ('grad_norm', 'grad_norm')):
                    put(tag, line, line[key])
            elif line['event'] == 'epoch':
                put('loss/train_epoch', line, line['train_loss'])
                put('accuracy/train', line, line['train_correct'] / line['train_images'])
                put('loss/test', line, line['test_loss'])
                put('accuracy/test', line, line['test_correct'] / line['test_images'])
                put('loss/test_average', line, line['ema_test_loss'])
                put('accuracy/test_average', line, line['ema_test_correct'] / line['test_images'])
            elif line['event'] == 'layers':
                for i, layer in enumerate(line['layers']):
                    for number in NUMBERS:
                        put(f'layers/{i:02d}/{number}', line, layer[number])
            else:
                put('images_per_second', line, line['images_per_second'])
                put('peak_memory_mib', line, line['peak_memory_bytes'] / 1048576)
        self.assertEqual(found, expected)

    def test_one_curve(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=['optim.ema=0.9'])
        self.assertEqual(len(glob.glob(self.path('run', 'events.out.tfevents.*'))), 1)
        self.check('run')

    def test_resumed_twice_and_set_back(self):
        self.write('tiny.yaml', TINY)
        settings = ['optim.ema=0.9', 'train.epochs=4', 'checkpoint.keep=9']
        self.train('tiny.yaml', out='run', set=[*settings, 'train.max_steps=6'])
        self.train('tiny.yaml', '--resume', out='run', set=[*settings, 'train.max_steps=11'])
        self.train('tiny.yaml', '--resume=run/checkpoints/step-00000004.safetensors', out='run', set=[*settings, 'train.max_steps=0'])
        self.assertEqual(len(glob.glob(self.path('run', 'events.out.tfevents.*'))), 3)
        self.check('run')


if __name__ == '__main__':
    support.main()
