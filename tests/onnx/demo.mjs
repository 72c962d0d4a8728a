// The demo page in headless Chromium.
//
//   node demo.mjs SITE < job.json
//
// SITE: a folder made by docs/demo/serve.  job.json: {images: [paths], pictures: folder or null, chromium: path}.  Uploads
// each image; prints what the page says of it, [{status, names, shares}], and what was wrong with the page, as JSON.
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { chromium } from 'playwright-core';

const TYPES = { '.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript', '.mjs': 'text/javascript',
  '.wasm': 'application/wasm', '.png': 'image/png', '.json': 'application/json' };
const site = process.argv[2], job = JSON.parse(readFileSync(0, 'utf8')), faults = [];

const server = createServer((request, response) => {
  const path = join(site, normalize(new URL(request.url, 'http://x').pathname).replace(/\/$/, '/index.html'));
  if (!existsSync(path)) return response.writeHead(404).end();
  response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream' });
  createReadStream(path).pipe(response);
});
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const address = `http://127.0.0.1:${server.address().port}/`;

function expect(condition, fault) {
  if (!condition) faults.push(fault);
}

async function open(browser, options) {
  const page = await (await browser.newContext(options)).newPage();
  page.on('console', message => expect(!['error', 'warning'].includes(message.type()), `console: ${message.text()}`));
  page.on('pageerror', error => faults.push(`error: ${error.message}`));
  page.on('request', request => expect(/^(http:\/\/127\.0\.0\.1:|data:|blob:)/.test(request.url()), `asks ${request.url()}`));
  await page.goto(address);
  await answered(page, 'test image');
  return page;
}

// Waits until the status line speaks of `name`.
async function answered(page, name) {
  const said = text => document.getElementById('status').textContent.startsWith(text);
  await page.waitForFunction(said, name, { timeout: 60000 }).catch(async () => {
    throw new Error(`waited for "${name}", the page says "${await page.textContent('#status')}"; ${faults.join('; ')}`);
  });
}

async function read(page) {
  return page.evaluate(() => {
    const texts = selector => Array.from(document.querySelectorAll(selector), element => element.textContent);
    const [status, map, mapped] = ['status', 'map', 'mapped'].map(id => document.getElementById(id));
    return { status: status.textContent, names: texts('#predictions .name'), shares: texts('#predictions .share'),
      map: map.width, hidden: mapped.hidden };
  });
}

async function look(page, name) {
  const [wide, room] = await page.evaluate(() => {
    const root = document.documentElement;
    return [root.scrollWidth, root.clientWidth];
  });
  expect(wide <= room, `${name}: ${wide} pixels wide in a window of ${room}`);
  if (job.pictures) await page.screenshot({ path: join(job.pictures, `${name}.png`), fullPage: true });
}

// Everything with Tab, Enter and Space alone.
async function keyboard(page) {
  const reached = [];
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 40 && reached.at(-1) !== 'strength'; i++) {
    await page.keyboard.press('Tab');
    reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.title));
    const outline = await page.evaluate(() => {
      const focused = document.activeElement;
      return getComputedStyle(focused.id === 'file' ? document.getElementById('drop') : focused).outlineStyle;
    });
    expect(outline !== 'none', `${reached.at(-1)}: focus cannot be seen`);
    if (reached.length === 3) {
      await page.keyboard.press('Enter'); // the second sample
      await answered(page, 'test image');
      const pressed = await page.evaluate(() => document.activeElement.getAttribute('aria-pressed'));
      expect(pressed === 'true', 'Enter does not choose a sample');
    }
    if (reached.at(-1) === 'show') {
      await page.keyboard.press('Space');
      expect((await read(page)).hidden, 'Space does not hide the map');
      await page.keyboard.press('Space');
    }
  }
  for (const id of ['file', 'show', 'strength']) expect(reached.includes(id), `${id} is not reached with Tab`);
}

const browser = await chromium.launch({ executablePath: job.chromium, args: ['--no-sandbox'] });
const answers = [];
try {
  const page = await open(browser, { viewport: { width: 1280, height: 900 }, colorScheme: 'light' });
  for (const path of job.images) {
    await page.setInputFiles('#file', path);
    await answered(page, path.split('/').at(-1));
    answers.push(await read(page));
  }
  await look(page, 'desktop-light');
  await page.setInputFiles('#file', { name: 'no.png', mimeType: 'image/png', buffer: Buffer.from('not an image') });
  await answered(page, 'no.png could not be read');
  await keyboard(page);
  const small = { viewport: { width: 360, height: 740 }, colorScheme: 'dark', isMobile: true, hasTouch: true };
  const phone = await open(browser, small);
  await phone.setInputFiles('#file', job.images[0]);
  await answered(phone, job.images[0].split('/').at(-1));
  await look(phone, 'phone-dark');
} finally {
  await browser.close();
  server.close();
}
console.log(JSON.stringify({ answers, faults }));
