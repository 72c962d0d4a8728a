"""Sweeps: every cell trained once, whatever is killed; the table against an independent computation; what is refused."""
import csv
import glob
import io
import json
import math
import os
import re
import shutil
import signal
import statistics
import time

import support
from support import CIFAR, TINY, make_cifar, read_lines, wait_for

GRID = """\
base: tiny.yaml
sweep:
  title: A test
  model.attention.kind: [relu, mirror]
  optim.lr: [1e-3, 2e-3, 5e-3]
  train.seed: [0, 1, 2]
  base: {model.attention.kind: relu, optim.lr: 0.001}
"""


def student_p(t, df):
    """Two-sided probability by Simpson's rule on the density, substituted so that the tail is finite: t = tan(u)."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def density(u):
        if u >= math.pi / 2:
            return scale if df == 1 else 0.0
        c = math.cos(u)
        return scale * (1 + math.tan(u) ** 2 / df) ** (-(df + 1) / 2) / c ** 2
    low, steps = math.atan(abs(t)), 20000
    h = (math.pi / 2 - low) / steps
    total = sum((1 if i in (0, steps) else 4 if i % 2 else 2) * density(low + i * h) for i in range(steps + 1))
    return 2 * total * h / 3


def student_quantile(p, df):
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, df) > p else (low, middle)
    return low


def holm(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    out, before = [0.0] * len(values), 0.0
    for k, i in enumerate(order):
        before = max(before, min(1.0, (len(values) - k) * values[i]))
        out[i] = before
    return out


class Ablate(support.Case):
    def setUp(self):
        super().setUp()
        self.write('tiny.yaml', TINY)

    # ---- helpers

    def ablate(self, sweep, *arguments, code=0, out='out', **options):
        return self.run_program('ablate', sweep, '--out', out, *arguments, code=code, **options)

    def state(self, name, out='out'):
        with open(self.path(out, 'cells', name, 'cell.json'), encoding='utf-8') as file:
            return json.load(file)

    def states(self, out='out'):
        found = {}
        for path in glob.glob(self.path(out, 'cells', '*', 'cell.json')):
            with open(path, encoding='utf-8') as file:
                found[os.path.basename(os.path.dirname(path))] = json.load(file)
        return found

    def done(self, out='out'):
        return sorted(name for name, state in self.states(out).items() if state['status'] == 'done')

    def table(self, out='out'):
        with open(self.path(out, 'table.json'), encoding='utf-8') as file:
            return json.load(file)

    def cells(self, out='out'):
        return {cell['name']: cell for row in self.table(out)['rows'] for cell in row['cells']}

    def trainings(self):
        """Processes that train in this test's folder: {cell: pid}."""
        found = {}
        for path in glob.glob('/proc/[0-9]*/cmdline'):
            try:
                with open(path, 'rb') as file:
                    words = file.read().decode(errors='replace').split('\0')
                here = os.readlink(os.path.dirname(path) + '/cwd')
            except OSError:
                continue
            if 'train' in words and '--out' in words and os.path.realpath(here) == os.path.realpath(self.folder):
                found[os.path.basename(words[words.index('--out') + 1])] = int(path.split('/')[2])
        return found

    def logs(self, out='out'):
        return {os.path.basename(os.path.dirname(path)): self.read(path)
                for path in glob.glob(self.path(out, 'cells', '*', 'log.jsonl'))}

    def accuracy(self, name, out='out', epochs=2):
        lines = [line for line in read_lines(self.path(out, 'cells', name, 'log.jsonl')) if line['event'] == 'epoch']
        self.assertEqual(lines[-1]['epoch'], epochs)
        return 100 * lines[-1].get('ema_test_correct', lines[-1]['test_correct']) / lines[-1]['test_images']

    def check_table(self, out='out', epochs=2):
        """Every figure of table.json from the logs, by other code."""
        table = self.table(out)
        rows = {row['name']: row for row in table['rows']}
        value = {}
        for row in table['rows']:
            for cell in row['cells']:
                self.assertEqual(cell['value'] is not None, cell['status'] == 'done', cell)
                if cell['status'] == 'done':
                    value[row['name'], cell['seed']] = self.accuracy(cell['name'], out, epochs)
                    self.assertAlmostEqual(cell['value'], value[row['name'], cell['seed']], 10)
        tested = []
        for row in table['rows']:
            own = [value[row['name'], c['seed']] for c in row['cells'] if (row['name'], c['seed']) in value]
            self.assertEqual(row['n'], len(own))
            self.assertAlmostEqual(row['mean'] or 0, statistics.mean(own) if own else 0, 9)
            self.assertAlmostEqual(row['sd'] or 0, statistics.stdev(own) if len(own) > 1 else 0, 9)
            base = row['base']
            pairs = [] if base in (None, row['name']) else [
                value[row['name'], c['seed']] - value[base, c['seed']] for c in row['cells']
                if (row['name'], c['seed']) in value and (base, c['seed']) in value]
            d = row['difference']
            self.assertEqual(d is not None, bool(pairs), row)
            if not pairs:
                continue
            self.assertEqual(d['n'], len(pairs))
            self.assertAlmostEqual(d['mean'], statistics.mean(pairs), 9)
            sd = statistics.stdev(pairs) if len(pairs) > 1 else 0
            if sd < 1e-9:
                self.assertEqual([d['low'], d['high'], d['p'], d['p_holm']], [None] * 4)
                continue
            error, df = sd / math.sqrt(len(pairs)), len(pairs) - 1
            self.assertAlmostEqual(d['p'], student_p(d['mean'] / error, df), 7)
            reach = student_quantile(0.05, df) * error
            self.assertAlmostEqual(d['high'] - d['mean'], reach, 4)
            self.assertAlmostEqual(d['mean'] - d['low'], reach, 4)
            tested.append(d)
        for d, p in zip(tested, holm([d['p'] for d in tested])):
            self.assertAlmostEqual(d['p_holm'], p, 12)
        self.check_csv(table, out)
        self.assertEqual(len(rows), len(table['rows']))
        return table

    def check_csv(self, table, out):
        text = self.read(out, 'table.csv').decode()
        records = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([r['name'] for r in records], [row['name'] for row in table['rows']])
        for record, row in zip(records, table['rows']):
            self.assertEqual(int(record['n']), row['n'])
            d = row['difference'] or {}
            for column, expected in (('mean', row['mean']), ('sd', row['sd']), ('p', d.get('p')),
                                     ('p_holm', d.get('p_holm')), ('difference_low', d.get('low')),
                                     ('flops', row['flops']), ('parameters', row['parameters'])):
                self.assertEqual(float(record[column]) if record[column] else None, expected, (column, row))
            for key, text in row['values'].items():
                self.assertEqual(record[key], text)
            for cell in row['cells']:
                found = record[f'seed_{cell["seed"]}']
                if cell['value'] is None:
                    self.assertEqual(found, cell['status'])
                else:
                    self.assertEqual(float(found), cell['value'])

    # ---- weights to start from

    def test_cells_start_from_the_cells_of_another_sweep(self):
        axes = 'sweep: {model.attention.kind: [relu, mirror], train.seed: [0, 1]}\n'
        self.write('short.yaml', 'base: tiny.yaml\n' + axes)
        self.write('long.yaml', 'base: tiny.yaml\ndata: {size: 32, twins: {grid: 4}}\n' + axes)
        self.write('more.yaml', 'base: tiny.yaml\nsweep: {model.attention.kind: [relu, mirror, softmax], train.seed: [0, 1]}\n')
        self.ablate('short.yaml', out='short')
        before = self.snapshot()
        self.refused('ablate', 'more.yaml', '--out', 'out', '--finetune', 'short', words=['no finished cell softmax-s0', '2 of 6'])
        self.refused('ablate', 'long.yaml', '--out', 'out', '--finetune', 'none', words=['no file or folder none'])
        self.refused('ablate', 'long.yaml', '--out', 'out', '--finetune', '.', words=['no finished cell relu-s0', '4 of 4'])
        self.refused('ablate', 'long.yaml', '--out', 'short', '--finetune', 'short', words=['grid is 2 there and 4'])
        self.refused('ablate', 'short.yaml', '--out', 'short', '--finetune', 'short', words=['begun from its seed'])
        self.assertEqual(self.snapshot(), before)

        self.ablate('long.yaml', '--finetune', 'short')
        self.check_table()
        self.assertTrue(self.table()['finetuned'])
        self.assertIn('begun from trained weights', self.read('out', 'table.md').decode())
        self.assertFalse(self.table('short')['finetuned'])
        self.assertNotIn('trained weights', self.read('short', 'table.md').decode())
        cells = ['mirror-s0', 'mirror-s1', 'relu-s0', 'relu-s1']
        self.assertEqual(self.done(), cells)
        for name in cells:
            source, = self.checkpoints(f'short/cells/{name}')[-1:]
            record = json.loads(self.read('out', 'cells', name, 'finetune.json'))
            self.assertEqual(os.path.realpath(record['checkpoint']),
                             os.path.realpath(self.path('short', 'cells', name, 'checkpoints', os.path.basename(source))))

        logs = self.logs()
        shutil.rmtree(self.path('out', 'cells', 'relu-s1'))
        before = self.snapshot()
        self.refused('ablate', 'long.yaml', '--out', 'out', words=['begun from the weights of', '--finetune'])
        shutil.copytree(self.path('short'), self.path('copy'))
        self.refused('ablate', 'long.yaml', '--out', 'out', '--finetune', 'copy', words=['not of', 'copy'])
        shutil.rmtree(self.path('copy'))
        self.assertEqual(self.snapshot(), before)
        self.ablate('long.yaml', '--finetune', 'short')
        self.assertEqual(self.logs(), logs)

    def test_cells_start_from_a_checkpoint(self):
        self.train('tiny.yaml', out='run')
        source = 'run/checkpoints/best.safetensors'
        self.write('rates.yaml', 'base: tiny.yaml\nsweep: {optim.lr: [1e-3, 2e-3], train.seed: [0, 1]}\n')
        self.ablate('rates.yaml', '--finetune', source)
        for name in self.done():
            record = json.loads(self.read('out', 'cells', name, 'finetune.json'))
            self.assertEqual(os.path.realpath(record['checkpoint']), os.path.realpath(self.path(source)))
        self.assertEqual(len(self.done()), 4)

    # ---- failures and kills

    def test_failure_and_kill(self):
        """2 x 3 x 3 seeds; a cell that can't make its folder, and ablate killed in the middle."""
        self.write('grid.yaml', GRID)
        broken = 'mirror-lr0.005-s1'
        self.write(f'out/cells/{broken}/checkpoints', 'in the way')
        process = self.start('ablate', 'grid.yaml', '--out', 'out')
        self.assertTrue(wait_for(lambda: len(self.done()) >= 5 and self.trainings(), process))
        process.kill()
        process.wait()
        before = self.done()
        self.assertGreaterEqual(len(before), 5)
        self.assertLess(len(before), 17)
        self.assertTrue(wait_for(lambda: not self.trainings()), 'orphans train on')
        stamps = {name: os.stat(self.path('out', 'cells', name, 'log.jsonl')).st_mtime_ns for name in before}

        result = self.ablate('grid.yaml', code=1)
        self.assertIn(f'{len(before)} done before', result.err)
        self.assertEqual(len(self.done()), 17)
        for name in before:
            self.assertEqual(self.state(name)['attempts'], 1)
            self.assertEqual(os.stat(self.path('out', 'cells', name, 'log.jsonl')).st_mtime_ns, stamps[name], name)
        for name in self.done():
            self.assertLessEqual(self.state(name)['attempts'], 1 if name in before else 2)
        failed = self.state(broken)
        self.assertEqual(failed['status'], 'failed')
        self.assertIn('exit code', failed['reason'])
        self.assertIn('checkpoints', failed['reason'])

        table = self.check_table()
        self.assertEqual(self.cells()[broken]['status'], 'failed')
        self.assertEqual(self.cells()[broken]['reason'], failed['reason'])
        row = next(r for r in table['rows'] if r['name'] == 'mirror-lr0.005')
        self.assertEqual((row['n'], row['difference']['n']), (2, 2))
        self.assertEqual(table['base'], 'relu-lr0.001')
        self.assertEqual(result.out, self.read('out', 'table.md').decode())
        self.assertRegex(result.out, r'\| mirror-lr0\.005 \| \*\*2 of 3\*\* \| .*1: \*\*failed\*\*')
        self.assertIn(f'- {broken}: failed, exit code', result.out)
        self.assertIn('1 of 18 cells are not done', support.last_message(result.err))

        # a further call runs that one alone
        logs = self.logs()
        os.remove(self.path('out', 'cells', broken, 'checkpoints'))
        result = self.ablate('grid.yaml')
        self.assertEqual(result.err.count('] '), 1, str(result))
        self.assertEqual(len(self.done()), 18)
        self.assertEqual({k: v for k, v in self.logs().items() if k != broken}, logs)
        self.assertNotIn('Not done', result.out)
        self.check_table()
        # and then there is nothing left to do
        result = self.ablate('grid.yaml')
        self.assertEqual(result.err.count('] '), 0, str(result))

    def test_jobs(self):
        """The same results for one and for two at a time."""
        self.write('grid.yaml', GRID.replace('[0, 1, 2]', '[0, 1]'))
        self.ablate('grid.yaml', '--jobs', '1', '--threads', '2', out='one')
        result = self.ablate('grid.yaml', '--jobs', '2', '--threads', '2', out='two')
        self.assertIn('2 at a time, 1 thread each', result.err)
        self.assertEqual(self.logs('one'), self.logs('two'))
        self.assertEqual(len(self.logs('two')), 12)
        one, two = self.check_table('one'), self.check_table('two')
        for table in (one, two):
            for row in table['rows']:
                self.assertGreater(row.pop('images_per_second'), 0)
                self.assertGreater(row.pop('memory_mib'), 0)
        self.assertEqual(one, two)
        result = self.ablate('grid.yaml', '--jobs', '3', '--threads', '2', out='two')
        self.assertIn('--jobs 3 for 2 threads: 2 at a time', result.err)

    # ---- ends of all kinds

    LONG = ['--set', 'train.epochs=40', '--set', 'data.twins.train=400']

    def test_interrupt(self):
        self.write('grid.yaml', GRID.replace('[0, 1, 2]', '[0]'))
        self.ablate('grid.yaml', *self.LONG, out='straight')
        process = self.start('ablate', 'grid.yaml', '--out', 'out', '--jobs', '2', '--threads', '2', *self.LONG)
        self.assertTrue(wait_for(lambda: len(self.done()) >= 1 and len(self.trainings()) == 2 and len(self.logs()) >= 3, process))
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assertEqual(result.code, 130, str(result))
        self.assertEqual(self.trainings(), {})
        self.assertEqual(result.out, '')
        self.assertRegex(support.last_message(result.err), r'interrupted: \d of 6 cells are done; call it again')
        stopped = [name for name, state in self.states().items() if state['status'] == 'stopped']
        self.assertTrue(stopped, self.states())
        for name in stopped:
            self.assertEqual(self.cells()[name]['status'], 'missing')
        before = self.done()
        result = self.ablate('grid.yaml', *self.LONG)
        self.assertEqual(result.err.count('] '), 6 - len(before), str(result))
        self.assertEqual(self.logs(), self.logs('straight'))
        self.check_table(epochs=40)

    def test_killed_cell(self):
        """A training that is killed is recorded, the others go on, and it is resumed by the next call."""
        self.write('grid.yaml', GRID.replace('[0, 1, 2]', '[0]'))
        words = [*self.LONG, '--set', 'checkpoint.every_epochs=1']
        process = self.start('ablate', 'grid.yaml', '--out', 'out', *words)
        name = 'relu-lr0.002-s0'
        self.assertTrue(wait_for(lambda: name in self.trainings() and name in self.logs(), process))
        os.kill(self.trainings()[name], signal.SIGKILL)
        result = self.finish(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertEqual(self.state(name)['status'], 'killed')
        self.assertIn('signal 9', self.state(name)['reason'])
        self.assertEqual(self.cells()[name]['status'], 'killed')
        self.assertIn(f'- {name}: killed, signal 9', result.out)
        self.assertEqual(len(self.done()), 5)
        # one that is asked to end does so at a checkpoint; the sweep is not complete then
        shutil.rmtree(self.path('out', 'cells', name))
        process = self.start('ablate', 'grid.yaml', '--out', 'out', *words)
        self.assertTrue(wait_for(lambda: name in self.trainings() and name in self.logs(), process))
        os.kill(self.trainings()[name], signal.SIGTERM)
        self.assertEqual(self.finish(process).code, 1)
        self.assertEqual((self.state(name)['status'], self.cells()[name]['status']), ('stopped', 'missing'))
        self.ablate('grid.yaml', *words)
        self.assertEqual(self.state(name)['attempts'], 2)
        self.check_table(epochs=40)

    def test_no_orphans(self):
        """Runs end with the ablate that started them, at a checkpoint; the next one waits for them and goes on."""
        self.write('sweep.yaml', 'base: tiny.yaml\nsweep: {train.seed: [0, 1]}\n')
        endless = ['--set', 'train.epochs=100000', '--jobs', '2', '--threads', '2']
        process = self.start('ablate', 'sweep.yaml', '--out', 'out', *endless)
        self.assertTrue(wait_for(lambda: len(self.trainings()) == 2 and len(self.logs()) == 2, process))
        first = self.trainings()
        process.kill()
        process.wait()
        process = self.start('ablate', 'sweep.yaml', '--out', 'out', *endless)
        self.assertTrue(wait_for(lambda: len(self.trainings()) == 2 and not set(first.values()) & set(self.trainings().values()),
                                 process, 30), self.trainings())
        outputs = [os.path.join('out', 'cells', name, 'output.txt') for name in ('s0', 's1')]
        self.assertTrue(wait_for(lambda: all(b'resume: from' in self.read(name) for name in outputs), process))
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assertEqual(result.code, 130, str(result))
        for name in outputs:
            text = self.read(name).decode()
            self.assertEqual(text.count('==== attempt '), 2)
            self.assertIn('interrupted after step', text.split('==== attempt 2')[0])
            self.assertIn('resume: from', text.split('==== attempt 2')[1])

    def test_data_that_fails(self):
        """A set of keys in which the data does not exist, and one whose file is cut."""
        self.write('cifar.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=60, test=20)
        make_cifar(self.path('cut'), train=60, test=20)
        with open(self.path('cut', 'test_batch.bin'), 'r+b') as file:
            file.truncate(1000)
        self.write('sweep.yaml', 'base: cifar.yaml\nsweep:\n  variants:\n    fine: {}\n    gone: {data.path: nowhere}\n'
                   '    cut: {data.path: cut, optim.lr: 1e-3}\n  train.seed: [3]\n  base: fine\n')
        result = self.ablate('sweep.yaml', code=1)
        self.assertEqual({n: s['status'] for n, s in self.states().items()},
                         {'fine-s3': 'done', 'gone-s3': 'failed', 'cut-s3': 'failed'})
        self.assertIn('nowhere', self.state('gone-s3')['reason'])
        self.assertIn('test_batch.bin', self.state('cut-s3')['reason'])
        self.assertRegex(result.out, r'\| gone \| \*\*0 of 1\*\* \| – \| 3: \*\*failed\*\* \| – \| – \| – \|')
        self.check_table()
        self.ablate('sweep.yaml', code=1)
        self.assertEqual({n: s['attempts'] for n, s in self.states().items()}, {'fine-s3': 1, 'gone-s3': 2, 'cut-s3': 2})

    def test_one_at_a_time(self):
        self.write('grid.yaml', GRID)
        process = self.start('ablate', 'grid.yaml', '--out', 'out', *self.LONG)
        self.assertTrue(wait_for(lambda: self.trainings(), process))
        result = self.run_program('ablate', 'grid.yaml', '--out', 'out', *self.LONG, code=2)
        self.assertIn('out: another ablate is running in this folder', result.err)
        # looking is allowed, and sees what runs
        wait_for(lambda: any(s['status'] == 'running' for s in self.states().values()), process)
        result = self.run_program('ablate', 'grid.yaml', '--out', 'out', '--table-only', *self.LONG)
        self.assertIn('**running**', result.out)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process).code, 130)
        result = self.ablate('grid.yaml', '--table-only', *self.LONG)
        self.assertNotIn('**running**', result.out)
        self.assertEqual(self.trainings(), {})

    # ---- edits between calls

    def test_added_values(self):
        self.write('sweep.yaml', 'base: tiny.yaml\nsweep: {optim.lr: [1e-3], train.seed: [0, 1]}\n')
        self.ablate('sweep.yaml')
        logs = self.logs()
        self.assertEqual(sorted(logs), ['lr0.001-s0', 'lr0.001-s1'])
        self.write('sweep.yaml', 'base: tiny.yaml\nsweep: {train.seed: [2, 0], optim.lr: [5e-3, 0.001]}\n')
        result = self.ablate('sweep.yaml')
        self.assertEqual(sorted(self.logs()), ['lr0.001-s0', 'lr0.001-s1', 'lr0.001-s2', 'lr0.005-s0', 'lr0.005-s2'])
        for name, log in logs.items():
            self.assertEqual(self.logs()[name], log)
            self.assertEqual(self.state(name)['attempts'], 1)
        self.assertIn('1 cell of an earlier form of the sweep left alone: lr0.001-s1', result.err)
        self.check_table()

    def test_changed_config(self):
        self.write('sweep.yaml', 'base: tiny.yaml\nsweep: {train.seed: [0, 1]}\n')
        self.ablate('sweep.yaml')
        before = self.snapshot()
        for change in ('train.epochs=3', 'model.mlp_ratio=3'):
            self.refused('ablate', 'sweep.yaml', '--out', 'out', '--set', change, words=['out/cells/s0', change.split('=')[0],
                         'the sweep has changed', '--out'], lines=1)
        self.assertEqual(before, self.snapshot())
        # where checkpoints are kept does not change a result
        self.ablate('sweep.yaml', '--set', 'checkpoint.keep=1')

    # ---- forms of a sweep

    def names(self, text, *arguments):
        self.write('sweep.yaml', 'base: tiny.yaml\n' + text)
        before = self.snapshot()
        result = self.run_program('ablate', 'sweep.yaml', '--dry-run', *arguments)
        self.assertEqual(before, self.snapshot())
        return [line.split()[0] for line in result.out.splitlines()[:-1]]

    def test_names(self):
        self.assertEqual(self.names('sweep: {model.attention.kind: [softmax, relu, mirror], train.seed: [0, 1, 2]}\n'),
                         [f'{kind}-s{seed}' for kind in ('softmax', 'relu', 'mirror') for seed in range(3)])
        self.assertEqual(self.names('sweep: {train.seed: [0, 18446744073709551615]}\n'), ['s0', 's18446744073709551615'])
        self.assertEqual(self.names('sweep:\n  optim.lr: [1e-3]\n  model.dims: [[16], [32]]\n'
                                    '  model.attention.mirror.variance_angle: [yes, no]\n'),
                         [f'lr0.001-dims{d}-variance_angle_{v}' for d in (16, 32) for v in ('true', 'false')])
        self.assertEqual(self.names('sweep: {optim.betas: [[0.9, 0.999], [0.8, 0.99]]}\n'),
                         ['betas0.9_0.999', 'betas0.8_0.99'])
        self.assertEqual(self.names('sweep:\n  size: {small: {}, wide: {model.dims: [32]}}\n'
                                    '  form: {plain: {}, deep: {model.depths: [2]}}\n'),
                         ['small-plain', 'small-deep', 'wide-plain', 'wide-deep'])
        # what a file name can't hold, and what is too long, is told apart by a hash
        long = 'x' * 300
        found = self.names(f'sweep:\n  variants: {{"a/b": {{optim.lr: 0.1}}, "a b": {{optim.lr: 0.2}}, .b: {{optim.lr: 0.3}}, '
                           f'{long}: {{optim.lr: 0.4}}, {long}y: {{optim.lr: 0.5}}, ä: {{optim.lr: 0.6}}}}\n')
        self.assertEqual(len(set(found)), 6)
        for name in found:
            self.assertRegex(name, r'^[A-Za-z0-9_+][A-Za-z0-9._+-]*$')
            self.assertLess(len(name), 70)

    def test_exclude(self):
        text = GRID.replace('base: tiny.yaml\n', '')
        rules = '  exclude:\n    - {model.attention.kind: mirror, optim.lr: [0.002, 5.0e-3]}\n    - {train.seed: 2, optim.lr: 0.005}\n'
        self.assertEqual(self.names(text + rules), [
            *(f'relu-lr{lr}-s{seed}' for lr in ('0.001', '0.002', '0.005') for seed in range(3) if (lr, seed) != ('0.005', 2)),
            'mirror-lr0.001-s0', 'mirror-lr0.001-s1', 'mirror-lr0.001-s2'])
        self.assertEqual(self.names('sweep:\n  model.dims: [[16], [32]]\n  exclude: {model.dims: [16]}\n'), ['dims32'])
        self.assertEqual(self.names('sweep:\n  variants: {a: {}, b: {optim.lr: 0.1}}\n  exclude: {variants: a}\n'), ['b'])

    def test_resolved_sweep(self):
        """DIR/sweep.yaml alone is the same sweep: no bases, no overrides."""
        self.write('sweep.yaml', 'base: tiny.yaml\nsweep:\n  title: "a: \\"b\\" # c"\n  variants:\n    plain: {}\n'
                   '    wide: {model.dims: [32], model.mlp_ratio: 3}\n  train.seed: [0]\n  exclude: [{variants: [plain]}]\n')
        self.ablate('sweep.yaml', '--set', 'train.epochs=1')
        os.remove(self.path('tiny.yaml'))
        text = self.read('out', 'sweep.yaml')
        result = self.ablate('out/sweep.yaml')
        self.assertEqual(result.err.count('] '), 0, str(result))
        self.assertEqual(self.read('out', 'sweep.yaml'), text)
        self.assertIn('# a: "b" # c\n', result.out)
        self.assertIn('dims: [32]', self.read('out', 'cells', 'wide-s0', 'config.yaml').decode())
        # a cell's config alone, by train, gives the same run
        self.train('out/configs/wide-s0.yaml', out='alone')
        self.assertEqual(self.read('alone', 'log.jsonl'), self.read('out', 'cells', 'wide-s0', 'log.jsonl'))

    def test_base_within_an_axis(self):
        """A base that leaves an axis out is one for each of its values."""
        self.write('sweep.yaml', GRID.replace(', optim.lr: 0.001}', '}').replace('[0, 1, 2]', '[0, 1]'))
        self.ablate('sweep.yaml')
        table = self.check_table()
        self.assertIsNone(table['base'])
        self.assertEqual([row['base'] for row in table['rows']], 2 * ['relu-lr0.001', 'relu-lr0.002', 'relu-lr0.005'])
        self.assertEqual([row['difference'] is None for row in table['rows']], 3 * [True] + 3 * [False])

    def test_averaged_weights_and_single_seeds(self):
        self.write('sweep.yaml', 'base: tiny.yaml\noptim: {ema: 0.9, lr: 0.02}\ntrain: {epochs: 4}\n'
                   'sweep: {model.attention.kind: [relu, mirror], base: relu}\n')
        result = self.ablate('sweep.yaml')
        table = self.check_table(epochs=4)
        ends = [[line for line in read_lines(self.path('out', 'cells', name, 'log.jsonl')) if line['event'] == 'epoch'][-1]
                for name in ('relu', 'mirror')]
        self.assertTrue(any(end['ema_test_correct'] != end['test_correct'] for end in ends), ends)
        d = table['rows'][1]['difference']
        self.assertEqual((d['n'], d['p'], d['low'], table['rows'][1]['sd']), (1, None, None, None))
        self.assertIn('of the averaged weights', result.out)
        self.assertIn('no test for a single pair', table['test'])
        tex = self.read('out', 'table.tex').decode()
        rows = re.findall(r'^(.*) \\\\$', tex, re.M)
        self.assertEqual({row.count('&') for row in rows}, {9})
        self.assertEqual(len(rows), 3)
        # the page about it: only a program that was built without one says how to get it
        page = self.finish(self.start('report', 'out', '-o', 'page.html'), support.TIMEOUT_S)
        self.assertEqual(os.path.exists(self.path('out', 'report.html')), page.code == 0, str(page))

    def test_figures_of_inspect(self):
        self.write('sweep.yaml', 'base: tiny.yaml\nsweep: {model.attention.kind: [softmax, mirror]}\n')
        self.ablate('sweep.yaml')
        for row in self.table()['rows']:
            found = json.loads(self.run_program('inspect', f'out/configs/{row["name"]}.yaml', '--json').out)
            self.assertEqual((row['parameters'], row['flops']), (found['parameters'], found['flops']))
            lines = read_lines(self.path('out', 'cells', row['name'], 'timing.jsonl'))
            self.assertAlmostEqual(row['images_per_second'], statistics.median(x['images_per_second'] for x in lines), 6)
            self.assertAlmostEqual(row['memory_mib'], max(x['peak_memory_bytes'] for x in lines) / 2 ** 20, 6)

    # ---- refusals

    def test_refusals(self):
        cases = [
            ('model.atention.kind: [relu]', ['x.yaml:3: ', 'model.atention.kind', 'model.attention.kind']),
            ('seed: [0]', ['x.yaml:3: ', 'did you mean train.seed']),
            ('model: {patch: [8]}', ['x.yaml:3: ', 'model', 'section']),
            ('exclud: [{train.seed: 1}]', ['x.yaml:3: ', 'did you mean exclude']),
            ('train.seed: [0, x]', ['x.yaml:3: train.seed', 'whole number', '"x"']),
            ('train.seed: 3', ['x.yaml:3: ', 'train.seed', 'list']),
            ('model.attention.qkv_bias: [1]', ['x.yaml:3: model.attention.qkv_bias', 'true or false']),
            ('model.dims: [16, 32]', ['x.yaml:3: model.dims', 'brackets']),
            ('optim.lr:\n    - 0.1\n    - 1000', ['x.yaml:5: optim.lr', 'out of range']),
            ('model.attention.kind: [mirrorr]', ['x.yaml:3: ', 'did you mean mirror?']),
            ('train.seed: []', ['x.yaml:3: ', 'train.seed', 'empty']),
            ('train.seed: [0, 1, 0]', ['x.yaml:3: ', 'train.seed', '0 is there twice']),
            ('optim.lr: [0.001, 1e-3]', ['x.yaml:3: ', 'twice']),
            ('optim.lr: [0.1]\n  optim.lr: [0.2]', ['x.yaml:4: ', 'given twice, in line 3']),
            ('model.heads: [[2], [3]]', ['3 heads', 'x.yaml:3: model.heads', 'in cell heads3']),
            ('train.max_steps: [1, 2]', ['x.yaml: train.max_steps is 1']),
            ('variants: [a]', ['x.yaml:3: ', 'variants', 'unknown key']),
            ('variants: {}', ['x.yaml:3: ', 'variants', 'unknown key']),
            ('variants: {a: 3, b: {}}', ['x.yaml:3: sweep: a', '{optim.lr: 1e-3}']),
            ('model.x: {a: {}}', ['x.yaml:3: ', 'model.x', 'unknown key']),
            ('bas: {optim.lr: 1}', ['x.yaml:3: ', 'did you mean base?']),
            ('variants: {a: {optim.lrr: 1}}', ['x.yaml:3: ', 'optim.lrr', 'did you mean optim.lr?']),
            ('variants: {a: {optim: {lr: 1}}}', ['x.yaml:3: ', 'section']),
            ('variants: {a: {optim.lr: -1}}', ['x.yaml:3: optim.lr', 'out of range']),
            ('variants: {a: {optim.lr: 1}, a: {}}', ['x.yaml:3: ', 'a is there twice']),
            ('variants: {a: {optim.lr: 1}, b: {optim.lr: 1.0}}', ['cells a and b have the same config']),
            ('variants: {a: {optim.lr: 1}, A: {}}', ['the folder A']),
            ('variants: {a: {optim.lr: 1, optim.lr: 2}}', ['x.yaml:3: ', 'optim.lr', 'twice']),
            ('variants: {a: {train.seed: 1}}', ['x.yaml:3: ', 'seeds are an axis']),
            ('variants: {a: {optim.lr: 1}}\n  optim.lr: [2]', ['x.yaml:3: ', 'optim.lr', 'variants and optim.lr']),
            ('one: {a: {optim.lr: 1}}\n  two: {b: {optim.lr: 2}}', ['x.yaml:3: ', 'optim.lr', 'one and two']),
            ('train.seed: [0, 1]\n  exclude: []', ['x.yaml:4: ', 'exclude', 'list of rules']),
            ('train.seed: [0, 1]\n  exclude: [{}]', ['x.yaml:4: ', 'exclude']),
            ('train.seed: [0, 1]\n  exclude: {train.seed: 2}', ['x.yaml:4: ', 'has no value 2; it has: 0, 1']),
            ('train.seed: [0, 1]\n  exclude: {train.sed: 1}', ['x.yaml:4: ', 'did you mean train.seed?']),
            ('train.seed: [0, 1]\n  exclude: {optim.lr: 1}', ['x.yaml:4: ', 'which has: train.seed']),
            ('train.seed: [0, 1]\n  exclude: [{train.seed: 1}, {train.seed: 1}]', ['x.yaml:4: ', 'matches nothing']),
            ('train.seed: [0, 1]\n  exclude: {train.seed: [0, 1]}', ['x.yaml:4: ', 'leave no cell']),
            ('train.seed: [0, 1]\n  exclude: {train.seed: []}', ['x.yaml:4: ', 'empty']),
            ('model.attention.kind: [relu, mirror]\n  base: softmax', ['x.yaml:4: ', 'base', 'it has: relu, mirror']),
            ('model.attention.kind: [relu]\n  base: {model.atention.kind: relu}', ['x.yaml:4: ', 'did you mean']),
            ('train.seed: [0]\n  base: {train.seed: 0}', ['x.yaml:4: ', 'base', 'seeds']),
            ('optim.lr: [0.1]\n  model.patch: [8]\n  base: 0.1', ['x.yaml:5: ', 'base', 'expected axes']),
            ('model.attention.kind: [relu, mirror]\n  exclude: {model.attention.kind: relu}\n  base: relu',
             ['x.yaml:5: ', 'no cell is left']),
            ('title: x', ['x.yaml:3: ', 'no axis']),
            ('title: [x]\n  train.seed: [0]', ['x.yaml:3: ', 'title', 'text']),
            ('train.seed: [' + ', '.join(map(str, range(5000))) + ']', ['x.yaml:3: ', 'more than 4096 cells']),
            ('[1]', ['x.yaml:2: ', 'expected axes']),
            ('', ['x.yaml:2: ', 'expected axes']),
        ]
        for text, words in cases:
            with self.subTest(text=text[:100]):
                self.write('x.yaml', f'base: tiny.yaml\nsweep:\n  {text}\n')
                for more in ([], ['--dry-run'], ['--table-only']):
                    self.refused('ablate', 'x.yaml', '--out', 'new/folder', *more, words=words, lines=1)

    def test_refused_calls(self):
        self.write('x.yaml', 'base: tiny.yaml\nsweep: {optim.lr: [0.1]}\n')
        self.write('based.yaml', 'base: x.yaml\nsweep: {train.seed: [0]}\n')
        self.write('run/log.jsonl', '{}\n')
        for arguments, words in [
                (['tiny.yaml'], ['tiny.yaml: ', 'no section `sweep`', 'mirrorla train']),
                (['none.yaml'], ['none.yaml']),
                (['based.yaml'], ['x.yaml:2: sweep', 'no base']),
                (['x.yaml', '--set', 'optim.lr=1'], ['x.yaml:2: ', 'optim.lr', '--set optim.lr=1']),
                (['x.yaml', '--set', 'optim.lrr=1'], ['did you mean optim.lr?']),
                (['x.yaml', '--set', 'train.max_steps=1'], ['train.max_steps']),
                (['x.yaml', '--out', 'tiny.yaml'], ['tiny.yaml: exists and is not a folder']),
                (['x.yaml', '--out', 'run'], ['run: holds log.jsonl']),
                (['x.yaml', '--jobs', '0'], ['--jobs', "'0'"]),
                (['x.yaml', '--threads', 'x'], ['--threads', "'x'"]),
                (['x.yaml', 'x.yaml'], ['one SWEEP']),
                ([], ['one SWEEP']),
                (['x.yaml', '--dry-run', '--table-only'], ['one of them']),
                (['x.yaml', '--foo'], ["no option '--foo'"])]:
            with self.subTest(arguments=arguments):
                self.refused('ablate', *arguments, words=words)
        for command in ('train', 'inspect', 'bench'):
            self.refused(command, 'x.yaml', words=['x.yaml:2: sweep', 'mirrorla ablate'])


if __name__ == '__main__':
    support.main()
