// Results: the table of a sweep, or one made of the runs' final accuracies; sorted by a click on a header.

// Rows of the same form for both.
function sweepRows(table) {
  return table.rows.map(row => ({ ...row, group: groups.find(group => group.name === row.name),
    seeds: row.cells.filter(cell => isNumber(cell.value)).map(cell => ({ seed: cell.seed, value: cell.value })),
    problems: row.cells.filter(cell => cell.status !== 'done') }));
}

function finalAccuracy(run) {
  const list = run.epochs.average_accuracy ?? run.epochs.test_accuracy ?? [];
  return last(list.filter(isNumber));
}

function runRows() {
  const keys = differingKeys(runs).filter(key => !SIDE_KEYS.test(key)).slice(0, 6);
  return groups.map(group => {
    const seeds = group.runs.map(run => ({ seed: run.seed, value: finalAccuracy(run) })).filter(seed => isNumber(seed.value));
    const values = seeds.map(seed => seed.value), rates = group.runs.flatMap(run => run.epochs.images_per_second ?? []).filter(isNumber);
    const memory = group.runs.flatMap(run => run.epochs.peak_memory_mib ?? []).filter(isNumber);
    return { name: group.name, group, seeds, problems: [], n: values.length, mean: values.length ? meanOf(values) : null,
      sd: deviationOf(values), difference: null, best: Math.max(...group.runs.map(run => run.best ?? -Infinity)),
      epochs: Math.max(...group.runs.map(run => last(run.epochs.at) ?? 0)),
      values: Object.fromEntries(keys.map(key => [key, value(group.runs[0], key) ?? '?'])),
      images_per_second: rates.length ? rates.sort((a, b) => a - b)[rates.length >> 1] : null,
      memory_mib: memory.length ? Math.max(...memory) : null };
  });
}

// Seeds as dots, mean and one standard deviation as a bar, on an axis that all rows share.
function plotOf(row, low, high) {
  const WIDTH = 210, HEIGHT = 26, at = x => 6 + (WIDTH - 12) * (x - low) / (high - low || 1), middle = HEIGHT / 2;
  const colour = row.group ? colourOf(row.group) : styleColour('--soft');
  const text = `${row.mean?.toFixed(2)} ± ${row.sd?.toFixed(2) ?? '–'}; ${row.seeds.map(s => `seed ${s.seed}: ${s.value.toFixed(2)}`).join(', ')}`;
  const svg = vector('svg', { class: 'plot', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': text });
  svg.append(vector('title', {}));
  svg.firstChild.textContent = text;
  const line = (x1, y1, x2, y2, width, stroke) => svg.append(vector('line', { x1, y1, x2, y2, stroke, 'stroke-width': width }));
  line(0, middle, WIDTH, middle, 1, styleColour('--line'));
  if (!isNumber(row.mean)) return svg;
  if (isNumber(row.sd)) {
    const [from, to] = [at(row.mean - row.sd), at(row.mean + row.sd)];
    line(from, middle, to, middle, 2.5, colour);
    for (const x of [from, to]) line(x, middle - 5, x, middle + 5, 2, colour);
  }
  for (const { value } of row.seeds)
    svg.append(vector('circle', { cx: at(value), cy: middle, r: 3, fill: colour, 'fill-opacity': .45 }));
  line(at(row.mean), middle - 9, at(row.mean), middle + 9, 3, colour);
  return svg;
}

function differenceCell(row) {
  const d = row.difference;
  if (!d || !isNumber(d.mean)) return element('td', {}, '–');
  const sure = isNumber(d.low) && isNumber(d.high) && (d.low > 0 || d.high < 0);
  const sign = x => (x > 0 ? '+' : '') + x.toFixed(2);
  const range = isNumber(d.low) && isNumber(d.high) ? ` [${sign(d.low)}, ${sign(d.high)}]` : '';
  return element('td', { class: sure ? (d.mean > 0 ? 'better' : 'worse') : null }, sign(d.mean) + range);
}

function nameCell(row) {
  const cell = element('th', { scope: 'row' });
  if (row.group) {
    const swatch = element('i', { class: 'swatch' });
    swatch.style.setProperty('--colour', colourOf(row.group));
    cell.append(swatch);
  }
  cell.append(row.name);
  if (row.name === data.table?.base || data.table?.rows.some(other => other.base === row.name)) cell.append(element('span', { class: 'badge' }, 'base'));
  for (const p of row.problems)
    cell.append(element('span', { class: 'problem' }, `seed ${p.seed}: ${p.status}${p.reason ? `: ${p.reason}` : ''}`));
  return cell;
}

// [title, value to sort by, cell, first direction]
function columnsOf(rows) {
  const values = rows.flatMap(row => row.seeds.map(seed => seed.value));
  const sds = rows.filter(row => isNumber(row.mean)).flatMap(row => [row.mean - (row.sd ?? 0), row.mean + (row.sd ?? 0)]);
  const low = Math.min(...values, ...sds), high = Math.max(...values, ...sds);
  const number = (title, pick, show = short, up = false) =>
    [title, pick, row => element('td', {}, isNumber(pick(row)) ? show(pick(row)) : '–'), up];
  const some = pick => rows.some(row => isNumber(pick(row)));
  const columns = [['setting', row => row.name, nameCell, true]];
  const keys = [...new Set(rows.flatMap(row => Object.keys(row.values ?? {})))];
  if (keys.length > 1)
    for (const key of keys)
      columns.push([key.split('.').pop(), row => row.values?.[key] ?? '', row => element('td', { title: key }, row.values?.[key] ?? ''), true]);
  columns.push(number('n', row => row.n, String), number('mean', row => row.mean, x => x.toFixed(2)),
    number('± sd', row => row.sd, x => x.toFixed(2)));
  if (values.length) columns.push([`${short(low)} – ${short(high)}`, row => row.mean, row => element('td', {}, plotOf(row, low, high)), false]);
  if (rows.some(row => row.difference)) {
    columns.push(['difference to base', row => row.difference?.mean, differenceCell, false]);
    const probability = x => x < .001 ? '< 0.001' : x.toFixed(3);
    columns.push(number('p', row => row.difference?.p, probability, true));
    if (some(row => row.difference?.p_holm)) columns.push(number('p (Holm)', row => row.difference?.p_holm, probability, true));
  }
  const more = [['best', row => row.best, x => x.toFixed(2)], ['epochs', row => row.epochs, String], ['parameters', row => row.parameters],
    ['FLOPs', row => row.flops], ['images/s', row => row.images_per_second], ['memory, MiB', row => row.memory_mib]];
  for (const [title, pick, show] of more) if (some(pick)) columns.push(number(title, pick, show));
  return columns;
}

// Numbers by size, words by the alphabet; what is missing comes last either way.
function compare(a, b, up) {
  const missing = x => x === null || x === undefined || x === '' || (typeof x === 'number' && !isNumber(x));
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  const order = isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b), 'en', { numeric: true });
  return up ? order : -order;
}

function startTable() {
  const rows = data.table ? sweepRows(data.table) : runRows(), order = { column: -1, up: true };
  const table = byId('table');
  byId('results-note').textContent = (data.table ? `${data.table.metric}; ${data.table.test ?? ''}` : 'Final test accuracy, %, '
    + 'of the weight average where one is kept; runs that differ in their seed alone are one row')
    + '. Dots: seeds; bar: mean and one sample standard deviation. A click on a header sorts.';
  const show = () => {
    const columns = columnsOf(rows), sorted = [...rows];
    if (order.column >= 0) sorted.sort((a, b) => compare(columns[order.column][1](a), columns[order.column][1](b), order.up));
    const head = columns.map(([title, , , up], i) => {
      const button = element('button', { type: 'button' }, title);
      button.addEventListener('click', () => {
        order.up = order.column === i ? !order.up : up;
        order.column = i;
        show();
        table.querySelectorAll('thead button')[i].focus();
      });
      return element('th', { scope: 'col', 'aria-sort': order.column === i ? (order.up ? 'ascending' : 'descending') : null }, button);
    });
    table.replaceChildren(element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...sorted.map(row =>
      element('tr', {}, ...columns.map(([, , cell]) => cell(row))))));
  };
  byId('results').hidden = !rows.some(row => row.n || row.problems.length);
  listen('theme', show);
  show();
}
