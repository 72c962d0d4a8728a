// What the attention layers do: per layer at the end, and over training.

const NUMBERS = {
  energy_k: ['energy kept of k', 'Energy that the feature map lets through, |f(k)|² / |k|², over all tokens. ReLU on symmetric keys keeps one half; '
    + 'what is cut off is lost to the layer. Maps that shift or scale (ELU + 1, '
    + 'PolaFormer, Performer) give another amount than they get. Isometries do not change |k|.', [0, 1]],
  energy_q: ['energy kept of q', 'Energy that the feature map lets through, |f(q)|² / |q|², over all tokens.', [0, 1]],
  entropy: ['entropy', 'Entropy of the rows of the attention matrix as a share of ln N: 1 = every token takes an equal part of all others, 0 = of '
    + 'one. Of |a| where a kind has negative weights.', [0, 1]],
  rank: ['rank of attention', 'Effective rank of the N × N attention matrix: exp of the entropy of its normalised singular values (Roy and Vetterli, 2007).'],
  rank_kv: ['rank of φ(K)ᵀV', 'Effective rank of φ(K)ᵀV, all that a linear layer knows of its tokens.'],
  angle: ['angle', 'Size of the variance-aware angle, radians, mean over channel pairs and images.'],
  angle_spread: ['spread of the angle', 'Standard deviation of the angles over the images, radians: how much they depend on what is seen.'],
  moved_block: ['block isometries moved', 'How far the block isometries are from their start: |P − P₀| over the largest that so many reflections can reach.'],
  moved_cross: ['cross-head isometry moved', 'How far the product of reflections across heads is from its start: |X − X₀| over the largest that so many '
    + 'reflections can reach.'],
  moved_twin: ['mirror image moved', 'How far the reflections that make the second half of the features are from their start, in the same measure.'],
  moved_fold: ['folds moved', 'How far the mirrors of the fold are from their start, each for itself, in the same measure.'],
};

const layersOf = run => run.layers?.layer ?? [];
const lastValue = (layer, number) => last((layer[number] ?? []).filter(isNumber));

function depthOf() {
  return Math.max(0, ...runs.map(run => layersOf(run).length));
}

// Values so far apart that a linear scale would show the largest alone, as the energies of maps that scale their features.
function isWide(number) {
  const values = runs.flatMap(run => layersOf(run).map(layer => lastValue(layer, number))).filter(isNumber);
  return Math.min(...values) > 0 && Math.max(...values) > 30 * Math.min(...values);
}

// Mean over a group's shown runs of the last value; cells are tinted from the least to the largest.
function showProfile(number) {
  const depth = depthOf();
  const rows = groups.map(group => {
    const list = group.runs.filter(run => run.visible && layersOf(run).length);
    return { group, values: Array.from({ length: depth }, (_, i) => {
      const found = list.map(run => layersOf(run)[i]).filter(layer => layer).map(layer => lastValue(layer, number)).filter(isNumber);
      return found.length ? meanOf(found) : null;
    }) };
  }).filter(row => row.values.some(isNumber));
  const size = isWide(number) ? Math.log : x => x;
  const all = rows.flatMap(row => row.values).filter(isNumber).map(size), low = Math.min(...all), high = Math.max(...all);
  const head = element('tr', {}, element('th', { scope: 'col' }, 'last value'), ...Array.from({ length: depth }, (_, i) =>
    element('th', { scope: 'col' }, `layer ${i + 1}`)));
  byId('profile').replaceChildren(element('thead', {}, head), element('tbody', {}, ...rows.map(({ group, values }) => {
    const swatch = element('i', { class: 'swatch' });
    swatch.style.setProperty('--colour', colourOf(group));
    return element('tr', {}, element('th', { scope: 'row' }, swatch, group.name), ...values.map(x => {
      const cell = element('td', { class: 'value' }, short(x));
      if (isNumber(x) && high > low) cell.style.background = `hsla(${HUES[0]}, 80%, 50%, ${(.04 + .34 * (size(x) - low) / (high - low)).toFixed(3)})`;
      return cell;
    }));
  })));
}

function startLayers() {
  const present = Object.keys(NUMBERS).filter(number => runs.some(run => layersOf(run).some(layer => (layer[number] ?? []).some(isNumber))));
  byId('layers').hidden = present.length === 0;
  if (!present.length) return;
  let number = present[0], drawn = [];
  const pick = i => run => {
    const layer = layersOf(run)[i], scale = view.x === 'epochs' ? 1 : run.steps_per_epoch;
    return layer ? { x: run.layers.at.map(epoch => epoch * scale), y: layer[number] } : null;
  };
  const show = () => {
    for (const button of byId('numbers').children) button.setAttribute('aria-pressed', String(button.dataset.number === number));
    byId('number-note').textContent = NUMBERS[number][1];
    showProfile(number);
  };
  const redraw = () => {
    drawn.forEach(chart => chart.remove());
    drawn = [];
    for (let i = 0; i < depthOf(); i++) {
      const layer = runs.map(run => layersOf(run)[i]).find(found => found);
      if (!runs.some(run => pick(i)(run)?.y?.some(isNumber))) continue;
      drawn.push(new Chart(byId('layer-charts'), `Layer ${i + 1}`, `${NUMBERS[number][0]}, ${layer.tokens} tokens`, () => linesOf(pick(i)),
        { height: 170, log: () => isWide(number), range: isWide(number) ? undefined : NUMBERS[number][2] && ((plot, low, high) => low >= 0 && high <= 1 && high - low > .4 ? [0, 1]
          : uPlot.rangeNum(low ?? 0, high ?? 1, .1, true)) }));
    }
    show();
  };
  byId('numbers').append(...present.map(name => {
    const button = element('button', { type: 'button', 'data-number': name }, NUMBERS[name][0]);
    button.addEventListener('click', () => { number = name; redraw(); });
    return button;
  }));
  listen('runs', show);
  listen('theme', show);
  redraw();
}
