// Draws docs/page.png: the page of a server under bursts of load, with the policy that lets cores sleep.
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium } from 'playwright-core';
import { Server, run } from './server.mjs';

const [file] = process.argv.slice(2);
const cores = process.env.CORES ?? '0,1';
const server = await Server.start(['--listen', '127.0.0.1:0', '--cores', cores, '--policy', 'sandman', '--sensor', 'modelled',
  '--page', '0', '--page-tick', '200']);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 860 }, colorScheme: 'light' });
await page.goto(server.url);
await page.getByLabel('Token').fill(server.token);
await page.getByRole('button', { name: 'Log in' }).click();

// Seconds of load, its requests/s, and seconds without load.
const bursts = [[8, 2000, 5], [10, 6000, 4], [6, 500, 8], [12, 4000, 6], [8, 8000, 4], [9, 1000, 0]];
for (const [seconds, rate, pause] of bursts) {
  const load = run(['load', '--yield', '--target', server.target, '--runtime', String(seconds), '--iodepth', '8',
    '--rate_iops', String(rate), '--rate_process', 'poisson']);
  const ended = new Promise((resolve) => load.once('exit', resolve));
  if (pause) await ended;
  else await sleep(seconds * 1000 - 2000);
  await sleep(pause * 1000);
}
await page.screenshot({ path: file, fullPage: false });
await browser.close();
await server.stop();
process.exit(0);
