"""Train the PyTorch twin on CIFAR-10 with the recipe of mirrorla: one JSON line an epoch.

    train_twin.py DATA_DIR --kind mirror --seed 0 [--preset study] [--epochs 10] [--threads 1]

DATA_DIR holds data_batch_1.bin ... data_batch_5.bin and test_batch.bin.  The accuracies are what the
C program is compared with, so the recipe below is a contract and not a choice:

    augmentation   crop of the image zero-padded by 4, flip with probability 1/2, then x / 255,
                   mean and deviation of the channels
    batches        128 of a fresh permutation of all 50,000 images; the last 80 are a batch too
    optimiser      AdamW(0.9, 0.999, 1e-8), decay 0.05 on linear and patch matrices,
                   gradient clipped to global norm 1
    rate           linear warm-up over one epoch to 1e-3, then a cosine down to 1e-5
    loss           cross-entropy with label smoothing 0.1

PyTorch is run at its best: the process starts itself again with the OpenMP build of OpenBLAS, where
there is one (the pthread build fights PyTorch's own threads), and with a malloc that keeps its pages.
"""
import argparse
import glob
import json
import math
import os
import sys
import time

BATCH, PADDING, SMOOTHING, DECAY, CLIP = 128, 4, 0.1, 0.05, 1.0
RATE, MIN_RATE, WARMUP_EPOCHS = 1e-3, 1e-5, 1
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def tuned_environment(threads):
    """The environment in which PyTorch is fastest on this machine."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_='0',
               MALLOC_TRIM_THRESHOLD_='100000000000', MALLOC_TOP_PAD_=str(1 << 28))
    # Debian puts it below the multiarch folder of the architecture.
    blas = sorted(glob.glob(f'/usr/lib/{os.uname().machine}-*/openblas-openmp'))
    if blas:
        env['LD_LIBRARY_PATH'] = ':'.join(blas + env.get('LD_LIBRARY_PATH', '').split(':')).rstrip(':')
    return env


def read_cifar(folder, names):
    """The named binary files -> images (n, 3, 32, 32) uint8, labels (n) int64."""
    import numpy as np
    raw = np.concatenate([np.fromfile(os.path.join(folder, n), np.uint8).reshape(-1, 3073)
                          for n in names])
    return np.ascontiguousarray(raw[:, 1:]).reshape(-1, 3, 32, 32), raw[:, 0].astype(np.int64)


def augment(images, rng):
    """(B, 3, S, S) uint8 -> the same shape: random crop of the padded image, random flip."""
    import numpy as np
    B, _, S, _ = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (S, S), axis=(2, 3))
    top, left = rng.integers(0, 2 * PADDING + 1, (2, B))
    out = windows[np.arange(B), :, top, left]
    flip = rng.random(B) < 0.5
    out[flip] = out[flip][..., ::-1]
    return out


def rate_at(step, steps_per_epoch, epochs):
    """Learning rate of the 0-based step."""
    warm, total = WARMUP_EPOCHS * steps_per_epoch, epochs * steps_per_epoch
    if step < warm:
        return RATE * (step + 1) / warm
    return MIN_RATE + 0.5 * (RATE - MIN_RATE) * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def train(args):
    import numpy as np
    import torch
    from torch.nn import functional as F
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tools'))
    import mirrorla

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    images, labels = read_cifar(args.data, [f'data_batch_{i}.bin' for i in range(1, 6)])
    test_images, test_labels = read_cifar(args.data, ['test_batch.bin'])
    mean, std = (torch.tensor(t).view(1, 3, 1, 1) for t in (MEAN, STD))

    def tensor(x):
        return (torch.from_numpy(x).float() / 255 - mean) / std

    model = mirrorla.Model(mirrorla.preset(args.preset, args.kind))
    optimiser = torch.optim.AdamW(mirrorla.decay_groups(model, DECAY), lr=RATE)
    count, per_epoch = len(images), -(-len(images) // BATCH)
    step, start = 0, time.perf_counter()

    for epoch in range(args.epochs):
        model.train()
        order, loss_sum = rng.permutation(count), 0.0
        for first in range(0, count, BATCH):
            chosen = order[first:first + BATCH]
            for group in optimiser.param_groups:
                group['lr'] = rate_at(step, per_epoch, args.epochs)
            target = torch.from_numpy(labels[chosen])
            loss = F.cross_entropy(model(tensor(augment(images[chosen], rng))), target,
                                   label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimiser.step()
            loss_sum += loss.item() * len(chosen)
            step += 1
            if args.progress and step % args.progress == 0:
                spent = time.perf_counter() - start
                print(f'step {step} loss {loss.item():.4f} {1e3 * spent / step:.1f} ms/step',
                      file=sys.stderr, flush=True)

        model.eval()
        correct, test_sum = 0, 0.0
        with torch.no_grad():
            for first in range(0, len(test_images), 500):
                target = torch.from_numpy(test_labels[first:first + 500])
                logits = model(tensor(test_images[first:first + 500]))
                correct += int((logits.argmax(1) == target).sum())
                test_sum += F.cross_entropy(logits, target, reduction='sum').item()
        print(json.dumps(dict(
            seed=args.seed, kind=args.kind, epoch=epoch + 1, train_loss=loss_sum / count,
            test_correct=correct, test_total=len(test_images),
            test_loss=test_sum / len(test_images), seconds=round(time.perf_counter() - start, 1))),
            flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', metavar='DATA_DIR')
    parser.add_argument('--kind', default='mirror', choices=('softmax', 'elu1', 'relu', 'mirror'))
    parser.add_argument('--preset', default='study')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--epochs', type=int, default=10)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--progress', type=int, default=0, metavar='N',
                        help='loss and speed on stderr every N steps')
    args = parser.parse_args()
    if os.environ.get('MIRRORLA_TWIN_TUNED') != '1':
        env = dict(tuned_environment(args.threads), MIRRORLA_TWIN_TUNED='1')
        os.execve(sys.executable, [sys.executable, os.path.abspath(__file__)] + sys.argv[1:], env)
    train(args)


if __name__ == '__main__':
    main()
