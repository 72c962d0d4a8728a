#!/usr/bin/env python3
"""Exported ONNX models in onnxruntime against mirrorla's own logits, on real CIFAR-10.

    python3 bench/verify_onnx.py PROGRAM DATA_DIR [CKPT...]

Trains every config of configs/cifar10/{pvt_nano,vit_tiny}_*.yaml for a few steps, exports it, and compares the first
1,000 test images; then the given checkpoints as they are.  Prints a table in Markdown.  Needs node and `npm ci`.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
IMAGES, STEPS = 1000, 8


def call(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout


def compare(program, data, checkpoint, folder):
    model, logits = os.path.join(folder, 'model.onnx'), os.path.join(folder, 'logits.safetensors')
    call(program, 'export', checkpoint, '--to', 'onnx', '--attention', '-o', model)
    call(program, 'eval', checkpoint, '--data', data, '--limit', str(IMAGES), '--logits', logits)
    job = dict(model=model, images=os.path.join(data, 'test_batch.bin'), logits=logits, count=IMAGES)
    return json.loads(call('node', os.path.join(ROOT, 'tests', 'onnx', 'compare.mjs'), input=json.dumps([job])))[0]


def show(name, result):
    print(f"| {name} | {result['largest']:.2f} | {result['logits']:.1e} | {IMAGES - result['differ']} of {IMAGES} | "
          f"{result['batches']:.1e} |", flush=True)


def main(program, data, checkpoints):
    nested = os.path.join(data, 'cifar-10-batches-bin')
    data = nested if os.path.isdir(nested) else data
    print('| model | largest logit | largest difference | same first class | batches of 1, 2, 7 and 64 |')
    print('| --- | --- | --- | --- | --- |')
    for config in sorted(glob.glob(os.path.join(ROOT, 'configs/cifar10/[pv][vi]t_*_*.yaml'))):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, 'run')
            settings = [f'data.path={data}', f'train.max_steps={STEPS}', 'train.batch=32', 'data.subset=0.02',
                        'schedule.warmup_epochs=0']
            call(program, 'train', config, '--out', run, *(word for setting in settings for word in ('--set', setting)))
            checkpoint, = glob.glob(os.path.join(run, 'checkpoints', 'step-*.safetensors'))
            show(f'{os.path.basename(config)[:-5]}, {STEPS} steps', compare(program, data, checkpoint, folder))
    for checkpoint in checkpoints:
        with tempfile.TemporaryDirectory() as folder:
            result = compare(program, data, checkpoint, folder)
            show(f"{os.path.basename(checkpoint)}, step {result['metadata']['step']}", result)


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:])
