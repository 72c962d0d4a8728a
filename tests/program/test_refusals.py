"""Malformed command lines, configs, data sets and checkpoints: refused with one clear sentence, and nothing touched.

Each case is (arguments, words of the message).  Wrong input ends with exit code 2, what the system denies with 1.
"""
import json
import os
import shutil
import struct

import support
from support import CIFAR, FOLDER, GIF, TINY, Safetensors, jpeg, make_cifar, make_folder, summary, write_safetensors


class Refusals(support.Case):
    count = 0

    @classmethod
    def tearDownClass(cls):
        print(f'{cls.count} refusals', flush=True)

    def setUp(self):
        super().setUp()
        self.write('tiny.yaml', TINY)

    def refused(self, *arguments, **options):
        Refusals.count += 1
        return super().refused(*arguments, **options)

    def remove(self, name):
        if os.path.isdir(self.path(name)):
            shutil.rmtree(self.path(name))
        elif os.path.exists(self.path(name)):
            os.remove(self.path(name))

    def refused_all(self, cases, code=2, lines=None, **options):
        for arguments, words in cases:
            with self.subTest(arguments=arguments):
                self.refused(*arguments, words=words, code=code, lines=lines, **options)

    # ---- command lines

    def test_no_command(self):
        result = self.run_program(code=2)
        self.assertEqual(result.out, '')
        self.assertIn('Usage: mirrorla COMMAND', result.err)

    def test_command_lines(self):
        long = 'x' * 5000
        self.refused_all([
            (['trian'], ["no command 'trian'"]),
            (['--train'], ["no command '--train'"]),
            ([''], ["no command ''"]),
            (['train'], ['mirrorla train: ', 'one CONFIG', 'found 0']),
            (['train', 'tiny.yaml', 'tiny.yaml'], ['one CONFIG', 'found 2']),
            (['train', 'tiny.yaml', '--resume', 'x.safetensors'], ['x.safetensors', '--resume=CKPT']),
            (['train', 'tiny.yaml', '--foo'], ["no option '--foo'"]),
            (['train', 'tiny.yaml', '--foo=1'], ["no option '--foo=1'"]),
            (['train', 'tiny.yaml', '-x'], ["no option '-x'"]),
            (['train', 'tiny.yaml', '--set'], ["'--set' needs a value"]),
            (['train', 'tiny.yaml', '--out'], ["'--out' needs a value"]),
            (['train', 'tiny.yaml', '--help=3'], ["'--help=3'", 'no value']),
            (['train', 'tiny.yaml', '--threads', '0'], ['--threads', '1 to 1024', "'0'"]),
            (['train', 'tiny.yaml', '--threads', '-1'], ['--threads', '1 to 1024', "'-1'"]),
            (['train', 'tiny.yaml', '--threads', '1.5'], ['--threads', "'1.5'"]),
            (['train', 'tiny.yaml', '--threads', 'two'], ['--threads', "'two'"]),
            (['train', 'tiny.yaml', '--threads', ''], ['--threads', "''"]),
            (['train', 'tiny.yaml', '--threads', '99999999999999999999'], ['--threads', '1 to 1024']),
            (['train', 'tiny.yaml', '--out', long], ['--out', 'too long']),
            (['train', '--threads', '2'], ['one CONFIG', 'found 0']),
            (['eval'], ['mirrorla eval: ', 'one CKPT', 'found 0']),
            (['eval', 'a', 'b'], ['one CKPT', 'found 2']),
            (['eval', 'a', '--split', 'val'], ['--split', 'test or train', "'val'"]),
            (['eval', 'a', '--weights', 'ema'], ['--weights', 'auto, raw or average', "'ema'"]),
            (['eval', 'a', '--limit', '0'], ['--limit', "'0'"]),
            (['eval', 'a', '--json=yes'], ["'--json=yes'", 'no value']),
            (['export', 'a'], ['--to', 'safetensors']),
            (['export', 'a', '--to', 'pth'], ['--to', 'safetensors or onnx', "'pth'"]),
            (['export', '--to', 'safetensors'], ['one CKPT', 'found 0']),
            (['export', 'a', '--to', 'safetensors', '-o'], ["'-o' needs a value"]),
            (['inspect'], ['one CONFIG or CKPT', 'found 0']),
            (['inspect', 'a', 'b'], ['one CONFIG or CKPT', 'found 2']),
            (['config', 'optim.lrr'], ['optim.lrr', 'optim.lr']),
            (['config', 'a', 'b'], ['one KEY']),
            (['version', 'now'], ['no arguments']),
            (['data'], ['list, verify, prepare']),
            (['data', 'lsit'], ['lsit', 'list, verify, prepare, sample or preview']),
            (['data', 'verify'], ['which data set']),
            (['data', 'verify', 'cifar11'], ['cifar11', 'data list']),
            (['data', 'verify', 'twins', '--size', 'big'], ['--size', "'big'"]),
            (['data', 'verify', 'twins', '--frob'], ['--frob']),
            (['data', 'verify', 'twins', '--out', 'x'], ['--out', 'prepare']),
        ], lines=2)

    # ---- configs

    def test_config_files(self):
        bad = [
            ('optim: {weigth_decay: 0.05}\n', [':1: optim.weigth_decay', 'did you mean optim.weight_decay?']),
            ('train:\n  weight_decay: 0.05\n', [':2: train.weight_decay', 'optim.weight_decay (it stands in section optim)']),
            ('optim:\n  lr: 1e-3\n  lr: 2e-3\n', [':3: optim.lr', 'given twice']),
            ('optim:\n\tlr: 1\n', [':2:', 'not valid YAML', 'tabs']),
            ('optim: {lr: [1]}\n', ['optim.lr', 'a number', 'a list']),
            ('train: {batch: 5.5}\n', ['train.batch', 'a whole number', '5.5']),
            ('train: {batch: "10"}\n', ['train.batch', 'quoted text "10"']),
            ('train: {batch: 1_000}\n', ['train.batch', 'underscores']),
            ('train: {batch: 0}\n', ['train.batch', 'out of range']),
            ('optim: {lr: nan}\n', ['optim.lr', 'finite']),
            ('optim: {lr: None}\n', ['optim.lr', 'null']),
            ('optim: {betas: (0.9, 0.999)}\n', ['optim.betas', 'list']),
            ('optim: {nesterov: 1}\n', ['optim.nesterov', 'true or false']),
            ('model: {attention: {kind: miror}}\n', ['model.attention.kind', 'did you mean mirror?']),
            ('model: {heads: [5]}\n', ['model.heads', 'do not divide']),
            ('model: {classes: 10}\n', ['model.classes', 'comes from the data set']),
            ('train: {lanes: 6}\n', ['train.lanes', 'power of two']),
            ('train: {shard: 500}\n', ['train.shard', 'train.batch']),
            ('sweep: {train.seed: [0, 1]}\n', ['sweep', 'mirrorla ablate']),
            ('- a\n- b\n', [':1', 'expected sections', 'a list']),
            ('a: \x01\n', ['control characters']),
            (b'\x80\x04\x95pickle', ['UTF-8']),
            ('base: absent.yaml\n', ['absent.yaml']),
            ('base: bad.yaml\n', ['bad.yaml', 'base']),
            ('data: {set: twins, size: 16, twins: {grid: 8}}\nmodel: {patch: 8}\n', ['data.twins.grid', 'pixels']),
            ('optim: {lr: &a 1}\n', ['an anchor']),
            ('optim: {lr: 1}\n---\n{}\n', ['second document']),
        ]
        for text, words in bad:
            with self.subTest(text=text):
                self.write('bad.yaml', text)
                self.refused('train', 'bad.yaml', words=words, lines=1)
        self.write('bad.yaml', 'optim: {lr: 1')
        self.refused('inspect', 'bad.yaml', words=['bad.yaml:', 'not valid YAML'], lines=1)

    def test_config_paths(self):
        os.makedirs(self.path('folder'))
        self.refused('train', 'absent.yaml', words=['absent.yaml', 'No such file'], lines=1)
        self.refused('train', 'folder', words=['folder'], lines=1)
        self.refused('train', '/dev/null/x', words=['/dev/null/x', 'Not a directory'], lines=1)
        self.refused('train', 'x' * 300, words=['File name too long'], lines=1)
        self.refused('inspect', 'absent.yaml', words=['absent.yaml', 'No such file'], lines=1)

    def test_overrides(self):
        self.refused_all([(['train', 'tiny.yaml', '--set', setting], [f'--set {setting}', *words]) for setting, words in (
            ('optim.lr', ['KEY=VALUE']),
            ('=1', ['KEY=VALUE']),
            ('optim.lr=', ['no value']),
            ('optim.lr=fast', ['a number', '"fast"']),
            ('optim.lr=1e30', ['0 to 100']),
            ('optm.lr=1', ['did you mean optim.lr']),
            ('weight_decay=1', ['optim.weight_decay (it stands in section optim)']),
            ('model={dims: [8]}', ['model is a section']),
            ('base=tiny.yaml', ['stands in a file']),
            ('model.dims=[16', ['not valid YAML']),
            ('train.epochs=0', ['out of range']),
        )], lines=1)
        self.refused('train', 'tiny.yaml', '--set', 'train.epochs=1', '--set', 'schedule.warmup_epochs=3',
                     words=['schedule.warmup_epochs', 'train.epochs'], lines=1)

    # ---- outputs

    def test_outputs(self):
        self.write('file', 'kept')
        os.makedirs(self.path('run', 'checkpoints'))
        self.write('run/checkpoints/step-00000003.safetensors', 'kept')
        self.write('own/config.yaml', 'kept')
        self.refused('train', 'tiny.yaml', '--out', 'file', words=['file', 'not a folder'])
        self.refused('train', 'tiny.yaml', '--out', 'file/below', words=['file', 'not a folder'])
        self.refused('train', 'tiny.yaml', '--out', '', words=['empty'])
        self.refused('train', 'tiny.yaml', '--out', '/proc/mirrorla-test', words=['/proc/mirrorla-test'], code=1)
        self.refused('train', 'tiny.yaml', '--out', '/dev/null', words=['/dev/null', 'not a folder'])
        self.refused('train', 'tiny.yaml', '--out', 'x' * 300, words=['could not be made: File name too long'], code=1)
        self.refused('train', 'tiny.yaml', '--out', 'run', words=['already holds a run (checkpoints)'])
        self.refused('train', 'tiny.yaml', '--out', 'own', words=['config.yaml', 'overwritten'])

    # ---- data

    def test_data_that_is_not_there(self):
        self.write('cifar.yaml', CIFAR)
        self.write('auto.yaml', CIFAR.replace('path: cifar', 'path: auto'))
        result = self.refused('train', 'auto.yaml', code=1, lines=1, words=[
            'CIFAR-10 not found', 'cifar-10-batches-bin', 'cifar-10-binary.tar.gz', './data', '.cache/mirrorla', 'data.path'])
        self.assertIn(self.folder, result.err)
        self.refused('train', 'cifar.yaml', words=['cifar', 'No such file'], code=1, lines=1)
        os.makedirs(self.path('cifar'))
        self.refused('train', 'cifar.yaml', words=['cifar: no CIFAR-10 here', 'test_batch.bin'], lines=1)
        self.refused('data', 'verify', 'cifar10', '--path', 'cifar', words=['no CIFAR-10 here'], lines=1)
        self.refused('data', 'verify', 'tiny-imagenet', words=['Tiny-ImageNet not found', 'tiny-imagenet-200'], code=1, lines=1)
        self.refused('train', 'cifar.yaml', '--set', 'data.set=imagefolder', '--set', 'data.path=auto',
                     words=['auto', 'train/<class>'], lines=1)

    def test_cifar_files(self):
        self.write('cifar.yaml', CIFAR)

        def damaged(change):
            self.remove('cifar')
            make_cifar(self.path('cifar'), train=20, test=10)
            change()

        def replace(name, content):
            return lambda: self.write('cifar/' + name, content(self.read('cifar', name)))

        def instead(files):
            self.remove('cifar')
            for name, content in files.items():
                self.write(name, content)
        python = ['data_batch_1', 'data_batch_2', 'test_batch', 'batches.meta']
        for change, words, code in (
                (replace('data_batch_3.bin', lambda b: b[:-1]),
                 ['data_batch_3.bin', '12291 bytes', 'multiple of 3073', '3072 bytes over'], 2),
                (replace('test_batch.bin', lambda b: b[:5]), ['test_batch.bin', '5 bytes', 'multiple of 3073'], 2),
                (replace('data_batch_1.bin', lambda b: b''), ['data_batch_1.bin is empty'], 2),
                (replace('data_batch_5.bin', lambda b: b[:3073] + b'\xc8' + b[3074:]),
                 ['data_batch_5.bin', 'record 1 of 4', 'label 200', '0 to 9'], 2),
                (replace('test_batch.bin', lambda b: b'\x0a' + b[1:]), ['test_batch.bin', 'record 0', 'label 10'], 2),
                (replace('data_batch_2.bin', lambda b: bytes(3074)), ['data_batch_2.bin', '3074 bytes', 'fits CIFAR-100'], 2),
                (lambda: os.remove(self.path('cifar/data_batch_4.bin')), ['data_batch_4.bin is missing', 'download'], 1),
                (lambda: os.remove(self.path('cifar/test_batch.bin')), ['test_batch.bin'], 1),
                (lambda: (self.remove('cifar/data_batch_4.bin'), os.makedirs(self.path('cifar/data_batch_4.bin'))),
                 ['data_batch_4.bin', 'not a regular file'], 2),
                (lambda: self.write('cifar/batches.meta.txt', 'cat\ndog\n'),
                 ['batches.meta.txt has 2 class names', 'expected 10'], 2),
                (lambda: instead({'cifar/' + name: b'x' for name in python}),
                 ['python version of CIFAR-10', 'cifar-10-binary.tar.gz'], 2),
                (lambda: instead({'cifar/cifar-10-batches-py/' + name: b'x' for name in python}),
                 ['python version of CIFAR-10'], 2),
                (lambda: instead({'cifar/train.bin': bytes(3074), 'cifar/test.bin': bytes(3074)}),
                 ['this is CIFAR-100', 'the config asks for CIFAR-10'], 2),
                (lambda: instead({'cifar': b'not an archive' * 200}), ['cifar: '], 2),
                (lambda: instead({'cifar': b''}), ['cifar', 'cut off'], 1)):
            damaged(change)
            with self.subTest(words=words):
                self.refused('train', 'cifar.yaml', words=words, code=code, lines=1)

    def test_image_folders(self):
        self.write('folder.yaml', FOLDER)

        def damaged(change):
            self.remove('images')
            make_folder(self.path('images'))
            change()

        def flat():
            shutil.rmtree(self.path('images/val'))
            for i in range(3):
                self.write(f'images/val/{i}.jpg', jpeg())

        def one_folder():
            shutil.rmtree(self.path('images/val'))
            self.write('images/val/images/1.jpg', jpeg())

        def annotated():
            one_folder()
            self.write('images/val/val_annotations.txt', '1.jpg\tn1\t0\t0\t1\t1\n')
        for change, words, code in (
                (lambda: shutil.rmtree(self.path('images')), ['images', 'No such file'], 1),
                (lambda: shutil.rmtree(self.path('images/train')), ['no folder train', 'train/<class>'], 2),
                (lambda: shutil.rmtree(self.path('images/val')), ['neither val nor test'], 2),
                (flat, ['val: flat: 3 images without class folders', 'val/<class>'], 2),
                (one_folder, ["val: all images are in one folder ('images')", '2 classes'], 2),
                (annotated, ['val_annotations.txt', 'tiny-imagenet'], 2),
                (lambda: shutil.rmtree(self.path('images/train/dog')), ["only one class folder ('cat')", 'at least 2'], 2),
                (lambda: os.rename(self.path('images/val/dog'), self.path('images/val/wolf')),
                 ["'wolf' is not among the 2 classes"], 2),
                (lambda: os.makedirs(self.path('images/train/eel')), ['train/eel', 'no JPEG or PNG'], 2),
                (lambda: self.write('images/train/eel/1.gif', GIF), ['train/eel', 'no JPEG or PNG', '1.gif'], 2),
                (lambda: (shutil.rmtree(self.path('images')), self.write('images', b'x')), ['images', 'expected a folder'], 2)):
            damaged(change)
            with self.subTest(words=words):
                self.refused('train', 'folder.yaml', words=words, code=code, lines=1)

    def bad_images(self):
        whole = jpeg()
        return (('zero.jpg', b''), ('gif.jpg', GIF), ('cut.jpg', whole[:len(whole) * 6 // 10]), ('text.png', b'hello'),
                ('cut.png', self.read('images', 'train', 'cat', '1.png')[:200]))

    def test_unreadable_images(self):
        """fail ends the run and names the file; skip leaves the image out; substitute takes another; both count."""
        self.write('folder.yaml', FOLDER)
        make_folder(self.path('images'))
        for name, content in self.bad_images():
            with self.subTest(name):
                self.write('images/train/cat/' + name, content)
                result = self.train('folder.yaml', out='fail', code=2)
                self.assertEqual(result.out, '')
                self.assertRegex(support.last_message(result.err), rf'step \d+: images/train/cat/{name}: .')
                shutil.rmtree(self.path('fail'))
                for policy, images in (('skip', 8), ('substitute', 9)):
                    self.train('folder.yaml', out=policy, set=[f'data.on_error={policy}'])
                    end = self.ends(policy)[-1]
                    self.assertEqual((end['train_images'], end['test_images']), (images, 4))
                    shutil.rmtree(self.path(policy))
                result = self.run_program('data', 'verify', 'imagefolder', '--path', 'images', code=1)
                self.assertIn(name, result.out + result.err)
                os.remove(self.path('images/train/cat', name))

    def test_unreadable_test_images(self):
        self.write('folder.yaml', FOLDER)
        make_folder(self.path('images'))
        self.write('images/val/cat/bad.jpg', GIF)
        result = self.train('folder.yaml', out='fail', code=2)
        self.assertRegex(support.last_message(result.err), r'after step 2: images/val/cat/bad.jpg: ')
        result = self.train('folder.yaml', out='skip', set=['data.on_error=skip'])
        self.assertEqual(self.ends('skip')[-1]['test_images'], 4)
        self.assertIn('1 unreadable images so far', result.err)
        out = self.run_program('eval', 'skip/checkpoints/best.safetensors', '--json', '--logits', 'logits').out
        self.assertEqual((json.loads(out)['images'], json.loads(out)['unreadable']), (4, 1))
        self.assertEqual(sorted(Safetensors(self.path('logits')).integers('labels')), [-1, 0, 0, 1, 1])

    def test_batches_without_images(self):
        """The last batch of an epoch may have none; a set without any is an error."""
        self.write('folder.yaml', FOLDER)
        make_folder(self.path('images'), train=2)
        self.write('images/train/cat/bad.jpg', b'x')
        self.train('folder.yaml', out='run', set=['data.on_error=skip', 'train.batch=1', 'train.shard=1', 'train.epochs=6'])
        steps = [line for line in self.log('run') if line['event'] == 'step']
        self.assertEqual([line['step'] for line in steps], list(range(1, 31)))
        self.assertEqual(sum(line['images'] for line in steps), 24)
        for root, _, files in os.walk(self.path('images', 'train')):
            for name in files:
                with open(os.path.join(root, name), 'wb') as file:
                    file.write(b'x')
        for policy, words in (('skip', 'after step 2: none of the 5 training images could be read'),
                              ('substitute', 'step 1: images: none of the 5 images can be read')):
            result = self.train('folder.yaml', out=policy, code=2, set=[f'data.on_error={policy}'])
            self.assertIn(words, support.last_message(result.err))

    # ---- checkpoints

    def checkpoint(self, *settings, config='tiny.yaml', run='run'):
        return summary(self.train(config, out=run, set=['train.epochs=1', *settings]).out)['checkpoint']

    def refused_everywhere(self, name, words, code=2):
        for arguments in (['eval', name], ['inspect', name], ['export', name, '--to', 'safetensors'],
                          ['train', 'tiny.yaml', '--resume=' + name, '--out', 'new', '--set', 'train.epochs=1']):
            self.refused(*arguments, words=words, code=code)

    def test_cut_checkpoints(self):
        content = self.read(self.checkpoint())
        header = struct.unpack('<Q', content[:8])[0]
        for size in (0, 1, 7, 8, 9, 100, header // 2, header + 7, header + 8, header + 9, (header + len(content)) // 2,
                     len(content) - 4, len(content) - 1):
            with self.subTest(size=size):
                self.write('cut.safetensors', content[:size])
                self.refused_everywhere('cut.safetensors', ['cut.safetensors'])
        self.write('cut.safetensors', content + b'\0')
        self.refused_everywhere('cut.safetensors', ['1 bytes follow the last tensor'])

    def test_flipped_bits(self):
        content = self.read(self.checkpoint())
        for i in range(24):
            at = 3 if i == 0 else (len(content) - 1) * i // 23
            with self.subTest(at=at):
                self.write('flip.safetensors', content[:at] + bytes([content[at] ^ (1 << i % 8)]) + content[at + 1:])
                self.refused('eval' if i % 2 else 'inspect', 'flip.safetensors', words=['flip.safetensors'])

    def test_what_is_no_checkpoint(self):
        self.write('text.safetensors', 'just some text, longer than eight bytes\n')
        self.write('zip.safetensors', b'PK\x03\x04' + bytes(100))
        self.write('pickle.safetensors', b'\x80\x02}q\x00' + bytes(100))
        self.write('pointer.safetensors', b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n')
        os.makedirs(self.path('folder.safetensors'))
        for name, words, code in (
                ('text', ['not a safetensors file'], 2), ('zip', ['looks like', 'zip'], 2),
                ('pickle', ['looks like', 'pickle'], 2), ('pointer', ['looks like', 'git-lfs pointer'], 2),
                ('folder', ['is a folder'], 2), ('absent', ['No such file'], 1)):
            with self.subTest(name):
                self.refused_everywhere(name + '.safetensors', [name + '.safetensors', *words], code)
        self.refused('eval', 'tiny.yaml', words=['tiny.yaml', 'safetensors'])

    def test_headers(self):
        def entry(shape, offsets, dtype='F32', **more):
            return {'a': {'dtype': dtype, 'shape': shape, 'data_offsets': offsets, **more}}

        def header(text, data=bytes(16), claimed=None):
            text = text if isinstance(text, bytes) else json.dumps(text).encode()
            return struct.pack('<Q', len(text) if claimed is None else claimed) + text + data
        cases = [
            (header(b'{}', claimed=1 << 63), ['claim', '9223372036854775808']),
            (header(b'{}', claimed=1 << 40), ['claims a header of 1099511627776 bytes', 'only']),
            (header(b'{}', claimed=0), ['header']),
            (header(b'[]'), ["must start with '{'"]),
            (header(b'{"a":'), ['not valid JSON']),
            (header(b'{"a":1}'), ['entry of tensor "a"', 'expected an object']),
            (header(b'{"a":{},"a":{}}'), ['"a" stands twice']),
            (header(b'{"\xff":1}'), ['UTF-8']),
            (header(entry([1000, 1000], [0, 4])), ['tensor "a"', '4000000 bytes']),
            (header(entry([4], [16, 0])), ['tensor "a"', 'begin']),
            (header(entry([40], [0, 160])), ['tensor "a"', '160', 'only 16']),
            (header(entry([1 << 62, 1 << 62], [0, 16])), ['tensor "a"', 'more elements']),
            (header(entry([-4], [0, 16])), ['tensor "a"', 'negative']),
            (header(entry([4.5], [0, 16])), ['tensor "a"', 'whole number']),
            (header(entry([4], [0.0, 16])), ['tensor "a"', 'whole number']),
            (header(entry([4], [0, 16, 32])), ['tensor "a"', 'data_offsets']),
            (header(entry([4], [0, 16], dtype='F33')), ['tensor "a"', 'F33', 'not supported']),
            (header(entry([4], [0, 16], zzz=1)), ['tensor "a"', 'zzz']),
            (header(entry([1] * 40 + [4], [0, 16])), ['tensor "a"', '41 dimensions']),
            (header({**entry([4], [0, 16]), 'b': {'dtype': 'F32', 'shape': [2], 'data_offsets': [8, 16]}}), ['overlap']),
            (header({**entry([2], [0, 8]), 'b': {'dtype': 'F32', 'shape': [1], 'data_offsets': [12, 16]}}),
             ['belong to no tensor']),
            (header(entry([2], [0, 8])), ['8 bytes follow the last tensor']),
            (header({'__metadata__': {'a': 1}}, b''), ['__metadata__', 'expected a string']),
            (header({'__metadata__': []}, b''), ['__metadata__', 'expected an object']),
            (header(b'{"a":' * 3000 + b'1' + b'}' * 3000), ['JSON']),
            (header({'__metadata__': {'mirrorla.checkpoint': '1'}, **entry([4], [0, 16])}), ['no "config"']),
            (header({'__metadata__': {'config': 'model: {}'}, **entry([4], [0, 16])}), ['attack.safetensors']),
            (header({'__metadata__': {'mirrorla.checkpoint': '99', 'config': ''}, **entry([4], [0, 16])}), ['format "99"']),
        ]
        commands = (['eval', 'attack.safetensors'], ['inspect', 'attack.safetensors'],
                    ['export', 'attack.safetensors', '--to', 'safetensors'])
        for i, (content, words) in enumerate(cases):
            with self.subTest(words=words):
                self.write('attack.safetensors', content)
                self.refused(*commands[i % 3], words=['attack.safetensors', *words], lines=1)
        with open(self.path('attack.safetensors'), 'wb') as file:
            file.write(struct.pack('<Q', 120000000) + b'{')
            file.truncate(120000008)
        self.refused('eval', 'attack.safetensors', words=['120000000', 'limit'], lines=1)

    def test_metadata(self):
        """An export has no CRC: what is changed in it must be found by what it means."""
        export = self.path('export.safetensors')
        self.run_program('export', self.checkpoint(), '--to', 'safetensors', '-o', export)
        file = Safetensors(export)
        tensors = {name: (file.dtype[name], file.shape[name], file.data[name]) for name in file.data}
        for key, value, words in (
                ('config', 'model: {dims: [17]}', ['config', 'model.heads']),
                ('config', file.metadata['config'].replace('dims: [16]', 'dims: [32]'),
                 ['do not fit the model', 'of another shape']),
                ('config', file.metadata['config'].replace('depths: [1]', 'depths: [2]'), ['missing', 'blocks.1.']),
                ('config', file.metadata['config'].replace('kind: mirror', 'kind: relu'), ['unexpected', 'blocks.0.attn.']),
                ('classes', '["a"]', ['at least 2 classes']),
                ('classes', '["a", "b"]', ['do not fit the model', 'head.weight']),
                ('classes', '{}', ['classes']),
                ('classes', '["a", 3]', ['classes']),
                ('size', '33', ['33']),
                ('size', '1000000000', ['size']),
                ('size', '-16', ['size']),
                ('mean', '[0.5]', ['mean']),
                ('std', '[1, 1, 0]', ['std']),
                ('weight_hash', '0' * 16, ['hash']),
                ('weight_hash', 'x', ['weight_hash'])):
            with self.subTest(key=key, value=value):
                write_safetensors(self.path('changed.safetensors'), tensors, {**file.metadata, key: value})
                self.refused('eval', 'changed.safetensors', words=['changed.safetensors', *words], lines=1)
        for key in ('config', 'classes', 'size', 'mean', 'std', 'weight_hash'):
            with self.subTest(missing=key):
                rest = {k: v for k, v in file.metadata.items() if k != key}
                write_safetensors(self.path('changed.safetensors'), tensors, rest)
                self.refused('inspect', 'changed.safetensors', words=['changed.safetensors', key], lines=1)
        data = bytearray(tensors['head.bias'][2])
        data[1] ^= 4
        write_safetensors(self.path('changed.safetensors'), {**tensors, 'head.bias': ('F32', (10,), bytes(data))},
                          file.metadata)
        self.refused('eval', 'changed.safetensors', words=['hash', 'changed or is damaged'], lines=1)
        write_safetensors(self.path('changed.safetensors'), {**tensors, 'head.bias': ('I64', (5,), bytes(data))}, file.metadata)
        self.refused('eval', 'changed.safetensors', words=['head.bias'], lines=1)

    def test_checkpoint_in_the_wrong_place(self):
        checkpoint = self.checkpoint()
        self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'export.safetensors')
        shutil.copy(self.path(checkpoint), self.path('moved.safetensors'))
        os.makedirs(self.path('folder'))
        self.write('file', 'kept')
        train = ['train', 'tiny.yaml', '--set', 'train.epochs=1']
        self.refused(*train, '--resume=export.safetensors', '--out', 'new',
                     words=['export.safetensors', 'weights alone', 'no optimiser state'])
        self.refused(*train, '--resume=moved.safetensors', words=['moved.safetensors', '--out'])
        self.refused(*train, '--resume=' + checkpoint, '--set', 'model.depths=[2]',
                     words=['model.depths is [1] there and [2] here'])
        self.refused('eval', checkpoint, '--weights', 'average', words=['no weight average', 'optim.ema'])
        self.refused('export', checkpoint, '--to', 'safetensors', '--weights', 'average', words=['no weight average'])
        self.refused('export', checkpoint, '--to', 'safetensors', '-o', checkpoint, words=['the checkpoint itself'])
        self.refused('export', checkpoint, '--to', 'safetensors', '-o', 'folder', words=['folder', 'is a folder'])
        self.refused('export', checkpoint, '--to', 'safetensors', '-o', 'absent/x.safetensors',
                     words=['absent', 'does not exist'], code=1)
        self.refused('export', checkpoint, '--to', 'safetensors', '-o', 'file/x.safetensors',
                     words=['file/x.safetensors'], code=1)
        self.refused('eval', checkpoint, '--logits', checkpoint, words=['--logits', 'the checkpoint itself'])
        self.refused('eval', checkpoint, '--logits', 'folder', words=['folder', 'is a folder'])
        self.refused('eval', checkpoint, '--logits', 'absent/x', words=['absent', 'does not exist'], code=1)
        self.refused('inspect', checkpoint, '--set', 'model.depths=[3]', words=['do not fit the model', 'missing'])
        self.refused('inspect', 'tiny.yaml', '--set', 'optim.lr=x', words=['optim.lr'])

    def test_data_of_another_kind(self):
        """Class names are compared, not numbers."""
        self.write('folder.yaml', FOLDER)
        make_folder(self.path('images'))
        checkpoint = self.checkpoint(config='folder.yaml')
        make_folder(self.path('other'), classes=('cat', 'wolf'))
        make_folder(self.path('more'), classes=('cat', 'dog', 'eel'))
        self.refused('eval', checkpoint, '--data', 'other', words=["class 'wolf' is not among the 2 classes"])
        self.refused('eval', checkpoint, '--data', 'more', words=["class 'eel' is not among the 2 classes"])
        self.refused('eval', checkpoint, '--data', 'absent', words=['absent', 'No such file'], code=1)
        self.refused('train', 'folder.yaml', '--set', 'train.epochs=1', '--set', 'data.path=other', '--resume=' + checkpoint,
                     words=["'wolf' is not among"])
        self.run_program('eval', checkpoint, '--data', 'images')


if __name__ == '__main__':
    support.main()
