// Attention of the runs on the same images, side by side.

const VIRIDIS = ['440154', '482878', '3e4989', '31688e', '26828e', '1f9e89', '35b779', '6ece58', 'b5de2b', 'fde725'];
const COOL_WARM = ['3b4cc0', '7b9ff9', 'c0d4f5', 'dddddd', 'f5c4ad', 'ee8468', 'b40426'];
const SIZE = 208; // pixels of a map

function colourAt(stops, share) {
  const place = share * (stops.length - 1), i = Math.min(Math.floor(place), stops.length - 2), part = place - i;
  const channel = (stop, c) => parseInt(stop.slice(2 * c, 2 * c + 2), 16);
  return [0, 1, 2].map(c => channel(stops[i], c) * (1 - part) + channel(stops[i + 1], c) * part);
}

const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

// A canvas with one pixel a value; paint(i) -> [red, green, blue].
function pixels(side, paint) {
  const canvas = element('canvas', { width: side, height: side }), image = new ImageData(side, side);
  for (let i = 0; i < side * side; i++) image.data.set([...paint(i), 255], 4 * i);
  canvas.getContext('2d').putImageData(image, 0, 0);
  return canvas;
}

function pictureOf({ planes, size }) {
  const raw = bytes(planes), plane = size * size;
  return pixels(size, i => [raw[i], raw[plane + i], raw[2 * plane + i]]);
}

function greyOf({ planes, size }) {
  const raw = bytes(planes), plane = size * size;
  return pixels(size, i => Array(3).fill(72 + (.299 * raw[i] + .587 * raw[plane + i] + .114 * raw[2 * plane + i]) * 3 / 7));
}

function mapCanvas(grey, map, stops, name) {
  const level = bytes(map.map), canvas = element('canvas', { width: SIZE, height: SIZE, role: 'img', 'aria-label':
    `${name}: ${short(map.low)} to ${short(map.high)}` }), context = canvas.getContext('2d');
  context.imageSmoothingQuality = 'high';
  context.drawImage(grey, 0, 0, SIZE, SIZE);
  context.globalAlpha = .65;
  context.drawImage(pixels(map.side, i => colourAt(stops, level[i] / 255)), 0, 0, SIZE, SIZE);
  return canvas;
}

function answerOf(image, label) {
  const right = image.answer === label;
  return element('small', { class: right ? 'better' : 'worse' },
    `${right ? '✓' : '✗'} ${image.answer}, ${(100 * image.probability).toFixed(0)} %`);
}

function startMaps() {
  const subjects = data.maps ?? [];
  byId('maps').hidden = subjects.length === 0;
  if (!subjects.length) return;
  subjects.forEach((subject, i) => { subject.pictures ??= subjects[i - 1].pictures; });
  let chosen = 0;
  const show = () => {
    for (const [i, button] of [...byId('pictures').children].entries()) button.setAttribute('aria-pressed', String(i === chosen));
    const list = subjects.filter(subject => subject.images[chosen]);
    const depth = Math.max(...list.map(subject => subject.images[chosen].layers.length));
    const head = ['', 'evidence', ...Array.from({ length: depth }, (_, i) => `layer ${i + 1}`)];
    const rows = list.map(subject => {
      const image = subject.images[chosen], picture = subject.pictures[chosen], grey = greyOf(picture), run = runs[subject.run];
      const cell = (map, stops, name) => map ? element('td', {}, mapCanvas(grey, map, stops, name), `${short(+map.low.toPrecision(2))} … ${short(+map.high.toPrecision(2))}`)
        : element('td', {}, '–');
      const swatch = element('i', { class: 'swatch' });
      swatch.style.setProperty('--colour', colourOf(run.group));
      return element('tr', {}, element('th', { scope: 'row' }, swatch, run.label, answerOf(image, picture.label)),
        cell(image.evidence, COOL_WARM, `${run.label}, evidence`),
        ...image.layers.map((map, i) => cell(map, VIRIDIS, `${run.label}, layer ${i + 1}`)));
    });
    byId('map-table').replaceChildren(element('thead', {}, element('tr', {}, ...head.map(text => element('th', { scope: 'col' }, text)))),
      element('tbody', {}, ...rows));
  };
  byId('pictures').append(...subjects[0].pictures.map((picture, i) => {
    const button = element('button', { type: 'button' }, pictureOf(picture), picture.label);
    button.addEventListener('click', () => { chosen = i; show(); });
    return button;
  }));
  listen('theme', show);
  show();
}
