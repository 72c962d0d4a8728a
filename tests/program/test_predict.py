"""predict: image files to classes, as text, JSON and CSV, and pictures of the attention."""
import csv
import io
import json
import math
import os
import random
import struct
import zlib

import support
from support import COLOURS, GIF, Safetensors, cifar_records, jpeg, make_cifar, make_folder, png, summary

CIFAR = """\
model: {family: pvt, patch: 4, dims: [8, 16], depths: [1, 1], heads: [1, 2], mlp_ratio: 2,
        attention: {kind: KIND, dwconv: 3}}
data: {set: cifar10, path: cifar}
optim: {lr: 5e-3, ema: 0.9}
train: {epochs: 1, batch: 32, lanes: 4, shard: 4}
"""


def rgb_png(pixels, side):
    """A PNG of planar pixels, as CIFAR stores them."""
    plane = side * side
    rows = b''.join(b'\0' + bytes(pixels[c * plane + y * side + x] for x in range(side) for c in range(3))
                    for y in range(side))

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def read_png(data):
    """Width, height and the decompressed rows of an RGB PNG; every chunk's CRC is compared."""
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    at, image, size = 8, b'', None
    while at < len(data):
        length, kind = struct.unpack('>I4s', data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert struct.unpack('>I', data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
        if kind == b'IHDR':
            size = struct.unpack('>II', body[:8])
        if kind == b'IDAT':
            image += body
        at += 12 + length
    return size[0], size[1], zlib.decompress(image)


def unfilter(width, height, data):
    """The rows as they were before the encoder's prediction (PNG specification, section 9)."""
    rows, before, length = [], bytearray(3 * width), 1 + 3 * width
    for y in range(height):
        kind, row = data[y * length], bytearray(data[y * length + 1:(y + 1) * length])
        for i in range(len(row)):
            left, up, corner = (row[i - 3] if i > 2 else 0), before[i], (before[i - 3] if i > 2 else 0)
            near = min((abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner))[2]
            row[i] = (row[i] + (0, left, up, (left + up) // 2, near)[kind]) % 256
        rows.append(bytes(row))
        before = row
    return rows


def below_the_maps(picture):
    """What stands below the layers' maps of the first block: scales and histograms, where no image shows through."""
    return [row[3 * 284:] for row in unfilter(*picture)[70 + 120 + 2:70 + 120 + 80]]


class Predict(support.Case):
    def setUp(self):
        super().setUp()
        make_cifar(self.path('cifar'), train=60, test=13)

    def model(self, kind='mirror'):
        self.write('cifar.yaml', CIFAR.replace('KIND', kind))
        return summary(self.train('cifar.yaml', out='run-' + kind).out)['checkpoint']

    def write_images(self, count=13):
        """The test set as files, in its order."""
        records = self.read('cifar', 'test_batch.bin')
        return [self.write(f'images/{i:03}.png', rgb_png(records[3073 * i + 1:3073 * (i + 1)], 32)) for i in range(count)]

    def predict(self, *arguments, code=0, err='', **options):
        result = self.run_program('predict', *arguments, '--json', code=code, **options)
        if err is not None:
            self.assertEqual(result.err, err)
        return [json.loads(line) for line in result.out.splitlines()]

    def logits(self, found, classes=10):
        rows = []
        for line in found:
            row = [None] * classes
            for entry in line['top']:
                row[entry['index']] = entry['logit']
            rows.append(row)
        return rows

    def evaluate(self, checkpoint, *arguments):
        self.run_program('eval', checkpoint, '--logits', 'logits.safetensors', *arguments)
        rows = Safetensors(self.path('logits.safetensors')).floats('logits')
        return [list(rows[i:i + 10]) for i in range(0, len(rows), 10)]

    def test_the_logits_are_those_of_eval(self):
        """The same images in the same order: the same bits, for checkpoints and exports, for any number of threads."""
        checkpoint, images = self.model(), self.write_images()
        self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'weights.safetensors')
        want = self.evaluate(checkpoint)
        for source in (checkpoint, 'weights.safetensors'):
            for threads in ('1', '2'):
                found = self.predict(source, *images, '--top', '10', '--threads', threads)
                self.assertEqual([line['image'] for line in found], images)
                self.assertEqual(self.logits(found), want)
        self.assertEqual(self.logits(self.predict(checkpoint, images[0], '--top', '10')), self.evaluate(checkpoint, '--limit', '1'))
        self.assertEqual(self.logits(self.predict(checkpoint, *images, '--top', '10', '--weights', 'raw')),
                         self.evaluate(checkpoint, '--weights', 'raw'))
        # another order is another company: the same up to rounding, and the same answers
        turned = self.logits(self.predict(checkpoint, *reversed(images), '--top', '10'))
        for a, b in zip(turned[::-1], want):
            self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-4)
            self.assertEqual(a.index(max(a)), b.index(max(b)))

    def test_probabilities(self):
        checkpoint, images = self.model(), self.write_images(3)
        for line in self.predict(checkpoint, *images, '--top', '99'):
            top = line['top']
            self.assertEqual(sorted(entry['index'] for entry in top), list(range(10)))
            self.assertEqual(top, sorted(top, key=lambda e: (-e['probability'], e['index'])))
            total = sum(math.exp(entry['logit']) for entry in top)
            for entry in top:
                self.assertAlmostEqual(entry['probability'], math.exp(entry['logit']) / total, places=12)
        self.assertEqual(len(self.predict(checkpoint, images[0])[0]['top']), 5)
        one = self.predict(checkpoint, images[0], '--top', '1')[0]['top'][0]
        text = self.run_program('predict', checkpoint, images[0], '--top', '1').out
        self.assertEqual(text, f'{images[0]}\n  {100 * one["probability"]:6.2f} %  {one["class"]}\n')

    def test_other_sizes_are_resized_as_in_a_folder(self):
        self.write('folder.yaml', support.FOLDER)
        make_folder(self.path('images'), val=5)
        checkpoint = summary(self.train('folder.yaml', out='run').out)['checkpoint']
        self.run_program('eval', checkpoint, '--logits', 'logits.safetensors')
        rows = Safetensors(self.path('logits.safetensors')).floats('logits')
        found = self.predict(checkpoint, 'images/val')
        self.assertEqual([line['image'] for line in found],
                         [f'images/val/{name}/{i}.png' for name in ('cat', 'dog') for i in range(5)])
        self.assertEqual(self.logits(found, 2), [list(rows[i:i + 2]) for i in range(0, len(rows), 2)])
        self.write('photo.jpg', jpeg())
        self.assertEqual({entry['class'] for entry in self.predict(checkpoint, 'photo.jpg')[0]['top']}, {'cat', 'dog'})

    def test_folders(self):
        checkpoint, rng = self.model(), random.Random(3)
        for name in ('b/2.png', 'b/1.PNG', 'a.png', 'b/c/0.png', '.hidden.png', 'note.txt'):
            self.write('tree/' + name, png(rng, COLOURS[0]))
        order = ['tree/a.png', 'tree/b/1.PNG', 'tree/b/2.png', 'tree/b/c/0.png']
        for name in ('tree', 'tree/', 'tree//'):
            self.assertEqual([line['image'] for line in self.predict(checkpoint, name)], order)
        found = self.predict(checkpoint, 'tree/b', 'tree/a.png', 'tree/b/2.png')
        self.assertEqual([line['image'] for line in found], order[1:] + [order[0], order[2]])
        os.mkdir(self.path('empty'))
        result = self.run_program('predict', checkpoint, 'empty', 'tree/a.png', 'missing.png', '--json', code=1)
        self.assertEqual([json.loads(line)['image'] for line in result.out.splitlines()], order[:1])
        self.assertTrue(result.err.endswith('mirrorla: no result for 2 of 3 images and folders\n'), str(result))
        result = self.run_program('predict', checkpoint, 'empty', code=1)
        self.assertEqual((result.out, result.err), ('', 'mirrorla: empty: no JPEG or PNG file in this folder (nor below)\n'))

    def test_bad_files_are_told_and_the_others_done(self):
        checkpoint, images = self.model(), self.write_images(9)
        self.write('images/001.png', GIF)
        self.write('images/004.png', b'')
        self.write('images/006.png', self.read('images', '006.png')[:200])
        good = [name for i, name in enumerate(images) if i not in (1, 4, 6)]
        for arguments in (['images'], images):
            result = self.run_program('predict', checkpoint, *arguments, '--json', code=1)
            self.assertEqual([json.loads(line)['image'] for line in result.out.splitlines()], good)
            lines = result.err.splitlines()
            for line, name, words in zip(lines, ('001', '004', '006'), ('GIF', 'empty', 'truncated')):
                self.assertTrue(line.startswith(f'mirrorla: images/{name}.png: '), str(result))
                self.assertIn(words, line)
            self.assertEqual(lines[3:], ['mirrorla: no result for 3 of 9 images and folders'])
        result = self.run_program('predict', checkpoint, 'images/001.png', 'none.png', code=1)
        self.assertEqual(result.out, '')
        self.assertIn('none.png: could not be opened', result.err)

    def test_more_images_than_a_round(self):
        checkpoint, images = self.model(), self.write_images()
        many = [images[i % 13] for i in range(300)]
        found = self.predict(checkpoint, *many, '--top', '1')
        self.assertEqual([line['image'] for line in found], many)
        want = {images[i]: row.index(max(row)) for i, row in enumerate(self.evaluate(checkpoint))}
        self.assertEqual([line['top'][0]['index'] for line in found], [want[name] for name in many])

    def test_names(self):
        checkpoint = self.model()
        picture = rgb_png(cifar_records(random.Random(1), 1)[1:], 32)
        names = ['plain.png', 'with space.png', 'comma,"quote".png', 'line\nbreak.png', 'gr\u00fc\u00dfe \u732b.png']
        for name in names:
            self.write('n/' + name, picture)
        with open(os.fsencode(self.path('n')) + b'/bad\xff\x01.png', 'wb') as file:
            file.write(picture)
        want = {'n/' + name for name in names} | {'n/bad\\xff\\x01.png'}
        self.assertEqual({line['image'] for line in self.predict(checkpoint, 'n')}, want)
        process = self.start('predict', checkpoint, 'n', '--csv', '--top', '2')
        out, err = process.communicate(timeout=support.TIMEOUT_S)
        self.assertEqual((process.returncode, err), (0, b''))
        text = out.decode('utf-8')
        rows = list(csv.reader(io.StringIO(text, newline=''), strict=True))
        self.assertEqual(rows[0], ['image', 'rank', 'class', 'index', 'probability', 'logit'])
        self.assertEqual({row[0] for row in rows[1:]}, want)
        self.assertEqual([row[1] for row in rows[1:]], ['1', '2'] * 6)
        self.assertTrue(text.endswith('\r\n'))
        first = self.predict(checkpoint, 'n')[0]
        self.assertEqual(rows[1][2:], [first['top'][0]['class'], str(first['top'][0]['index'])] + rows[1][4:])
        self.assertEqual([float(v) for v in rows[1][4:]], [first['top'][0]['probability'], first['top'][0]['logit']])

    def test_weights(self):
        checkpoint, images = self.model(), self.write_images(2)
        auto, raw, average = (self.predict(checkpoint, *images, '--weights', w) for w in ('auto', 'raw', 'average'))
        self.assertEqual(auto, average)
        self.assertNotEqual(auto, raw)

    def damaged(self, checkpoint, prefix):
        """A copy of the checkpoint with one bit of the first tensor of that name turned."""
        content = bytearray(self.read(checkpoint))
        size, = struct.unpack_from('<Q', content)
        header = json.loads(content[8:8 + size])
        name = next(n for n in header if n.startswith(prefix))
        content[8 + size + header[name]['data_offsets'][0]] ^= 1
        return self.write('damaged.safetensors', bytes(content)), name

    def test_what_is_used_is_verified(self):
        checkpoint, images = self.model(), self.write_images(2)
        want = self.predict(checkpoint, *images)
        for prefix in ('ema.', 'head'):
            damaged, name = self.damaged(checkpoint, prefix)
            self.refused('predict', damaged, images[0], words=[name, 'CRC-32', 'damaged'])
        damaged, _ = self.damaged(checkpoint, 'optim.')  # which a prediction never reads
        self.assertEqual(self.predict(damaged, *images), want)
        self.refused('eval', damaged, words=['CRC-32', 'damaged'])
        self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'weights.safetensors')
        damaged, _ = self.damaged('weights.safetensors', 'head')
        self.refused('predict', damaged, images[0], words=['hash', 'damaged'])

    def test_diverged_weights(self):
        checkpoint, images = self.model(), self.write_images(1)
        self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'weights.safetensors')
        file = Safetensors(self.path('weights.safetensors'))
        # finite weights, or they would not be loaded; what they give overflows
        file.data['head.weight'] = struct.pack('<f', 3e38) * (len(file.data['head.weight']) // 4)
        file.metadata['weight_hash'] = 'none'
        support.write_safetensors(self.path('large.safetensors'),
                                  {n: ('F32', file.shape[n], file.data[n]) for n in file.data}, file.metadata)
        result = self.run_program('predict', 'large.safetensors', images[0], code=1)
        self.assertEqual((result.out, result.err), ('', f'mirrorla: {images[0]}: the model gives numbers that are not finite\n'))

    # ---- pictures

    def test_one_picture_of_all(self):
        images = self.write_images(3)
        sizes = {}
        for kind in ('mirror', 'softmax', 'relu', 'agent', 'pola', 'elu1'):
            checkpoint = self.model(kind)
            want = self.predict(checkpoint, *images)
            self.assertEqual(self.predict(checkpoint, *images, '--attention', 'all.png'), want)
            width, height, rows = sizes[kind] = read_png(self.read('all.png'))
            self.assertEqual(len(rows), height * (1 + 3 * width))
            self.assertGreater(len(set(rows)), 200)
            self.predict(checkpoint, *images, '--attention', 'again.png')
            self.assertEqual(self.read('all.png'), self.read('again.png'))
        # kinds with ReLU have histograms below their maps
        self.assertGreater(sizes['mirror'][1], sizes['softmax'][1])
        self.predict(checkpoint, images[0], '--attention', 'one.png')
        self.predict(checkpoint, images[1], '--attention', 'other.png')
        self.assertLess(read_png(self.read('one.png'))[1], sizes['elu1'][1])
        self.assertNotEqual(below_the_maps(read_png(self.read('one.png'))), below_the_maps(read_png(self.read('other.png'))))

    def test_layers_and_heads(self):
        checkpoint, images = self.model(), self.write_images(1)
        pictures = {}
        for name, words in (('all', []), ('last', ['--layers', 'last']), ('list', ['--layers', '2']),
                            ('many', ['--layers', '1,2,1,2,1,2']), ('heads', ['--heads', 'all'])):
            self.predict(checkpoint, *images, '--attention', name + '.png', *words)
            pictures[name] = read_png(self.read(name + '.png'))
        self.predict(checkpoint, *images, '--attention', 'first.png', '--layers', '1')
        self.assertNotEqual(self.read('first.png'), self.read('last.png'))
        self.assertEqual(pictures['last'], pictures['list'])
        self.assertNotEqual(pictures['last'], pictures['all'])
        self.assertGreater(pictures['many'][0], pictures['all'][0])
        self.assertGreater(pictures['heads'][1], pictures['all'][1])

    def test_a_picture_each(self):
        checkpoint, images = self.model(), self.write_images(3)
        self.write('images/001.png', GIF)
        name = self.write('strange/001.2.png', self.read('images', '002.png'))
        os.mkdir(self.path('out'))
        for out in ('out', 'new/'):
            self.predict(checkpoint, *images, name, '--attention', out, code=1, err=None)
            self.assertEqual(sorted(os.listdir(self.path(out))), ['000001-000.png', '000003-002.png', '000004-001.2.png'])
        pictures = [self.read('out', n) for n in sorted(os.listdir(self.path('out')))]
        self.assertEqual(len(set(pictures)), 3)
        # what the one picture leaves out is what could not be read
        self.predict(checkpoint, *images, '--attention', 'all.png', code=1, err=None)
        self.predict(checkpoint, images[0], images[2], '--attention', 'two.png')
        self.assertEqual(read_png(self.read('all.png')), read_png(self.read('two.png')))
        self.predict(checkpoint, images[1], '--attention', 'none.png', code=1, err=None)
        self.assertFalse(os.path.exists(self.path('none.png')))

    def test_refusals(self):
        checkpoint, images = self.model(), self.write_images(1)
        for words, message in (
                ([], ['at least one IMAGE', 'found 0']),
                ([checkpoint], ['at least one IMAGE', 'found 1']),
                ([checkpoint, images[0], '--json', '--csv'], ['--json and --csv']),
                ([checkpoint, images[0], '--top', '0'], ['--top', "'0'"]),
                ([checkpoint, images[0], '--weights', 'x'], ['auto, raw or average', "'x'"]),
                ([checkpoint, images[0], '--layers', 'last'], ['--attention']),
                ([checkpoint, images[0], '--attention', 'a.png', '--layers', '0'], ['numbers from 1', "'0'"]),
                ([checkpoint, images[0], '--attention', 'a.png', '--layers', '1,'], ['numbers from 1', "'1,'"]),
                ([checkpoint, images[0], '--attention', 'a.png', '--layers', '1,3'], ['2 attention layers', 'found 3']),
                ([checkpoint, images[0], '--attention', 'a.png', '--heads', '1'], ['mean or all', "'1'"]),
                ([checkpoint, images[0], '--attention', 'a.jpg'], ['.png', "'a.jpg'"]),
                ([checkpoint, images[0], '--attention', images[0]], [images[0] + ' is one of the images']),
                ([checkpoint] + [images[0]] * 1000 + ['--attention', 'a.png'], ['one picture holds', 'found 1000']),
                (['cifar.yaml', images[0]], ['cifar.yaml'])):
            with self.subTest(words=words[-3:]):
                self.refused('predict', *words, words=message)
        self.refused('predict', 'none.safetensors', images[0], code=1, words=['none.safetensors'])
        self.refused('predict', checkpoint, images[0], '--attention', 'no/folder/a.png', code=1, words=['no/folder'])


if __name__ == '__main__':
    support.main()
