"""Golden values of the training recipes, made by PIL, torchvision and PyTorch.

    make_recipes.py            write recipes.safetensors next to this script
    make_recipes.py --check    make everything again and compare with the file; 1 if it differs

Needs python3-pil (9.4), python3-torchvision (0.14), torch and numpy.  Pixels are bytes in planes (3, S, S), S = 17;
everything else is float32.

images                   (4, 3, S, S): a picture with soft and hard edges; noise; few values; flat
fill                     (3), the colour outside
randaug.cases            (n, 6): image, operation (order of mla_randaug_operation), magnitude in hundredths, sign (1:
                         negative), filter (0 bilinear, 1 bicubic), increasing
randaug.out              (n, 3, S, S)
jitter.cases             (n, 9): image; brightness, contrast, saturation, hue in thousandths; the parts in their order
jitter.out               (n, 3, S, S)
mix.image, mix.other     (3, S, S); mix.share (1); mix.out by Mixup
cut.box (4)              top, bottom, left, right; cut.out by CutMix
loss.logits (6, 5), loss.labels, loss.others, loss.shares (6), loss.y (6) with smoothing 0.1, loss.dy (6), loss.dlogits (6, 5)
"""
import argparse
import math
import os
import sys

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.nn import functional as F
from torchvision.transforms import functional as TF

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from make_golden import differences, read_safetensors, write_safetensors  # noqa: E402

SIDE, FILL, SMOOTHING = 17, (125, 123, 114), 0.1
OPERATIONS = ('AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness '
              'ShearX ShearY TranslateX TranslateY').split()
GEOMETRIC = ('Rotate', 'ShearX', 'ShearY', 'TranslateX', 'TranslateY')
ENHANCE = ('Color', 'Contrast', 'Brightness', 'Sharpness')


def pictures():
    rng = np.random.RandomState(5)
    y, x = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1)
    soft = np.stack([40 + 170 * x, 60 + 150 * y * x, 200 - 140 * (x - 0.5) ** 2 - 60 * y], -1)
    soft[(x - 0.6) ** 2 + (y - 0.4) ** 2 < 0.06] = (230, 40, 90)
    soft[12:15, 2:9] = (20, 180, 60)
    picture = np.clip(soft + rng.randn(SIDE, SIDE, 3) * 4, 0, 255)
    noise = rng.randint(0, 256, (SIDE, SIDE, 3))
    few = np.array([30, 31, 200])[rng.randint(0, 3, (SIDE, SIDE, 3))]
    few[..., 1] = 77
    few[..., 2] = np.where(few[..., 2] > 100, 254, 3)
    flat = np.full((SIDE, SIDE, 3), 128)
    return [Image.fromarray(a.astype(np.uint8)) for a in (picture, noise, few, flat)]


def planes(image):
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def warp(image, matrix, resample):
    return image.transform(image.size, Image.AFFINE, matrix, resample=resample, fillcolor=FILL)


def randaug(image, name, magnitude, negative, bicubic, increasing):
    """timm's levels, written from its documentation, on PIL's operations."""
    resample = Image.BICUBIC if bicubic else Image.BILINEAR
    share = magnitude / 100 / 10
    sided = -share if negative else share
    if name == 'AutoContrast':
        return ImageOps.autocontrast(image)
    if name == 'Equalize':
        return ImageOps.equalize(image)
    if name == 'Invert':
        return ImageOps.invert(image)
    if name == 'Rotate':
        return image.rotate(sided * 30, resample=resample, fillcolor=FILL)
    if name == 'Posterize':
        bits = 4 - int(share * 4) if increasing else int(share * 4)
        return ImageOps.posterize(image, bits)
    if name == 'Solarize':
        return ImageOps.solarize(image, 256 - int(share * 256) if increasing else int(share * 256))
    if name == 'SolarizeAdd':
        return image.point([min(255, v + int(share * 110)) if v < 128 else v for v in range(256)] * 3)
    if name in ENHANCE:
        factor = max(0.1, 1 + sided * 0.9) if increasing else share * 1.8 + 0.1
        return getattr(ImageEnhance, name)(image).enhance(factor)
    step = sided * 0.45 * SIDE
    return warp(image, {'ShearX': (1, sided * 0.3, 0, 0, 1, 0), 'ShearY': (1, 0, 0, sided * 0.3, 1, 0),
                        'TranslateX': (1, 0, step, 0, 1, 0), 'TranslateY': (1, 0, 0, 0, 1, step)}[name], resample)


def randaug_cases():
    for i, name in enumerate(OPERATIONS):
        if name in GEOMETRIC:
            yield from ((0, i, m, s, f, 1) for m in (0, 70, 900, 964) for s in (0, 1) for f in (0, 1))
            yield from ((1, i, 830, s, f, 1) for s in (0, 1) for f in (0, 1))
        elif name in ENHANCE:
            yield from ((0, i, m, s, 0, 1) for m in (0, 440, 900, 1000) for s in (0, 1))
            yield from ((k, i, m, 0, 0, 0) for k in (0, 1) for m in (0, 490, 930))
        elif name in ('Posterize', 'Solarize', 'SolarizeAdd'):
            yield from ((1, i, m, 0, 0, inc) for m in (0, 240, 760, 910, 1000) for inc in (0, 1))
        else:
            yield from ((k, i, 900, 0, 0, 1) for k in range(4))


def jitter(image, *case):
    (brightness, contrast, saturation, hue), order = (c / 1000 for c in case[:4]), case[4:]
    for part in order:
        image = (TF.adjust_brightness(image, brightness) if part == 0 else TF.adjust_contrast(image, contrast) if part == 1
                 else TF.adjust_saturation(image, saturation) if part == 2 else TF.adjust_hue(image, hue))
    return image


def jitter_cases():
    yield from ((k, 1300, 700, 1400, hue, *order) for k in (0, 1)
                for hue, order in ((400, (0, 1, 2, 3)), (-330, (3, 2, 1, 0)), (-4, (1, 3, 0, 2)), (500, (2, 0, 3, 1))))
    yield (2, 600, 1400, 0, 100, 1, 0, 3, 2)


def applied(function, cases, images):
    cases = list(cases)
    return np.array(cases, dtype=np.float32), np.stack([planes(function(images[c[0]], c)) for c in cases])


def mixing(out):
    rng = np.random.RandomState(7)
    image, other = (torch.from_numpy(rng.randn(3, SIDE, SIDE).astype(np.float32)) for _ in range(2))
    share, (top, bottom, left, right) = 0.3137, (3, 9, 0, 11)
    cut = image.clone()
    cut[:, top:bottom, left:right] = other[:, top:bottom, left:right]
    out.update({'mix.image': image.numpy(), 'mix.other': other.numpy(), 'mix.share': np.float32([share]),
                'mix.out': (image * share + other * (1 - share)).numpy(), 'cut.out': cut.numpy(),
                'cut.box': np.float32([top, bottom, left, right])})


def loss(out):
    rng = np.random.RandomState(8)
    logits = torch.tensor((2 * rng.randn(6, 5)).astype(np.float32), dtype=torch.float64, requires_grad=True)
    labels, others = torch.tensor([0, 4, 2, 2, 1, 3]), torch.tensor([3, 1, 2, 2, 4, 0])
    shares = torch.tensor(np.float32([0.3, 0.75, 1, 0.2, 0, 0.5]), dtype=torch.float64)[:, None]
    target = shares * F.one_hot(labels, 5) + (1 - shares) * F.one_hot(others, 5)
    target = (1 - SMOOTHING) * target + SMOOTHING / 5
    y = -(target * F.log_softmax(logits, 1)).sum(1)
    dy = torch.tensor(rng.randn(6).astype(np.float32), dtype=torch.float64)
    y.backward(dy)
    for name, t in dict(logits=logits, labels=labels, others=others, shares=shares[:, 0], y=y, dy=dy,
                        dlogits=logits.grad).items():
        out['loss.' + name] = t.detach().numpy().astype(np.float32)


def recipes():
    images, out = pictures(), {}
    out['images'] = np.stack([planes(i) for i in images])
    out['fill'] = np.float32(FILL)
    out['randaug.cases'], out['randaug.out'] = applied(lambda i, c: randaug(i, OPERATIONS[c[1]], *c[2:]), randaug_cases(),
                                                       images)
    out['jitter.cases'], out['jitter.out'] = applied(lambda i, c: jitter(i, *c[1:]), jitter_cases(), images)
    mixing(out)
    loss(out)
    return out, {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--check', action='store_true', help='compare with the file, write nothing')
    check = parser.parse_args().check
    torch.set_num_threads(1)
    path, made = os.path.join(HERE, 'recipes.safetensors'), recipes()
    if check:
        wrong = list(differences(made, read_safetensors(path))) if os.path.exists(path) else ['no file']
        print('; '.join(wrong) or 'same')
        return 1 if wrong else 0
    write_safetensors(path, *made)
    print(f'{len(made[0])} tensors, {os.path.getsize(path)} bytes')
    return 0


if __name__ == '__main__':
    sys.exit(main())
