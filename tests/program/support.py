"""What the tests of the program share: running it, tiny data sets and configs, readers for what it writes.

The program is named by the environment variable MLA_PROGRAM, the source folder by MLA_SOURCE_DIR (default: the folder
that this file stands in).  Only the standard library is used.
"""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

SOURCE = os.environ.get('MLA_SOURCE_DIR') or os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
PROGRAM = os.path.abspath(os.environ.get('MLA_PROGRAM') or os.path.join(SOURCE, 'build', 'mirrorla'))
TIMEOUT_S = 240

# Sixteen pixels, two by two cells, four tokens: an epoch of it takes milliseconds.
# of attention
KINDS = ('softmax', 'elu1', 'relu', 'performer', 'cosformer', 'efficient', 'focused', 'pola', 'inline', 'agent', 'mirror')
TINY = """\
model: {family: vit, patch: 8, dims: [16], depths: [1], heads: [2], mlp_ratio: 2, attention: {kind: mirror, dwconv: 0}}
data: {set: twins, size: 16, twins: {grid: 2, train: 100, test: 40}}
augment: {crop_padding: 0, flip: 0}
optim: {lr: 2e-3}
train: {epochs: 2, batch: 32, lanes: 4, shard: 4, label_smoothing: 0}
diagnostics: {every_epochs: 1}
"""
PYRAMID = """\
model: {family: pvt, patch: 4, dims: [8, 16], depths: [1, 1], heads: [1, 2], mlp_ratio: 2,
        attention: {kind: mirror, dwconv: 3}}
data: {set: twins, size: 16, twins: {grid: 2, train: 100, test: 40}}
augment: {crop_padding: 0, flip: 0}
optim: {lr: 2e-3}
train: {epochs: 2, batch: 32, lanes: 8, shard: 4}
diagnostics: {every_epochs: 1}
"""
CIFAR = """\
model: {family: vit, patch: 8, dims: [16], depths: [1], heads: [2], mlp_ratio: 2, attention: {kind: mirror, dwconv: 3}}
data: {set: cifar10, path: cifar}
optim: {lr: 5e-3}
train: {epochs: 2, batch: 32, lanes: 4, shard: 4}
"""
FOLDER = """\
model: {family: vit, patch: 8, dims: [16], depths: [1], heads: [2], mlp_ratio: 2}
data: {set: imagefolder, path: images, size: 16}
augment: {crop_padding: 2}
train: {epochs: 1, batch: 4, lanes: 2, shard: 2}
"""


class Result:
    """How a run of the program ended."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def __str__(self):
        return (f'mirrorla {" ".join(self.arguments)}\nexit code {self.code}\n--- stdout\n{self.out[-3000:]}'
                f'\n--- stderr\n{self.err[-6000:]}')


def environment(home, changes=()):
    """The caller's environment without what steers threads and finds data, so that tests depend on themselves alone."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(('OMP_', 'GOMP_', 'OPENBLAS_', 'GOTO_', 'MLA_', 'XDG_'))}
    # Threads that wait for each other must not burn the core that the other one needs.
    env.update(HOME=home, OMP_WAIT_POLICY='passive', ASAN_OPTIONS='exitcode=99:detect_leaks=1',
               LSAN_OPTIONS='print_suppressions=0:suppressions=' + os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                                'leaks.supp'),
               UBSAN_OPTIONS='halt_on_error=1:print_stacktrace=1:exitcode=99')
    env.update(changes)
    return env


class Case(unittest.TestCase):
    """A test with a folder of its own, which is also the program's working folder and $HOME."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='mirrorla-test-')
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    # ---- files

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, content):
        """Writes text or bytes to a file of the folder; parents are made.  Returns the name."""
        os.makedirs(os.path.dirname(self.path(name)) or '.', exist_ok=True)
        with open(self.path(name), 'wb') as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return name

    def read(self, *names):
        with open(self.path(*names), 'rb') as file:
            return file.read()

    def log(self, run):
        return read_lines(self.path(run, 'log.jsonl'))

    def ends(self, run):
        """The lines of the ends of epochs."""
        return [line for line in self.log(run) if line['event'] == 'epoch']

    def checkpoints(self, run):
        return sorted(n for n in os.listdir(self.path(run, 'checkpoints')) if n.startswith('step-'))

    def snapshot(self):
        """Every name below the folder with its content, to prove that nothing was touched."""
        found = {}
        for root, folders, files in os.walk(self.folder):
            for name in folders:
                found[os.path.join(root, name)] = None
            for name in files:
                with open(os.path.join(root, name), 'rb') as file:
                    found[os.path.join(root, name)] = file.read()
        return found

    # ---- the program

    def start(self, *arguments, env=(), **options):
        """Starts the program without waiting for it; it is killed with the test if need be."""
        process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, env=environment(self.folder, env),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                                   **options)
        process.words, process.read_before = list(arguments), b''
        self.addCleanup(end, process)
        return process

    def wait_for_start(self, process):
        """Waits until the run folder is open, when signals are handled; false if the program ended before."""
        for line in iter(process.stderr.readline, b''):
            process.read_before += line
            if line.startswith(b'run folder: '):
                return True
        return False

    def finish(self, process, timeout=TIMEOUT_S):
        """Waits for a started program; a sanitizer's report fails the test whatever the exit code."""
        out, err = process.communicate(timeout=timeout)
        err = process.read_before + err
        result = Result(process.words, process.returncode, out.decode(errors='replace'), err.decode(errors='replace'))
        for word in ('Sanitizer', 'runtime error:'):
            self.assertNotIn(word, result.err + result.out, str(result))
        return result

    def run_program(self, *arguments, code=0, env=(), timeout=TIMEOUT_S, **options):
        result = self.finish(self.start(*arguments, env=env, **options), timeout)
        self.assertEqual(result.code, code, str(result))
        return result

    def train(self, config, *arguments, out=None, set=(), code=0, **options):
        """Trains; `set` is a list of key=value."""
        words = ['train', config, *arguments]
        for pair in set:
            words += ['--set', pair]
        if out:
            words += ['--out', out]
        return self.run_program(*words, code=code, **options)

    def refused(self, *arguments, words=(), code=2, lines=None, **options):
        """Runs what must be refused: the exit code, the words on stderr, an empty stdout, and no file touched.

        `lines`: how many lines stderr has; those of a refusal before anything was opened are one or two.
        """
        before = self.snapshot()
        result = self.run_program(*arguments, code=code, **options)
        self.assertEqual(result.out, '', str(result))
        message = last_message(result.err)
        for word in words:
            self.assertIn(word, message, str(result))
        if lines:
            self.assertLessEqual(result.err.count('\n'), lines, str(result))
        after = self.snapshot()
        self.assertEqual(sorted(before), sorted(after), str(result))
        for name in before:
            self.assertEqual(before[name], after[name], name + ' was changed\n' + str(result))
        return result


def end(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def last_message(err):
    """The program's own sentence: the last line that begins with its name."""
    found = [line for line in err.splitlines() if re.match(r'mirrorla( \w+)*: ', line)]
    return found[-1] if found else ''


def wait_for(condition, process=None, seconds=60):
    """Polls until the condition holds or the process ends; says whether it held."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        if process and process.poll() is not None:
            return bool(condition())
        time.sleep(0.001)
    return False


# ---- data sets

def random_bytes(rng, count):
    return rng.getrandbits(8 * count).to_bytes(count, 'little') if count else b''


COLOURS = [(220, 40, 40), (40, 220, 40), (40, 40, 220), (220, 220, 40), (220, 40, 220), (40, 220, 220), (230, 230, 230),
           (30, 30, 30), (130, 130, 130), (240, 140, 20)]


def coloured_plane(rng, level, count):
    table = bytes(min(255, max(0, level + (b - 128) // 5)) for b in range(256))
    return random_bytes(rng, count).translate(table)


def cifar_records(rng, count, coarse=False):
    """Records of images whose colour tells the class."""
    parts = []
    for i in range(count):
        label = i % 10
        parts.append(bytes([0, label] if coarse else [label]))
        parts += [coloured_plane(rng, level, 1024) for level in COLOURS[label]]
    return b''.join(parts)


def make_cifar(folder, train=200, test=50, seed=1):
    """A CIFAR-10 folder in the binary layout; the training images are dealt to the five files."""
    rng = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    for i in range(5):
        count = train // 5 + (1 if i < train % 5 else 0)
        with open(os.path.join(folder, f'data_batch_{i + 1}.bin'), 'wb') as file:
            file.write(cifar_records(rng, count))
    with open(os.path.join(folder, 'test_batch.bin'), 'wb') as file:
        file.write(cifar_records(rng, test))


def png(rng, colour, side=20):
    """The bytes of an 8-bit RGB PNG of noise around a colour."""
    rows = b''
    for _ in range(side):
        planes = [coloured_plane(rng, level, side) for level in colour]
        rows += b'\0' + bytes(v for pixel in zip(*planes) for v in pixel)

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)) +
            chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def make_folder(folder, classes=('cat', 'dog'), train=4, val=2, seed=1):
    """An ImageFolder of small PNG files."""
    rng = random.Random(seed)
    for split, count in (('train', train), ('val', val)):
        for c, name in enumerate(classes):
            os.makedirs(os.path.join(folder, split, name), exist_ok=True)
            for i in range(count):
                with open(os.path.join(folder, split, name, f'{i}.png'), 'wb') as file:
                    file.write(png(rng, COLOURS[c % 10]))


def jpeg():
    with open(os.path.join(SOURCE, 'tests', 'data', 'rgb420.jpg'), 'rb') as file:
        return file.read()


GIF = b'GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;'


# ---- reading what the program writes

def read_lines(path):
    """Objects of a .jsonl file; every line must be one."""
    with open(path, encoding='utf-8') as file:
        text = file.read()
    if text and not text.endswith('\n'):
        raise ValueError(f'{path}: the last line is cut')
    return [json.loads(line) for line in text.splitlines()]


class Safetensors:
    """A reader written from the format's description, which trusts nothing that it reads."""
    WIDTH = {'F32': 4, 'I64': 8}

    def __init__(self, path):
        with open(path, 'rb') as file:
            content = file.read()
        size, = struct.unpack_from('<Q', content)
        header = json.loads(content[8:8 + size].decode('utf-8'))
        data = content[8 + size:]
        self.metadata = header.pop('__metadata__', {})
        self.shape, self.data, self.dtype = {}, {}, {}
        position = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
            first, last = entry['data_offsets']
            count = self.WIDTH[entry['dtype']]
            for n in entry['shape']:
                count *= n
            if first != position or last - first != count:
                raise ValueError(f'{path}: {name}: offsets {first}, {last} at {position}')
            position = last
            self.shape[name], self.dtype[name], self.data[name] = tuple(entry['shape']), entry['dtype'], data[first:last]
        if position != len(data):
            raise ValueError(f'{path}: {len(data)} bytes of data, {position} belong to tensors')

    def floats(self, name):
        return struct.unpack(f'<{len(self.data[name]) // 4}f', self.data[name])

    def integers(self, name):
        return struct.unpack(f'<{len(self.data[name]) // 8}q', self.data[name])

    def counters(self):
        return json.loads(self.metadata['counters'])


def read_checkpoint(path):
    """A checkpoint with every CRC compared."""
    file = Safetensors(path)
    stored = json.loads(file.metadata['crc32'])
    for name, data in file.data.items():
        if int(stored[name], 16) != zlib.crc32(data):
            raise ValueError(f'{path}: {name}: CRC {zlib.crc32(data):08x}, stored {stored[name]}')
    return file


def write_safetensors(path, tensors, metadata=None, header=None):
    """Writes {name: (dtype, shape, bytes)}; `header` replaces the header's text."""
    entries, position = {}, 0
    if metadata is not None:
        entries['__metadata__'] = metadata
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [position, position + len(data)]}
        position += len(data)
    text = header if header is not None else json.dumps(entries).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + b''.join(data for _, _, data in tensors.values()))


def flow(value):
    """A nested dictionary as YAML in flow form."""
    if isinstance(value, dict):
        return '{' + ', '.join(f'{k}: {flow(v)}' for k, v in value.items()) + '}'
    return str(value).lower() if isinstance(value, bool) else str(value)


def summary(out):
    """What `mirrorla train` prints at the end, as {first word: rest}."""
    return dict(line.split(' ', 1) for line in out.splitlines())


def main():
    if not os.access(PROGRAM, os.X_OK):
        raise SystemExit(f'{PROGRAM}: not found; name the program with MLA_PROGRAM')
    # A harness that ignores SIGINT hands that on to its children, and then nothing could be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main(verbosity=2)
