// The page: an image in, predictions and the attention map out.  Everything runs here; nothing is sent anywhere.
import * as ort from './ort/ort.wasm.bundle.min.mjs';
import { describe, prepare, readMetadata, softmax, top } from './model.js';

const SHOWN = 5; // predictions
// Stops of the viridis colour map (Smith and van der Walt), dark to bright.
const COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const $ = id => document.getElementById(id);
const image = $('image').getContext('2d', { willReadFrequently: true, alpha: false });

let session, model, latest = 0;

function say(text, failed = false) {
  $('status').textContent = text;
  $('status').classList.toggle('failed', failed);
}

function colour(share) { // 0 .. 1
  const at = share * (COLOURS.length - 1), i = Math.min(Math.floor(at), COLOURS.length - 2);
  return COLOURS[i].map((low, c) => Math.round(low + (COLOURS[i + 1][c] - low) * (at - i)));
}

// The value of a key of the config that is stored in the model; the keys asked for occur once.
function setting(key, fallback) {
  const found = new RegExp(`\\b${key}: *([^\\s,}]+)`).exec(model.metadata.config ?? '');
  return found ? found[1] : fallback;
}

// Draws the bitmap as the model sees it: the shorter side to size / crop_pct, then the centre; or both sides squashed.
function draw(bitmap) {
  const side = model.size, full = Math.floor(side / Number(setting('crop_pct', 1)));
  let [width, height] = [bitmap.width, bitmap.height];
  if (width !== side || height !== side) {
    const scale = full / Math.min(width, height), squash = setting('resize', 'shorter') === 'squash';
    [width, height] = squash ? [full, full] : [Math.round(width * scale), Math.round(height * scale)];
  }
  image.imageSmoothingQuality = 'high';
  image.drawImage(bitmap, Math.round((side - width) / 2), Math.round((side - height) / 2), width, height);
  const rgba = image.getImageData(0, 0, side, side).data, rgb = new Uint8Array(3 * side * side);
  $('below').getContext('2d').drawImage(image.canvas, 0, 0);
  for (let i = 0; i < side * side; i++) rgb.set(rgba.subarray(4 * i, 4 * i + 3), 3 * i);
  return rgb;
}

function showPredictions(logits) {
  const shares = softmax(logits);
  $('predictions').replaceChildren(...top(logits, SHOWN).map(index => {
    const item = document.createElement('li');
    const [name, share, track, bar] = ['name', 'share', 'track', 'bar'].map(kind => {
      const part = document.createElement('span');
      part.className = kind;
      return part;
    });
    name.textContent = model.classes[index];
    share.textContent = `${(100 * shares[index]).toFixed(1)} %`;
    bar.style.width = `${100 * shares[index]}%`;
    track.append(bar);
    item.append(name, share, track);
    return item;
  }));
}

function showMap(values) {
  const side = Math.round(Math.sqrt(values.length)), best = top(values, 1)[0], most = values[best];
  const map = $('map'), context = map.getContext('2d');
  map.width = map.height = side;
  const pixels = context.createImageData(side, side);
  values.forEach((value, i) => pixels.data.set([...colour(most > 0 ? value / most : 0), 255], 4 * i));
  context.putImageData(pixels, 0, 0);
  $('most').textContent = `${(most * values.length).toFixed(1)} × average`;
  $('where').textContent = `Most at row ${Math.floor(best / side) + 1}, column ${best % side + 1} of ${side} × ${side}.`;
  $('attention').hidden = false;
  showStrength();
}

function showStrength() {
  $('mapped').hidden = !$('show').checked || $('attention').hidden;
  $('map').style.opacity = $('strength').value / 100;
}

async function predict(blob, name) {
  const mine = ++latest; // a later image overtakes an earlier one
  try {
    const bitmap = await createImageBitmap(blob, { colorSpaceConversion: 'none' });
    if (mine !== latest) return;
    const { type, data, dims } = prepare(model, draw(bitmap));
    const start = performance.now();
    const result = await session.run({ image: new ort.Tensor(type, data, dims) });
    if (mine !== latest) return;
    showPredictions(result.logits.data);
    if (result.attention) showMap(Array.from(result.attention.data));
    say(`${name}: ${model.classes[top(result.logits.data, 1)[0]]} (${(performance.now() - start).toFixed(0)} ms)`);
  } catch (error) {
    if (mine === latest) say(`${name} could not be read as an image: ${error.message}`, true);
  }
}

function press(chosen) {
  for (const button of $('samples').children) button.setAttribute('aria-pressed', button === chosen);
}

async function addSamples() {
  const answer = await fetch('samples/samples.json');
  if (!answer.ok) return; // a page without samples
  for (const sample of await answer.json()) {
    const button = document.createElement('button'), picture = document.createElement('img');
    button.type = 'button';
    button.setAttribute('aria-pressed', false);
    button.title = sample.class;
    picture.src = `samples/${sample.file}`;
    picture.alt = `test image, ${sample.class}`;
    button.append(picture);
    button.addEventListener('click', async () => {
      press(button);
      predict(await (await fetch(picture.src)).blob(), `test image (${sample.class})`);
    });
    $('samples').append(button);
  }
  $('samples').firstElementChild?.click();
}

function choose(file) {
  if (!file) return;
  press(null);
  predict(file, file.name);
}

function listen() {
  $('file').addEventListener('change', () => { choose($('file').files[0]); $('file').value = ''; });
  for (const type of ['dragenter', 'dragover', 'dragleave', 'drop'])
    document.addEventListener(type, event => {
      event.preventDefault();
      $('drop').classList.toggle('over', type === 'dragenter' || type === 'dragover');
      if (type === 'drop') choose(event.dataTransfer.files[0]);
    });
  for (const id of ['show', 'strength']) $(id).addEventListener('input', showStrength);
  $('scale').style.background = `linear-gradient(90deg, ${COLOURS.map(c => `rgb(${c})`).join(', ')})`;
}

async function start() {
  ort.env.wasm.numThreads = 1; // more would need special headers from the server
  ort.env.wasm.wasmPaths = { wasm: new URL('./ort/ort-wasm-simd-threaded.wasm', import.meta.url).href };
  const answer = await fetch('model.onnx');
  if (!answer.ok) throw new Error(`model.onnx: ${answer.status} ${answer.statusText}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  model = describe(readMetadata(bytes));
  session = await ort.InferenceSession.create(bytes, { executionProviders: ['wasm'] });
  for (const id of ['image', 'below']) $(id).width = $(id).height = model.size;
  const { architecture, best_test_accuracy: best } = model.metadata;
  $('model').textContent = `${architecture} with ${setting('kind', 'unknown')} attention, ${model.classes.length} classes, ` +
    `images of ${model.size} × ${model.size} pixels` +
    (best ? `, ${(100 * best).toFixed(1)} % best test accuracy of its run` : '');
  $('file').disabled = false;
  say('Ready.');
  listen();
  await addSamples();
}

start().catch(error => say(`The model could not be loaded: ${error.message}`, true));
