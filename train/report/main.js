// Puts the page together: title, run toggles, theme, sections.

function startToggles() {
  const MANY = 1, buttons = new Map();
  const press = (button, state) => button.setAttribute('aria-pressed', state);
  const show = () => {
    for (const group of groups) {
      const count = group.runs.filter(run => run.visible).length;
      press(group.button, count === 0 ? 'false' : count === group.runs.length ? 'true' : 'mixed');
      group.button.style.setProperty('--colour', colourOf(group));
    }
    for (const [run, button] of buttons) press(button, String(run.visible));
    byId('shown').textContent = `${runs.filter(run => run.visible).length} of ${runs.length} shown`;
  };
  const change = () => { show(); tell('runs'); };
  for (const group of groups) {
    group.button = element('button', { type: 'button', class: 'toggle' }, group.name);
    group.button.addEventListener('click', () => {
      const on = group.runs.some(run => !run.visible);
      for (const run of group.runs) run.visible = on;
      change();
    });
    group.box = element('span', { class: 'group' }, group.button);
    if (group.runs.length > MANY)
      for (const run of group.runs) {
        const button = element('button', { type: 'button', class: 'seed', 'aria-label': run.label, title: run.name }, run.seed);
        button.addEventListener('click', () => { run.visible = !run.visible; change(); });
        buttons.set(run, button);
        group.box.append(button);
      }
    byId('toggles').append(group.box);
  }
  const matches = group => !group.box.hidden;
  const setAll = on => { for (const group of groups.filter(matches)) for (const run of group.runs) run.visible = on; change(); };
  byId('all').addEventListener('click', () => setAll(true));
  byId('none').addEventListener('click', () => setAll(false));
  byId('filter').addEventListener('input', event => {
    const words = event.target.value.toLowerCase();
    for (const group of groups)
      group.box.hidden = ![group.name, ...group.runs.map(run => run.name)].some(name => name.toLowerCase().includes(words));
  });
  byId('filter').hidden = groups.length < 8;
  byId('runs').hidden = runs.length < 2;
  listen('theme', show);
  show();
}

function startTheme() {
  const names = ['auto', 'light', 'dark'], button = byId('theme');
  const show = () => { button.textContent = `theme: ${document.documentElement.dataset.theme ?? 'auto'}`; };
  button.addEventListener('click', () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? 'auto') + 1) % names.length];
    if (next === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    show();
    tell('theme');
  });
  darkQuery.addEventListener('change', () => tell('theme'));
  show();
}

function startHeadings() {
  const steps = runs.map(run => last(run.steps.at) ?? 0), best = Math.max(...runs.map(run => run.best ?? -Infinity));
  document.title = `${data.title} – mirrorla report`;
  byId('title').textContent = runs.length > 1 && !data.table && groups.length < 6 ? groups.map(group => group.name).join(', ') : data.title;
  byId('subtitle').textContent = [`${runs.length} run${runs.length === 1 ? '' : 's'}`, `${short(Math.max(0, ...steps))} steps`,
    isNumber(best) ? `best test accuracy ${best.toFixed(2)} %` : null, data.live ? `running, as of ${data.made}` : data.made]
    .filter(text => text).join(' · ');
  byId('footer').textContent = `Made by mirrorla ${data.version} on ${data.made}. Charts by uPlot (MIT licence, © Leon Sorokin).`;
  const sections = [...document.querySelectorAll('main > section')].filter(section => !section.hidden);
  byId('sections').append(...sections.map(section => element('a', { href: `#${section.id}` }, section.querySelector('h2').textContent)));
}

startTheme();
startToggles();
startTable();
startCurves();
startLayers();
startMaps();
startConfigs();
startHeadings();
document.documentElement.dataset.ready = 'true';
