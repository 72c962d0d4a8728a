"""inspect, config, version, data and the help texts."""
import json
import re
import shutil
import signal
import time

import support
from support import FOLDER, PYRAMID, TINY, make_cifar, make_folder, summary


class Commands(support.Case):
    def test_help(self):
        for word in ('--help', '-h', 'help'):
            result = self.run_program(word)
            self.assertIn('Usage: mirrorla COMMAND', result.out)
            self.assertEqual(result.err, '')
        commands = re.findall(r'^  (\w+) ', result.out, re.M)
        self.assertEqual(set(commands), {'train', 'ablate', 'eval', 'predict', 'inspect', 'export', 'import', 'diff', 'bench', 'data',
                                         'report', 'config', 'version'})
        for command in commands:
            for words in ([command, '--help'], [command, '--hel']):
                result = self.run_program(*words)
                self.assertTrue(result.out.startswith(f'Usage: mirrorla {command}'), str(result))
                self.assertEqual(result.err, '')
            self.assertLess(max(len(line) for line in result.out.splitlines()), 125)
        # an option before --help does not matter
        self.assertIn('Usage', self.run_program('train', '--set', 'optim.lr=1', '--help').out)
        self.assertIn('Usage', self.run_program('inspect', '--set', 'optim.lr=1', '--help').out)
        self.assertEqual(self.snapshot(), {})

    def test_version(self):
        for words in (['version'], ['--version']):
            out = self.run_program(*words).out
            self.assertRegex(out, r'^mirrorla \d+\.\d+')
            for word in ('compiler', 'vectors', 'exp of elu', 'products', 'threads', 'zlib'):
                self.assertRegex(out, word)

    def test_config_reference(self):
        whole = self.run_program('config').out
        for key in ('model.attention.kind', 'optim.lr', 'train.batch', 'checkpoint.keep', 'data.twins.grid',
                    'eval.every_epochs'):
            self.assertIn(f'  {key} ', whole)
            one = self.run_program('config', key).out
            self.assertIn(key + ': ', one)
            self.assertIn('default', one)
        self.assertIn('softmax, elu1, relu, ', self.run_program('config', 'model.attention.kind').out)
        section = self.run_program('config', 'optim').out
        self.assertIn('optim.betas', section)
        self.assertNotIn('train.batch', section)

    def test_inspect_config(self):
        self.write('tiny.yaml', TINY)
        out = self.run_program('inspect', 'tiny.yaml', '--threads', '1').out
        self.assertIn('vit, mirror attention, 16 x 16 images, 10 classes', out)
        # qkv of one image: 4 tokens, 16 -> 48, a multiply-add counts two
        self.assertRegex(out, rf'linear +blocks.0.attn.qkv +\(1, 4, 48\) +{4 * 16 * 48 * 2 / 1e6:.4f}')
        # k^T v and q (k^T v): 2 heads of width 8, 4 tokens
        flops = float(re.search(r'mirror_attention +blocks.0.attn +\(1, 4, 16\) +(\S+)', out).group(1))
        self.assertGreaterEqual(flops, 2 * 2 * 4 * 16 * 8 / 1e6)
        match = re.search(r'(\d+) parameters in (\d+) tensors: weight decay on (\d+), none on (\d+)', out)
        total, tensors, decayed, free = (int(n) for n in match.groups())
        self.assertEqual(total, decayed + free)
        rows = re.findall(r'^  ([\w.]+) +\(([\d, ]+)\) +(\d+)  (decay|no decay)$', out, re.M)
        self.assertEqual((len(rows), sum(int(row[2]) for row in rows)), (tensors, total))
        self.assertIn('batch 32 = shards of 4 images on 4 lanes, 1 threads', out)
        resolved = out[out.index('resolved config\n') + 16:]
        self.write('resolved.yaml', resolved)
        self.assertEqual(self.run_program('inspect', 'resolved.yaml', '--threads', '1').out, out)
        out = self.run_program('inspect', 'tiny.yaml', '--set', 'model.depths=[3]', '--set', 'optim.ema=0.9').out
        self.assertIn('blocks.2.mlp.fc2.bias', out)
        self.assertRegex(out, r'moments of adamw +\d+\.\d MiB  2 buffers\n  weight average +0\.0 MiB')

    def test_inspect_json(self):
        self.write('tiny.yaml', TINY)
        found = json.loads(self.run_program('inspect', 'tiny.yaml', '--json', '--threads', '1').out)
        operations, tensors, memory = found['operations'], found['tensors'], found['memory_bytes']
        self.assertEqual(sum(o['parameters'] for o in operations), found['parameters'])
        self.assertEqual(sum(t['count'] for t in tensors), found['parameters'])
        self.assertEqual(sum(t['count'] for t in tensors if t['decay']), found['decayed_parameters'])
        self.assertEqual(sum(o['flops'] for o in operations), found['flops'])
        self.assertEqual((found['macs'] * 2, found['attention'], found['shard'], found['threads']),
                         (found['flops'], 'mirror', 4, 1))
        # head of 16 dims, 10 classes
        head = operations[-1]
        self.assertEqual([head[k] for k in ('operation', 'layer', 'output', 'macs', 'parameters')],
                         ['linear', 'head', [1, 10], 160, 170])
        self.assertEqual(memory['total'], sum(memory[k] for k in ('tapes', 'lane_gradients', 'packed_weights', 'images', 'weights', 'moments',
                                                                  'average')))
        self.assertEqual((memory['moments'], memory['average'], memory['images']),
                         (2 * memory['weights'], 0, 4 * 3 * 16 * 16 * 4))
        averaged = json.loads(self.run_program('inspect', 'tiny.yaml', '--json', '--set', 'optim.ema=0.9').out)
        self.assertEqual(averaged['memory_bytes']['average'], memory['weights'])
        self.write('resolved.yaml', found['config'])
        self.assertEqual(json.loads(self.run_program('inspect', 'resolved.yaml', '--json', '--threads', '1').out), found)

    def test_inspect_tensors_of_others(self):
        support.write_safetensors(self.path('other.safetensors'), {
            'layer.weight': ('F32', (2, 3), bytes(24)), 'layer.steps': ('I64', (), bytes(8))})
        out = self.run_program('inspect', 'other.safetensors').out
        self.assertRegex(out, r'layer.weight +F32 +\(2, 3\) +6\n')
        self.assertIn('7 values in 2 tensors', out)
        found = json.loads(self.run_program('inspect', 'other.safetensors', '--json').out)['tensors']
        self.assertIn({'name': 'layer.weight', 'type': 'F32', 'shape': [2, 3], 'count': 6}, found)
        self.write('cut.safetensors', self.read('other.safetensors')[:-1])
        self.refused('inspect', 'cut.safetensors', words=['cut.safetensors'])
        self.refused('eval', 'other.safetensors', words=['no "config"'])

    def test_inspect_asks_the_data_set_for_its_classes(self):
        self.write('folder.yaml', FOLDER)
        make_folder(self.path('images'), classes=('a', 'b', 'c'))
        self.assertIn('16 x 16 images, 3 classes', self.run_program('inspect', 'folder.yaml').out)
        self.write('cifar.yaml', 'data: {set: cifar100}\n')
        self.assertIn('32 x 32 images, 100 classes', self.run_program('inspect', 'cifar.yaml', '--set', 'train.batch=2').out)

    def test_inspect_does_not_take_the_batch_for_an_order(self):
        """Memory depends on shards and lanes: a batch of a million images is not computed."""
        self.write('tiny.yaml', PYRAMID)
        out = self.run_program('inspect', 'tiny.yaml', '--set', 'train.batch=1000000', timeout=60).out
        self.assertIn('batch 1000000 = shards of 4 images', out)

    def test_inspect_checkpoint(self):
        self.write('tiny.yaml', TINY)
        said = summary(self.train('tiny.yaml', out='run').out)
        out = self.run_program('inspect', said['checkpoint']).out
        self.assertIn(f'step 8, epochs completed 2, weights {said["weights"]}', out)
        resolved = out[out.index('resolved config\n') + 16:]
        self.assertEqual(resolved, self.read('run', 'config.yaml').decode())
        found = json.loads(self.run_program('inspect', said['checkpoint'], '--json').out)
        self.assertEqual(found['checkpoint'], {'path': said['checkpoint'], 'step': 8, 'epochs': 2, 'weights': said['weights']})

    def test_eval(self):
        self.write('tiny.yaml', TINY)
        said = summary(self.train('tiny.yaml', out='run').out)
        end = self.ends('run')[-1]
        text = self.run_program('eval', said['checkpoint']).out
        self.assertEqual(text, f'accuracy {100 * end["test_correct"] / 40:.2f} % ({end["test_correct"]} of 40)\n'
                               f'loss {end["test_loss"]:.4f}\n')
        found = json.loads(self.run_program('eval', said['checkpoint'], '--json').out)
        self.assertEqual(found, {'images': 40, 'correct': end['test_correct'], 'accuracy': end['test_correct'] / 40,
                                 'loss': end['test_loss'], 'unreadable': 0, 'weights': 'raw', 'step': 8})
        self.assertEqual(json.loads(self.run_program('eval', said['checkpoint'], '--json', '--limit', '1000').out), found)

    def test_eval_can_be_interrupted(self):
        self.write('tiny.yaml', TINY)
        said = summary(self.train('tiny.yaml', out='run', set=['train.max_steps=1', 'data.twins.test=10000000']).out)
        for delay in (0.5, 1, 2, 4):
            process = self.start('eval', said['checkpoint'])
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            result = self.finish(process)
            if result.code != -signal.SIGINT:  # which is a start slower than the signal
                break
        self.assertEqual((result.code, result.out, result.err), (130, '', 'mirrorla: interrupted\n'))

    def test_data(self):
        out = self.run_program('data', 'list').out
        self.assertEqual([line.split()[0] for line in out.splitlines()],
                         ['twins', 'cifar10', 'cifar100', 'imagefolder', 'tiny-imagenet'])
        make_cifar(self.path('cifar'), train=31, test=12)
        out = self.run_program('data', 'verify', 'cifar10', '--path', 'cifar').out
        self.assertIn('train: 31 images, 10 classes', out)
        self.assertIn('test: 12 images', out)
        make_folder(self.path('images'))
        out = self.run_program('data', 'verify', 'imagefolder', '--path', 'images', '--size', '16').out
        self.assertIn('train: 8 images, 2 classes', out)
        self.assertRegex(out, r'0 +cat +4')

    def test_data_sample(self):
        """Test images spread over a set that is sorted by class, as the model sees them."""
        self.write('folder.yaml', FOLDER)
        make_folder(self.path('images'), train=4, val=3)
        checkpoint = summary(self.train('folder.yaml', out='run').out)['checkpoint']
        self.assertEqual(self.run_program('data', 'sample', checkpoint, '--out', 'a/b', '--count', '4').out,
                         'a/b/samples.json: 4 test images\n')
        samples = json.loads(self.read('a/b/samples.json'))
        self.assertEqual([s['class'] for s in samples], ['cat', 'cat', 'dog', 'dog'])
        for sample in samples:
            self.assertEqual(self.read('a/b', sample['file'])[16:24], b'\0\0\0\x10\0\0\0\x10')  # 16 x 16
        self.assertIn(' 6 test images', self.run_program('data', 'sample', checkpoint, '--out', 'c').out)
        self.refused('data', 'sample', words=['which checkpoint'])
        self.refused('data', 'sample', checkpoint, words=['--out DIR'])
        self.refused('data', 'sample', checkpoint, '--out', 'c', '--count', '0', words=['--count', '1 to 99'])
        self.refused('data', 'sample', 'none.safetensors', '--out', 'd', code=1, words=['none.safetensors'])
        self.refused('data', 'sample', checkpoint, '--path', 'nowhere', '--out', 'd', code=1, words=['nowhere'])

    def test_places_where_data_is_looked_for(self):
        self.write('cifar.yaml', 'model: {patch: 8, dims: [16], depths: [1], heads: [2]}\ntrain: {epochs: 1}\n')
        name = 'cifar-10-batches-bin'
        for place, env in (('set', {'MLA_DATA': 'set'}), (f'data/{name}', {}), (f'.cache/mirrorla/{name}', {}), ('data', {}),
                           (f'xdg/mirrorla/{name}', {'XDG_CACHE_HOME': self.path('xdg')})):
            with self.subTest(place):
                make_cifar(self.path(place), train=20, test=10)
                result = self.train('cifar.yaml', env=env)
                self.assertIn('20 training and 10 test images', result.err)
                shutil.rmtree(self.path(place.split('/')[0]))


if __name__ == '__main__':
    support.main()
