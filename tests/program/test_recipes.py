"""The training recipes from the outside: the same bits whoever loads, resumed exactly, any batch size; data preview."""
import os
import struct
import zlib

import support
from support import CIFAR, FOLDER, make_cifar, make_folder, summary

RECIPE = ['augment.randaug.n=2', 'augment.erase=0.5', 'augment.mixup=0.8', 'augment.cutmix=1', 'augment.color_jitter=0.4',
          'augment.color_jitter_hue=0.1', 'augment.force_color_jitter=true', 'augment.aug_repeats=2', 'train.batch=29']


class Recipes(support.Case):
    def setUp(self):
        super().setUp()
        # 70 images in batches of 29: pairs lie in different shards and lanes, and the last batch has 12
        make_cifar(self.path('cifar'), train=70, test=20)
        self.write('cifar.yaml', CIFAR.replace('shard: 4', 'shard: 3'))
        self.runs = 0

    def result(self, *arguments, set=()):
        self.runs += 1
        run = f'run-{self.runs}'
        out = self.train('cifar.yaml', *arguments, out=run, set=[*RECIPE, *set]).out
        return summary(out)['weights'], self.read(run, 'log.jsonl'), self.read(run, 'checkpoints', self.checkpoints(run)[-1])

    def test_threads(self):
        for mode in ('batch', 'pair', 'elem'):
            mode = [f'augment.mixup_mode={mode}', 'train.epochs=1']
            first = self.result('--threads', '1', set=mode)
            for threads in ('2', '4'):
                self.assertEqual(self.result('--threads', threads, set=mode), first, (mode, threads))

    def test_every_part_changes_the_result(self):
        seen = {self.result('--threads', '1', set=['train.epochs=1'])[0]}
        changes = ['augment.randaug.n=1', 'augment.randaug.inc=0', 'augment.randaug.m=3', 'augment.randaug.p=1',
                   'augment.erase=0', 'augment.erase_mode=const', 'augment.erase_count=3', 'augment.erase_area=[0.5, 0.6]',
                   'augment.mixup=0', 'augment.cutmix=0', 'augment.cutmix_minmax=[0.3, 0.6]', 'augment.mixup_prob=0.2',
                   'augment.mixup_mode=elem', 'augment.color_jitter=0', 'augment.color_jitter_hue=0',
                   'augment.force_color_jitter=false', 'augment.aug_repeats=1', 'augment.interpolation=bicubic', 'augment.scale=[0.3, 1]']
        for change in changes:
            with self.subTest(change=change):
                weights = self.result('--threads', '1', set=['train.epochs=1', change])[0]
                self.assertNotIn(weights, seen)
                seen.add(weights)

    def test_resumed_in_the_middle_of_an_epoch(self):
        straight = self.result(set=['augment.mixup_off_epoch=1'])
        for stop in (1, 3, 4):
            run = f'stopped-{stop}'
            words = [*RECIPE, 'augment.mixup_off_epoch=1']
            self.train('cifar.yaml', out=run, set=[*words, f'train.max_steps={stop}'])
            out = self.train('cifar.yaml', '--resume', out=run, set=words).out
            self.assertEqual(summary(out)['weights'], straight[0], stop)
            self.assertEqual(self.read(run, 'log.jsonl'), straight[1], stop)

    def test_any_batch(self):
        for batch in (1, 2, 3, 69, 70, 71):
            self.result(set=[f'train.batch={batch}', 'train.shard=1', 'train.max_steps=2'])

    def test_off_is_off(self):
        """Recipes set but without effect leave the bits of a run without them."""
        plain = self.train('cifar.yaml', out='plain').out
        idle = ['augment.randaug.m=5', 'augment.mixup_prob=0', 'augment.mixup=1', 'augment.aug_repeats=0',
                'augment.erase_count=3', 'augment.mixup_switch_prob=0.1', 'augment.color_jitter_prob=0.5']
        other = self.train('cifar.yaml', out='idle', set=idle).out
        self.assertEqual(summary(plain)['weights'], summary(other)['weights'])

    def test_mixing_ends(self):
        """After as many epochs as are asked for, not before."""
        losses = []
        for name, epochs in (('on', 2), ('off', 1)):
            self.train('cifar.yaml', out=name, set=[*RECIPE, f'augment.mixup_off_epoch={epochs}'])
            losses.append([line['loss'] for line in self.log(name) if line['event'] == 'step'])
        self.assertEqual(losses[0][:3], losses[1][:3])
        self.assertNotEqual(losses[0][3], losses[1][3])

    def test_resized_crop_of_files(self):
        make_folder(self.path('images'))
        self.write('folder.yaml', FOLDER)
        settings = ['augment.scale=[0.3, 1]', 'augment.cutmix=1']
        first = self.train('folder.yaml', '--threads', '1', out='one', set=settings)
        self.assertIn('augmentation: resized crop of 0.3 to 1', first.err)
        self.assertIn('note: augment.scale leaves little of images this small', first.err)
        second = self.train('folder.yaml', '--threads', '2', out='two', set=settings)
        self.assertEqual(summary(first.out)['weights'], summary(second.out)['weights'])
        other = self.train('folder.yaml', out='three', set=['augment.cutmix=1'])
        self.assertNotEqual(summary(first.out)['weights'], summary(other.out)['weights'])

    def test_unreadable_images_are_not_mixed(self):
        make_folder(self.path('images'))
        self.write('folder.yaml', FOLDER)
        folder = self.path('images', 'train')
        name = os.path.join(folder, sorted(os.listdir(folder))[0])
        self.write(os.path.join(name, '0.png'), b'not an image')
        settings = ['data.on_error=skip', 'augment.mixup=0.8', 'augment.randaug.n=2', 'train.batch=7']
        first = self.train('folder.yaml', '--threads', '1', out='one', set=settings)
        self.assertIn('unreadable', first.err)
        second = self.train('folder.yaml', '--threads', '2', out='two', set=settings)
        self.assertEqual(summary(first.out)['weights'], summary(second.out)['weights'])


def png_pixels(data):
    """Width, height and rows of an 8-bit RGB PNG as cairo writes it."""
    place, body, width, height = 8, b'', 0, 0
    while place < len(data):
        length, kind = struct.unpack('>I4s', data[place:place + 8])
        chunk = data[place + 8:place + 8 + length]
        if kind == b'IHDR':
            width, height, depth, colours = struct.unpack('>IIBB', chunk[:10])
            assert (depth, colours) == (8, 2)
        body += chunk if kind == b'IDAT' else b''
        place += 12 + length
    body, stride, rows = zlib.decompress(body), 3 * width, []
    before = bytearray(stride)
    for y in range(height):
        kind, row = body[y * (stride + 1)], bytearray(body[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left, up = row[i - 3] if i >= 3 else 0, before[i]
            corner = before[i - 3] if i >= 3 else 0
            guess = left + up - corner
            paeth = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
            row[i] = (row[i] + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
        rows.append(bytes(row))
        before = row
    return width, height, rows


class Preview(support.Case):
    def setUp(self):
        super().setUp()
        make_cifar(self.path('cifar'), train=70, test=20)
        self.write('cifar.yaml', CIFAR)

    def preview(self, *arguments, **options):
        return self.run_program('data', 'preview', 'cifar.yaml', *arguments, **options)

    def test_picture(self):
        out = self.preview('--count', '4', '-o', 'a.png', '--set', 'augment.crop_padding=0', '--set', 'augment.flip=0').out
        self.assertEqual(out, 'a.png: 4 images of epoch 1; augmentation: none\n')
        width, height, rows = png_pixels(self.read('a.png'))
        # without augmentation the image as trained is the original below it: tiles of 128, 8 apart, from (92, 62) on
        for k in range(4):
            left = 3 * (92 + 136 * k)
            for y in range(128):
                self.assertEqual(rows[62 + y][left:left + 384], rows[62 + 136 + y][left:left + 384], (k, y))
        self.assertGreater(len(set(rows[62 + y][276:660] for y in range(0, 128, 4))), 16)
        self.assertGreaterEqual(width, 92 + 4 * 136)
        self.assertGreater(height, 62 + 2 * 136)

    def test_mixed_and_again(self):
        words = [w for pair in RECIPE for w in ('--set', pair)]
        out = self.preview('-o', 'a.png', '--epoch', '2', *words).out
        for part in ('16 images of epoch 2', 'randaug n 2 m 9', 'erase 0.5 pixel', 'mixup 0.8, cutmix 1', 'each image 2 times'):
            self.assertIn(part, out)
        self.preview('-o', 'b.png', '--epoch', '2', *words)
        self.assertEqual(self.read('a.png'), self.read('b.png'))
        self.preview('-o', 'b.png', '--epoch', '3', *words)
        self.assertNotEqual(self.read('a.png'), self.read('b.png'))
        self.preview()
        self.assertTrue(os.path.exists(self.path('preview.png')))

    def test_whole_epoch_at_most(self):
        self.assertIn('70 images', self.preview('--count', '999').out)

    def test_refusals(self):
        refused = self.refused
        refused('data', 'preview', words=['expected one CONFIG'])
        refused('data', 'preview', 'cifar.yaml', 'cifar.yaml', words=['found 2'])
        refused('data', 'preview', 'cifar.yaml', '--count', '0', words=['--count', 'from 1 to 999'])
        refused('data', 'preview', 'cifar.yaml', '--epoch', '0', words=['--epoch', "found '0'"])
        refused('data', 'preview', 'cifar.yaml', '--colour', words=["no option '--colour'"])
        refused('data', 'preview', 'none.yaml', words=['none.yaml'])
        refused('data', 'preview', 'cifar.yaml', '-o', 'cifar.yaml', words=['is the config itself'])
        refused('data', 'preview', 'cifar.yaml', '-o', 'no/folder/a.png', words=['no/folder'], code=1)
        refused('data', 'preview', 'cifar.yaml', '--set', 'data.path=away', words=['away'], code=1)
        refused('data', 'preview', 'cifar.yaml', '--set', 'augment.mixup=x', words=['augment.mixup'])
        self.assertIn('Usage: mirrorla data preview', self.run_program('data', 'preview', '--help').out)

    def test_too_many_large_ones(self):
        self.refused('data', 'preview', 'cifar.yaml', '--set', 'data.set=twins', '--set', 'data.size=1024', '--count', '40',
                     words=['40 images of 1024 x 1024 pixels do not fit on a picture; 15 do'])


if __name__ == '__main__':
    support.main()
