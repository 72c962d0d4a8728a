"""Weights for other tools: what is in the file, and that it computes the same."""
import json
import os

import support
from support import CIFAR, PYRAMID, TINY, Safetensors, make_cifar, read_checkpoint, summary


class Export(support.Case):
    def setUp(self):
        super().setUp()
        self.write('tiny.yaml', TINY)

    def export(self, checkpoint, name, *arguments):
        result = self.run_program('export', checkpoint, '--to', 'safetensors', '-o', name, *arguments)
        self.assertEqual(result.err, '')
        return Safetensors(self.path(name)), result.out

    def logits(self, name, *arguments):
        self.run_program('eval', name, '--logits', 'logits.safetensors', *arguments)
        return self.read('logits.safetensors')

    def test_contents(self):
        checkpoint = summary(self.train('tiny.yaml', out='run').out)['checkpoint']
        file, out = self.export(checkpoint, 'weights.safetensors')
        full = read_checkpoint(self.path(checkpoint))
        weights = {name for name in full.data if not name.startswith('optim.')}
        self.assertEqual(set(file.data), weights)
        for name in weights:
            self.assertEqual((file.dtype[name], file.shape[name], file.data[name]), ('F32', full.shape[name], full.data[name]))
        self.assertEqual(out, f'weights.safetensors: {sum(len(d) // 4 for d in file.data.values())} parameters in '
                              f'{len(file.data)} tensors, raw weights, F32\n')
        meta = file.metadata
        self.assertTrue(all(isinstance(value, str) for value in meta.values()))
        self.assertEqual((meta['format'], meta['architecture'], meta['size']), ('pt', 'vit', '16'))
        self.assertEqual((meta['step'], meta['epoch']), ('8', '2'))
        self.assertEqual(meta['weight_hash'], full.metadata['weight_hash'])
        self.assertEqual(meta['config'], self.read('run', 'config.yaml').decode())
        self.assertEqual(len(json.loads(meta['classes'])), 10)
        self.assertEqual(len(json.loads(meta['mean'])), 3)
        best = max(line['test_correct'] for line in self.log('run') if line['event'] == 'epoch')
        self.assertAlmostEqual(float(meta['best_test_accuracy']), best / 40)
        self.assertNotIn('counters', meta)

    def test_default_name(self):
        self.train('tiny.yaml', out='a.safetensors.d')
        name = 'a.safetensors.d/checkpoints/step-00000008'
        out = self.run_program('export', name + '.safetensors', '--to', 'safetensors').out
        self.assertTrue(out.startswith(name + '.export.safetensors: '), out)
        self.assertIn('step 8, epochs completed 2', self.run_program('inspect', name + '.safetensors').out)
        # the export is no checkpoint of the run
        self.train('tiny.yaml', '--resume', out='a.safetensors.d')

    def test_average_or_raw(self):
        checkpoint = summary(self.train('tiny.yaml', out='run', set=['optim.ema=0.9']).out)['checkpoint']
        full = read_checkpoint(self.path(checkpoint))
        for choice, prefix, word in (('auto', 'ema.', 'averaged'), ('average', 'ema.', 'averaged'), ('raw', '', 'raw')):
            with self.subTest(choice):
                file, out = self.export(checkpoint, f'{choice}.safetensors', '--weights', choice)
                self.assertIn(f'{word} weights', out)
                self.assertFalse([name for name in file.data if name.startswith(('ema.', 'optim.'))])
                for name in file.data:
                    self.assertEqual(file.data[name], full.data[prefix + name])
                self.assertEqual(self.logits(f'{choice}.safetensors'), self.logits(checkpoint, '--weights', choice))
                # the file knows what it holds, also when it is exported again
                held, other = ('average', 'raw') if prefix else ('raw', 'average')
                again, _ = self.export(f'{choice}.safetensors', 'again.safetensors', '--weights', choice)
                self.assertEqual(again.metadata['weights'], held)
                for key in ('step', 'epoch', 'best_test_accuracy', 'best_test_epoch'):
                    self.assertEqual(again.metadata[key], file.metadata[key])
                self.assertEqual(int(again.metadata['step']), full.counters()['step'])
                self.refused('export', f'{choice}.safetensors', '--to', 'safetensors', '--weights', other,
                             words=[f'{choice}.safetensors', other])
        self.assertNotEqual(self.logits('raw.safetensors'), self.logits('average.safetensors'))
        end = self.ends('run')[-1]
        for choice, key in (('raw', 'test_correct'), ('average', 'ema_test_correct')):
            out = self.run_program('eval', checkpoint, '--weights', choice, '--json').out
            self.assertEqual(json.loads(out)['correct'], end[key])
            self.assertEqual(json.loads(out)['loss'], end['ema_test_loss' if choice == 'average' else 'test_loss'])

    def test_same_logits(self):
        self.write('pvt.yaml', PYRAMID)
        for config in ('tiny.yaml', 'pvt.yaml'):
            checkpoint = summary(self.train(config, out='run-' + config).out)['checkpoint']
            self.export(checkpoint, 'weights.safetensors')
            first, second = self.logits(checkpoint), self.logits('weights.safetensors')
            self.assertEqual(first, second)
            file = Safetensors(self.path('logits.safetensors'))
            self.assertEqual((file.shape['logits'], file.shape['labels']), ((40, 10), (40,)))
            rows = file.floats('logits')
            correct = sum(max(range(10), key=lambda k: rows[10 * i + k]) == label
                          for i, label in enumerate(file.integers('labels')))
            self.assertIn(f'({correct} of 40)', self.run_program('eval', 'weights.safetensors').out)
            # a part of the set has the same rows
            self.run_program('eval', checkpoint, '--limit', '7', '--logits', 'part.safetensors')
            self.assertEqual(Safetensors(self.path('part.safetensors')).integers('labels'), file.integers('labels')[:7])

    def test_train_split(self):
        self.write('cifar.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=33, test=10)
        checkpoint = summary(self.train('cifar.yaml', out='run').out)['checkpoint']
        self.assertIn(' of 33)', self.run_program('eval', checkpoint, '--split', 'train').out)
        os.rename(self.path('cifar'), self.path('moved'))
        self.assertIn(' of 10)', self.run_program('eval', checkpoint, '--data', 'moved').out)


if __name__ == '__main__':
    support.main()
