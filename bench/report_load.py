#!/usr/bin/env python3
"""How long a report takes to be made and to load: made-up runs, the page's size, and the time to the first chart in Chromium.

    bench/report_load.py [RUNS [EPOCHS [STEPS_PER_EPOCH]]]      default: 60 200 50

Needs node with the packages of package.json, and Chromium.  The program is $MLA_PROGRAM (default: build/mirrorla).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, 'tests', 'program'))
import synthetic_runs  # noqa: E402
PROGRAM = os.environ.get('MLA_PROGRAM', os.path.join(SOURCE, 'build', 'mirrorla'))


def main():
    count, epochs, steps = [int(word) for word in sys.argv[1:]] + [60, 200, 50][len(sys.argv) - 1:]
    with tempfile.TemporaryDirectory(prefix='mirrorla-report-') as folder:
        paths = synthetic_runs.make_runs(folder, count, epochs, steps)
        page = os.path.join(folder, 'report.html')
        start = time.monotonic()
        subprocess.run([PROGRAM, 'report', *paths, '--maps', '0', '-o', page], check=True, stdout=subprocess.DEVNULL)
        made = time.monotonic() - start
        print(f'{count} runs of {epochs} epochs and {epochs * steps} steps: made in {made:.1f} s, {os.path.getsize(page) / 1e6:.2f} MB')
        chromium = next(path for name in ('chromium', 'chromium-browser', 'google-chrome') if (path := shutil.which(name)))
        for width, height in ((1400, 900), (390, 844)):
            times = []
            for _ in range(5):
                job = dict(page=page, chromium=chromium, width=width, height=height, dark=False, load_only=True)
                done = subprocess.run(['node', os.path.join(SOURCE, 'tests/report/page.mjs')], input=json.dumps(job), capture_output=True,
                                      text=True, check=True)
                times.append(json.loads(done.stdout)['load_ms'])
            print(f'{width} x {height}: loaded in {sorted(times)[2]:.0f} ms (median of 5; {min(times):.0f} to {max(times):.0f})')


main()
