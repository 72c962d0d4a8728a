"""The demo page in headless Chromium: it gives the answers that `mirrorla eval` gives.

Needs node with the packages of package.json, which `./run test` installs, and Chromium.  Without Chromium the test is
skipped, or fails where MLA_REQUIRE_BROWSER is set.  With MLA_PICTURES=DIR pictures of the page are kept there.
"""
import json
import math
import os
import shutil
import subprocess
import sys

import support
from support import PROGRAM, SOURCE, Safetensors, summary

CHROMIUM = next((path for name in ('chromium', 'chromium-browser', 'google-chrome') if (path := shutil.which(name))), None)
SKIPPED = 77  # as meson reads it
TEST = 60
CONFIG = f"""\
model: {{family: vit, patch: 8, dims: [32], depths: [2], heads: [2], mlp_ratio: 2, attention: {{kind: mirror, dwconv: 3}}}}
data: {{set: twins, twins: {{train: 256, test: {TEST}}}}}
optim: {{lr: 1e-2}}
train: {{epochs: 2, batch: 32, lanes: 2}}
"""


class Demo(support.Case):
    def test_page(self):
        self.assertIsNotNone(CHROMIUM, 'no Chromium here: apt-get install chromium')
        self.write('demo.yaml', CONFIG)
        checkpoint = summary(self.train('demo.yaml', out='run').out)['checkpoint']
        self.run_program('eval', checkpoint, '--logits', 'logits.safetensors')
        words = [os.path.join(SOURCE, 'docs/demo/serve'), checkpoint, '--out', 'site', '--build-only']
        made = subprocess.run(words, cwd=self.folder, env=dict(os.environ, MLA_PROGRAM=PROGRAM), capture_output=True,
                              text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        samples = json.loads(self.read('site/samples/samples.json'))
        self.assertEqual(len(samples), 12)
        job = dict(images=[self.path('site/samples', sample['file']) for sample in samples], chromium=CHROMIUM,
                   pictures=os.environ.get('MLA_PICTURES'))
        words = ['node', os.path.join(SOURCE, 'tests/onnx/demo.mjs'), self.path('site')]
        done = subprocess.run(words, input=json.dumps(job), capture_output=True, text=True, timeout=support.TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + '\n(./run test installs node, and its packages)')
        result = json.loads(done.stdout)
        self.assertEqual(result['faults'], [])
        file = Safetensors(self.path('logits.safetensors'))
        classes = json.loads(Safetensors(self.path(checkpoint)).metadata['classes'])
        logits, labels = file.floats('logits'), file.integers('labels')
        for i, (sample, answer) in enumerate(zip(samples, result['answers'])):
            index = i * TEST // len(samples)
            row = logits[10 * index:10 * index + 10]
            order = sorted(range(10), key=lambda k: -row[k])[:5]
            total = sum(math.exp(x) for x in row)
            self.assertEqual((sample['label'], sample['class']), (labels[index], classes[labels[index]]))
            self.assertEqual(answer['names'], [classes[k] for k in order])
            for k, share in zip(order, answer['shares']):
                self.assertAlmostEqual(float(share.split()[0]), 100 * math.exp(row[k]) / total, delta=0.06)
            self.assertIn(classes[order[0]], answer['status'])
            self.assertEqual((answer['map'], answer['hidden']), (4, False))


if __name__ == '__main__':
    if not CHROMIUM and not os.environ.get('MLA_REQUIRE_BROWSER'):
        print('skipped: no Chromium here (apt-get install chromium)')
        sys.exit(SKIPPED)
    support.main()
