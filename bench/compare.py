"""Training steps of mirrorla against its PyTorch twin, measured alternately: prints Markdown tables.

    compare.py PROGRAM [--configs pvt_nano,vit_tiny,vit_long] [--kinds softmax,relu,mirror] [--rounds 5] [--steps 8]
               [--threads 2] [--data DIR]

PROGRAM is the mirrorla executable.  A round runs both on the same model and batch, one after the other, each in a process of
its own; ratios are taken within rounds, so that a disturbance of the machine hits both alike.

mirrorla: `mirrorla bench`: reading, augmenting, forward, backward, clipping, update and weight average.  With --data (a folder
with CIFAR-10's binary files) images are the data set's, else random bytes; vit_long has generated images.
PyTorch: forward, loss, backward, AdamW on one fixed random batch, without reading, augmenting and clipping, in the
environment that makes it fastest (see train_twin.py).

Both: steps after two of warm-up; starting the process is not in it.  Peak: products of 2048 x 2048 matrices before each step
and after the last, on as many threads, each program with its own BLAS calls; the share is that of the best.  Memory: largest
resident size after the warm-up, libraries included, mirrorla's without the data set.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from train_twin import tuned_environment

WARM_UP, PEAK_SIDE, PEAK_TRIES = 2, 2048, 6
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FOLDERS = {'vit_long': 'bench'}  # of the configs; others: cifar10
KINDS = ('softmax', 'elu1', 'relu', 'mirror')


def program_round(args, config, kind):
    """One run of `mirrorla bench`: its report of the case."""
    path = os.path.join(ROOT, 'configs', FOLDERS.get(config, 'cifar10'), f'{config}_{kind}.yaml')
    command = [args.program, 'bench', path, '--json', '--steps', str(args.steps), '--threads', str(args.threads)]
    if args.data and config not in FOLDERS:
        command += ['--set', f'data.path={args.data}']
    case, = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)['cases']
    memory = case['memory_bytes']
    return dict(ms=case['ms']['step']['median'], least=case['ms']['step']['least'], batch=case['batch'],
                gflop=case['gflop_per_step'], peak=case['peak_gflops']['most'],
                bytes=memory['process'] - memory['data_set'])


def twin_child(args):
    """Prints one round of the twin; runs in a process of its own."""
    sys.path.insert(0, os.path.join(ROOT, 'tools'))
    import torch
    import mirrorla
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    config, kind, batch = args.child.split(',')
    spec = mirrorla.preset(config, kind)
    model = mirrorla.Model(spec)
    optimizer = torch.optim.AdamW(mirrorla.decay_groups(model, 0.05), lr=1e-3)
    x = torch.randn(int(batch), 3, spec['image'], spec['image'])
    y = torch.randint(0, spec['classes'], (int(batch),))

    def seconds(work):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def step():
        torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_UP):
        step()
    resident = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    a, b, out = (torch.randn(PEAK_SIDE, PEAK_SIDE) for _ in range(3))
    times, products = [], []
    for _ in range(args.steps):
        products.append(seconds(lambda: torch.mm(a, b, out=out)))
        times.append(1e3 * seconds(step))
    while len(products) < max(PEAK_TRIES, args.steps + 1):
        products.append(seconds(lambda: torch.mm(a, b, out=out)))
    print(json.dumps(dict(ms=statistics.median(times), least=min(times), bytes=resident,
                          peak=2 * PEAK_SIDE ** 3 / min(products) / 1e9, version=torch.__version__)))


def twin_round(args, config, kind, batch):
    command = [sys.executable, os.path.abspath(__file__), args.program, '--threads', str(args.threads), '--steps',
               str(args.steps), '--child', f'{config},{kind},{batch}']
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=tuned_environment(args.threads))
    return json.loads(done.stdout)


def spread(values, form='.2f'):
    """Median (least to most)."""
    values = sorted(values)
    return f'{statistics.median(values):{form}} ({values[0]:{form}} to {values[-1]:{form}})'


def times_cell(rounds):
    """Median of the rounds' medians, and the fastest step of all."""
    return f'{statistics.median(r["ms"] for r in rounds):.0f} ({min(r["least"] for r in rounds):.0f})'


def share_cell(rounds, gflop):
    """Best peak of all rounds: a disturbed product says nothing of the machine."""
    return f'{100 * gflop / (statistics.median(r["ms"] for r in rounds) / 1e3) / max(r["peak"] for r in rounds):.0f} %'


def case_row(config, kind, ours, theirs):
    batch, gflop = ours[0]['batch'], ours[0]['gflop']
    ratio = spread(t['ms'] / o['ms'] for o, t in zip(ours, theirs))
    rate = ' / '.join(f'{1e3 * batch / statistics.median(r["ms"] for r in rounds):.0f}' for rounds in (ours, theirs))
    shares = ' / '.join(share_cell(rounds, gflop) for rounds in (ours, theirs))
    our_bytes, their_bytes = (max(r['bytes'] for r in rounds) for rounds in (ours, theirs))
    memory = f'{our_bytes / 2 ** 20:.0f} / {their_bytes / 2 ** 20:.0f} | {their_bytes / our_bytes:.1f}'
    return f'| {config} | {kind} | {batch} | {times_cell(ours)} | {times_cell(theirs)} | {ratio} | {rate} | {shares} | {memory} |'


def measure(args):
    """{(config, kind): (rounds of mirrorla, rounds of PyTorch)}; the kinds of a config take turns within a round."""
    found = {}
    for config in args.configs:
        for number in range(args.rounds):
            for kind in args.kinds:
                ours, theirs = found.setdefault((config, kind), ([], []))
                ours.append(program_round(args, config, kind))
                theirs.append(twin_round(args, config, kind, ours[-1]['batch']))
                print(f'{config} {kind}, round {number + 1} of {args.rounds}: {ours[-1]["ms"]:.0f} and {theirs[-1]["ms"]:.0f} ms',
                      file=sys.stderr, flush=True)
    return found


def print_tables(args, found):
    version = next(iter(found.values()))[1][0]['version']
    print(f'{args.threads} threads, {args.rounds} rounds of {args.steps} steps, PyTorch {version}. Pairs: mirrorla / PyTorch.\n')
    print('| model | attention | batch | mirrorla, ms/step (least) | PyTorch, ms/step (least) | times as fast (least to most) | '
          'images/s | of GEMM peak | memory, MiB | PyTorch over mirrorla |')
    print('| --- ' * 10 + '|')
    for (config, kind), rounds in found.items():
        print(case_row(config, kind, *rounds))
    if not {'relu', 'mirror'} <= set(args.kinds):
        return
    print('\n| model | mirror over relu, mirrorla | mirror over relu, PyTorch |\n| --- | --- | --- |')
    for config in args.configs:
        cost = [spread(m['ms'] / r['ms'] for m, r in zip(found[config, 'mirror'][side], found[config, 'relu'][side]))
                for side in (0, 1)]
        print(f'| {config} | {cost[0]} | {cost[1]} |')


def names(allowed):
    def read(text):
        unknown = [name for name in text.split(',') if name not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f'{unknown[0]!r} is none of {", ".join(allowed)}')
        return text.split(',')
    return read


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    configs = ('pvt_nano', 'vit_tiny', 'vit_long')
    parser.add_argument('program')
    parser.add_argument('--configs', type=names(configs), default=list(configs))
    parser.add_argument('--kinds', type=names(KINDS), default=['softmax', 'relu', 'mirror'])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--steps', type=int, default=8)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--data')
    parser.add_argument('--child', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        twin_child(args)
    else:
        print_tables(args, measure(args))


if __name__ == '__main__':
    main()
