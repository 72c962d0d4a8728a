"""Tables and curves of docs/results.md from the epoch lines in docs/results/.

    plot_results.py docs/results

Reads {mirrorla,twin}_{relu,mirror}_{seed}.jsonl (bench/study.sh) and, where it exists, pvt_nano_mirror.jsonl; writes study.svg and
pvt_nano.svg beside them and prints the tables in Markdown.  Needs python3-matplotlib.
"""
import glob
import json
import os
import re
import statistics
import sys

import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

matplotlib.rcParams['svg.hashsalt'] = 'mirrorla'      # the same picture from the same numbers
COLOURS = {'relu': '#b3541e', 'mirror': '#1f5fa8'}


def read(path):
    """Epoch lines -> list of (epoch, train loss, accuracy in %)."""
    rows = []
    for line in open(path, encoding='utf-8'):
        row = json.loads(line)
        images = row.get('test_images', row.get('test_total'))
        rows.append((row['epoch'], row['train_loss'], 100 * row['test_correct'] / images))
    return rows


def study(folder):
    """{(program, kind): {seed: rows}}"""
    runs = {}
    for path in sorted(glob.glob(os.path.join(folder, '*_*_*.jsonl'))):
        found = re.fullmatch(r'(mirrorla|twin)_(relu|mirror)_(\d+)\.jsonl', os.path.basename(path))
        if found:
            runs.setdefault(found.group(1, 2), {})[int(found.group(3))] = read(path)
    return runs


def draw_study(runs, path):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for (program, kind), seeds in sorted(runs.items()):
        for i, rows in enumerate(seeds.values()):
            style = dict(color=COLOURS[kind], linestyle='-' if program == 'mirrorla' else ':', linewidth=1.4,
                         label=f'{kind}, {"mirrorla" if program == "mirrorla" else "PyTorch twin"}' if i == 0 else None)
            axes[0].plot([r[0] for r in rows], [r[1] for r in rows], **style)
            axes[1].plot([r[0] for r in rows], [r[2] for r in rows], **style)
    axes[0].set(xlabel='epoch', ylabel='training loss', title='training loss (each line one seed)')
    axes[1].set(xlabel='epoch', ylabel='test accuracy, %', title='test accuracy on 10,000 images')
    axes[1].legend(frameon=False)
    finish(figure, axes, path)


def draw_run(rows, path):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    axes[0].plot([r[0] for r in rows], [r[1] for r in rows], color=COLOURS['mirror'], marker='o', markersize=3)
    axes[1].plot([r[0] for r in rows], [r[2] for r in rows], color=COLOURS['mirror'], marker='o', markersize=3)
    axes[0].set(xlabel='epoch', ylabel='training loss', title='pvt_nano with mirror: training loss')
    axes[1].set(xlabel='epoch', ylabel='test accuracy, %', title='test accuracy on 10,000 images')
    finish(figure, axes, path)


def finish(figure, axes, path):
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.spines[['top', 'right']].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None})
    plt.close(figure)


def table(runs):
    print('| attention | program | test accuracy by seed, % | mean ± sample deviation | last training loss, mean |')
    print('| --- | --- | --- | --- | --- |')
    means = {}
    for (program, kind), seeds in sorted(runs.items(), key=lambda item: (item[0][1], item[0][0])):
        last = {seed: rows[-1] for seed, rows in sorted(seeds.items())}
        accuracy = [row[2] for row in last.values()]
        means[program, kind] = statistics.mean(accuracy)
        spread = f' ± {statistics.stdev(accuracy):.2f}' if len(accuracy) > 1 else ''
        print(f'| {kind} | {"mirrorla" if program == "mirrorla" else "PyTorch twin"} | '
              + ', '.join(f'{seed}: {row[2]:.2f}' for seed, row in last.items())
              + f' | {means[program, kind]:.2f}{spread} | {statistics.mean(row[1] for row in last.values()):.4f} |')
    for kind in COLOURS:
        if ('mirrorla', kind) in means and ('twin', kind) in means:
            print(f'\n{kind}: mirrorla − twin = {means["mirrorla", kind] - means["twin", kind]:+.2f} points')


def main():
    folder = sys.argv[1]
    runs = study(folder)
    if runs:
        draw_study(runs, os.path.join(folder, 'study.svg'))
        table(runs)
    one = os.path.join(folder, 'pvt_nano_mirror.jsonl')
    if os.path.exists(one):
        rows = read(one)
        draw_run(rows, os.path.join(folder, 'pvt_nano.svg'))
        print('\n| epoch | training loss | test accuracy, % |\n| --- | --- | --- |')
        for epoch, loss, accuracy in rows:
            print(f'| {epoch} | {loss:.4f} | {accuracy:.2f} |')


main()
