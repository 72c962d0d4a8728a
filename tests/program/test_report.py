"""`mirrorla report`, and its page in headless Chromium.

Needs node with the packages of package.json, which `./run test` installs, Chromium, and a build with uPlot.  What needs
Chromium is skipped without it, or fails where MLA_REQUIRE_BROWSER is set.  With MLA_PICTURES=DIR pictures are kept there.
"""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import support
import synthetic_runs
from support import CIFAR, PROGRAM, SOURCE, TINY, make_cifar

CHROMIUM = next((path for name in ('chromium', 'chromium-browser', 'google-chrome') if (path := shutil.which(name))), None)
SKIPPED = 77  # as meson reads it
PHONE, DESKTOP = (390, 844), (1400, 900)
EVERY_EPOCH = 'diagnostics.every_epochs=1'


def data_of(page):
    """The data of a page, given as bytes."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.decode(), re.S)
    return json.loads(found.group(1))


class Report(support.Case):
    def report(self, *arguments, out='report.html', **options):
        result = self.run_program('report', *arguments, '-o', out, **options)
        self.assertEqual(result.out, out + '\n')
        return data_of(self.read(out))

    # ---- what the program writes

    def test_curves_are_those_of_the_log(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=[EVERY_EPOCH])
        data = self.report('run', '--maps', '0')
        run, log = data['runs'][0], self.log('run')
        steps = [line for line in log if line['event'] == 'step']
        ends = [line for line in log if line['event'] == 'epoch']
        layers = [line for line in log if line['event'] == 'layers']
        self.assertEqual((data['title'], run['name'], run['steps_per_epoch']), ('run', 'run', 4))
        self.assertEqual(run['steps']['at'], [line['step'] for line in steps])
        for key, name in (('loss', 'loss'), ('lr', 'lr'), ('grad_norm', 'grad_norm')):
            for shown, line in zip(run['steps'][key], steps):
                self.assertAlmostEqual(shown, line[name], delta=1e-4 * abs(line[name]) + 1e-12)
        self.assertEqual(run['epochs']['at'], [1, 2])
        for shown, line in zip(run['epochs']['test_accuracy'], ends):
            self.assertAlmostEqual(shown, 100 * line['test_correct'] / line['test_images'], delta=1e-3)
        self.assertEqual(len(run['epochs']['images_per_second']), 2)
        for i, layer in enumerate(run['layers']['layer']):
            self.assertEqual((layer['kind'], layer['tokens'], layer['heads']), ('mirror', 4, 2))
            for shown, line in zip(layer['energy_k'], layers):
                self.assertAlmostEqual(shown, line['layers'][i]['energy_k'], delta=1e-4)
        config = dict(zip(data['keys'], run['config']))
        self.assertEqual((config['model.attention.kind'], config['optim.lr']), ('mirror', '0.002'))

    def test_long_runs_are_thinned_to_their_extremes(self):
        synthetic_runs.make_run(self.path('long'), 'relu', 3, 0, 700, 9)
        lines = self.log('long')
        run = self.report('long')['runs'][0]
        losses = [line['loss'] for line in lines if line['event'] == 'step']
        shown = run['steps']
        self.assertLessEqual(len(shown['at']), 200)
        self.assertEqual(shown['at'][-1], 6300)
        self.assertAlmostEqual(min(shown['loss_low']), min(losses), delta=1e-4)
        self.assertAlmostEqual(max(shown['loss_high']), max(losses), delta=1e-4)
        first = losses[:shown['bucket']]
        self.assertAlmostEqual(shown['loss'][0], sum(first) / len(first), delta=1e-3)
        self.assertLessEqual(len(run['epochs']['at']), 401)
        self.assertEqual(run['epochs']['at'][-1], 700)
        self.assertLessEqual(len(run['layers']['at']), 61)
        self.assertEqual(run['layers']['at'][-1], 700)
        accuracies = [line['test_correct'] / 100 for line in lines if line['event'] == 'epoch']
        self.assertAlmostEqual(run['best'], max(accuracies), delta=1e-3)
        self.assertEqual(run['best_epoch'], 1 + accuracies.index(max(accuracies)))

    def test_values_that_are_not_finite(self):
        synthetic_runs.make_run(self.path('run'), 'relu', 3, 0, 2, 3)
        text = self.read('run', 'log.jsonl').decode().replace('"grad_norm":1.', '"grad_norm":null,"was":1.', 2)
        self.write('run/log.jsonl', text)
        run = self.report('run')['runs'][0]
        self.assertEqual([x is None for x in run['steps']['grad_norm']], [True, True, False, False, False, False])

    def test_names_end_no_script(self):
        name = 'x</script><script>alert(1)</script>'.replace('/', '_')
        synthetic_runs.make_run(self.path(name), 'relu', 3, 0, 1, 2)
        os.makedirs(self.path('<'), exist_ok=True)
        synthetic_runs.make_run(self.path('<', 'script>'), 'relu', 3, 1, 1, 2)
        data = self.report(name, '</script>')
        page = self.read('report.html').decode()
        self.assertEqual([run['name'] for run in data['runs']], [name, '</script>'])
        self.assertEqual(page.lower().count('</script'), 2)
        self.assertNotIn('alert(1)</script', page)

    def test_no_address_in_the_page(self):
        synthetic_runs.make_run(self.path('run'), 'relu', 3, 0, 1, 2)
        self.report('run')
        page = self.read('report.html').decode()
        self.assertEqual(re.findall(r'(?:src|href)\s*=\s*["\'](?!#|data:,)[^"\']*', html.unescape(page)), [])
        self.assertIn("default-src 'none'", page)

    def test_running_training_rewrites_it(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=['train.max_steps=4', EVERY_EPOCH])
        before = data_of(self.read('run', 'report.html'))
        self.assertEqual(before['runs'][0]['epochs']['at'], [1])
        self.train('tiny.yaml', '--resume', out='run', set=['train.max_steps=0', EVERY_EPOCH])
        data = data_of(self.read('run', 'report.html'))
        self.assertEqual((data['runs'][0]['epochs']['at'], data['live']), ([1, 2], False))
        self.assertEqual(data['runs'], self.report('run', '--maps', '0')['runs'])
        self.train('tiny.yaml', out='off', set=['log.report=false', 'log.tensorboard=false'])
        self.assertEqual(sorted(os.listdir(self.path('off'))),
                         ['checkpoints', 'config.yaml', 'log.jsonl', 'parameters.tsv', 'timing.jsonl'])

    def test_maps_are_of_the_checkpoints(self):
        make_cifar(self.path('cifar'))
        self.write('cifar.yaml', CIFAR)
        for name, kind, seed in (('a', 'mirror', 0), ('b', 'mirror', 1), ('c', 'softmax', 0)):
            self.train('cifar.yaml', out=name, set=[f'model.attention.kind={kind}', f'train.seed={seed}'])
        maps = self.report('a', 'b', 'c', '--images', '3')['maps']
        self.assertEqual([m['run'] for m in maps], [0, 2])       # one of those that differ in their seed alone
        self.assertIsNone(maps[1]['pictures'])                   # those of the first
        self.assertEqual([p['label'] for p in maps[0]['pictures']], ['airplane', 'frog', 'cat'])
        self.assertEqual(len(maps[0]['images']), 3)
        for image in maps[0]['images']:
            self.assertEqual(([m['side'] for m in image['layers']], image['evidence']['side']), ([4], 4))
            self.assertLess(image['layers'][0]['low'], 1)
        shutil.rmtree(self.path('cifar'))
        result = self.run_program('report', 'a', '-o', 'without.html')
        self.assertIn('without attention maps', result.err)
        self.assertEqual(data_of(self.read('without.html'))['maps'], [])

    def make_sweep(self):
        rows = []
        for kind in ('mirror', 'relu'):
            cells = []
            for seed in range(3):
                name = f'{kind}-{seed}'
                done = (kind, seed) != ('relu', 2)
                if done:
                    synthetic_runs.make_run(self.path('sweep', 'cells', name), kind, 3, seed, 5, 4)
                cells.append(dict(name=name, seed=seed, dir=f'cells/{name}', status='done' if done else 'failed',
                                  reason=None if done else 'the loss is not finite', value=70.5 + seed if done else None))
            values = [cell['value'] for cell in cells if cell['value']]
            rows.append(dict(name=kind, values={'model.attention.kind': kind}, cells=cells, n=len(values), mean=sum(values) / len(values),
                             sd=1.0, difference=None if kind == 'relu' else dict(mean=.5, low=-.25, high=1.25, p=.1234, p_holm=.2468, n=2),
                             parameters=123456, flops=7.5e6, images_per_second=1000.0, memory_mib=256.0))
        self.write('sweep/table.json', json.dumps(dict(
            title='mirror and relu', metric='final test accuracy, %', axes=[dict(key='model.attention.kind', values=['mirror', 'relu'])],
            base='relu', test='paired t-test', rows=rows)))

    def test_sweep(self):
        self.make_sweep()
        result = self.run_program('report', 'sweep', '--maps', '0')
        self.assertEqual(result.out, 'sweep/report.html\n')
        data = data_of(self.read('sweep', 'report.html'))
        self.assertEqual([run['name'] for run in data['runs']], ['mirror-0', 'mirror-1', 'mirror-2', 'relu-0', 'relu-1'])
        self.assertEqual(data['table']['rows'][1]['cells'][2]['reason'], 'the loss is not finite')
        self.assertEqual(data['title'], 'mirror and relu')

    def test_refusals(self):
        os.makedirs(self.path('empty'))
        self.make_sweep()
        self.write('bad/log.jsonl', '{"event":"step","step":1,"epoch":1}\nnot a line\n')
        self.write('broken/table.json', '{"rows": [')
        self.refused('report', words=['RUN'])
        self.refused('report', 'nowhere', words=['nowhere', 'no such'])
        self.refused('report', 'empty', words=['empty', 'log.jsonl'])
        self.refused('report', 'bad', words=['bad/log.jsonl:2'])
        self.refused('report', 'broken', words=['broken/table.json', 'JSON'])
        self.refused('report', 'sweep', 'sweep', words=['sweep'])
        self.refused('report', 'sweep', '--maps', '-1', words=['--maps'])

    # ---- the page

    def browse(self, page, size, dark, name):
        if not CHROMIUM and not os.environ.get('MLA_REQUIRE_BROWSER'):
            raise unittest.SkipTest('no Chromium here (apt-get install chromium)')
        job = dict(page=self.path(page), chromium=CHROMIUM, width=size[0], height=size[1], dark=dark, name=name,
                   pictures=os.environ.get('MLA_PICTURES'))
        done = subprocess.run(['node', os.path.join(SOURCE, 'tests/report/page.mjs')], input=json.dumps(job), capture_output=True,
                              text=True, timeout=support.TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + '\n(./run test installs node, and its packages)')
        found = json.loads(done.stdout)
        self.assertEqual(found['faults'], [])
        self.assertLessEqual(found['size'][0], found['size'][1])
        return found

    def look(self, page, name, check):
        """At phone and desktop width, in the light and in the dark."""
        for size, dark in ((DESKTOP, False), (PHONE, True)):
            with self.subTest(size=size):
                check(self.browse(page, size, dark, f'{name}-{"phone-dark" if dark else "desktop-light"}'))

    def check_sorted(self, found):
        names, means = [row[0] for row in found['table'][1:]], [float(row[found['table'][0].index('mean')]) for row in found['table'][1:]]
        best_first = [name for _, name in sorted(zip(means, names), key=lambda pair: -pair[0])]
        self.assertEqual(found['sorted'][0], dict(sort=['mean', 'descending'], names=best_first))
        self.assertEqual(found['sorted'][1], dict(sort=['mean', 'ascending'], names=best_first[::-1]))

    def check_reading(self, found):
        for word in ('theme', 'plotarea', 'wide'):
            self.assertIn(word, found['reached'])
        for shown in (found['tip'], found['hover']):
            self.assertRegex(shown or '', r'^epoch [\d.]+\D.*\d')

    def test_page_of_one_run(self):
        make_cifar(self.path('cifar'))
        self.write('cifar.yaml', CIFAR)
        self.train('cifar.yaml', out='run', set=[EVERY_EPOCH])
        self.report('run')

        def check(found):
            self.assertEqual(found['title'], 'run')
            self.assertEqual(found['sections'], ['Results', 'Curves', 'Inside the attention layers', 'Attention on test images', 'Configs'])
            self.assertEqual(found['charts'][:6], ['Test accuracy %', 'Training loss', 'Test loss', 'Learning rate',
                                                   'Gradient norm before clipping', 'Throughput training images/s'])
            self.assertEqual((found['drawn'], found['maps']), (len(found['charts']), 2))
            self.check_reading(found)
            self.assertNotIn('Retention loss share of the energy cut off', found['charts'])
        self.look('report.html', 'one', check)

    def test_page_with_the_retention_loss(self):
        self.write('tiny.yaml', TINY)
        self.train('tiny.yaml', out='run', set=['model.attention.mirror.retention_loss=0.1'])
        shown = self.report('run')['runs'][0]['steps']['retention_loss']
        logged = [line['retention_loss'] for line in self.log('run') if line['event'] == 'step']
        self.assertEqual(len(shown), len(logged))
        for a, b in zip(shown, logged):
            self.assertAlmostEqual(a, b, delta=1e-4 * b)
        self.look('report.html', 'retention', lambda found: self.assertEqual(found['charts'][2], 'Retention loss share of the energy cut off'))

    def test_page_of_a_sweep(self):
        self.make_sweep()
        self.run_program('report', 'sweep', '--maps', '0', '-o', 'report.html')

        def check(found):
            self.assertEqual(found['toggles'], ['mirror', 'relu'])
            self.assertEqual(found['toggled']['pressed'], 'false')
            self.assertEqual(found['toggled']['before'], ['mirror · 0', 'mirror · 1', 'mirror · 2', 'relu · 0', 'relu · 1'])
            self.assertEqual(found['toggled']['after'], ['relu · 0', 'relu · 1'])
            rows = {row[0]: row for row in found['table']}
            self.assertIn('relu' + 'base' + 'seed 2: failed: the loss is not finite', rows)
            mirror = dict(zip(found['table'][0], rows['mirror']))
            self.assertEqual((mirror['n'], mirror['mean'], mirror['difference to base'], mirror['p'], mirror['p (Holm)'],
                              mirror['parameters']),
                             ('3', '71.50', '+0.50 [-0.25, +1.25]', '0.123', '0.247', '123,456'))
            self.assertEqual(found['different'], ['relu (differs)'])
            self.assertEqual(found['drawn'], len(found['charts']))
            self.check_sorted(found)
            self.check_reading(found)
        self.look('report.html', 'sweep', check)

    def test_page_of_many_runs(self):
        paths = synthetic_runs.make_runs(self.path('many'), 60, 200, 3)
        self.report(*paths)

        def check(found):
            self.assertEqual((len(found['toggles']), len(found['table'])), (20, 21))
            self.assertEqual(len(found['toggled']['before']), 20)        # means of seeds, with so many
            self.assertEqual(len(found['toggled']['after']), 19)
            self.assertEqual(found['drawn'], len(found['charts']))
            self.check_sorted(found)
            self.check_reading(found)
        self.look('report.html', 'many', check)
        self.assertLess(os.path.getsize(self.path('report.html')), 4 << 20)


if __name__ == '__main__':
    if 'built without uPlot' in subprocess.run([PROGRAM, 'report', os.devnull, '-o', os.devnull], capture_output=True, text=True,
                                               check=False).stderr:
        print('skipped: this build has no reports (npm ci --prefix train/report, then meson setup --reconfigure)')
        sys.exit(1 if os.environ.get('MLA_REQUIRE_BROWSER') else SKIPPED)
    support.main()
