"""Step time of mirrorla against its PyTorch twin, measured alternately: prints a Markdown table.

    compare_step.py PROGRAM DATA_DIR [--preset pvt_nano] [--kinds mirror,relu] [--rounds 5] [--threads 2]

PROGRAM is the mirrorla executable, DATA_DIR a folder with CIFAR-10's binary files.  A round runs both, one after the other,
so that a disturbance of the machine hits both alike; the ratios are taken within rounds.

mirrorla: a training of 2 + STEPS steps less one of 2 steps, divided by STEPS: everything a step does is in it, reading,
augmenting, clipping and logging too.  PyTorch: median of forward, loss, backward, AdamW on one fixed random batch, after
two steps of warm-up, in the environment that makes it fastest (see train_twin.py); reading and augmenting are not in it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from train_twin import tuned_environment

BATCH, STEPS, WARMUP = 128, 10, 2
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def program_seconds(args, kind, steps):
    """Wall time of a whole training of so many steps."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.program, 'train', f'{ROOT}/configs/cifar10/{args.preset}_{kind}.yaml',
                   '--set', f'data.path={args.data}', '--set', f'train.max_steps={steps}',
                   '--threads', str(args.threads), '--out', os.path.join(folder, 'run')]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start


def program_ms(args, kind):
    """Milliseconds a step of mirrorla."""
    few = program_seconds(args, kind, WARMUP)
    return 1e3 * (program_seconds(args, kind, WARMUP + STEPS) - few) / STEPS


def twin_child(args):
    """Prints the milliseconds a step of the twin; runs in a process of its own."""
    sys.path.insert(0, os.path.join(ROOT, 'tools'))
    import torch
    import mirrorla
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    model = mirrorla.Model(mirrorla.preset(args.preset, args.child))
    optimizer = torch.optim.AdamW(mirrorla.decay_groups(model, 0.05), lr=1e-3)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    times = []
    for _ in range(WARMUP + STEPS):
        start = time.perf_counter()
        torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - start)
    print(json.dumps(1e3 * statistics.median(times[WARMUP:])))


def twin_ms(args, kind):
    command = [sys.executable, os.path.abspath(__file__), args.program, args.data, '--preset', args.preset,
               '--threads', str(args.threads), '--child', kind]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=tuned_environment(args.threads))
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('data')
    parser.add_argument('--preset', default='pvt_nano')
    parser.add_argument('--kinds', default='mirror')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--child', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return twin_child(args)
    print('| model | attention | mirrorla ms/step | PyTorch ms/step | times as fast: median (least to most) |')
    print('| --- | --- | --- | --- | --- |')
    for kind in args.kinds.split(','):
        pairs = [(program_ms(args, kind), twin_ms(args, kind)) for _ in range(args.rounds)]
        ratios = sorted(theirs / ours for ours, theirs in pairs)
        ours, theirs = (statistics.median(column) for column in zip(*pairs))
        print(f'| {args.preset} | {kind} | {ours:.0f} | {theirs:.0f} | {statistics.median(ratios):.2f} '
              f'({ratios[0]:.2f} to {ratios[-1]:.2f}), {args.rounds} rounds |', flush=True)


if __name__ == '__main__':
    main()
