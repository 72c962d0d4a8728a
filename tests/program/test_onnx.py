"""Exported ONNX models: what is in the file, and that onnxruntime computes the same.

Needs node with the packages of package.json, and a Python with Debian's python3-onnx; `./run test` installs both.
"""
import json
import os
import subprocess
import sys

import support
from support import PYRAMID, SOURCE, TINY, Safetensors, read_checkpoint, summary

ONNX_TESTS = os.path.join(SOURCE, 'tests', 'onnx')
IMAGES = 1000

VIT = 'family: vit, patch: 8, dims: [16], depths: [2], heads: [2], mlp_ratio: 2'
PVT = 'family: pvt, patch: 4, dims: [8, 16], depths: [1, 2], heads: [1, 2], mlp_ratio: 3'
# With the default eps of 1e-6, a query whose features are all but zero takes its output from rounding noise, and heads of
# width 8 have such queries: most models here have a higher floor, so that the comparison is of the graphs.
ATTENTIONS = {
    'softmax': '{kind: softmax}',
    'softmax, qkv_bias false': '{kind: softmax, qkv_bias: false}',
    'relu, dwconv 0': '{kind: relu, dwconv: 0, eps: 1e-4}',
    'relu, dwconv 3': '{kind: relu, dwconv: 3, eps: 1e-4}',
    'elu1, dwconv 5': '{kind: elu1, dwconv: 5}',
    'elu1, eps 0.01': '{kind: elu1, dwconv: 0, eps: 0.01}',
    'relu, gate': '{kind: relu, dwconv: 3, eps: 1e-4, gate: true}',
    'performer': '{kind: performer, dwconv: 3, eps: 1e-4}',
    'performer, 3 features, qkv_bias false': '{kind: performer, dwconv: 0, eps: 1e-4, qkv_bias: false, performer: {features: 3}}',
    'cosformer': '{kind: cosformer, dwconv: 3, eps: 1e-3}',
    'focused': '{kind: focused, dwconv: 3, eps: 1e-4}',
    'focused, factor 2.5, gate': '{kind: focused, dwconv: 3, eps: 1e-4, gate: true, focused: {factor: 2.5}}',
    'pola': '{kind: pola, dwconv: 3, eps: 1e-4}',
    'efficient, dwconv 5': '{kind: efficient, dwconv: 5}',
    'efficient, qkv_bias false': '{kind: efficient, dwconv: 0, qkv_bias: false}',
    'inline, dwconv 3': '{kind: inline, dwconv: 3}',
    'inline, gate': '{kind: inline, dwconv: 0, gate: true}',
    'agent': '{kind: agent, dwconv: 3}',
    'agent, 3 x 3': '{kind: agent, dwconv: 0, agent: {side: 3}}',
    'agent, one': '{kind: agent, dwconv: 0, agent: {side: 1}}',
    'mirror': '{kind: mirror, dwconv: 5}',
    'mirror, qkv_bias false': '{kind: mirror, dwconv: 3, qkv_bias: false}',
    'mirror, whole heads, 3 reflections': '{kind: mirror, dwconv: 0, mirror: {block: 0, reflections: 3}}',
    'mirror, no reflections': '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {reflections: 0}}',
    'mirror, no angle': '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {variance_angle: false}}',
    'mirror, angle_max 3': '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {angle_max: 3, angle_gain: 2}}',
    'mirror, no cross_head': '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {cross_head: 0}}',
    'mirror, cross_head 5': '{kind: mirror, dwconv: 3, eps: 1e-3, mirror: {block: 2, cross_head: 5}}',
    'mirror, split, own angles': '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {feature: split, angle_source: own}}',
    'mirror, split alone':
        '{kind: mirror, dwconv: 0, mirror: {feature: split, reflections: 0, variance_angle: false, cross_head: 0}}',
    'mirror, twin, planes, norm':
        '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {block: 4, feature: twin, angle_planes: learned, qk_norm: rms}}',
    'mirror, own planes, fold, scale, learned power':
        '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {angle_planes: learned, angle_source: own, fold: 2, '
        'scale_modulation: true, power: learned, retention_loss: 0.1}}',
    'mirror, twin at -I, fixed power':
        '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {feature: twin, twin_init: negative, power: fixed, exponent: 1.5}}',
    'mirror, focused power': '{kind: mirror, dwconv: 3, eps: 1e-4, mirror: {power: focused}}',
    'mirror, all off':
        '{kind: mirror, dwconv: 0, eps: 1e-4, mirror: {reflections: 0, variance_angle: false, cross_head: 0}}',
}
MODELS = [(f'{name}: {attention}', shape, ATTENTIONS[attention])
          for name, shape in (('vit', VIT), ('pvt', PVT)) for attention in ATTENTIONS] + [
    ('vit: 64 tokens, one head',
     'family: vit, patch: 4, dims: [12], depths: [1], heads: [1], mlp_ratio: 2.5',
     '{kind: mirror, mirror: {block: 4}}'),
    ('vit: one token',
     'family: vit, patch: 32, dims: [16], depths: [1], heads: [4], mlp_ratio: 1',
     '{kind: mirror, mirror: {block: 2}}'),
    ('pvt: a kind a stage',
     PVT,
     '{kind: [relu, pola], dwconv: 3, eps: 1e-3}'),
    ('pvt: four stages',
     'family: pvt, patch: 2, dims: [8, 16, 16, 32], depths: [1, 1, 2, 1], heads: [1, 1, 2, 2], mlp_ratio: 2',
     '{kind: mirror, mirror: {block: 4}}'),
]


def config(shape, attention):
    """A model after one epoch of large steps: no weight stands where it started."""
    return (f'model: {{{shape}, attention: {attention}}}\ndata: {{set: twins, twins: {{train: 64, test: {IMAGES}}}}}\n'
            'optim: {lr: 1e-2, clip: 0}\nschedule: {warmup_epochs: 0}\ntrain: {epochs: 2, batch: 16, lanes: 2}\n'
            'eval: {every_epochs: 100}\n')


def python_with_onnx():
    for name in (sys.executable, '/usr/bin/python3'):
        if subprocess.run([name, '-c', 'import onnx'], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return name
    raise AssertionError('no Python here has onnx: apt-get install python3-onnx')


class Onnx(support.Case):
    def tool(self, *words, text=None):
        done = subprocess.run(words, input=text, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0,
                         f'{words}\n{done.stdout}\n{done.stderr}\n(./run test installs node and packages)')
        return done.stdout

    def check(self, *files):
        self.tool(python_with_onnx(), os.path.join(ONNX_TESTS, 'check_model.py'), *files)

    def compare(self, jobs):
        return json.loads(self.tool('node', os.path.join(ONNX_TESTS, 'compare.mjs'), text=json.dumps(jobs)))

    def export(self, checkpoint, name, *arguments):
        result = self.run_program('export', checkpoint, '--to', 'onnx', '-o', name, *arguments)
        self.assertEqual(result.err, '')
        return result.out

    def trained(self, name, text, *arguments):
        self.write(name + '.yaml', text)
        return summary(self.train(name + '.yaml', *arguments, out=name).out)['checkpoint']

    def images(self):
        """The generated test set as CIFAR records; the embedded set that models are trained on has the same images."""
        self.run_program('data', 'prepare', 'twins', '--out', 'twins')
        return 'twins/test_batch.bin'

    def job(self, number, checkpoint, images, *arguments, **options):
        model, logits = f'{number}.onnx', f'{number}.safetensors'
        self.export(checkpoint, model, *arguments)
        self.run_program('eval', checkpoint, '--limit', str(IMAGES), '--logits', logits)
        return dict(model=model, images=images, logits=logits, count=IMAGES, **options)

    def test_same_logits(self):
        """Every kind, family and option; both ways of preprocessing in turn."""
        images, jobs = self.images(), []
        for i, (name, shape, attention) in enumerate(MODELS):
            checkpoint = self.trained(f'model{i}', config(shape, attention))
            options = (['--preprocess', 'graph'] if i % 2 else []) + (['--attention'] if i % 3 else [])
            jobs.append(self.job(i, checkpoint, images, *options))
        self.check(*(job['model'] for job in jobs))
        results = self.compare(jobs)
        for i, ((name, _, _), result) in enumerate(zip(MODELS, results)):
            with self.subTest(name):
                if os.environ.get('MLA_ONNX_REPORT'):
                    print(f"| {name} | {result['largest']:.2f} | {result['logits']:.1e} | {result['batches']:.1e} | "
                          f"{IMAGES - result['differ']} of {IMAGES} |")
                self.assertLess(result['logits'], 1e-4)
                self.assertLess(result['batches'], 1e-5)
                self.assertEqual(result['differ'], result['near'], 'another first class, and not by a tie')
                self.assertLessEqual(result['near'], 2)
                self.assertGreater(result['largest'], 0.1)
                kind = 'uint8' if i % 2 else 'float32'
                self.assertEqual([(x['name'], x['type'], x['shape'][0]) for x in result['inputs']],
                                 [('image', kind, 'batch')])
                self.assertEqual(result['outputs'], ['logits', 'attention'] if i % 3 else ['logits'])

    def test_attention_map(self):
        """The map of linear kinds, made without the N x N matrix, is that of the matrix."""
        images, jobs, eps = self.images(), [], {}
        for i, (kind, floor) in enumerate((('softmax', 0), ('relu', 1e-6), ('elu1', 0.02), ('performer', 0), ('cosformer', 1e-3),
                                           ('focused', 1e-4), ('pola', 1e-4), ('mirror', 1e-3))):
            text = config(VIT if i % 2 else PVT, f'{{kind: {kind}, eps: {floor or 1e-6}}}')
            job = self.job(i, self.trained(kind, text), images, '--attention', exposed=dict(eps=floor))
            exposed = f'exposed-{i}.onnx'
            self.tool(python_with_onnx(), os.path.join(ONNX_TESTS, 'check_model.py'), '--expose', job['model'], exposed)
            jobs.append(dict(job, model=exposed))
            eps[kind] = floor
        for (kind, floor), result in zip(eps.items(), self.compare(jobs)):
            with self.subTest(kind):
                self.assertEqual(result['tokens'], 16)
                self.assertLess(result['map'], 1e-6)
                self.assertGreaterEqual(result['least'], 0)
                least, most = result['sums']
                self.assertLess(most, 1 + 1e-5)
                if kind in ('softmax', 'elu1'):
                    self.assertGreater(least, 1 - 1e-5 - 2 * floor)

    def test_attention_map_of_one_head(self):
        """Where there is one head and no convolution, the map weights the values to the mean of what attention puts out."""
        images, jobs, kinds = self.images(), [], ('softmax', 'efficient', 'inline', 'agent')
        shape = 'family: vit, patch: 8, dims: [12], depths: [2], heads: [1], mlp_ratio: 2'
        for i, kind in enumerate(kinds):
            text = config(shape, f'{{kind: {kind}, dwconv: 0, agent: {{side: 3}}}}')
            job = self.job(i, self.trained(kind, text), images, '--attention')
            self.tool(python_with_onnx(), os.path.join(ONNX_TESTS, 'check_model.py'), '--expose', job['model'], 'exposed.onnx')
            jobs.append(dict(job, model=f'mixing-{i}.onnx'))
            os.rename(self.path('exposed.onnx'), self.path(f'mixing-{i}.onnx'))
        for kind, result in zip(kinds, self.compare(jobs)):
            with self.subTest(kind):
                self.assertEqual(result['tokens'], 16)
                self.assertLess(result['mixing'], 1e-5)
                for total in result['sums']:
                    self.assertAlmostEqual(total, 1, delta=1e-5)

    def test_metadata(self):
        """The same keys and values as in the safetensors export."""
        checkpoint = self.trained('tiny', TINY)
        out = self.export(checkpoint, 'model.onnx')
        self.assertRegex(out, r'^model.onnx: \d+ parameters in \d+ tensors, raw weights\n$')
        self.run_program('export', checkpoint, '--to', 'safetensors', '-o', 'weights.safetensors')
        expected = dict(Safetensors(self.path('weights.safetensors')).metadata, preprocess='metadata')
        del expected['format']
        reader = json.dumps(os.path.join(SOURCE, 'docs/demo/model.js'))
        script = (f"import {{ readMetadata }} from {reader}; import fs from 'node:fs';"
                  "console.log(JSON.stringify(readMetadata(fs.readFileSync('model.onnx'))))")
        found = json.loads(self.tool('node', '--input-type=module', '-e', script))
        self.assertEqual(found, expected)
        # the same again is the same file
        self.export(checkpoint, 'again.onnx')
        self.assertEqual(self.read('model.onnx'), self.read('again.onnx'))
        self.assertIn('step-00000008.onnx: ', self.run_program('export', checkpoint, '--to', 'onnx').out)

    def test_average_or_raw(self):
        self.write('pvt.yaml', PYRAMID)
        checkpoint = summary(self.train('pvt.yaml', out='run', set=['optim.ema=0.9']).out)['checkpoint']
        full = read_checkpoint(self.path(checkpoint))
        name = 'stages.0.blocks.0.mlp.fc1.weight'
        for choice, prefix, word in (('raw', '', 'raw'), ('auto', 'ema.', 'averaged')):
            self.assertIn(f'{word} weights', self.export(checkpoint, 'model.onnx', '--weights', choice))
            self.assertIn(full.data[prefix + name], self.read('model.onnx'))

    def test_refusals(self):
        checkpoint = self.trained('tiny', TINY)
        self.refused('export', checkpoint, '--to', 'onnx', '--preprocess', 'both',
                     words=['--preprocess', 'both', 'metadata or graph'])
        self.refused('export', checkpoint, '--to', 'safetensors', '--attention', words=['--attention', 'not for --to safetensors'])
        self.refused('export', checkpoint, '--to', 'onnx', '--dtype', 'bf16', words=['--dtype', 'not for --to onnx'])
        self.refused('export', checkpoint, '--to', 'onxx', words=['safetensors or onnx', 'onxx'])
        self.refused('export', checkpoint, '--to', 'onnx', '-o', 'nowhere/model.onnx', code=1, words=['nowhere/model.onnx'])
        self.refused('export', checkpoint, '--to', 'onnx', '-o', checkpoint, words=['checkpoint itself'])


if __name__ == '__main__':
    support.main()
