"""The same bits for any number of threads, whatever the environment says about threads, and again and again."""
import json
import os

import support
from support import CIFAR, PYRAMID, make_cifar, summary


class Bits(support.Case):
    def setUp(self):
        super().setUp()
        # 59 images of a batch in shards of 3: the last shard is short, and so is the last batch
        self.write('tiny.yaml', PYRAMID.replace('batch: 32', 'batch: 59').replace('shard: 4', 'shard: 3'))
        self.runs = 0

    def result(self, *arguments, env=(), config='tiny.yaml', set=()):
        """Everything that must not change: hash, log and the newest checkpoint."""
        self.runs += 1
        run = f'run-{self.runs}'
        settings = ['data.twins.train=150', 'optim.ema=0.9', 'model.drop_path=0.3', *set]
        out = self.train(config, *arguments, out=run, set=settings, env=env).out
        return summary(out)['weights'], self.read(run, 'log.jsonl'), self.read(run, 'checkpoints', self.checkpoints(run)[-1])

    def test_threads(self):
        first = self.result('--threads', '1')
        self.assertEqual(first[1].count(b'"event":"step"'), 6)
        for threads in (2, 3, 4, 5, 8):
            self.assertEqual(self.result('--threads', str(threads)), first, threads)

    def test_options_of_the_mirror(self):
        """Steps that are not fused, and a loss that layers add, which stands in the log and not in the test loss."""
        mirror = ('feature=twin', 'angle_planes=learned', 'angle_source=own', 'qk_norm=rms', 'fold=1', 'power=learned',
                  'scale_modulation=true', 'retention_loss=0.5')
        options = [f'model.attention.mirror.{option}' for option in mirror]
        first = self.result('--threads', '1', set=options)
        self.assertEqual(self.result('--threads', '3', set=options), first)
        run = f'run-{self.runs}'
        steps = [line for line in self.log(run) if line['event'] == 'step']
        self.assertTrue(all(0 < line['retention_loss'] < 1 for line in steps))
        end = [line for line in self.log(run) if line['event'] == 'epoch'][-1]
        self.assertNotIn('retention_loss', end)
        path = os.path.join(run, 'checkpoints', self.checkpoints(run)[-1])
        said = json.loads(self.run_program('eval', path, '--weights', 'raw', '--json').out)
        self.assertEqual(said['loss'], end['test_loss'])
        # without the weight the same first loss, but another gradient
        self.result(set=[*options[:-1], 'model.attention.mirror.retention_loss=0'])
        other = [line for line in self.log(f'run-{self.runs}') if line['event'] == 'step']
        self.assertEqual(other[0]['loss'], steps[0]['loss'])
        self.assertNotEqual(other[0]['grad_norm'], steps[0]['grad_norm'])
        self.assertNotIn('retention_loss', other[0])

    def test_again(self):
        first = self.result()
        for _ in range(4):
            self.assertEqual(self.result('--threads', '4'), first)

    def test_environment(self):
        first = self.result('--threads', '2')
        for env in ({'OPENBLAS_NUM_THREADS': '7'}, {'OMP_NUM_THREADS': '5', 'OPENBLAS_NUM_THREADS': '3'},
                    {'OMP_NUM_THREADS': '1'}, {'OMP_DYNAMIC': 'true'}, {'OMP_THREAD_LIMIT': '2'},
                    {'OMP_NUM_THREADS': '2,3', 'OMP_MAX_ACTIVE_LEVELS': '2'}, {'OMP_SCHEDULE': 'guided,3'},
                    {'OMP_PROC_BIND': 'true', 'OMP_NUM_THREADS': '16'}, {'GOTO_NUM_THREADS': '3'},
                    {'LC_ALL': 'de_DE.UTF-8', 'LANG': 'de_DE.UTF-8'}):
            for threads in ('2', '3'):
                self.assertEqual(self.result('--threads', threads, env=env), first, (env, threads))
            self.assertEqual(self.result(env=env), first, env)

    def test_shapes_of_the_work(self):
        """Fewer images than lanes, more lanes than shards, one lane, one shard a batch."""
        for settings in (['train.batch=2', 'train.shard=2'], ['train.lanes=64', 'train.batch=16'], ['train.lanes=1'],
                         ['train.shard=59', 'train.batch=59'], ['data.twins.train=5', 'data.twins.test=3']):
            first = self.result('--threads', '1', set=[*settings, 'train.epochs=1', 'train.max_steps=6'])
            for threads in ('2', '3'):
                self.assertEqual(self.result('--threads', threads, set=[*settings, 'train.epochs=1', 'train.max_steps=6']),
                                 first, (settings, threads))

    def test_augmentation(self):
        """Crops and flips depend on the image and the epoch, not on who draws them."""
        make_cifar(self.path('cifar'), train=70, test=20)
        self.write('cifar.yaml', CIFAR)
        first = self.result('--threads', '1', config='cifar.yaml')
        self.assertEqual(self.result('--threads', '4', config='cifar.yaml'), first)
        other = self.result('--threads', '1', config='cifar.yaml', set=['augment.flip=0', 'augment.crop_padding=0'])
        self.assertNotEqual(other[0], first[0])

    def test_evaluation(self):
        self.train('tiny.yaml', out='run', set=['train.epochs=1'])
        first = None
        for threads in ('1', '2', '5'):
            out = self.run_program('eval', 'run/checkpoints/best.safetensors', '--threads', threads, '--json',
                                   '--logits', f'logits-{threads}').out
            found = out, self.read(f'logits-{threads}')
            first = first or found
            self.assertEqual(found, first)

    def test_more_threads_than_cores_is_said(self):
        threads = os.cpu_count() + 1
        result = self.train('tiny.yaml', '--threads', str(threads), out='run', set=['train.max_steps=1', 'train.lanes=1'])
        self.assertRegex(result.err, rf'{threads} threads on \d+ cores')
        self.assertIn(f'{threads} threads for 1 lanes', result.err)


if __name__ == '__main__':
    support.main()
