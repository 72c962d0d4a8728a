// A report in headless Chromium, used as a reader would.
//
//   node page.mjs < job.json
//
// job.json: {page: path of the report, chromium: path, width, height, dark, pictures: folder or null, name, load_only}.
// Prints what was found as JSON; `faults` are requests that leave the page, errors of its script, text that can't be read, and what can't be reached by keyboard.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const job = JSON.parse(readFileSync(0, 'utf8')), faults = [], found = { faults };
const address = pathToFileURL(job.page).href;
const browser = await chromium.launch({ executablePath: job.chromium, args: ['--no-sandbox'] });
const context = await browser.newContext({ viewport: { width: job.width, height: job.height },
  colorScheme: job.dark ? 'dark' : 'light', hasTouch: job.width < 600, offline: true });
const page = await context.newPage();

// What the browser itself says it asks for, not what the page admits.
const network = await context.newCDPSession(page);
await network.send('Network.enable');
network.on('Network.requestWillBeSent', ({ request }) => {
  if (request.url !== address && !request.url.startsWith('data:')) faults.push(`asks for ${request.url}`);
});
page.on('console', message => { if (['error', 'warning'].includes(message.type())) faults.push(`console: ${message.text()}`); });
page.on('pageerror', error => faults.push(`error: ${error.message}`));

const start = performance.now();
await page.goto(address);
await page.waitForFunction(() => document.documentElement.dataset.ready);
await page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve))));
found.load_ms = performance.now() - start;
if (job.load_only) {
  await browser.close();
  console.log(JSON.stringify(found));
  process.exit();
}

// Charts are drawn when they come into sight.
await page.evaluate(async () => {
  for (const section of document.querySelectorAll('section, .chart')) {
    section.scrollIntoView({ behavior: 'instant' });
    await new Promise(resolve => setTimeout(resolve, 30));
  }
  scrollTo({ top: 0, behavior: 'instant' });
});

const text = selector => page.$$eval(selector, list => list.filter(e => e.checkVisibility()).map(e => e.textContent));
// Lines of the first chart, once it has come into sight.
const lines = () => page.evaluate(async () => {
  const first = [...charts][0];
  first.card.scrollIntoView({ behavior: 'instant' });
  while (first.stale) await new Promise(resolve => setTimeout(resolve, 10));
  return first.lines.map(line => line.label);
});
found.size = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
found.title = await page.textContent('h1');
found.sections = await text('main > section > h2, main > section > .bar > h2');
found.charts = await text('.chart h3');
found.drawn = await page.$$eval('.chart canvas', list => list.length);
found.maps = await page.$$eval('#map-table canvas', list => list.length);
found.toggles = await text('#toggles .toggle');
found.table = await page.$$eval('#table tr', rows => rows.map(row => [...row.children].map(cell => cell.textContent)));
found.different = await text('#config-table .different');
found.profile = await page.$$eval('#profile tr', rows => rows.map(row => [...row.children].map(cell => cell.textContent)));

// Contrast of text with what is behind it (WCAG 2.1).
for (const fault of await page.evaluate(() => {
  const parse = colour => { const c = colour.match(/[\d.]+/g).map(Number); return { rgb: c.slice(0, 3), alpha: c[3] ?? 1 }; };
  const luminance = rgb => rgb.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  function behind(element) {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(parse(getComputedStyle(e).backgroundColor));
    return layers.reduce((under, over) => under.map((v, i) => over.alpha * over.rgb[i] + (1 - over.alpha) * v), [255, 255, 255]);
  }
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest('svg, script')) continue;
    const [a, b] = [luminance(parse(getComputedStyle(e).color).rgb), luminance(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) bad.push(`contrast ${((a + .05) / (b + .05)).toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(bad)];
})) faults.push(fault);

if (job.pictures) await page.screenshot({ path: join(job.pictures, `${job.name}.png`), fullPage: true });

// By keyboard: everything can be reached and seen to be, and a chart tells its values.
const reached = [];
await page.evaluate(() => { document.activeElement.blur(); scrollTo({ top: 0, behavior: 'instant' }); });
for (let i = 0; i < 400; i++) {
  await page.keyboard.press('Tab');
  const at = await page.evaluate(() => {
    const e = document.activeElement, style = getComputedStyle(e);
    if (e === document.body) return null;
    return { what: e.id || e.className || e.textContent, seen: style.outlineStyle !== 'none' };
  });
  if (!at) break;
  if (!at.seen) faults.push(`focus cannot be seen on ${at.what}`);
  reached.push(at.what);
  if (at.what !== 'plotarea' || found.tip) continue;
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  found.tip = await page.$eval('.chart .tip:not([hidden])', tip => tip.textContent).catch(() => null);
  await page.keyboard.press('Escape');
}
found.reached = [...new Set(reached)];

// A run toggle takes its lines away, and gives them back.
if (found.toggles.length > 1) {
  const toggle = page.locator('#toggles .toggle').first();
  const before = await lines();
  await toggle.click();
  found.toggled = { name: found.toggles[0], pressed: await toggle.getAttribute('aria-pressed'), before, after: await lines() };
  await toggle.click();
  if (JSON.stringify(await lines()) !== JSON.stringify(before)) faults.push('a second click on a toggle does not undo the first');
}

// Headers sort: first by the mean, the largest first, then the other way round.
const header = page.locator('#table thead button', { hasText: /^mean$/ });
const order = async () => ({ sort: await page.$eval('#table thead th[aria-sort]', th => [th.textContent, th.getAttribute('aria-sort')]),
  names: await text('#table tbody th') });
await header.click();
found.sorted = [await order()];
await header.click();
found.sorted.push(await order());

// A mouse over a chart, or a finger on it, shows the values there.
const over = page.locator('#curve-charts .u-over').first();
await over.evaluate(element => element.scrollIntoView({ behavior: 'instant', block: 'center' }));
const box = await over.boundingBox(), middle = [box.x + box.width / 2, box.y + box.height / 2];
await (job.width < 600 ? page.touchscreen.tap(...middle) : page.mouse.move(...middle));
found.hover = await page.$eval('.chart .tip:not([hidden])', tip => tip.textContent).catch(() => null);
if (job.pictures) await page.screenshot({ path: join(job.pictures, `${job.name}-hover.png`) });

await browser.close();
console.log(JSON.stringify(found));
