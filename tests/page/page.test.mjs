// The live page in headless Chromium: renders, updates, survives a restart, fits narrow and wide screens, and is accessible.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { Server, folder, run } from './server.mjs';

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
const PATIENCE = 60_000;
const ARGS = ['--listen', '127.0.0.1:0', '--reactors', '2', '--sensor', 'modelled', '--page-tick', '200'];

let browser;
let server;
before(async () => {
  server = await Server.start([...ARGS, '--page', '0']);
  run(['load', '--yield', '--target', server.target, '--runtime', '600', '--iodepth', '4']);
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] }); // CI runs as root
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

// Opens a page, collects its errors, and logs in if requested.
async function open({ width = 1280, colorScheme = 'light', login = true, of = server } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, bypassCSP: false });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const problems = [];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && problems.push(message.text()));
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('request', (request) => {
    if (!request.url().startsWith(of.url) && !request.url().startsWith('data:')) problems.push(request.url());
  });
  await page.addInitScript(recordTexts);
  await page.goto(of.url);
  if (login) await logIn(page, of);
  return { page, problems, context };
}

// Records the texts in each canvas since its size was last set, which clears it.
function recordTexts() {
  window.texts = new Map();
  const { fillText } = CanvasRenderingContext2D.prototype;
  const { set, get } = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, 'width');
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.texts.get(this.canvas).push(text);
    return fillText.call(this, text, ...place);
  };
  Object.defineProperty(HTMLCanvasElement.prototype, 'width', {
    get,
    set(width) {
      window.texts.set(this, []);
      set.call(this, width);
    },
  });
}

const textsIn = (page, canvas) => page.evaluate((one) => window.texts.get(document.querySelector(one)), canvas);

async function logIn(page, of = server) {
  await page.getByLabel('Token').fill(of.token);
  await page.getByRole('button', { name: 'Log in' }).click();
  await live(page);
}

const live = (page) => page.waitForFunction(() => document.getElementById('connection')?.textContent.startsWith('live'));
const drawn = (page) => page.waitForFunction(() =>
  document.querySelector('#cores canvas')?.getAttribute('aria-label').includes('%')
  && document.getElementById('power-chart').getAttribute('aria-label').includes('W'));

// Waits for a sample in which the element shows what is expected: a busy machine has samples without a request.
async function shows(page, id, pattern) {
  const text = await page.waitForFunction(
    ([id, source]) => {
      const { textContent } = document.getElementById(id);
      return new RegExp(source).test(textContent) && textContent;
    },
    [id, pattern.source],
  );
  return text.jsonValue();
}

// Violations of accessibility rules, as text. axe bypasses the page's Content-Security-Policy, like an extension.
async function violations(page) {
  const session = await page.context().newCDPSession(page);
  const { readFileSync } = await import('node:fs');
  await session.send('Runtime.evaluate', { expression: readFileSync(axe, 'utf8') });
  const run = { expression: 'axe.run(document)', awaitPromise: true, returnByValue: true };
  const { result } = await session.send('Runtime.evaluate', run);
  assert.ok(result.value.passes.length > 5, 'axe has run');
  return result.value.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}

const scrollsSideways = (page) => page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);

test('without the token only the login is served, and a wrong token is refused next to the form', async () => {
  const { page, context } = await open({ login: false });
  assert.deepEqual(await violations(page), []);
  await page.getByLabel('Token').fill('wrong');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('this is not the token').waitFor();
  assert.equal(await page.getByText('Power budget').count(), 0);
  await context.close();
});

for (const width of [400, 1600]) {
  for (const colorScheme of ['light', 'dark']) {
    test(`at ${width} pixels, ${colorScheme}: renders, updates, is accessible, and contacts no other host`, async () => {
      const { page, problems, context } = await open({ width, colorScheme });
      await drawn(page);
      assert.equal(await scrollsSideways(page), false);
      assert.deepEqual(await violations(page), []);
      await shows(page, 'power', /^\d.* W$/);
      await shows(page, 'sensor', /modelled with profile .*: not measured/);
      await shows(page, 'p99', /s$/);
      const requests = await shows(page, 'iops', /\/s$/);
      await page.waitForFunction((before) => document.getElementById('iops').textContent !== before, requests);
      const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(back === 'rgb(255, 255, 255)', colorScheme === 'light');
      // the strips are painted: their pixels have the colour of a state
      const painted = await page.evaluate(() => {
        const canvas = document.querySelector('#cores canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return data.some((value) => value !== 0);
      });
      assert.ok(painted);
      assert.deepEqual(problems, []);
      if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/${width}-${colorScheme}.png`, fullPage: true });
      await context.close();
    });
  }
}

test('budget and policy are set by their forms, and a refusal is shown next to its form', async () => {
  const { page, problems, context } = await open();
  await page.getByRole('button', { name: 'Power budget' }).click();
  const form = page.locator('#set-budget');
  await form.getByLabel('Limit').fill('250W');
  await form.getByRole('button', { name: 'Set' }).click();
  await form.getByText('Done').waitFor();
  await page.waitForFunction(() => document.getElementById('budget').textContent === '250 W');
  assert.equal(server.run('status').goals.budget_uw, 250_000_000);
  await form.getByLabel('Limit').fill('much');
  await form.getByRole('button', { name: 'Set' }).click();
  await form.getByText('Refused').waitFor();
  assert.deepEqual(await violations(page), []);
  await form.getByLabel('Limit').fill('off');
  await form.getByRole('button', { name: 'Set' }).click();
  await page.waitForFunction(() => document.getElementById('budget').textContent === 'off');
  await form.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('button', { name: 'Policy' }).click();
  const policy = page.locator('#set-policy');
  await policy.getByLabel('Name').selectOption('static');
  await policy.getByRole('button', { name: 'Set' }).click();
  await page.waitForFunction(() => document.getElementById('policy').textContent === 'static');
  assert.deepEqual(problems, []);
  await context.close();
});

test('with two subsystems, caps and tolerances of namespaces are set by NQN', async () => {
  const config = join(folder, 'two.toml');
  const nqns = ['nqn.2024-05.com.example:one', 'nqn.2024-05.com.example:two'];
  const subsystems = nqns.map((nqn) => `[[subsystem]]\nnqn = "${nqn}"\n[[subsystem.namespace]]\nnsid = 1\nbackend = "mem:16MiB"\n`);
  const socket = join(folder, 'two.sock');
  writeFileSync(config, `[server]\nlisten = ["127.0.0.1:0"]\n[admin]\nsocket = "${socket}"\n[page]\nlisten = "0"\n${subsystems.join('')}`);
  const two = await Server.start(['--config', config], { socket, isInConfig: true });
  try {
    const { page, problems, context } = await open({ of: two });
    for (const [id, name, field, value] of [
      ['set-cap', 'Bandwidth cap', 'Limit', '100MB/s'],
      ['set-tolerance', 'Latency tolerance', 'Such as', '20%'],
    ]) {
      await page.getByRole('button', { name }).click();
      const form = page.locator(`#${id}`);
      await form.getByLabel(field).fill(value);
      await form.getByLabel('Namespace number').fill('1');
      await form.getByRole('button', { name: 'Set' }).click();
      await form.getByText('Refused').waitFor(); // of which subsystem?
      await form.getByLabel('NQN').fill(nqns[1]);
      await form.getByRole('button', { name: 'Set' }).click();
      await form.getByText('Done').waitFor();
      await page.keyboard.press('Escape');
    }
    const { goals, caps } = two.run('status');
    assert.deepEqual(caps.map(({ nqn }) => nqn), [nqns[1]]);
    assert.ok(goals.tolerances.some(({ nqn, nsid }) => nqn === nqns[1] && nsid === 1));
    assert.deepEqual(problems, []);
    await context.close();
  } finally {
    await two.stop();
  }
});

test('charts have units and times, a label at the budget, and values under the pointer', async () => {
  const { page, problems, context } = await open();
  await drawn(page);
  const times = (texts) => texts.filter((text) => /^\d\d:\d\d:\d\d$/.test(text)).length;
  for (const [canvas, unit] of [['#cores canvas', /^\d+ %$/], ['#iops-chart', /^[\d.]+(\u00a0[kM])?\/s$/],
    ['#p99-chart', /^[\d.]+\u00a0[num]?s$/], ['#power-chart', /^[\d.]+ W$/]]) {
    const texts = await textsIn(page, canvas);
    assert.equal(times(texts), 3, `${canvas}: ${texts}`);
    assert.ok(texts.filter((text) => unit.test(text)).length >= 2, `${canvas}: ${texts}`);
  }
  // a budget far above the power does not set the scale
  server.run('set', 'budget', '9000W');
  await page.waitForFunction(() => window.texts.get(document.getElementById('power-chart')).some((text) => text.includes('9000 W')));
  const texts = await textsIn(page, '#power-chart');
  assert.ok(texts.includes('budget 9000 W \u2191'), `${texts}`);
  assert.ok(texts.filter((text) => / W$/.test(text)).every((text) => parseFloat(text) < 1000), `${texts}`);
  for (const [canvas, pattern] of [['#cores canvas', '^\\d\\d:\\d\\d:\\d\\d: .*empty-polls [\\d.]+ %'], ['#iops-chart', ': .*/s$'],
    ['#power-chart', ': [\\d.]+ W, budget 9000 W$']]) {
    const place = page.locator(canvas).first();
    await place.scrollIntoViewIfNeeded();
    const { width } = await place.boundingBox();
    await place.hover({ position: { x: width - 2, y: 20 } });
    await shows(page, 'tip', new RegExp(pattern));
  }
  await page.locator('#p99-chart').hover({ position: { x: (await page.locator('#p99-chart').boundingBox()).width - 2, y: 20 } });
  await page.waitForFunction(() => {
    const p99 = document.getElementById('p99').textContent;
    return p99 !== '–' && document.getElementById('tip').textContent.endsWith(`: ${p99}`); // tile and chart agree
  });
  await page.mouse.move(1, 1);
  await page.locator('#tip').waitFor({ state: 'hidden' });
  server.run('set', 'budget', 'off');
  assert.deepEqual(problems, []);
  await context.close();
});

test('a state of a core and the machine have one name everywhere, and each form is a dialog', async () => {
  const { page, problems, context } = await open();
  await drawn(page);
  assert.equal(await page.title(), `${hostname()} - Pilotlight`);
  assert.ok((await page.locator('h1').textContent()).includes(hostname()));
  const states = await page.locator('#legend li').allTextContents();
  assert.deepEqual(states, ['busy', 'empty-polls', 'monitor-wait', 'software-wait', 'server-sleep', 'unknown']);
  const core = await page.locator('#cores li').first().textContent();
  const names = core.replace(/^(Core|Reactor) \d+( \(main\))?/, '').split(', ').map((part) => part.trim().split(' ')[0]);
  assert.deepEqual(names.filter((name) => !states.includes(name)), [], core);
  assert.equal(await page.getByText('within the target').count(), 0);
  assert.equal(await page.locator('form:visible').count(), 0);
  const openers = await page.locator('[data-opens]:visible').all();
  const rows = await Promise.all(openers.map(async (opener) => (await opener.boundingBox()).y));
  assert.deepEqual([openers.length, new Set(rows).size], [4, 1]);
  for (const opener of openers) {
    await opener.click();
    assert.equal(await page.locator('dialog form:visible').count(), 1);
    assert.deepEqual(await violations(page), []);
    await page.keyboard.press('Escape');
  }
  assert.deepEqual(problems, []);
  await context.close();
});

test('a reload shows the history, and a logout ends the session', async () => {
  const { page, problems, context } = await open();
  await drawn(page);
  await page.reload();
  await drawn(page);
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  await page.goto(server.url);
  await page.getByLabel('Token').waitFor();
  assert.deepEqual(problems, []);
  await context.close();
});

test('after a restart of the server the login is shown and works', async () => {
  const { page, context } = await open();
  const port = new URL(server.url).port;
  await server.stop();
  await page.getByText('the server does not respond').waitFor();
  server = await Server.start([...ARGS, '--page', port]);
  await page.getByLabel('Token').waitFor(); // the session was the old server's
  await logIn(page);
  await context.close();
});
