"""Runs that are stopped, killed and taken up again end as if nothing had happened."""
import glob
import os
import random
import re
import shutil
import signal
import time

import support
from support import CIFAR, TINY, make_cifar, read_checkpoint, read_lines, summary, wait_for


class Resume(support.Case):
    def setUp(self):
        super().setUp()
        self.write('tiny.yaml', TINY)
        self.seed = int(os.environ.get('MLA_TEST_SEED', '1'))
        self.rng = random.Random(self.seed)

    def words(self, run, settings, config='tiny.yaml', resume=False):
        words = ['train', config, '--out', run]
        for pair in settings:
            words += ['--set', pair]
        return words + (['--resume'] if resume else [])

    def straight(self, settings, config='tiny.yaml'):
        """Hash and log of the run that nobody disturbs."""
        result = self.run_program(*self.words('straight', settings, config))
        return summary(result.out)['weights'], self.read('straight', 'log.jsonl')

    def lines(self, run):
        try:
            return self.read(run, 'log.jsonl').count(b'\n')
        except FileNotFoundError:
            return 0

    def has_checkpoint(self, run):
        return bool(glob.glob(self.path(glob.escape(run), 'checkpoints', 'step-*')))

    def check_files(self, run):
        """Whatever has a final name is whole."""
        for name in glob.glob(self.path(run, 'checkpoints', '*.safetensors')):
            if not os.path.basename(name).startswith('.'):
                read_checkpoint(name)

    def check_same(self, run, result, expected):
        self.assertEqual(summary(result.out)['weights'], expected[0], f'MLA_TEST_SEED={self.seed}\n{result}')
        self.assertEqual(self.read(run, 'log.jsonl'), expected[1], f'MLA_TEST_SEED={self.seed}\n{result}')
        epochs = [line['epoch'] for line in read_lines(self.path(run, 'timing.jsonl'))]
        self.assertEqual(epochs, list(range(1, len(epochs) + 1)))
        self.assertEqual(len(epochs), expected[1].count(b'"event":"epoch"'))
        straight = read_checkpoint(self.path('straight', 'checkpoints', self.checkpoints('straight')[-1]))
        last = read_checkpoint(self.path(run, 'checkpoints', self.checkpoints(run)[-1]))
        self.assertEqual(last.data, straight.data)
        self.assertEqual(last.counters(), straight.counters())

    def interrupt_until_done(self, run, settings, config='tiny.yaml', most=1000, signals=(signal.SIGINT,), every=0):
        """Interrupts after some further lines of the log (or each time their number is a multiple of `every`), resumes,
        until the run is through.  Returns the last result and the number of interrupts that came in time."""
        count = 0
        while True:
            process = self.start(*self.words(run, settings, config, resume=self.has_checkpoint(run)))
            if count < most and self.wait_for_start(process):
                if every:
                    target = (self.lines(run) // every + 1) * every
                else:
                    target = self.lines(run) + self.rng.randrange(0, 25)
                wait_for(lambda: self.lines(run) >= target, process)
                time.sleep(0 if every else self.rng.random() * 0.004)
                if process.poll() is None:
                    process.send_signal(self.rng.choice(signals))
            result = self.finish(process)
            if result.code == 0:
                return result, count
            self.assertEqual(result.code, 130, str(result))
            count += 1
            self.check_files(run)
            if self.has_checkpoint(run):
                self.assertRegex(support.last_message(result.err),
                                 r'interrupted after step \d+; go on with --resume --out ' + run)
                self.assertEqual(summary(result.out)['weights'],
                                 read_checkpoint(self.path(summary(result.out)['checkpoint'])).metadata['weight_hash'])

    # ---- interrupts

    def test_interrupts_at_any_moment(self):
        settings = ['train.epochs=20', 'data.twins.train=300', 'data.twins.test=200']
        expected = self.straight(settings)
        result, count = self.interrupt_until_done('run', settings, signals=(signal.SIGINT, signal.SIGTERM))
        self.assertGreater(count, 3)
        self.check_same('run', result, expected)

    def test_interrupts_at_the_end_of_an_epoch(self):
        """Right after the epoch's last step, and right after its line."""
        settings = ['train.epochs=6', 'checkpoint.every_epochs=0']
        expected = self.straight(settings)
        for every in (4, 5):
            result, count = self.interrupt_until_done(f'run-{every}', settings, every=every)
            self.assertGreater(count, 1)
            self.check_same(f'run-{every}', result, expected)

    def test_interrupts_with_average_and_drop_path(self):
        settings = ['train.epochs=15', 'data.twins.train=300', 'optim.ema=0.99', 'model.depths=[2]', 'model.drop_path=0.4',
                    'checkpoint.every_steps=3', 'eval.every_epochs=2']
        expected = self.straight(settings)
        result, count = self.interrupt_until_done('run', settings)
        self.assertGreater(count, 2)
        self.check_same('run', result, expected)

    def test_interrupts_with_augmentation(self):
        self.write('cifar.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=150, test=100)
        for name in ('adamw', 'sgd'):
            settings = ['train.epochs=8', f'optim.name={name}', 'optim.momentum=0.9', 'train.batch=8']
            expected = self.straight(settings, 'cifar.yaml')
            result, count = self.interrupt_until_done(name, settings, 'cifar.yaml', most=8)
            self.assertGreater(count, 0)
            self.check_same(name, result, expected)
            shutil.rmtree(self.path('straight'))

    def test_optimiser_without_state(self):
        settings = ['optim.name=sgd', 'optim.momentum=0', 'optim.lr=0.1']
        expected = self.straight(settings)
        self.run_program(*self.words('run', settings + ['train.max_steps=5']))
        self.check_same('run', self.run_program(*self.words('run', settings, resume=True)), expected)

    def test_interrupts_during_evaluation(self):
        """The checkpoint then stands after the last step of an epoch whose line is not written yet."""
        settings = ['train.epochs=3', 'data.twins.train=40', 'train.batch=8', 'data.twins.test=12000',
                    'checkpoint.every_epochs=0', 'checkpoint.best=false']
        expected = self.straight(settings)
        in_evaluation = 0
        for attempt in range(4):
            run = f'run-{attempt}'
            process = self.start(*self.words(run, settings))
            epoch = attempt % 3
            wait_for(lambda: self.lines(run) >= 5 + 7 * epoch, process)
            process.send_signal(signal.SIGINT)
            result = self.finish(process)
            if result.code == 0:
                continue
            self.assertEqual(result.code, 130, str(result))
            name = self.checkpoints(run)[-1]
            counters = read_checkpoint(self.path(run, 'checkpoints', name)).counters()
            if counters['step_in_epoch'] != 5:
                continue
            in_evaluation += 1
            self.assertEqual(self.lines(run), 5 + 7 * epoch)
            # killed after the epoch's line, before any other checkpoint: the same checkpoint is resumed again
            for _ in range(2):
                process = self.start(*self.words(run, settings, resume=True))
                if epoch < 2:
                    wait_for(lambda: self.lines(run) >= 6 + 7 * epoch, process)
                process.kill()
                process.communicate()
                if process.returncode == 0:  # this machine was faster than the kill
                    break
                self.assertEqual(self.checkpoints(run), [name])
            self.check_same(run, self.run_program(*self.words(run, settings, resume=True)), expected)
        self.assertGreater(in_evaluation, 0)

    def finish_any(self, process, codes):
        result = self.finish(process)
        self.assertIn(result.code, codes, str(result))
        return result

    # ---- kills
    def test_fifty_kills(self):
        """SIGKILL spread over resumed runs; what has a final name is whole, and the end is the same."""
        settings = ['train.epochs=40', 'data.twins.train=96', 'train.batch=16', 'checkpoint.every_steps=2', 'optim.ema=0.9']
        expected = self.straight(settings)
        kills = runs = 0
        while kills < 50:
            runs += 1
            run = f'run-{runs}'
            while True:
                process = self.start(*self.words(run, settings, resume=os.path.exists(self.path(run, 'log.jsonl'))))
                if kills < 50:
                    # most kills fall into training and saving, some into starting
                    if self.rng.random() < 0.9:
                        self.wait_for_start(process)
                    time.sleep(self.rng.random() * 0.03)
                    process.kill()
                process.wait()
                result = self.finish_any(process, (0, -signal.SIGKILL))
                self.check_files(run)
                if result.code == 0:
                    break
                kills += 1
            result = self.run_program(*self.words(run, settings, resume=True))
            self.check_same(run, result, expected)
            left = os.listdir(self.path(run)) + os.listdir(self.path(run, 'checkpoints'))
            self.assertEqual([name for name in left if name.endswith('.tmp')], [])

    def test_kill_while_starting(self):
        """Before the first step: the folder can be used again."""
        expected = self.straight([])
        for delay in (0.0, 0.01, 0.02, 0.04, 0.06, 0.1):
            shutil.rmtree(self.path('run'), ignore_errors=True)
            process = self.start(*self.words('run', []))
            time.sleep(delay)
            process.kill()
            process.communicate()
            result = self.run_program(*self.words('run', [], resume=os.path.exists(self.path('run', 'log.jsonl'))))
            self.check_same('run', result, expected)

    def test_kill_before_the_first_checkpoint(self):
        settings = ['checkpoint.every_epochs=0', 'checkpoint.best=false', 'train.epochs=20', 'data.twins.test=6000']
        expected = self.straight(settings)
        process = self.start(*self.words('run', settings))
        wait_for(lambda: self.lines('run') >= 7, process)
        process.kill()
        process.communicate()
        self.assertFalse(self.has_checkpoint('run'))
        self.refused(*self.words('run', settings), words=['run: already holds a run', '--resume'])
        self.refused(*self.words('run', [*settings, 'optim.lr=1e-3'], resume=True),
                     words=['run/config.yaml began with another config', 'optim.lr is 0.002 there and 0.001 here'])
        result = self.run_program(*self.words('run', settings, resume=True))
        self.assertIn('resume: run holds no checkpoint yet, the run starts over', result.err)
        self.check_same('run', result, expected)
        self.assertGreaterEqual(len(read_lines(self.path('run', 'log.dropped.jsonl'))), 7)

    # ---- where from

    def stopped(self, run='run', settings=()):
        return self.run_program(*self.words(run, ['train.max_steps=6', *settings]))

    def test_from_folder_and_from_file(self):
        expected = self.straight([])
        self.stopped('a')
        shutil.copytree(self.path('a'), self.path('b'))
        result = self.train('tiny.yaml', '--resume', out='a')
        self.assertIn('resume: from a/checkpoints/step-00000006.safetensors, step 6, epoch 2', result.err)
        self.assertIn('resume: train.max_steps changes from 6 to 0', result.err)
        self.check_same('a', result, expected)
        # an older one; what lies after it is kept under other names
        result = self.train('tiny.yaml', '--resume=b/checkpoints/step-00000004.safetensors')
        self.assertIn('run folder: b', result.err)
        self.check_same('b', result, expected)
        self.assertTrue(os.path.exists(self.path('b', 'checkpoints', 'dropped-step-00000006.safetensors')))
        self.assertEqual([line['step'] for line in read_lines(self.path('b', 'log.dropped.jsonl'))], [5, 6])

    def test_from_the_default_folder(self):
        expected = self.straight([])
        self.train('tiny.yaml')
        self.train('tiny.yaml', set=['train.max_steps=3'])
        result = self.train('tiny.yaml', '--resume')
        self.assertIn('run folder: runs/tiny-2', result.err)
        self.check_same('runs/tiny-2', result, expected)

    def test_into_a_new_folder(self):
        expected = self.straight([])
        self.stopped('a')
        before = self.snapshot()
        result = self.train('tiny.yaml', '--resume=a/checkpoints/step-00000006.safetensors', out='b')
        self.assertEqual(summary(result.out)['weights'], expected[0])
        self.assertEqual(self.read('b', 'log.jsonl'), b''.join(expected[1].splitlines(True)[8:]))
        self.assertEqual(self.read('b', 'config.yaml'), self.read('straight', 'config.yaml'))
        after = self.snapshot()
        self.assertTrue(all(after[name] == content for name, content in before.items()))
        self.assertTrue(os.path.exists(self.path('b', 'checkpoints', 'best.safetensors')))

    def test_never_over_another_run(self):
        self.stopped('a')
        self.straight(['train.seed=5'])
        before = self.snapshot()
        result = self.train('tiny.yaml', '--resume=a/checkpoints/step-00000006.safetensors', out='straight', code=2)
        self.assertIn('already holds a run', result.err)
        self.assertEqual(self.snapshot(), before)

    def test_finished_run(self):
        expected = self.straight([])
        result = self.train('tiny.yaml', '--resume', out='straight')
        self.assertEqual(summary(result.out)['weights'], expected[0])
        self.assertEqual(self.read('straight', 'log.jsonl'), expected[1])

    def test_damaged_newest_is_passed_over(self):
        expected = self.straight([])
        self.stopped()
        name = os.path.join('run', 'checkpoints', 'step-00000006.safetensors')
        content = self.read(name)
        for damage in (content[:-100], content[:3], b'', content[:2000] + bytes([content[2000] ^ 1]) + content[2001:]):
            shutil.rmtree(self.path('again'), ignore_errors=True)
            self.write(name, damage)
            shutil.copytree(self.path('run'), self.path('again'))
            result = self.train('tiny.yaml', '--resume', out='again')
            self.assertIn('passed over: again/checkpoints/step-00000006.safetensors: ', result.err)
            self.assertIn('resume: from again/checkpoints/step-00000004.safetensors, step 4', result.err)
            self.check_same('again', result, expected)

    def test_nothing_to_resume_from(self):
        os.makedirs(self.path('empty'))
        os.makedirs(self.path('also', 'checkpoints'))
        for run in ('empty', 'also', 'absent'):
            self.refused('train', 'tiny.yaml', '--resume', '--out', run, words=[run, 'nothing to resume from'])
        self.refused('train', 'tiny.yaml', '--resume', words=['runs/tiny', 'nothing to resume from'])
        self.stopped()
        for name in self.checkpoints('run'):
            self.write(os.path.join('run', 'checkpoints', name), b'x')
        result = self.refused('train', 'tiny.yaml', '--resume', '--out', 'run', words=['none of the 2 files', 'can be read'])
        self.assertEqual(result.err.count('passed over'), 2)

    # ---- what may differ

    def test_another_config_is_refused(self):
        self.stopped()
        for setting, words in (
                ('optim.lr=1e-3', ['optim.lr is 0.002 there and 0.001 here']),
                ('train.seed=1', ['train.seed is 0 there and 1 here']),
                ('train.batch=16', ['train.batch is 32 there and 16 here']),
                ('train.lanes=8', ['train.lanes is 4 there and 8 here']),
                ('train.shard=8', ['train.shard is 4 there and 8 here']),
                ('optim.ema=0.9', ['optim.ema is 0 there and 0.9 here']),
                ('optim.name=sgd', ['optim.name is adamw there and sgd here']),
                ('model.dims=[32]', ['model.dims is [16] there and [32] here']),
                ('model.attention.kind=relu', ['model.attention.kind is mirror there and relu here']),
                ('data.twins.train=200', ['data.twins.train is 100 there and 200 here']),
                ('data.subset=0.5', ['data.subset is 1 there and 0.5 here']),
                ('schedule.warmup_epochs=0', ['schedule.warmup_epochs is 1 there and 0 here']),
                ('augment.flip=0.5', ['augment.flip is 0 there and 0.5 here'])):
            with self.subTest(setting):
                self.refused('train', 'tiny.yaml', '--resume', '--out', 'run', '--set', setting,
                             words=['step-00000006.safetensors was trained with another config', *words])
        self.refused('train', 'tiny.yaml', '--resume', '--out', 'run', '--set', 'optim.lr=1e-3', '--set', 'train.seed=3',
                     words=['optim.lr is', 'train.seed is'])

    def test_epochs_may_change(self):
        self.stopped()
        result = self.train('tiny.yaml', '--resume', out='run', set=['train.epochs=5'])
        line, = [line for line in result.err.splitlines() if 're-based' in line]
        match = re.match(r'resume: the schedule is re-based on 5 instead of 2 epochs: '
                         r'learning rate (\S+) instead of (\S+) at step 6$', line)
        self.assertTrue(match, line)
        # the log shows what was announced
        rate = [row['lr'] for row in self.log('run') if row['event'] == 'step' and row['step'] == 7][0]
        self.assertEqual(f'{rate:.6g}', match.group(1))
        self.assertEqual([row['epoch'] for row in self.log('run') if row['event'] == 'epoch'], [1, 2, 3, 4, 5])
        self.assertIn('epochs: 5', self.read('run', 'config.yaml').decode())
        self.train('tiny.yaml', '--resume', out='run', set=['train.epochs=5'])

    def test_data_set_of_another_size(self):
        self.write('cifar.yaml', CIFAR)
        make_cifar(self.path('cifar'), train=100, test=20)
        self.run_program('train', 'cifar.yaml', '--out', 'run', '--set', 'train.max_steps=3')
        make_cifar(self.path('cifar'), train=40, test=20)
        self.refused('train', 'cifar.yaml', '--out', 'run', '--resume', words=['step 3 of epoch 1', '2 steps'])
        # an epoch that has ended says how many steps it had
        make_cifar(self.path('cifar'), train=100, test=20)
        self.run_program('train', 'cifar.yaml', '--out', 'other', '--set', 'train.max_steps=5')
        make_cifar(self.path('cifar'), train=400, test=20)
        self.refused('train', 'cifar.yaml', '--out', 'other', '--resume', words=['step 5 in all', 'another data set'])

    def test_two_processes_in_a_folder(self):
        settings = ['train.epochs=100000', 'checkpoint.keep=1000', 'data.twins.test=20000']
        process = self.start(*self.words('run', settings))
        wait_for(lambda: self.has_checkpoint('run'), process)
        result = self.run_program(*self.words('run', settings, resume=True), code=2)
        self.assertIn('another process is running in this folder', result.err)
        process.send_signal(signal.SIGINT)
        self.finish_any(process, (130,))

    def test_damaged_log(self):
        self.stopped()
        lines = self.read('run', 'log.jsonl').splitlines(True)
        lines[2] = b'{"event":"step","step":broken\n'
        self.write('run/log.jsonl', b''.join(lines))
        self.refused('train', 'tiny.yaml', '--resume', '--out', 'run', words=['log.jsonl:3: is not a line of a log'])

    def test_cut_log_line_is_made_good(self):
        expected = self.straight([])
        self.stopped()
        lines = expected[1].splitlines(True)
        self.write('run/log.jsonl', b''.join(lines[:8]) + lines[8][:40])
        self.check_same('run', self.run_program(*self.words('run', [], resume=True)), expected)


if __name__ == '__main__':
    support.main()
