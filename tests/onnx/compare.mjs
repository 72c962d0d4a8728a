// Runs exported models in onnxruntime and compares with what `mirrorla eval --logits` wrote.
//
//   node compare.mjs < jobs.json
//
// jobs.json: a list of {model, images, logits, count, exposed}: an ONNX file, images in CIFAR-10's binary layout, a
// safetensors file with `logits` (N, classes), how many images; exposed: {map, eps} when the model also gives what its
// attention map is made of.  Prints a list of results, one a job: see compare().
import { readFileSync } from 'node:fs';
import * as ort from 'onnxruntime-node';
import { describe, prepare, readMetadata, top } from '../../docs/demo/model.js';

const BATCHES = [1, 2, 7, 64];

function readLogits(path) {
  const bytes = readFileSync(path), length = Number(bytes.readBigUInt64LE(0));
  const entry = JSON.parse(bytes.subarray(8, 8 + length).toString()).logits;
  const [first, last] = entry.data_offsets;
  const start = bytes.byteOffset + 8 + length;
  return { shape: entry.shape, data: new Float32Array(bytes.buffer.slice(start + first, start + last)) };
}

// CIFAR-10's records (label, then planes) as RGB rows.
function readImages(path, side, count) {
  const bytes = readFileSync(path), plane = side * side, rgb = new Uint8Array(count * 3 * plane);
  if (bytes.length < count * (3 * plane + 1)) throw new Error(`${path}: fewer than ${count} images of side ${side}`);
  for (let b = 0; b < count; b++)
    for (let c = 0; c < 3; c++)
      for (let i = 0; i < plane; i++) rgb[3 * (b * plane + i) + c] = bytes[b * (3 * plane + 1) + 1 + c * plane + i];
  return rgb;
}

// All outputs for images first .. first + count - 1, in batches.
async function run(session, model, rgb, count, batch) {
  const parts = {}, image = 3 * model.size * model.size;
  for (let first = 0; first < count; first += batch) {
    const size = Math.min(batch, count - first);
    const { type, data, dims } = prepare(model, rgb.subarray(first * image, (first + size) * image));
    const results = await session.run({ image: new ort.Tensor(type, data, dims) });
    for (const [name, tensor] of Object.entries(results)) {
      if (tensor.dims[0] !== size) throw new Error(`${name} has shape ${tensor.dims} for a batch of ${size}`);
      const part = parts[name] ??= { shape: tensor.dims.slice(1), data: [] };
      for (const value of tensor.data) part.data.push(value);
    }
  }
  return parts;
}

function difference(a, b, count) {
  let most = 0;
  for (let i = 0; i < count; i++) {
    const d = Math.abs(a[i] - b[i]);
    if (!(d <= most)) most = d; // NaN too
  }
  return most;
}

// Images whose first class differs; `near` of them have their two first logits within 1e-5 of each other.
function disagreement(logits, reference, classes, count) {
  let differ = 0, near = 0;
  for (let b = 0; b < count; b++) {
    const theirs = reference.subarray(b * classes, (b + 1) * classes), [best, second] = top(theirs, 2);
    if (top(logits.slice(b * classes, (b + 1) * classes), 1)[0] === best) continue;
    differ++;
    if (theirs[best] - theirs[second] < 1e-5) near++;
  }
  return { differ, near };
}

// The attention map by its definition, with the N x N matrix, in double precision.
function mapOf(parts, exposed, count) {
  const [heads, tokens, width] = parts.fq ? parts.fq.shape : parts.share.shape, map = new Float64Array(count * tokens);
  const at = (value, b, h, i, j, columns) => value.data[((b * heads + h) * value.shape[1] + i) * columns + j];
  for (let b = 0; b < count; b++)
    for (let h = 0; h < heads; h++)
      for (let n = 0; n < tokens; n++) {
        const weight = new Float64Array(tokens);
        let sum = 0;
        for (let m = 0; m < tokens; m++) {
          if (parts.share) weight[m] = at(parts.share, b, h, n, m, tokens);
          else
            for (let c = 0; c < width; c++)
              weight[m] += at(parts.fq, b, h, n, c, width) * at(parts.fk, b, h, c, m, tokens);
          sum += weight[m];
        }
        const divisor = parts.share ? 1 : sum + tokens * exposed.eps;
        for (let m = 0; m < tokens; m++) map[b * tokens + m] += weight[m] / divisor / tokens / heads;
      }
  return map;
}

// How far the map's weighted sum of values is from the mean over the tokens of what attention made of them.
function mixingOf(parts, count) {
  const [tokens, channels] = parts.values.shape;
  let most = 0;
  for (let b = 0; b < count; b++)
    for (let c = 0; c < channels; c++) {
      let sum = 0;
      for (let m = 0; m < tokens; m++) {
        const i = b * tokens + m;
        sum += parts.attention.data[i] * parts.values.data[i * channels + c] - parts.mixed.data[i * channels + c] / tokens;
      }
      if (!(Math.abs(sum) <= most)) most = Math.abs(sum); // NaN too
    }
  return most;
}

async function compare(job) {
  const bytes = readFileSync(job.model);
  const metadata = readMetadata(bytes), model = describe(metadata);
  const session = await ort.InferenceSession.create(bytes, { intraOpNumThreads: 1, interOpNumThreads: 1 });
  const rgb = readImages(job.images, model.size, job.count), reference = readLogits(job.logits);
  const classes = reference.shape[1];
  if (reference.shape[0] !== job.count || classes !== model.classes.length)
    throw new Error(`${job.logits}: ${reference.shape}`);
  const all = await run(session, model, rgb, job.count, BATCHES.at(-1));
  const result = {
    metadata, outputs: session.outputNames, inputs: session.inputMetadata,
    logits: difference(all.logits.data, reference.data, job.count * classes),
    largest: reference.data.reduce((most, x) => Math.max(most, Math.abs(x)), 0),
    ...disagreement(all.logits.data, reference.data, classes, job.count), batches: 0,
  };
  const few = Math.min(job.count, BATCHES.at(-1));
  for (const batch of BATCHES) {
    const parts = await run(session, model, rgb, few, batch);
    for (const name of ['logits', 'attention'].filter(name => name in all))
      result.batches = Math.max(result.batches, difference(parts[name].data, all[name].data, parts[name].data.length));
  }
  if (all.attention) {
    const tokens = all.attention.shape[0], data = all.attention.data;
    result.tokens = tokens;
    result.least = Math.min(...data);
    const sums = Array.from({ length: job.count },
      (_, b) => data.slice(b * tokens, (b + 1) * tokens).reduce((x, y) => x + y, 0));
    result.sums = [Math.min(...sums), Math.max(...sums)];
    if (all.mixed) result.mixing = mixingOf(all, few);
    if (job.exposed) result.map = difference(mapOf(all, job.exposed, few), data, few * tokens);
  }
  await session.release();
  return result;
}

const results = [];
for (const job of JSON.parse(readFileSync(0, 'utf8'))) results.push(await compare(job));
console.log(JSON.stringify(results));
