// Configs side by side, a column a group; what differs is marked.

function startConfigs() {
  const shown = groups.filter(group => group.runs[0].config);
  const differing = new Set(differingKeys(shown.map(group => group.runs[0])).filter(key => key !== 'train.seed'));
  const seeds = group => [...new Set(group.runs.map(run => value(run, 'train.seed')))].join(', ');
  byId('configs').hidden = shown.length === 0;
  byId('all-keys').checked = shown.length === 1;
  const show = () => {
    const keys = data.keys.filter(key => differing.has(key) || byId('all-keys').checked);
    byId('configs-note').textContent = shown.length < 2 ? '' : `${differing.size} of ${data.keys.length} keys differ; what differs `
      + 'from the first column is marked.';
    const head = element('tr', {}, element('th', { scope: 'col' }, 'key'), ...shown.map(group => element('th', { scope: 'col' }, group.name)));
    const rows = keys.map(key => {
      const first = value(shown[0].runs[0], key);
      return element('tr', {}, element('th', { scope: 'row' }, key), ...shown.map(group => {
        const text = key === 'train.seed' ? seeds(group) : value(group.runs[0], key);
        const differs = differing.has(key) && text !== first;
        return element('td', { class: differs ? 'different' : null }, text, differs ? element('span', { class: 'skip' }, ' (differs)') : null);
      }));
    });
    byId('config-table').replaceChildren(element('thead', {}, head), element('tbody', {}, ...rows));
  };
  byId('all-keys').addEventListener('change', show);
  show();
}
