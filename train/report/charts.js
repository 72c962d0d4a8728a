// Charts: uPlot with values to read by mouse, finger and keys.

const charts = new Set();
const observer = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) entry.target.chart.draw();
}, { rootMargin: '400px' });

// One list of x for all series, with undefined where a series has no value: {x, y, low, high} each.
function align(series, bands) {
  const tables = series.map(s => bands ? [s.x, s.y, s.low ?? s.y, s.high ?? s.y] : [s.x, s.y]);
  return tables.length ? uPlot.join(tables) : [[], []];
}

class Chart {
  // series(): what to draw, [{label, colour, fill, x, y, low, high, dash}]; drawn when the chart comes into sight.
  constructor(parent, title, unit, series, options = {}) {
    this.series = series;
    this.options = options;
    this.area = element('div', { class: 'plotarea', tabindex: 0, role: 'img', 'aria-label': title });
    this.tip = element('div', { class: 'tip', hidden: true, role: 'status' });
    this.title = title;
    this.card = element('div', { class: 'chart' }, element('h3', {}, title, unit ? element('small', {}, ` ${unit}`) : null),
      this.area, this.tip);
    this.card.chart = this;
    parent.append(this.card);
    this.area.addEventListener('keydown', event => this.key(event));
    this.area.addEventListener('blur', () => this.leave());
    for (const kind of ['touchstart', 'touchmove'])
      this.area.addEventListener(kind, event => this.touch(event), { passive: true });
    this.stale = true;
    charts.add(this);
    observer.observe(this.card);
  }

  remove() {
    observer.unobserve(this.card);
    this.plot?.destroy();
    this.card.remove();
    charts.delete(this);
  }

  // What is in sight is drawn at once, the rest when it comes there.
  refresh() {
    this.stale = true;
    const box = this.card.getBoundingClientRect();
    if (box.bottom > -400 && box.top < innerHeight + 400) this.draw();
  }

  draw() {
    if (!this.stale) return;
    this.stale = false;
    this.plot?.destroy();
    this.leave();
    this.lines = this.series();
    const bands = this.lines.some(line => line.low), step = bands ? 3 : 1;
    const lines = this.lines.flatMap(line => {
      const one = { label: line.label, stroke: line.colour, width: 1.6, dash: line.dash, spanGaps: true, points: { show: line.y.filter(isNumber).length < 8, size: 4 } };
      const edge = { label: '', stroke: 'transparent', width: 0, spanGaps: true, points: { show: false } };
      return bands ? [one, edge, edge] : [one];
    });
    const axis = { stroke: styleColour('--soft'), grid: { stroke: styleColour('--line'), width: 1 },
      ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const labels = (plot, splits) => splits.map(x => x === null ? '' : short(x));
    this.step = step;
    this.plot = new uPlot({
      width: this.area.clientWidth, height: this.options.height ?? 230,
      scales: { x: { time: false }, y: { distr: this.options.log?.() ? 3 : 1, range: this.options.range } },
      axes: [{ ...axis, size: 28, values: labels }, { ...axis, size: 52, values: labels }],
      series: [{}, ...lines],
      bands: bands ? this.lines.map((line, i) => ({ series: [step * i + 3, step * i + 2], fill: line.fill })) : [],
      cursor: { y: false, drag: { x: true, y: false, dist: 8 }, points: { show: (plot, i) => (i - 1) % step === 0, size: 7 } },
      legend: { show: false },
      hooks: { setCursor: [plot => this.show(plot)] },
    }, align(this.lines, bands), this.area);
    this.area.setAttribute('aria-label', this.describe());
  }

  describe() {
    const ends = this.lines.slice(0, 12).map(line => `${line.label} ${short(last(line.y.filter(isNumber)))}`);
    return `${this.title}. Last values: ${ends.join('; ') || 'none'}. Arrow keys read values.`;
  }

  // The value of a line at the cursor, or the nearest before it.
  at(line, index) {
    const column = this.plot.data[1 + this.step * line];
    for (let i = index; i >= 0; i--) if (isNumber(column[i])) return column[i];
    return null;
  }

  show(plot) {
    const index = plot.cursor.idx;
    if (index === null || index === undefined || !(plot.cursor.left >= 0)) return this.leave();
    const rows = this.lines.map((line, i) => ({ line, y: this.at(i, index) })).filter(row => row.y !== null)
      .sort((a, b) => b.y - a.y);
    const most = 10, kept = rows.length > most ? [...rows.slice(0, most - 3), null, ...rows.slice(-3)] : rows;
    this.tip.replaceChildren(element('b', {}, `${xName()} ${short(plot.data[0][index])}`), ...kept.map(row => {
      if (!row) return element('div', {}, element('span', {}, `… ${rows.length - most} more`));
      const name = element('span', {}, element('i', { class: 'swatch' }), row.line.label);
      name.firstChild.style.setProperty('--colour', row.line.colour);
      return element('div', {}, name, element('span', {}, short(row.y)));
    }));
    this.tip.hidden = false;
    const left = this.area.offsetLeft + plot.bbox.left / devicePixelRatio + plot.cursor.left;
    const room = this.card.clientWidth, width = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(4, left + width + 16 > room ? left - width - 12 : left + 14)}px`;
    this.tip.style.top = '2.6rem';
  }

  leave() { this.tip.hidden = true; }

  touch(event) {
    const box = this.plot?.over.getBoundingClientRect();
    if (box) this.plot.setCursor({ left: event.touches[0].clientX - box.left, top: 10 });
  }

  key(event) {
    const plot = this.plot, count = plot?.data[0].length;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === 'Escape') return this.leave();
    if (!step || !count) return;
    event.preventDefault();
    const now = this.tip.hidden ? (step > 0 ? -1 : count) : plot.cursor.idx;
    const next = Math.min(Math.max(now + step, 0), count - 1);
    plot.setCursor({ left: plot.valToPos(plot.data[0][next], 'x'), top: 10 });
  }
}

// ---- the curves of training

const view = { x: 'epochs', mean: false, log: false };
const xName = () => view.x === 'epochs' ? 'epoch' : 'step';
const BAND_RUNS = 6; // with more, bands of single runs would hide each other

const ofSteps = (key, band = true) => run => {
  const steps = run.steps, scale = view.x === 'epochs' ? 1 / (run.steps_per_epoch ?? NaN) : 1;
  if (!steps.at.length || Number.isNaN(scale)) return null;
  return { x: steps.at.map(step => step * scale), y: steps[key] ?? [], low: band ? steps[`${key}_low`] : undefined,
    high: band ? steps[`${key}_high`] : undefined };
};
const ofEpochs = (...keys) => run => {
  const key = keys.find(name => run.epochs[name]), scale = view.x === 'epochs' ? 1 : run.steps_per_epoch;
  if (!key) return null;
  return { x: run.epochs.at.map(epoch => epoch * scale), y: run.epochs[key] };
};
const CURVES = [
  ['Test accuracy', '%', ofEpochs('average_accuracy', 'test_accuracy'), false],
  ['Training loss', '', ofSteps('loss'), true],
  ['Retention loss', 'share of the energy cut off', ofSteps('retention_loss'), true],
  ['Test loss', '', ofEpochs('average_loss', 'test_loss'), true],
  ['Learning rate', '', ofSteps('lr', false), true],
  ['Gradient norm', 'before clipping', ofSteps('grad_norm'), true],
  ['Throughput', 'training images/s', ofEpochs('images_per_second'), false],
];
const DASHES = [undefined, [7, 4], [2, 3], [10, 3, 2, 3]];

// The mean of lines where all have a value, with a band of one standard deviation.
function averaged(group, lines) {
  const at = lines.map(line => new Map(line.x.map((x, i) => [x, line.y[i]])));
  const x = lines[0].x.filter(point => at.every(map => isNumber(map.get(point))));
  const values = x.map(point => at.map(map => map.get(point)));
  const mean = values.map(meanOf), off = values.map(list => deviationOf(list) ?? 0);
  return { label: `${group.name} (${lines.length})`, colour: colourOf(group), fill: colourOf(group, .16), x, y: mean,
    low: mean.map((y, i) => y - off[i]), high: mean.map((y, i) => y + off[i]) };
}

// Lines of the runs that are shown; pick(run) -> {x, y} or null.
function linesOf(pick) {
  const shown = runs.filter(run => run.visible);
  const bands = shown.length <= BAND_RUNS && !view.mean;
  const lines = shown.map(run => {
    const line = pick(run);
    if (!line || !line.y?.some(isNumber)) return null;
    const place = run.group.runs.indexOf(run);
    return { ...line, low: bands ? line.low : undefined, high: bands ? line.high : undefined, run, label: run.label,
      colour: colourOf(run.group), fill: colourOf(run.group, .16), dash: DASHES[place % DASHES.length] };
  }).filter(line => line);
  if (!view.mean) return lines;
  return groups.map(group => [group, lines.filter(line => line.run.group === group)])
    .filter(([, list]) => list.length).map(([group, list]) => averaged(group, list));
}

function choose(pairs, current) {
  for (const [id, name] of pairs) byId(id).setAttribute('aria-pressed', String(name === current));
}

function startCurves() {
  const repeated = groups.some(group => group.runs.length > 1), all = [];
  view.mean = repeated && runs.length > 12;
  if (runs.every(run => !isNumber(run.steps_per_epoch))) view.x = 'steps';
  byId('mean').checked = view.mean;
  byId('mean-label').hidden = !repeated;
  for (const [title, unit, pick, log] of CURVES) {
    if (!runs.some(run => pick(run)?.y?.some(isNumber))) continue;
    all.push(new Chart(byId('curve-charts'), title, unit, () => linesOf(pick), { log: () => view.log && log }));
  }
  byId('curves').hidden = all.length === 0;
  const show = () => {
    choose([['x-epochs', 'epochs'], ['x-steps', 'steps']], view.x);
    byId('band-note').textContent = view.mean ? 'Bands: one standard deviation over the seeds.'
      : runs.filter(run => run.visible).length <= BAND_RUNS && runs.some(run => run.steps.bucket > 1)
        ? 'Bands: smallest and largest of the steps behind a point.' : '';
    for (const chart of charts) chart.refresh();
  };
  byId('x-epochs').addEventListener('click', () => { view.x = 'epochs'; show(); });
  byId('x-steps').addEventListener('click', () => { view.x = 'steps'; show(); });
  byId('mean').addEventListener('change', event => { view.mean = event.target.checked; show(); });
  byId('log').addEventListener('change', event => { view.log = event.target.checked; show(); });
  listen('runs', show);
  listen('theme', show);
  let width = innerWidth;
  addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; show(); } });
  show();
}
