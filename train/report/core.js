'use strict';
// Data, groups of runs that differ in their seed alone, colours, and small helpers for the document.

const data = JSON.parse(document.getElementById('data').textContent);
const byId = id => document.getElementById(id);

// element('td', {class: 'x', title: 'y'}, 'text', otherElement): text is never taken for markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? '' : value);
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

function vector(name, attributes) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const isNumber = x => typeof x === 'number' && Number.isFinite(x);
const last = list => list[list.length - 1];

// Four significant digits, without an exponent where that is readable.
function short(x) {
  if (!isNumber(x)) return '–';
  const size = Math.abs(x);
  if (x === 0) return '0';
  const text = size >= 1e6 || size < 1e-3 ? Number(x.toPrecision(3)).toExponential().replace('e+', 'e')
    : size >= 1000 ? Math.round(x).toLocaleString('en') : String(Number(x.toPrecision(4)));
  return text.replace(/-(?=\d)/g, '−');
}

function meanOf(values) {
  return values.reduce((sum, x) => sum + x, 0) / values.length;
}

// Sample standard deviation; null for one value.
function deviationOf(values) {
  if (values.length < 2) return null;
  const mean = meanOf(values);
  return Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (values.length - 1));
}

// ---- runs and groups

// Keys that do not change what is trained.
const SIDE_KEYS = /^(train\.seed|train\.max_steps|data\.path|data\.on_error|checkpoint\.|eval\.|diagnostics\.|log\.)/;
const runs = data.runs.map((run, index) => ({ ...run, index, visible: true }));

function value(run, key) {
  return run.config ? run.config[data.keys.indexOf(key)] : undefined;
}

function settingOf(run) {
  return run.config ? data.keys.map((key, i) => SIDE_KEYS.test(key) ? '' : run.config[i]).join('\n')
    : run.name.replace(/\.jsonl$/, '').replace(/[-_](seed)?\d+$/, '');
}

function differingKeys(list) {
  const configured = list.filter(run => run.config);
  return data.keys.filter((key, i) => configured.some(run => run.config[i] !== configured[0].config[i]));
}

// What tells a group from the others: "mirror", or "kind mirror, dwconv 3" when several keys do.
function groupName(run, keys) {
  const telling = keys.filter(key => !SIDE_KEYS.test(key));
  if (!run.config) return settingOf(run);
  if (telling.length === 0) return run.name;
  if (telling.length === 1) return value(run, telling[0]);
  return telling.slice(0, 6).map(key => `${key.split('.').pop()} ${value(run, key)}`).join(', ');
}

function makeGroups() {
  const found = new Map(), keys = differingKeys(runs);
  const rowOf = new Map();
  for (const row of data.table?.rows ?? []) for (const cell of row.cells) rowOf.set(cell.name, row.name);
  for (const run of runs) {
    const key = rowOf.get(run.name) ?? settingOf(run);
    if (!found.has(key)) found.set(key, { name: rowOf.get(run.name) ?? groupName(run, keys), runs: [] });
    found.get(key).runs.push(run);
  }
  const groups = [...found.values()];
  const names = groups.map(group => group.name);
  groups.forEach((group, i) => {
    if (group.runs.length === 1 && names.filter(name => name === group.name).length > 1) group.name = group.runs[0].name;
    group.index = i;
    for (const run of group.runs) run.group = group;
  });
  return groups;
}

const groups = makeGroups();
for (const run of runs) {
  const seed = value(run, 'train.seed') ?? run.name.match(/(\d+)(\.jsonl)?$/)?.[1];
  run.label = run.group.runs.length === 1 ? run.group.name : `${run.group.name} · ${seed ?? run.name}`;
  run.seed = seed ?? run.name;
}

// ---- colours

const HUES = [217, 26, 158, 322, 3, 190, 268, 75, 48, 130, 290, 240];
const darkQuery = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (document.documentElement.dataset.theme ?? (darkQuery.matches ? 'dark' : 'light')) === 'dark';

// Neighbours in the list differ in hue; those after the first twelve in lightness as well.
function colourOf(group, alpha = 1) {
  const round = Math.floor(group.index / HUES.length) % 3;
  const lightness = isDark() ? 66 - 10 * round : 40 + 12 * round;
  return `hsla(${HUES[group.index % HUES.length]}, ${isDark() ? 75 : 72}%, ${lightness}%, ${alpha})`;
}

const styleColour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- who wants to know

const listeners = { runs: [], theme: [] };
const listen = (what, action) => listeners[what].push(action);
const tell = what => listeners[what].forEach(action => action());
