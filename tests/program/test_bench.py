"""bench: what it reports adds up, lists make comparisons, and it needs no data; times themselves are not asserted."""
import json
import signal

import support
from support import TINY, make_cifar

CIFAR = """
model: {family: vit, patch: 8, dims: [16], depths: [2], heads: [2], mlp_ratio: 2, attention: {dwconv: 3}}
data: {set: cifar10}
optim: {ema: 0.99}
train: {batch: 24, lanes: 4, shard: 5}
"""
# 16 tokens of 8 x 8 x 3 values; two blocks: q, k, v, output and MLP of 16 dims (x 2), attention in heads of 8,
# convolution 3 x 3, angle and two reflections of q and k; 10 classes.
FLOPS = (2 * 16 * 192 * 16 + 2 * (2 * 16 * 16 * 16 * (4 + 2 * 2) + 4 * 16 * 16 * 8 + 2 * 16 * 16 + 2 * 16 * 16 * 9 +
         8 * 16 * 16 + 8 * 16 * 16 * 2) + 2 * 16 * 10)


class Bench(support.Case):
    def bench(self, *words, **options):
        return json.loads(self.run_program('bench', *words, '--json', **options).out)

    def test_report_adds_up(self):
        self.write('cifar.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=31, test=10)
        for data in ([], ['--set', 'data.path=' + self.path('cifar')]):
            with self.subTest(data):
                case, = self.bench('cifar.yaml', '--steps', '3', '--threads', '2', *data)['cases']
                self.assertEqual([case[k] for k in ('attention', 'batch', 'shard', 'lanes', 'threads', 'tokens', 'steps')],
                                 ['mirror', 24, 5, 4, 2, 16, 3])
                self.assertEqual(case['data_is_real'], bool(data))
                self.assertAlmostEqual(case['gflop_per_step'], 3 * 24 * FLOPS / 1e9, delta=1e-9)
                rows = case['operations']
                self.assertAlmostEqual(sum(row['ms'] for row in rows), case['ms']['step']['mean'], delta=1e-3)
                self.assertAlmostEqual(sum(row['gflop'] for row in rows), case['gflop_per_step'], delta=1e-9)
                linear = [row['calls'] for row in rows if row['name'] == 'linear']
                self.assertEqual(linear, [5 * 10, 5 * 10])  # shards times layers, forward and backward
                self.assertTrue({'data', 'sums', 'optimiser', 'waiting', 'between'} <= {row['name'] for row in rows})
                parts = [case['ms'][part]['mean'] for part in ('data', 'forward', 'backward', 'sums', 'waiting', 'optimiser')]
                self.assertAlmostEqual(sum(parts), case['ms']['step']['mean'], delta=1e-3)
                for spread in case['ms'].values():
                    order = [spread[k] for k in ('least', 'quarter', 'median', 'three_quarters', 'most')]
                    self.assertEqual(order, sorted(order))
                memory = case['memory_bytes']
                self.assertGreater(memory['process'], memory['tapes'] + memory['state'])
                self.assertEqual(memory['state'] % (4 * 64), 0)
                self.assertGreater(memory['state'], 4 * 4 * case['parameters'])  # weights, two moments, average
                self.assertGreater(case['peak_gflops']['least'], 0)
        self.assertFalse(any(name.startswith(('runs', 'run')) for name in self.snapshot()))

    def test_tables(self):
        self.write('tiny.yaml', TINY)
        result = self.run_program('bench', 'tiny.yaml', '--steps', '1', '--batch', '8')
        for word in ('vit, mirror attention', 'batch 8 = shards', 'median', 'peak ', 'without the data set', 'mirror_attention',
                     'optimiser', 'between'):
            self.assertIn(word, result.out)
        self.assertEqual(result.err, '')

    def test_comparison(self):
        self.write('tiny.yaml', TINY)
        out = self.run_program('bench', 'tiny.yaml', '--steps', '2', '--kinds', 'relu,mirror', '--threads', '1,2').out
        table = out[out.index('comparison'):]
        for kind in ('relu', 'mirror'):
            for threads in (1, 2):
                self.assertRegex(table, rf'(?m)^  {kind} +{threads} ')
        cases = self.bench('tiny.yaml', '--steps', '1', '--kinds', 'softmax,elu1')['cases']
        self.assertEqual([case['attention'] for case in cases], ['softmax', 'elu1'])
        self.assertNotIn('process', cases[0]['memory_bytes'])

    def test_tokens(self):
        self.write('tiny.yaml', TINY)
        found = self.bench('tiny.yaml', '--steps', '1', '--tokens', '4,16,64', '--kinds', 'softmax,mirror', '--batch', '32')
        rows = found['rows']
        self.assertEqual([(row['tokens'], row['attention']) for row in rows],
                         [(n, kind) for n in (4, 16, 64) for kind in ('softmax', 'mirror')])
        self.assertEqual([row['batch'] * row['tokens'] for row in rows], [128] * 6)
        self.assertTrue(all(row['measured'] and row['us_per_token'] > 0 and row['bytes_per_token'] > 0 for row in rows))
        self.assertTrue(all(('over_softmax' in row) == (row['attention'] == 'mirror') for row in rows))
        text = self.run_program('bench', 'tiny.yaml', '--steps', '1', '--tokens', '4,16').out
        kinds = self.run_program('config', 'model.attention.kind').out.split('\n')[1].split(' of ')[-1].split(', ')
        self.assertIn('mirror', kinds)
        self.assertEqual(text.count('\n'), 2 + 2 * len(kinds) + len(kinds) - 1)

    def test_wrong_usage(self):
        self.write('tiny.yaml', TINY)
        for words, hint in ((['--tokens', '5'], '5 is not a square number'), (['--tokens', '16,4'], '4 comes after 16'),
                            (['--kinds', 'relu,cosine'], "'cosine'"), (['--kinds', 'relu,relu'], 'twice'),
                            (['--threads', '0'], '1 to 1024'), (['--threads', '1,'], "found ''"), (['--steps', 'x'], "'x'"),
                            (['--tokens', '4', '--threads', '1,2'], 'one number of threads'),
                            (['--set', 'optim.lrr=1'], 'optim.lr'), (['--batch', '2', '--set', 'train.shard=4'], 'train.shard')):
            with self.subTest(words):
                self.refused('bench', 'tiny.yaml', *words, words=[hint])
        self.refused('bench', words=['one CONFIG'])
        self.refused('bench', 'none.yaml', words=['none.yaml'])

    def test_interrupt(self):
        self.write('tiny.yaml', TINY)
        process = self.start('bench', 'tiny.yaml', '--steps', '100000')
        self.assertTrue(support.wait_for(lambda: self.handles_interrupts(process), process))
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assertEqual((result.code, result.out), (130, ''), str(result))
        self.assertEqual(support.last_message(result.err), 'mirrorla: interrupted')

    @staticmethod
    def handles_interrupts(process):
        """Whether the program has installed its handler: bit 1 of the signals caught is SIGINT's."""
        with open(f'/proc/{process.pid}/status', encoding='utf-8') as file:
            caught = next((line for line in file if line.startswith('SigCgt:')), 'SigCgt: 0')
        return int(caught.split()[1], 16) & 2


if __name__ == '__main__':
    support.main()
