// What the page and the tests know of an exported model: its metadata, its input, its outputs.  No DOM in here.

// A protobuf varint at `at`: [value, position behind it].
function varint(bytes, at) {
  let value = 0, scale = 1;
  for (;;) {
    if (at >= bytes.length) throw new Error('the file ends in the middle of a number');
    const byte = bytes[at++];
    value += (byte & 127) * scale;
    if (byte < 128) return [value, at];
    scale *= 128;
  }
}

// Calls visit(field, data) for the length-delimited fields of a protobuf message and steps over all others.
function walk(bytes, visit) {
  for (let at = 0; at < bytes.length;) {
    let key, length;
    [key, at] = varint(bytes, at);
    const wire = key % 8;
    if (wire === 0) [, at] = varint(bytes, at);
    else if (wire === 1) at += 8;
    else if (wire === 5) at += 4;
    else if (wire === 2) {
      [length, at] = varint(bytes, at);
      if (at + length > bytes.length) throw new Error('the file is cut short');
      visit(Math.floor(key / 8), bytes.subarray(at, at + length));
      at += length;
    } else throw new Error('not an ONNX file');
  }
}

const METADATA_PROPS = 14; // of ModelProto; entries {1: key, 2: value}

// metadata_props of an ONNX file, as onnxruntime-web does not give them: {key: text}.
export function readMetadata(bytes) {
  const found = {}, text = new TextDecoder();
  walk(bytes, (field, data) => {
    if (field !== METADATA_PROPS) return;
    const entry = {};
    walk(data, (part, value) => { entry[part] = text.decode(value); });
    found[entry[1] ?? ''] = entry[2] ?? '';
  });
  return found;
}

// What is needed to feed the model and to read its answer; throws when the file is not one of mirrorla's.
export function describe(metadata) {
  for (const key of ['classes', 'mean', 'std', 'size', 'preprocess'])
    if (!(key in metadata)) throw new Error(`its metadata has no "${key}": is it from mirrorla export --to onnx?`);
  return {
    classes: JSON.parse(metadata.classes), mean: JSON.parse(metadata.mean), std: JSON.parse(metadata.std),
    size: Number(metadata.size), graph: metadata.preprocess === 'graph', metadata,
  };
}

// The model's input from RGB bytes (B, S, S, 3): {type, data, dims} of a tensor.
export function prepare(model, rgb) {
  const side = model.size, plane = side * side, count = rgb.length / (3 * plane);
  if (model.graph) return { type: 'uint8', data: rgb, dims: [count, side, side, 3] };
  const data = new Float32Array(rgb.length);
  for (let b = 0; b < count; b++)
    for (let c = 0; c < 3; c++)
      for (let i = 0; i < plane; i++)
        data[(3 * b + c) * plane + i] = (rgb[3 * (b * plane + i) + c] / 255 - model.mean[c]) / model.std[c];
  return { type: 'float32', data, dims: [count, 3, side, side] };
}

export function softmax(logits) {
  const most = Math.max(...logits), terms = Array.from(logits, x => Math.exp(x - most));
  const sum = terms.reduce((a, b) => a + b, 0);
  return terms.map(x => x / sum);
}

// Indices of the `count` largest values, the largest first; of equal ones the first.
export function top(values, count) {
  return Array.from(values, (value, index) => ({ value, index }))
    .sort((a, b) => b.value - a.value || a.index - b.index).slice(0, count).map(x => x.index);
}
