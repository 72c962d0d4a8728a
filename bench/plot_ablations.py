"""Figures and short tables of docs/results.md from the folders that `mirrorla ablate` leaves.

    plot_ablations.py FOLDER... --out docs/results/ablations

For each FOLDER, named NAME, writes to the folder of --out: NAME.md, NAME.csv and NAME.json, the tables as ablate made them;
NAME_layers.csv, what the attention layers measured at the end of training, mean over layers and seeds; NAME.svg, all seeds
with the interval of the difference to the base.  Prints a short table of both in Markdown.  Given that folder's NAME.json
instead of FOLDER, draws and prints from what is there.  Needs python3-matplotlib.
"""
import argparse
import csv
import json
import os
import shutil

import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

matplotlib.rcParams['svg.hashsalt'] = 'mirrorla'      # the same picture from the same numbers
NUMBERS = ['energy_q', 'energy_k', 'entropy', 'rank', 'rank_kv', 'angle', 'angle_spread', 'moved_block', 'moved_cross', 'moved_twin']
SEED, MEAN, BASE = '#7f9fc6', '#1f5fa8', '#b3541e'


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def last_layers(log):
    """Means over the layers of the last line of measurements; {} where there is none."""
    found = {}
    with open(log, encoding='utf-8') as file:
        for line in file:
            if '"event":"layers"' in line:
                layers = json.loads(line)['layers']
                found = {number: mean([layer.get(number) for layer in layers]) for number in NUMBERS}
    return found


def layers_of(folder, table):
    """{row: {number: mean over the seeds}} of what is done."""
    rows = {}
    for row in table['rows']:
        cells = [last_layers(os.path.join(folder, cell['dir'], 'log.jsonl')) for cell in row['cells'] if cell['status'] == 'done']
        rows[row['name']] = {number: mean([cell.get(number) for cell in cells]) for number in NUMBERS}
    return rows


def read_layers(path):
    with open(path, encoding='utf-8', newline='') as file:
        return {line.pop('name'): {k: float(v) if v else None for k, v in line.items()} for line in csv.DictReader(file)}


def write_layers(path, layers):
    with open(path, 'w', encoding='utf-8', newline='') as file:
        out = csv.writer(file, lineterminator='\n')
        out.writerow(['name', *NUMBERS])
        for name, numbers in layers.items():
            out.writerow([name, *('' if numbers[n] is None else f'{numbers[n]:.5g}' for n in NUMBERS)])


def groups_of(table):
    """Rows that have the same base stand together, the base first; rows without values are left out."""
    groups = {}
    for row in table['rows']:
        if row['mean'] is not None:
            groups.setdefault(row['base'], []).append(row)
    return {base: sorted(rows, key=lambda row: row['name'] != base) for base, rows in groups.items()}


def draw(table, path):
    groups = groups_of(table)
    heights = [len(rows) for rows in groups.values()]
    figure, axes = plt.subplots(len(groups), 1, figsize=(8, .27 * sum(heights) + .75 * len(groups) + .3), squeeze=False,
                                gridspec_kw=dict(height_ratios=[h + .6 for h in heights]))
    for axis, (base, rows) in zip(axes[:, 0], groups.items()):
        centre = next((row['mean'] for row in rows if row['name'] == base), None)
        if centre is not None:
            axis.axvline(centre, color=BASE, linewidth=.8, zorder=0)
        for y, row in enumerate(rows):
            values = [cell['value'] for cell in row['cells'] if cell['status'] == 'done']
            axis.plot(values, [y] * len(values), 'o', color=SEED, markersize=4, markeredgewidth=0)
            colour = BASE if row['name'] == base else MEAN
            axis.plot([row['mean']], [y], '|', color=colour, markersize=12, markeredgewidth=2)
            difference = row.get('difference')
            if difference and difference.get('low') is not None and centre is not None:
                axis.plot([centre + difference['low'], centre + difference['high']], [y + .22] * 2, color=MEAN, linewidth=1)
        axis.set_yticks(range(len(rows)), [row['name'] for row in rows], fontsize=8)
        axis.set_ylim(len(rows) - .4, -.6)
        axis.grid(axis='x', alpha=.3)
        axis.spines[['top', 'right']].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[0, 0].set_title(f'{table["title"]}: {table["metric"]}', fontsize=10)
    axes[-1, 0].set_xlabel('dots: seeds; bar: mean; line: the base (orange) and 95 % interval of the paired difference to it', fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={'Date': None})
    plt.close(figure)


def short(value, digits):
    return '' if value is None else f'{value:.{digits}f}'


def print_table(table, layers):
    shown = [number for number in NUMBERS if any(row[number] is not None for row in layers.values())]
    print(f'\n{table["title"]}\n')
    print('| | n | accuracy, % | to the base, points | p | p (Holm) | ' + ' | '.join(shown) + ' |')
    print('| --- | --- | --- | --- | --- | --- |' + ' --- |' * len(shown))
    for rows in groups_of(table).values():
        for row in rows:
            difference = row.get('difference') or {}
            interval = ''
            if difference.get('mean') is not None:
                interval = f'{difference["mean"]:+.2f}'
                if difference.get('low') is not None:
                    interval += f' [{difference["low"]:+.2f}, {difference["high"]:+.2f}]'
            spread = '' if row['sd'] is None else f' ± {row["sd"]:.2f}'
            digits = {'rank': 1, 'rank_kv': 1}
            print(f'| {row["name"]} | {row["n"]} | {row["mean"]:.2f}{spread} | {interval or "base"} | {short(difference.get("p"), 4)} | '
                  f'{short(difference.get("p_holm"), 4)} | '
                  + ' | '.join(short(layers[row['name']][number], digits.get(number, 2)) for number in shown) + ' |')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder', nargs='+')
    parser.add_argument('--out', required=True)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    for source in options.folder:
        name = os.path.basename(os.path.normpath(source)).removesuffix('.json')
        target = os.path.join(options.out, name)
        if os.path.isdir(source):
            for ending in ('md', 'csv', 'json'):
                shutil.copyfile(os.path.join(source, f'table.{ending}'), f'{target}.{ending}')
        with open(f'{target}.json', encoding='utf-8') as file:
            table = json.load(file)
        if os.path.isdir(source):
            write_layers(f'{target}_layers.csv', layers_of(source, table))
        draw(table, f'{target}.svg')
        print_table(table, read_layers(f'{target}_layers.csv'))


main()
