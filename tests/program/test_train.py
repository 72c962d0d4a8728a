"""Training with tiny models: what a run leaves behind, and that it learns."""
import json
import math
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import tarfile
import zlib

import support
from support import CIFAR, KINDS, PYRAMID, TINY, Safetensors, make_cifar, read_checkpoint, read_lines, summary


class Train(support.Case):
    def check_log(self, run, train_images, batch, epochs, test_images, ema=False):
        """The log of a complete run: no gap, no repeat, every image counted once."""
        log = self.log(run)
        steps_per_epoch = -(-train_images // batch)
        steps = [line for line in log if line['event'] == 'step']
        ends = [line for line in log if line['event'] == 'epoch']
        self.assertEqual([line['step'] for line in steps], list(range(1, steps_per_epoch * epochs + 1)))
        self.assertEqual([line['epoch'] for line in ends], list(range(1, epochs + 1)))
        self.assertEqual(log, sorted(log, key=lambda line: (line['step'], ['step', 'epoch', 'layers'].index(line['event']))))
        for end in ends:
            own = [line for line in steps if line['epoch'] == end['epoch']]
            self.assertEqual([line['images'] for line in own],
                             [min(batch, train_images - i) for i in range(0, train_images, batch)])
            self.assertEqual(end['step'], own[-1]['step'])
            self.assertEqual(end['train_images'], train_images)
            self.assertEqual(end['train_correct'], sum(line['correct'] for line in own))
            mean = sum(line['loss'] * line['images'] for line in own) / train_images
            self.assertAlmostEqual(end['train_loss'], mean, places=9)
            self.assertEqual(end['test_images'], test_images)
            self.assertTrue(0 <= end['test_correct'] <= test_images)
            self.assertEqual('ema_test_correct' in end, ema)
            self.assertRegex(end['weight_hash'], r'^[0-9a-f]{16}$')
        timing = read_lines(self.path(run, 'timing.jsonl'))
        self.assertEqual([line['epoch'] for line in timing], list(range(1, epochs + 1)))
        return steps, ends

    def check_hash(self, run, result, ends):
        """One hash, in four places: printed, in the log, in the file that was named, in its last checkpoint."""
        said = summary(result.out)
        self.assertEqual(said['weights'], ends[-1]['weight_hash'])
        self.assertEqual(said['checkpoint'], os.path.join(run, 'checkpoints', self.checkpoints(run)[-1]))
        last = read_checkpoint(self.path(said['checkpoint']))
        self.assertEqual(last.metadata['weight_hash'], said['weights'])
        self.assertEqual(last.counters()['step'], int(said['steps']))
        return last

    def test_twins_run_folder(self):
        self.write('tiny.yaml', TINY)
        result = self.train('tiny.yaml')
        run = os.path.join('runs', 'tiny')
        names = [name.split('.out')[0] for name in os.listdir(self.path(run)) if name != 'report.html']    # without uPlot none
        self.assertEqual(sorted(names), ['checkpoints', 'config.yaml', 'events', 'log.jsonl', 'parameters.tsv', 'timing.jsonl'])
        self.assertEqual(sorted(os.listdir(self.path(run, 'checkpoints'))),
                         ['best.safetensors', 'step-00000004.safetensors', 'step-00000008.safetensors'])
        _, ends = self.check_log(run, 100, 32, 2, 40)
        last = self.check_hash(run, result, ends)
        self.assertEqual(last.metadata['config'], self.read(run, 'config.yaml').decode())
        rows = [line.split('\t') for line in self.read(run, 'parameters.tsv').decode().splitlines()]
        self.assertEqual(rows[0], ['name', 'shape', 'count', 'group'])
        for name, shape, count, group in rows[1:]:
            sides = tuple(int(n) for n in shape.split('x'))
            self.assertEqual(last.shape[name], sides)
            self.assertEqual(math.prod(sides), int(count))
            self.assertEqual(group == 'decay', name.endswith('.weight') and len(sides) > 1, name)
        self.assertEqual({row[0] for row in rows[1:]}, {n for n in last.shape if not n.startswith('optim.')})
        self.assertEqual(result.out.splitlines()[0],
                         f'test accuracy {100 * ends[-1]["test_correct"] / 40:.2f} % ({ends[-1]["test_correct"]} of 40)')
        self.assertIn('run folder: runs/tiny', result.err)
        # the resolved config trains the same model
        again = self.train(os.path.join(run, 'config.yaml'), out='again')
        self.assertEqual(summary(again.out)['weights'], summary(result.out)['weights'])

    def test_cifar_learns(self):
        self.write('tiny.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=200, test=53)
        result = self.train('tiny.yaml', out='run', set=['train.epochs=5', 'schedule.warmup_epochs=0'])
        self.assertIn('200 training and 53 test images of 32 x 32, 10 classes', result.err)
        _, ends = self.check_log('run', 200, 32, 5, 53)
        self.check_hash('run', result, ends)
        self.assertLess(ends[-1]['train_loss'], ends[0]['train_loss'] - 0.3)
        self.assertGreater(ends[-1]['test_correct'], 53 * 0.3)

    def test_sizes_that_do_not_fit(self):
        """The last batch may be short; it may be less than a shard; the whole set may be."""
        self.write('tiny.yaml', CIFAR)
        for train, batch, shard, test in ((103, 32, 4, 41), (33, 32, 8, 1), (5, 32, 8, 3), (9, 4, 4, 7), (64, 16, 16, 10)):
            with self.subTest(train=train, batch=batch, shard=shard):
                make_cifar(self.path('cifar'), train=train, test=test)
                run = f'run-{train}-{batch}'
                result = self.train('tiny.yaml', out=run, set=[f'train.batch={batch}', f'train.shard={shard}'])
                _, ends = self.check_log(run, train, batch, 2, test)
                self.check_hash(run, result, ends)

    def test_one_image(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=['data.twins.train=1', 'data.twins.test=1'])
        self.check_log('run', 1, 32, 2, 1)

    def test_places_of_cifar(self):
        """The folder, what holds it, and the archive give the same run."""
        self.write('tiny.yaml', CIFAR)
        make_cifar(self.path('data', 'cifar-10-batches-bin'), train=40, test=20)
        with tarfile.open(self.path('data', 'packed.tar.gz'), 'w:gz') as archive:
            archive.add(self.path('data', 'cifar-10-batches-bin'), 'cifar-10-batches-bin')
        logs = set()
        for number, place in enumerate(('data', 'data/cifar-10-batches-bin/', 'data/packed.tar.gz')):
            self.train('tiny.yaml', out=f'run-{number}', set=['data.path=' + place])
            logs.add(self.read(f'run-{number}', 'log.jsonl'))
        self.assertEqual(len(logs), 1)

    def test_mean_and_deviation_stay_with_the_weights(self):
        self.write('tiny.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=40, test=20)
        result = self.train('tiny.yaml', out='run', set=['data.mean=[0.1, 0.2, 0.3]', 'data.std=[0.5, 0.6, 0.7]'])
        out = self.run_program('eval', summary(result.out)['checkpoint'], '--json').out
        self.assertEqual(json.loads(out)['loss'], self.ends('run')[-1]['test_loss'])
        self.assertEqual(read_checkpoint(self.path(summary(result.out)['checkpoint'])).metadata['std'], '[0.5,0.6,0.7]')

    def test_subset(self):
        self.write('tiny.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=200, test=20)
        self.train('tiny.yaml', out='run', set=['data.subset=0.3', 'train.epochs=1'])
        self.check_log('run', 60, 32, 1, 20)

    def test_every_attention_and_family(self):
        self.write('vit.yaml', TINY)
        self.write('pvt.yaml', PYRAMID)
        hashes = set()
        for family in ('vit', 'pvt'):
            for kind in KINDS:
                with self.subTest(family=family, kind=kind):
                    run = family + kind
                    result = self.train(family + '.yaml', out=run,
                                        set=[f'model.attention.kind={kind}', 'model.attention.agent.side=2',
                                             'data.twins.train=40', 'train.batch=16'])
                    _, ends = self.check_log(run, 40, 16, 2, 40)
                    self.check_hash(run, result, ends)
                    self.assertIn(f'{family}, {kind} attention', result.err)
                    hashes.add(ends[-1]['weight_hash'])
        self.assertEqual(len(hashes), 2 * len(KINDS))

    def test_a_kind_a_stage(self):
        self.write('pvt.yaml', PYRAMID)
        result = self.train('pvt.yaml', out='run', set=['model.attention.kind=[softmax, cosformer]', 'data.twins.train=40'])
        self.assertIn('pvt, softmax, cosformer attention', result.err)
        self.assertIn('    kind: [softmax, cosformer]\n', self.read('run', 'config.yaml').decode())
        self.write('vit.yaml', TINY)
        self.refused('train', 'vit.yaml', '--set', 'model.attention.kind=[relu, relu]', '--out', 'no',
                     words=['model.attention.kind', '2 entries', 'one a stage'])

    def test_what_is_fixed_stays(self):
        """The performer's projection is drawn from the seed, and then stays: in the weights and their average."""
        self.write('tiny.yaml', TINY)
        kept = []
        for seed, epochs in ((3, 1), (3, 2), (4, 1)):
            out = f'run{len(kept)}'
            result = self.train('tiny.yaml', out=out, set=['model.attention.kind=performer', 'optim.ema=0.9', 'optim.weight_decay=1',
                                                           'data.twins.train=40', f'train.seed={seed}', f'train.epochs={epochs}'])
            file = Safetensors(self.path(summary(result.out)['checkpoint']))
            name = 'blocks.0.attn.projection_matrix'
            self.assertEqual(file.data[name], file.data['ema.' + name])
            self.assertFalse(any(file.data['optim.exp_avg.' + name]) or any(file.data['optim.exp_avg_sq.' + name]))
            kept.append(bytes(file.data[name]))
        self.assertEqual(kept[0], kept[1])
        self.assertNotEqual(kept[0], kept[2])

    def test_optimisers(self):
        self.write('tiny.yaml', TINY)
        for name, settings, prefixes in (
                ('momentum', ['optim.name=sgd', 'optim.lr=0.05'], {'optim.momentum.'}),
                ('nesterov', ['optim.name=sgd', 'optim.lr=0.05', 'optim.nesterov=true'], {'optim.momentum.'}),
                ('plain', ['optim.name=sgd', 'optim.lr=0.05', 'optim.momentum=0'], set()),
                ('adamw', ['optim.weight_decay=0', 'optim.clip=null'], {'optim.exp_avg.', 'optim.exp_avg_sq.'})):
            with self.subTest(name):
                result = self.train('tiny.yaml', out=name, set=settings)
                _, ends = self.check_log(name, 100, 32, 2, 40)
                last = self.check_hash(name, result, ends)
                found = {re.match(r'optim\.\w+\.', n).group() for n in last.shape if n.startswith('optim.')}
                self.assertEqual(found, prefixes)

    def test_average_is_beside_the_weights(self):
        self.write('tiny.yaml', TINY)
        plain = self.train('tiny.yaml', out='plain')
        average = self.train('tiny.yaml', out='average', set=['optim.ema=0.9'])
        _, ends = self.check_log('average', 100, 32, 2, 40, ema=True)
        # evaluating the average has not touched the weights: they are those of a run without one
        self.assertEqual(summary(plain.out)['weights'], summary(average.out)['weights'])
        last = self.check_hash('average', average, ends)
        self.assertIn(f'({ends[-1]["ema_test_correct"]} of 40)', average.out.splitlines()[0])
        self.assertNotEqual(last.data['ema.head.weight'], last.data['head.weight'])
        self.assertIn('; average ', average.err)
        self.assertNotEqual(ends[-1]['ema_test_loss'], ends[-1]['test_loss'])

    def test_drop_path(self):
        self.write('tiny.yaml', TINY)
        settings = ['model.depths=[2]', 'model.drop_path=0.5']
        first = self.train('tiny.yaml', out='a', set=settings)
        second = self.train('tiny.yaml', out='b', set=settings)
        without = self.train('tiny.yaml', out='c', set=settings[:1])
        self.assertEqual(first.out.splitlines()[:3], second.out.splitlines()[:3])
        self.assertNotEqual(summary(first.out)['weights'], summary(without.out)['weights'])

    def test_seed_changes_everything(self):
        self.write('tiny.yaml', TINY)
        hashes = {summary(self.train('tiny.yaml', set=[f'train.seed={seed}']).out)['weights']
                  for seed in (0, 1, 18446744073709551615)}
        self.assertEqual(len(hashes), 3)

    def test_schedule_in_the_log(self):
        """The learning rate is a function of config and step, and continuous where the warm-up ends."""
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=['train.epochs=4', 'schedule.warmup_epochs=2', 'schedule.min_lr=0'])
        rates = [line['lr'] for line in self.log('run') if line['event'] == 'step']
        expected = [2e-3 * (i + 1) / 8 for i in range(8)]
        expected += [1e-3 * (1 + math.cos(math.pi * i / 8)) for i in range(8)]
        for got, wanted in zip(rates, expected):
            self.assertAlmostEqual(got, wanted, delta=3e-4)
        self.assertEqual(max(rates), 2e-3)

    # ---- checkpoints

    def test_pruning(self):
        self.write('tiny.yaml', TINY)
        for name, settings, steps, best in (
                ('steps', ['checkpoint.every_steps=1', 'checkpoint.keep=3'], [6, 7, 8], True),
                ('one', ['checkpoint.every_steps=3', 'checkpoint.keep=1'], [8], True),
                ('all', ['checkpoint.every_steps=3', 'checkpoint.keep=100'], [3, 4, 6, 8], True),
                ('end', ['checkpoint.every_epochs=0', 'checkpoint.best=false'], [8], False)):
            with self.subTest(name):
                self.train('tiny.yaml', out=name, set=settings)
                self.assertEqual(self.checkpoints(name), [f'step-{s:08d}.safetensors' for s in steps])
                self.assertEqual(os.path.exists(self.path(name, 'checkpoints', 'best.safetensors')), best)
                for file in os.listdir(self.path(name, 'checkpoints')):
                    read_checkpoint(self.path(name, 'checkpoints', file))

    def test_best_is_the_best(self):
        self.write('tiny.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=60, test=50)
        self.train('tiny.yaml', out='run', set=['train.epochs=6', 'optim.lr=2e-2'])
        ends = [line for line in self.log('run') if line['event'] == 'epoch']
        best = max(ends, key=lambda line: (line['test_correct'], -line['epoch']))
        file = read_checkpoint(self.path('run', 'checkpoints', 'best.safetensors'))
        self.assertEqual(file.metadata['weight_hash'], best['weight_hash'])
        self.assertEqual(file.counters()['step'], best['step'])
        result = self.run_program('eval', 'run/checkpoints/best.safetensors')
        self.assertIn(f'({best["test_correct"]} of 50)', result.out)

    def test_evaluation_every_other_epoch(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=['train.epochs=5', 'eval.every_epochs=2'])
        tested = [line['epoch'] for line in self.log('run') if 'test_images' in line]
        self.assertEqual(tested, [2, 4, 5])

    def test_max_steps(self):
        self.write('tiny.yaml', TINY)
        result = self.train('tiny.yaml', out='run', set=['train.max_steps=6'])
        self.assertEqual(summary(result.out)['steps'], '6')
        self.assertEqual([line['step'] for line in self.log('run') if line['event'] == 'step'], list(range(1, 7)))
        self.assertEqual(self.checkpoints('run')[-1], 'step-00000006.safetensors')
        # the schedule is not changed by it
        self.train('tiny.yaml', out='whole')
        self.assertEqual(self.log('run'), self.log('whole')[:8])

    # ---- folders

    def test_second_run_has_its_own_folder(self):
        self.write('tiny.yaml', TINY)
        first = self.train('tiny.yaml')
        before = self.snapshot()
        second = self.train('tiny.yaml')
        self.assertIn('run folder: runs/tiny-2', second.err)
        self.assertEqual(self.train('tiny.yaml', set=['train.max_steps=1']).err.count('run folder: runs/tiny-3'), 1)
        after = self.snapshot()
        for name, content in before.items():
            self.assertEqual(after[name], content, name)
        self.assertEqual(self.read('runs/tiny/log.jsonl'), self.read('runs/tiny-2/log.jsonl'))
        self.assertEqual(summary(first.out)['weights'], summary(second.out)['weights'])

    def test_folder_of_a_run_is_refused(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run')
        self.refused('train', 'tiny.yaml', '--out', 'run', words=['run: already holds a run', '--resume', '--out'])

    def test_a_config_in_the_folder_is_not_overwritten(self):
        self.write('my/config.yaml', TINY)
        self.refused('train', 'my/config.yaml', '--out', 'my', words=['my', 'config.yaml'])

    def test_odd_names(self):
        self.write('a b/Größe (1).tiny.yaml', TINY)
        out = 'deep/er/läufe (2) \'"'
        result = self.train('a b/Größe (1).tiny.yaml', out=out)
        self.check_log(out, 100, 32, 2, 40)
        self.run_program('eval', summary(result.out)['checkpoint'])
        self.train('a b/Größe (1).tiny.yaml', set=['train.max_steps=1'])
        self.assertTrue(os.path.exists(self.path('runs', 'Größe (1).tiny', 'log.jsonl')))

    # ---- when it goes wrong

    def explode(self, run, *settings):
        """A rate and a decay that multiply every weight by about -1000 a step."""
        self.write('tiny.yaml', TINY)
        return self.train('tiny.yaml', out=run, code=1, set=[
            'optim.name=sgd', 'optim.lr=100', 'optim.weight_decay=10', 'optim.clip=0', 'schedule.warmup_epochs=0',
            'train.epochs=50', *settings])

    def check_last_good(self, run):
        newest = self.path(run, 'checkpoints', self.checkpoints(run)[-1])
        file = read_checkpoint(newest)
        for name in file.data:
            self.assertTrue(all(math.isfinite(x) for x in file.floats(name)), name)
        self.run_program('eval', newest, '--json')
        self.run_program('inspect', newest)

    def test_values_that_are_not_finite(self):
        for name, settings in (('epochs', ['data.twins.train=32']), ('steps', ['checkpoint.every_steps=1'])):
            with self.subTest(name):
                result = self.explode(name, *settings)
                self.assertEqual(result.out, '')
                message = support.last_message(result.err)
                self.assertRegex(message, r'step \d+: (the loss is not finite: the first value that is not is operation \d+, '
                                          r'\w+ \(.*\), at [\w.]+$|'
                                          r'the gradient is not finite: the first tensor with such a value is [\w.]+$)')
                steps = [line for line in self.log(name) if line['event'] == 'step']
                self.assertTrue(steps and all(line['loss'] is not None for line in steps))
                self.assertIn(f'step {len(steps) + 1}: ', message)
                self.check_last_good(name)

    def test_weights_that_are_not_finite_are_not_saved(self):
        """A momentum that carries one weight beyond the largest number, which no loss has seen yet."""
        self.write('tiny.yaml', TINY)
        settings = ['optim.name=sgd', 'optim.lr=10', 'optim.clip=1e-3', 'schedule.name=constant', 'schedule.warmup_epochs=0']
        self.train('tiny.yaml', out='run', set=[*settings, 'train.max_steps=2'])
        last = self.path('run', 'checkpoints', 'step-00000002.safetensors')
        content, file = self.read(last), read_checkpoint(last)
        old = file.data['optim.momentum.head.bias']
        new = struct.pack('<f', 3e38) + old[4:]
        crc = {data: f'{zlib.crc32(data):08x}'.encode() for data in (old, new)}
        for before, after in ((old, new), (crc[old], crc[new])):
            self.assertEqual(content.count(before), 1)
            content = content.replace(before, after)
        self.write(last, content)
        result = self.train('tiny.yaml', '--resume', out='run', code=1, set=[*settings, 'train.max_steps=3'])
        self.assertIn('after step 3: no checkpoint is written, the weights are not finite: '
                      'the first tensor with such a value is head.bias', support.last_message(result.err))
        self.assertEqual(self.checkpoints('run')[-1], 'step-00000002.safetensors')

    def test_learning_rate_out_of_range(self):
        self.write('tiny.yaml', TINY)
        self.refused('train', 'tiny.yaml', '--set', 'optim.lr=1e30', words=['optim.lr', '0 to 100', '1e30'], lines=1)

    def test_file_that_can_not_grow(self):
        """A full disk in small: no file may become larger than some bytes."""
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='whole')
        size = os.path.getsize(self.path('whole', 'checkpoints', 'best.safetensors'))

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1000, size - 1000))
        result = self.train('tiny.yaml', out='run', code=1, preexec_fn=limit, restore_signals=False)
        message = support.last_message(result.err)
        self.assertIn('.safetensors', message)
        self.assertRegex(message, r'File too large: \d+ bytes .* needed, \d+ bytes .* free')
        self.assertEqual(os.listdir(self.path('run', 'checkpoints')), [])
        # with room again it can be taken up, although no checkpoint came to be
        result = self.train('tiny.yaml', '--resume', out='run')
        self.assertIn('run holds no checkpoint yet, the run starts over', result.err)
        self.assertEqual(self.read('run', 'log.jsonl'), self.read('whole', 'log.jsonl'))

    def test_results_that_do_not_get_out(self):
        self.write('tiny.yaml', TINY)
        with open('/dev/full', 'wb') as full:
            for words in (['train', 'tiny.yaml', '--out', 'run'], ['inspect', 'tiny.yaml'], ['config'], ['version'],
                          ['data', 'list'], ['eval', 'run/checkpoints/best.safetensors'], ['eval', '--help']):
                process = subprocess.run([support.PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, cwd=self.folder,
                                         env=support.environment(self.folder))
                self.assertEqual(process.returncode, 1, words)
                self.assertIn(b'standard output', process.stderr)

    def test_progress_on_a_terminal(self):
        """A bar that is taken away before ordinary lines."""
        self.write('tiny.yaml', TINY)
        ours, theirs = pty.openpty()
        process = subprocess.Popen([support.PROGRAM, 'train', 'tiny.yaml', '--threads', '1', '--set', 'train.epochs=1',
                                    '--set', 'data.twins.train=100000'],
                                   cwd=self.folder, env=support.environment(self.folder), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        text = b''
        try:
            while True:
                text += os.read(ours, 65536)
        except OSError:  # the other side is closed
            os.close(ours)
        self.addCleanup(support.end, process)
        self.assertEqual(process.wait(), 0, text)
        self.assertRegex(text, rb'\r\x1b\[K\[#*\.*\] epoch 1/1, step \d+, loss [\d.]+, train [\d.]+ %, \d+ images/s, \d+ s left')
        self.assertRegex(text, rb'\r\x1b\[K\r*epoch 1/1: train loss')

    def test_header_of_a_checkpoint(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run')
        name = self.path('run', 'checkpoints', 'best.safetensors')
        file = Safetensors(name)
        self.assertEqual(file.metadata['format'], 'pt')
        self.assertTrue(all(isinstance(value, str) for value in file.metadata.values()))
        with open(name, 'rb') as raw:
            size, = struct.unpack('<Q', raw.read(8))
        self.assertEqual(size % 8, 0)


if __name__ == '__main__':
    support.main()
