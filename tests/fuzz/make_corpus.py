"""Makes the first inputs of the fuzz targets, corpus/*, and the words of formats, dict/*.dict.

    MLA_PROGRAM=build/mirrorla python3 tests/fuzz/make_corpus.py

Needs PIL for the JPEG files alone.  Checkpoints are the program's own, of the smallest models there are.  Files named
finding-* are inputs that once broke a reader; they stay.
"""
import gzip
import io
import json
import os
import re
import struct
import subprocess
import tarfile
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
PROGRAM = os.environ.get('MLA_PROGRAM', os.path.join(SOURCE, 'build', 'mirrorla'))


def put(target, name, content):
    folder = os.path.join(HERE, 'corpus', target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), 'wb') as out:
        out.write(content)


def read(*path):
    with open(os.path.join(*path), 'rb') as file:
        return file.read()


# ---- checkpoints and safetensors

TINY = b"""model: {family: %s, patch: %d, dims: %s, depths: %s, heads: %s, mlp_ratio: 1, attention: {kind: %s, dwconv: %d, mirror: {block: 2}}}
data: {set: twins, size: 12, twins: {grid: 2, train: 10, test: 10}}
augment: {crop_padding: 0, flip: 0}
optim: {name: %s, ema: %s, momentum: 0.5}
schedule: {warmup_epochs: 0}
train: {epochs: 1, batch: 10, max_steps: 1}
"""


def make_checkpoints():
    models = {
        'mirror': (b'vit', 6, b'[4]', b'[1]', b'[2]', b'mirror', 3, b'adamw', b'0.5'),
        'softmax': (b'pvt', 3, b'[2, 4]', b'[1, 1]', b'[1, 2]', b'softmax', 0, b'sgd', b'0'),
    }
    with tempfile.TemporaryDirectory() as work:
        for name, values in models.items():
            config, run = os.path.join(work, name + '.yaml'), os.path.join(work, name)
            with open(config, 'wb') as out:
                out.write(TINY % values)
            subprocess.run([PROGRAM, 'train', config, '--out', run, '--threads', '1'], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            checkpoint = os.path.join(run, 'checkpoints', 'step-00000001.safetensors')
            exported = os.path.join(work, name + '.safetensors')
            subprocess.run([PROGRAM, 'export', checkpoint, '--to', 'safetensors', '-o', exported], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            put('checkpoint', name + '.safetensors', read(checkpoint))
            put('checkpoint', name + '-exported.safetensors', read(exported))


def safetensors(header, data=b''):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(',', ':')).encode()
    return struct.pack('<Q', len(text)) + text + data


def make_safetensors():
    sizes = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'I16': 2, 'I8': 1, 'U64': 8, 'U32': 4, 'U16': 2,
             'U8': 1, 'BOOL': 1}
    header, at = {'__metadata__': {'format': 'pt', 'note': 'a "quoted" word, 鳥'}}, 0
    for kind, size in sizes.items():
        header['of.' + kind] = {'dtype': kind, 'shape': [2, 3], 'data_offsets': [at, at + 6 * size]}
        at += 6 * size
    header['none'] = {'dtype': 'F32', 'shape': [0, 5], 'data_offsets': [at, at]}
    header['one'] = {'dtype': 'F16', 'shape': [], 'data_offsets': [at, at + 2]}
    put('safetensors', 'types.safetensors', safetensors(header, bytes(i * 37 % 256 for i in range(at + 2))))
    put('safetensors', 'empty.safetensors', safetensors({}))
    put('safetensors', 'one.safetensors', safetensors({'a': {'dtype': 'U8', 'shape': [1], 'data_offsets': [0, 1]}}, b'x'))
    put('safetensors', 'twice.safetensors', safetensors(b'{"a":1,"a":2}'))
    put('safetensors', 'zip', b'PK\3\4' + bytes(30))
    put('safetensors', 'pickle', b'\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.')
    put('safetensors', 'pointer', b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n')


# ---- configs

def make_configs():
    for name in ('quickstart', 'cifar10/base', 'cifar10/pvt_nano_mirror', 'cifar10/vit_tiny_softmax'):
        text = re.sub(rb'base: .*', b'base: base.yaml', read(SOURCE, 'configs', name + '.yaml'))
        base = read(SOURCE, 'configs/cifar10/base.yaml') if b'base:' in text else b''
        put('config', name.replace('/', '-') + '.yaml', text + b'\0' + base + b'\0optim.lr=3e-4\0train.seed=7')
    put('config', 'spellings.yaml',
        b'model:\n  dims: (64, 128)\n  depths: [1,\n    2]\n  heads: [2, 4]\n  family: "pvt"\n  attention: {kind: \'relu\', qkv_bias: no}\n'
        b'data:\n  path: >-\n    /a/b\n  mean: [0.5, .5, 5e-1]\n  std: auto\noptim: {betas: [0.9, 0.999], clip: null}\naugment:\n'
        b'\0train:\n  seed: 18446744073709551615\n\0optim.clip=~\0data.mean=[0,0,0]\0data.path="a\\tb"\0optim.betas=(0.5, 0.6)')
    put('config', 'nothing.yaml', b'---\n')
    put('config', 'dotted.yaml', b'optim.lr: 1\n')
    put('config', 'deep.yaml', b'[' * 20)
    relations = {
        'stages': ['model.dims=[8, 8]'],
        'entries': ['model.family=pvt', 'model.dims=[8, 8]'],
        'heads': ['model.heads=[3]'],
        'block': ['model.attention.mirror.block=5'],
        'odd': ['model.dims=[12]', 'model.attention.mirror.block=1'],
        'even': ['model.attention.dwconv=4'],
        'patch': ['data.size=30'],
        'halved': ['model.family=pvt', 'model.dims=[8,8]', 'model.depths=[1,1]', 'model.heads=[1,1]', 'data.size=36', 'model.patch=12'],
        'grid': ['data.set=twins', 'data.twins.grid=5'],
        'cells': ['data.set=twins', 'data.twins.grid=8'],
        'padding': ['augment.crop_padding=40'],
        'lanes': ['train.lanes=3'],
        'shard': ['train.shard=9', 'train.batch=8'],
        'warmup': ['schedule.warmup_epochs=9', 'train.epochs=3'],
        'rising': ['schedule.min_lr=0.9'],
        'section': ['optim=1'],
        'small': ['optim.lr=1e-999'],
        'count': ['optim.betas=[1]'],
        'comma': ['model.dims=(64,)'],
        'path': ['data.path=', 'data.path="\\0"'],
    }
    for name, overrides in relations.items():
        put('config', 'set-' + name, b'\0\0' + '\0'.join(overrides).encode())
    put('config', 'wrong.yaml', b'optim: {lr: &a 1, lr: *a}\ntrain: !!int 3\n<<: {a: b}\n\0base: config.yaml\0base=x\0=\0optim=1\0optim.l=1')
    put('config', 'lists.yaml', b'base: [base.yaml, base.yaml]\nmodel:\n  dims:\n  - 8\n  heads: [2]\n\0train: {batch: 4, shard: 2}')


# ---- CIFAR

def record(label, value, coarse=False):
    return (b'\1' if coarse else b'') + bytes([label]) + bytes([value]) * 3072


def tar(entries, form=tarfile.USTAR_FORMAT, zipped=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=form) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content) if content is not None else 0
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            archive.addfile(info, io.BytesIO(content or b''))
    content = out.getvalue().rstrip(b'\0')
    content += bytes(-len(content) % 512 + 1024)
    return gzip.compress(content, mtime=0) if zipped else content


def make_sweeps():
    base = b'base: base.yaml\n'
    model = b'model: {family: vit, patch: 8, dims: [32], depths: [1], heads: [2], mlp_ratio: 1}\ndata: {set: twins, size: 32, twins: {grid: 4}}\n'
    sweeps = {
        'grid': b'sweep: {model.attention.kind: [softmax, relu, mirror], train.seed: [0, 1, 2], base: relu}',
        'lists': b"""sweep:
  title: "Sizes: some"
  size:
    small: {}
    wide: {model.dims: [64], model.heads: [4]}
  optim.lr: [1e-3, 2e-3]
  train.seed: [3]
  exclude:
    - {size: wide, optim.lr: [2e-3]}
  base: {size: small}
""",
        'stages': b'sweep: {model.attention.kind: [[relu], mirror], model.attention.eps: [1e-6, 0.01]}',
        'booleans': b'sweep: {model.attention.gate: [true, false], model.attention.dwconv: [0, 3]}',
        'empty': b'sweep: {optim.lr: []}',
        'twice': b'sweep: {optim.lr: [1e-3, 0.001]}',
        'unknown': b'sweep: {optim.l: [1], size: {a: {train.seed: 1}, a: {}}}',
        'rules': b'sweep: {optim.lr: [1, 2], exclude: [{optim.lr: [1, 2]}, {x: 1}, 3], base: {optim.lr: 3}}',
        'none': b'sweep:',
    }
    for name, text in sweeps.items():
        put('sweep', name + '.yaml', base + text + b'\0' + model + b'\0train.epochs=3')
    put('sweep', 'alone.yaml', model + b'sweep:\n  train.seed: [0, 1]\n')
    for name in ('kinds', 'recall', 'mirror_parts'):
        text = re.sub(rb'base: \.\..*', b'base: base.yaml', read(SOURCE, 'configs', 'ablations', name + '.yaml'))
        put('sweep', 'ablation-' + name + '.yaml', text + b'\0' + model)


def make_cifar():
    names10 = '\n'.join('name%d' % i for i in range(10)).encode()
    names100 = '\n'.join('n%d' % i for i in range(100)).encode()
    put('cifar', 'test10', b'\0' + record(3, 7))
    put('cifar', 'train10-named', b'\6' + names10 + b'\n\0' + record(3, 7))
    put('cifar', 'test100-resized', b'\11' + record(99, 7, True))
    put('cifar', 'train100-named', b'\7' + names100 + b'\0' + record(99, 7, True))
    folder10, folder100 = 'cifar-10-batches-bin/', 'cifar-100-binary/'
    batches = [(folder10 + 'data_batch_%d.bin' % i, record(i, 7)) for i in range(1, 6)]
    whole10 = [(folder10, None), (folder10 + 'batches.meta.txt', names10)] + batches + [(folder10 + 'test_batch.bin', record(0, 9))]
    whole100 = [(folder100 + 'fine_label_names.txt', names100), (folder100 + 'train.bin', record(50, 7, True)),
                (folder100 + 'test.bin', record(51, 7, True))]
    long_name = 'long/' * 30 + folder10 + 'test_batch.bin'
    put('archive', 'cifar10.tar.gz', tar(whole10))
    put('archive', 'cifar100.tar.gz', tar(whole100))
    put('archive', 'gnu-long.tar.gz', tar([(long_name, record(1, 1))], tarfile.GNU_FORMAT))
    put('archive', 'pax-long.tar.gz', tar([(long_name, record(1, 1))], tarfile.PAX_FORMAT))
    put('archive', 'prefix.tar.gz', tar([(long_name, record(1, 1))]))
    put('archive', 'python.tar.gz', tar([('cifar-10-batches-py/data_batch_1', b'x')]))
    put('archive', 'plain.tar', tar([('a', b'b')], zipped=False))


# ---- images

def png(width, height, depth, colour, before=b'', interlaced=0):
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b''
    for left, top, across, down in passes if interlaced else [(0, 0, 1, 1)]:
        columns, lines = (width - left + across - 1) // across, (height - top + down - 1) // down
        for y in range(lines if columns > 0 else 0):
            rows += bytes([y % 5]) + bytes((x * 37 + y) % 4 for x in range((columns * channels * depth + 7) // 8))
    header = struct.pack('>IIBBBBB', width, height, depth, colour, 0, 0, interlaced)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + before + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def make_pngs():
    palette = chunk(b'PLTE', bytes(range(12)))
    extras = (chunk(b'gAMA', struct.pack('>I', 45455)) + chunk(b'sRGB', b'\0') + chunk(b'pHYs', bytes(9))
              + chunk(b'tEXt', b'Title\0words') + chunk(b'zTXt', b'Note\0\0' + zlib.compress(b'words')))
    put('png', 'rgb.png', png(9, 7, 8, 2, extras))
    put('png', 'rgb-transparent.png', png(8, 8, 8, 2, chunk(b'tRNS', bytes(6))))
    put('png', 'rgba16-interlaced.png', png(9, 5, 16, 6, interlaced=1))
    put('png', 'palette2.png', png(33, 33, 2, 3, palette + chunk(b'tRNS', b'\0\1')))
    put('png', 'palette4-interlaced.png', png(9, 9, 4, 3, palette, 1))
    put('png', 'grey1.png', png(11, 3, 1, 0))
    put('png', 'grey16.png', png(4, 40, 16, 0))
    put('png', 'grey-alpha.png', png(40, 4, 8, 4))
    put('png', 'gif', b'GIF89a' + bytes(10))
    put('png', 'empty', b'')


def make_jpegs():
    from PIL import Image
    picture = Image.new('RGB', (19, 17))
    picture.putdata([(x * 13 % 256, y * 15 % 256, x * y % 256) for y in range(17) for x in range(19)])
    forms = {
        'sampled': ('RGB', {}),
        'whole': ('RGB', {'subsampling': 0}),
        'progressive': ('RGB', {'progressive': True}),
        'grey': ('L', {}),
        'cmyk': ('CMYK', {}),
    }
    for name, (mode, options) in forms.items():
        out = io.BytesIO()
        picture.convert(mode).save(out, 'JPEG', quality=30, optimize=True, **options)
        put('jpeg', name + '.jpg', out.getvalue())


# ---- logs

def make_logs():
    lines = []
    for step in range(1, 9):
        lines.append('{"event":"step","step":%d,"epoch":%d,"loss":2.3,"lr":1e-3}' % (step, (step + 3) // 4))
        if step % 4 == 0:
            lines.append('{"event":"epoch","step":%d,"epoch":%d,"train_loss":2.2}' % (step, step // 4))
            lines.append('{"event":"layers","step":%d,"epoch":%d,"images":4,"layers":[{"kind":"relu","tokens":16,"heads":2,"rank":3.5}]}'
                         % (step, step // 4))
            lines.append('{"event":"timing","step":%d,"epoch":%d,"images_per_second":99}' % (step, step // 4))
    text = '\n'.join(lines).encode()
    put('runlog', 'cut', b'\5' + text + b'\n')
    put('runlog', 'whole', b'\xff' + text)
    put('runlog', 'torn', b'\7' + text[:-9])
    put('runlog', 'zeros', b'\2' + text + b'\n' + bytes(20))
    put('curves', 'whole', text + b'\n')
    put('curves', 'torn', text[:-9])
    put('curves', 'long', b'\n'.join(text.replace(b':8,', b':%d,' % (8 + 99 * i)) for i in range(4)) + b'\n')
    put('runlog', 'damaged', b'\3{"step":1}\n\n{"step":2}\n')


# ---- words

def make_words():
    def write(name, words):
        os.makedirs(os.path.join(HERE, 'dict'), exist_ok=True)
        with open(os.path.join(HERE, 'dict', name + '.dict'), 'w') as out:
            for word in words:
                out.write('"%s"\n' % ''.join(c if 32 <= ord(c) < 127 and c not in '"\\' else '\\x%02x' % ord(c) for c in word))

    reference = subprocess.run([PROGRAM, 'config'], check=True, capture_output=True, text=True).stdout
    keys = re.findall(r'^  ([a-z_.]+)  +\S', reference, re.MULTILINE)
    choices = [word for found in re.findall(r'\(one of ([^)]*)\)', reference) for word in found.split(', ')]
    parts = sorted({part for key in keys for part in key.split('.')} | set(choices))
    syntax = [': ', '- ', '[', ']', '{', '}', '(', ')', ', ', '\n  ', '\0', '=', '|\n', '>-\n', '# ', '"', "'", '&a ', '*a', '!!str ',
              '<<: ', '---\n', '...\n', '%YAML 1.1\n', '? ', 'null', '~', 'auto', 'true', 'false', '1e-5', '0.5', '.inf', '-1', '64',
              '2147483648', '18446744073709551615', '010', '0x10', '1_000', 'base: base.yaml\n', 'base', '\\u00e9', '\\x00']
    write('sweep', sorted(keys) + parts + syntax + ['sweep:\n  ', 'exclude: ', 'title: ', '- {', '[0, 1, 2]'])
    write('config', sorted(keys) + parts + [part + ': ' for part in parts] + syntax)
    json_words = ['{', '}', '[', ']', ':', ',', '"', '{}', '[]', 'null', 'true', 'false', '-1', '0', '1e9', '0.5', '\\u0000',
                  '\\ud83d\\ude00', '9223372036854775807', '9223372036854775808', '18446744073709551615']
    types = ['F64', 'F32', 'F16', 'BF16', 'I64', 'I32', 'I16', 'I8', 'U64', 'U32', 'U16', 'U8', 'BOOL', 'F8_E4M3']
    names = ['"__metadata__":', '"dtype":', '"shape":', '"data_offsets":', '"format":', '"config":', '"counters":', '"classes":',
             '"mean":', '"std":', '"size":', '"weight_hash":', '"crc32":', 'optim.exp_avg.', 'optim.exp_avg_sq.', 'optim.momentum.',
             'ema.', 'mirrorla.checkpoint', 'mirrorla.version', 'step_in_epoch', 'epoch_loss_sum']
    write('safetensors', names + types + json_words)
    write('checkpoint', names + types + json_words + sorted(keys) + [part + ': ' for part in parts])
    write('runlog', json_words + ['"event":', '"step":', '"epoch":', '"timing"', '"layers"', '"kind":', '"rank":', '}\n', '\n', '\0'])
    write('curves', json_words + ['"event":', '"step":', '"epoch":', '"timing"', '"layers"', '"kind":', '"rank":', '}\n', '\n', '\0'])
    write('archive', ['ustar\0', 'ustar  \0', 'cifar-10-batches-bin/', 'cifar-100-binary/', 'cifar-10-batches-py', 'data_batch_1.bin',
                      'test_batch.bin', 'batches.meta.txt', 'train.bin', 'test.bin', 'fine_label_names.txt', ' path=', '30 path='])
    write('jpeg', ['\xff' + chr(code) for code in [0xd8, 0xd9, 0xda, 0xdb, 0xdd, 0xc0, 0xc1, 0xc2, 0xc4, 0xc8, 0xc9, 0xcc, 0xd0,
                                                   0xd7, 0xe0, 0xe1, 0xee, 0xfe]] + ['JFIF\0', 'Adobe\0'])


if __name__ == '__main__':
    for make in (make_checkpoints, make_safetensors, make_configs, make_sweeps, make_cifar, make_pngs, make_jpegs, make_logs, make_words):
        make()
