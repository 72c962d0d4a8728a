"""Every shipped config trains for two steps, and its checkpoint can be evaluated and inspected."""
import glob
import os

import support
from support import KINDS, SOURCE, make_cifar, make_folder, read_checkpoint, summary


def sweeps():
    return glob.glob(os.path.join(SOURCE, 'configs', 'ablations', '*.yaml'))


class Configs(support.Case):
    def test_sweeps(self):
        """Every cell of a shipped sweep is a whole config, and its model can be made."""
        make_cifar(self.path('cifar'), train=40, test=20)
        make_folder(self.path('tiny-imagenet'))
        self.assertGreater(len(sweeps()), 3)
        for sweep in sorted(sweeps()):
            with self.subTest(sweep=os.path.relpath(sweep, SOURCE)):
                data = ['--set', 'data.path=' + self.path('tiny-imagenet' if 'imagenet' in sweep else 'cifar')]
                result = self.run_program('ablate', sweep, '--dry-run', *data, timeout=600)
                self.assertNotIn('mirrorla: ', result.err)
                self.assertRegex(result.out, r'\n\d+ cells in \d+ rows\n$')

    def test_shipped_configs(self):
        make_cifar(self.path('cifar'), train=40, test=20)
        found = sorted(set(glob.glob(os.path.join(SOURCE, 'configs', '**', '*.yaml'), recursive=True)) - set(sweeps()))
        self.assertGreater(len(found), 10)
        data = ['data.path=' + self.path('cifar'), 'data.twins.test=16']
        resolved = {}
        for config in found:
            with self.subTest(config=os.path.relpath(config, SOURCE)):
                run = os.path.basename(config)
                result = self.train(config, out=run, set=['train.max_steps=2', 'train.batch=8', *data])
                losses = [line['loss'] for line in self.log(run) if line['event'] == 'step']
                self.assertEqual(len(losses), 2)
                # untrained: close to the loss of guessing
                self.assertTrue(all(1.5 < loss < 4 for loss in losses), losses)
                checkpoint = summary(result.out)['checkpoint']
                read_checkpoint(self.path(checkpoint))
                self.assertIn(' of 8)', self.run_program('eval', checkpoint, '--limit', '8').out)
                self.assertIn(summary(result.out)['weights'], self.run_program('inspect', checkpoint).out)
                resolved[run] = self.read(run, 'config.yaml').decode()
        # what differs in the attention alone differs in nothing else
        for model in ('study', 'vit_tiny', 'pvt_nano'):
            kinds = KINDS if model == 'study' else ('softmax', 'elu1', 'relu', 'mirror')
            texts = {resolved[f'{model}_{kind}.yaml'].replace(f'kind: {kind}', 'kind: KIND') for kind in kinds}
            self.assertEqual(len(texts), 1, model)


if __name__ == '__main__':
    support.main()
