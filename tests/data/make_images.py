"""Makes the image files of this folder and, with PIL, the pixels expected of them (made with PIL 9.4.0).

    python3 tests/data/make_images.py      writes *.jpg, *.png and *.rgb next to itself

NAME.rgb holds the rows of Image.open(NAME).convert('RGB') as bytes, 3 a pixel.  One exception: of 16-bit grey the
upper byte is expected, where PIL clips everything above 255 to white.  photo-*.rgb are resized forms of photo.png.
"""
import os
import struct
import zlib

import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, HEIGHT = 29, 23


def picture(width, height, channels, seed):
    """Smooth waves with some noise: unlike a gradient, every filter and decoder step leaves its mark."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (3.0 + c) + c) * np.cos(y / (4.0 - c / 2)) + rng.normal(0, 12, (height, width))
              for c in range(channels)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def path(name):
    return os.path.join(HERE, name)


def expect(name, image):
    with open(path(os.path.splitext(name)[0] + '.rgb'), 'wb') as out:
        out.write(image.convert('RGB').tobytes())


def save(name, image, **options):
    image.save(path(name), **options)
    expect(name, Image.open(path(name)))


def png_chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def save_png16(name, pixels, colour_type, interlace=False):
    """16 bits a channel, which PIL does not write: rows without a filter, big-endian."""
    height, width = pixels.shape[:2]
    rows = b''
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    for top, left, down, right in passes if interlace else [(0, 0, 1, 1)]:
        part = pixels[top::down, left::right]
        if part.size:
            rows += b''.join(b'\0' + row.astype('>u2').tobytes() for row in part)
    header = struct.pack('>IIBBBBB', width, height, 16, colour_type, 0, 0, int(interlace))
    with open(path(name), 'wb') as out:
        out.write(b'\x89PNG\r\n\x1a\n' + png_chunk(b'IHDR', header) + png_chunk(b'IDAT', zlib.compress(rows))
                  + png_chunk(b'IEND', b''))
    expect(name, Image.fromarray((pixels >> 8).astype(np.uint8)))


def main():
    rgb = Image.fromarray(picture(WIDTH, HEIGHT, 3, 1))
    grey = Image.fromarray(picture(WIDTH, HEIGHT, 1, 2)[..., 0])
    save('rgb420.jpg', rgb, quality=85, subsampling=2)
    save('rgb444-progressive.jpg', rgb, quality=90, subsampling=0, progressive=True)
    save('grey.jpg', grey, quality=90)
    save('cmyk.jpg', Image.fromarray(picture(WIDTH, HEIGHT, 4, 3), 'CMYK'), quality=95)
    # The same coefficients under the Adobe marker's other transform are a YCCK file.
    data = bytearray(open(path('cmyk.jpg'), 'rb').read())
    marker = data.index(b'Adobe')
    assert data[marker + 11] == 0
    data[marker + 11] = 2
    open(path('ycck.jpg'), 'wb').write(data)
    expect('ycck.jpg', Image.open(path('ycck.jpg')))

    save('rgba.png', Image.fromarray(picture(WIDTH, HEIGHT, 4, 4), 'RGBA'))
    save('grey-alpha.png', Image.fromarray(picture(WIDTH, HEIGHT, 2, 5), 'LA'))
    save('bilevel.png', grey.convert('1'))
    save('palette.png', rgb.quantize(13), transparency=3, bits=4)
    wide = picture(WIDTH, HEIGHT, 3, 6).astype(np.uint16) * 256 + picture(WIDTH, HEIGHT, 3, 7)
    save_png16('rgb16.png', wide, 2)
    save_png16('grey16.png', wide[..., 0], 0)
    save_png16('rgb16-interlaced.png', wide, 2, interlace=True)

    photo = Image.fromarray(picture(57, 43, 3, 8))
    save('photo.png', photo)
    for name, method in ('bilinear', Image.BILINEAR), ('bicubic', Image.BICUBIC):
        for width, height in (24, 18), (90, 71), (57, 20), (31, 43), (1, 1):
            expect(f'photo-{name}-{width}x{height}', photo.resize((width, height), method))
    # Shorter side to int(32 / 0.875) = 36, so 36 x int(36 * 57 / 43) = 47, then the centre; and squashed.
    shorter = photo.resize((47, 36), Image.BICUBIC)
    left, top = int(round((47 - 32) / 2.0)), int(round((36 - 32) / 2.0))
    expect('photo-fit-shorter', shorter.crop((left, top, left + 32, top + 32)))
    expect('photo-fit-squash', photo.resize((36, 36), Image.BICUBIC).crop((2, 2, 34, 34)))


main()
