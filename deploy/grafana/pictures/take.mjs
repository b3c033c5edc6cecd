// node take.mjs PROMETHEUS MINUTES OUT NAME...: pictures of dashboards with what a Prometheus has of the last minutes.
import { readFile, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { answered, lastMinutes } from './queries.mjs';

const WIDTH = 1264;
const TIMEOUT_MS = 180_000;
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync'];
const here = new URL('.', import.meta.url);

/** One page, with all its code. Gives its URL. */
async function bundle() {
  const folder = await mkdtemp(join(tmpdir(), 'pictures-'));
  await build({
    entryPoints: [new URL('page.jsx', here).pathname], outfile: join(folder, 'page.js'), bundle: true, minify: true,
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    loader: { '.svg': 'text', '.ttf': 'dataurl', '.woff2': 'dataurl', '.png': 'dataurl' }, logLevel: 'error',
  });
  await writeFile(join(folder, 'page.html'), '<!doctype html><meta charset=utf-8><link rel=stylesheet href=page.css>'
    + '<body><div id=root></div><script>window.__grafana_public_path__ = ""</script><script src=page.js></script>');
  return pathToFileURL(join(folder, 'page.html')).href;
}

async function picture(browser, url, name, prometheus, range, out) {
  const dashboard = JSON.parse(await readFile(new URL(`../dashboards/${name}.json`, here)));
  const panels = await Promise.all(dashboard.panels.map((panel) => answered(panel, prometheus, range)));
  const page = await browser.newPage({ viewport: { width: WIDTH, height: 800 } });
  page.setDefaultTimeout(TIMEOUT_MS);
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.stack));
  await page.addInitScript((data) => Object.assign(window, data), { dashboard: { title: dashboard.title, panels }, range });
  await page.goto(url);
  await page.waitForSelector('main');
  await page.waitForTimeout(1000); // the plots draw themselves after React is done
  if (errors.length) throw new Error(`${name}: ${errors[0]}`);
  await page.locator('main').screenshot({ path: join(out, `dashboard-${name}.png`) });
  await page.close();
}

const [prometheus, minutes, out, ...names] = process.argv.slice(2);
const range = lastMinutes(Number(minutes));
const [url, browser] = await Promise.all([bundle(), chromium.launch({ executablePath: CHROMIUM, args: FLAGS })]);
try {
  for (const name of names) await picture(browser, url, name, prometheus, range, out);
} finally {
  await browser.close();
}
