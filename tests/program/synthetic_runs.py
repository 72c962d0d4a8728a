"""Run folders as a sweep would leave them, made up: for what a report does with many."""
import json
import math
import os
import random

KINDS = ('mirror', 'relu', 'elu1', 'softmax')
CONFIG = """\
model: {{family: vit, patch: 4, dims: [64], depths: [4], heads: [4], attention: {{kind: {kind}, dwconv: {dwconv}}}}}
data: {{set: cifar10}}
train: {{epochs: {epochs}, seed: {seed}}}
"""


def layer(rng, kind, part):
    numbers = dict(energy_q=.5, energy_k=.5 + .3 * part, entropy=.95 - .2 * part, rank=4 + 8 * part, rank_kv=6 + 4 * part,
                   angle=None, angle_spread=None, moved_block=None, moved_cross=None, moved_twin=None,
                   moved_fold=None)
    if kind == 'mirror':
        numbers.update(angle=.4, angle_spread=.2, moved_block=.3 * part, moved_cross=.4 * part)
    if kind == 'softmax':
        numbers.update(energy_q=None, energy_k=None, rank_kv=None)
    return dict(kind=kind, tokens=64, heads=4, **{k: v if v is None else round(v + rng.gauss(0, .01), 6) for k, v in numbers.items()})


def make_run(folder, kind, dwconv, seed, epochs, steps_per_epoch):
    """One run folder: config, log and timing."""
    os.makedirs(folder)
    rng = random.Random(f'{kind} {dwconv} {seed}')
    level = 60 + 4 * KINDS.index(kind) + dwconv + rng.gauss(0, .5)
    with open(os.path.join(folder, 'config.yaml'), 'w', encoding='utf-8') as file:
        file.write(CONFIG.format(kind=kind, dwconv=dwconv, epochs=epochs, seed=seed))
    total = epochs * steps_per_epoch
    with open(os.path.join(folder, 'log.jsonl'), 'w', encoding='utf-8') as log, \
            open(os.path.join(folder, 'timing.jsonl'), 'w', encoding='utf-8') as timing:
        for epoch in range(1, epochs + 1):
            for step in range((epoch - 1) * steps_per_epoch + 1, epoch * steps_per_epoch + 1):
                part = step / total
                log.write(json.dumps(dict(event='step', step=step, epoch=epoch, loss=2.3 * math.exp(-2 * part) + abs(rng.gauss(0, .1)),
                                          lr=1e-3 * (1 + math.cos(math.pi * part)) / 2, grad_norm=1 + abs(rng.gauss(0, .3)),
                                          images=128, correct=int(128 * part)), separators=(',', ':')) + '\n')
            part = epoch / epochs
            correct = int(100 * (level * (1 - math.exp(-4 * part)) + rng.gauss(0, .3)))
            log.write(json.dumps(dict(event='epoch', step=step, epoch=epoch, train_loss=2.3 * math.exp(-2 * part), train_correct=9000,
                                      train_images=10000, test_loss=2.3 * math.exp(-1.5 * part), test_correct=correct,
                                      test_images=10000, weight_hash='0' * 16), separators=(',', ':')) + '\n')
            log.write(json.dumps(dict(event='layers', step=step, epoch=epoch, images=4,
                                      layers=[layer(rng, kind, part) for _ in range(4)]), separators=(',', ':')) + '\n')
            timing.write(json.dumps(dict(event='timing', step=step, epoch=epoch, seconds=10, images_per_second=1000 + rng.gauss(0, 20),
                                         evaluation_seconds=1, diagnostics_seconds=.1, peak_memory_bytes=1 << 28)) + '\n')


def make_runs(folder, count, epochs, steps_per_epoch):
    """`count` run folders of up to four kinds and five convolutions, the rest seeds; returns their paths."""
    paths = []
    for i in range(count):
        kind, dwconv, seed = KINDS[i % 4], (0, 3, 5, 7, 9)[i // 4 % 5], i // 20
        paths.append(os.path.join(folder, f'{kind}-dwconv{dwconv}-seed{seed}'))
        make_run(paths[-1], kind, dwconv, seed, epochs, steps_per_epoch)
    return paths
