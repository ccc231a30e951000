// The live page: draws what the server sends as events, and sends forms as requests of the control socket.
'use strict';

const POINTS = 72; // the number that the server keeps
const byId = (id) => document.getElementById(id);
const set = (id, text) => { if (byId(id).textContent !== text) byId(id).textContent = text; };

let states = [];
let points = [];
let cores = [];
let zone = null; // the zone whose power is shown

// --- quantities with units

const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
function scaled(value, units, step = 1000) {
  let at = 0;
  while (value >= step && at < units.length - 1) { value /= step; at += 1; }
  const space = units[at].startsWith('/') ? '' : '\u00a0'; // non-breaking
  return `${at === 0 && Number.isInteger(value) ? value : digits(value)}${space}${units[at]}`;
}
const perSecond = (value) => scaled(Math.round(value), ['/s', 'k/s', 'M/s']);
const bytes = (value) => scaled(Math.round(value), ['B/s', 'kB/s', 'MB/s', 'GB/s']);
const time = (ns) => scaled(ns, ['ns', 'us', 'ms', 's']);
const watts = (uw) => `${(uw / 1e6).toFixed(uw >= 1e8 ? 0 : 1)} W`;
function ago(seconds) {
  return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}
const clock = (unix_ms) => new Date(unix_ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
function duration(seconds) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const at = parts.findIndex(([size]) => seconds >= size);
  if (at < 0) return '0 s';
  return parts.slice(at, at + 2).map(([size, unit], n) =>
    `${Math.floor((n ? seconds % parts[at][0] : seconds) / size)} ${unit}`).join(' ');
}

// --- the current sample

function showSample(sample) {
  set('version', sample.version);
  set('connection', `live, up ${duration(sample.uptime_ns / 1e9)}, ${sample.connections} connections`);
  byId('test-mode').hidden = !sample.test_mode;
  showPower(sample);
  showGoals(sample);
  set('iops', perSecond(sample.read_iops + sample.write_iops));
  set('iops-parts', `reads ${perSecond(sample.read_iops)}, writes ${perSecond(sample.write_iops)}`);
  set('bytes', bytes(sample.read_bytes_per_s + sample.written_bytes_per_s));
  set('bytes-parts', `read ${bytes(sample.read_bytes_per_s)}, written ${bytes(sample.written_bytes_per_s)}`);
  set('policy', sample.policy.name);
  if (!byId('policies').value) byId('policies').value = sample.policy.name;
  const parameters = sample.policy.parameters.map(({ key, value }) => `${key}=${value}`);
  set('policy-parameters', parameters.join(' ') || 'parameters at their defaults');
  showCores(sample.cores);
  showClasses(sample.background);
}

function sensorOf({ sensor, modelled }) {
  return modelled ? `modelled with profile ${modelled}: not measured` : `sensor ${sensor}`;
}

function showPower({ power }) {
  const reading = power?.readings[0];
  zone = reading ? reading.of : null;
  set('power', reading && reading.power_uw !== null ? watts(reading.power_uw) : '–');
  set('power-of', reading ? reading.of : '');
  const others = (power?.readings ?? []).slice(1).map(({ of, power_uw: uw }) => `${of} ${uw === null ? '–' : watts(uw)}`);
  set('sensor', power ? [sensorOf(power), ...others].join('; ') : 'no sensor');
}

function showGoals({ goals, budget }) {
  const unused = (goal) => (goals.unused.includes(goal) ? ['not used by the policy'] : []);
  set('budget', goals.budget_uw === null ? 'off' : watts(goals.budget_uw));
  const parts = budget ? [budget.state, `of ${budget.domain}`, `from ${budget.origin}`] : [];
  if (budget && budget.headroom_uw !== null) {
    parts.push(`${watts(Math.abs(budget.headroom_uw))} ${budget.headroom_uw < 0 ? 'above it' : 'below it'}`);
  }
  if (budget?.state === 'unreachable' && budget.floor_uw !== null) parts.push(`lowest power reached: ${watts(budget.floor_uw)}`);
  if (budget && budget.until_unix_s) parts.push(`until ${new Date(budget.until_unix_s * 1000).toLocaleTimeString()}`);
  set('budget-state', parts.join(', '));
  const server = goals.tolerances.find(({ nsid }) => nsid === null);
  const others = goals.tolerances.filter(({ nsid }) => nsid !== null).map(({ nsid, text }) => `namespace ${nsid}: ${text}`);
  set('tolerance', server ? server.text : 'off');
  const gives = goals.gives_way ? ['gives way to the budget'] : [];
  set('tolerance-more', [...others, ...unused('tolerance'), ...gives].join('; '));
}

function showClasses(classes) {
  byId('background').hidden = classes.length === 0;
  const select = byId('classes');
  const names = classes.map((one) => one.class);
  if (select.options.length !== names.length) select.replaceChildren(...names.map((name) => new Option(name, name)));
}

// --- axes, and values under the pointer

const LEFT = 56; // width of the labels of values, in CSS pixels
const BELOW = 16; // height of the times

// The period shown by strips and charts.
function span() {
  const last = points.at(-1);
  if (!last) return null;
  const length = POINTS * last.seconds * 1000;
  return { from: last.unix_ms - length, length };
}

// Sizes a canvas in device pixels; returns the area for data in CSS pixels, and the position of a time in it.
function pen(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.font = '11px system-ui, sans-serif';
  const bottom = height - BELOW;
  context.fillStyle = colour('--raised');
  context.fillRect(LEFT, 0, width - LEFT, bottom);
  const shown = span();
  const x = (unixMs) => LEFT + ((unixMs - shown.from) / shown.length) * (width - LEFT);
  return { context, width, bottom, x };
}

// Lines of values with their labels, three times, and a line at the point under the pointer.
function drawAxes({ context, width, bottom, x }, marks) {
  context.setLineDash([]);
  context.lineWidth = 1;
  context.strokeStyle = colour('--line');
  context.fillStyle = colour('--soft');
  const stroke = (...places) => {
    context.beginPath();
    places.forEach((place) => context.lineTo(...place));
    context.stroke();
  };
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const [y, text] of marks) {
    stroke([LEFT, y], [width, y]);
    context.fillText(text, LEFT - 4, Math.max(y, 6));
  }
  context.textBaseline = 'top';
  const { from, length } = span();
  for (const [part, align] of [[0, 'left'], [0.5, 'center'], [1, 'right']]) {
    context.textAlign = align;
    context.fillText(clock(from + part * length), LEFT + part * (width - LEFT), bottom + 4);
  }
  const point = pointed();
  context.strokeStyle = colour('--text');
  if (point) stroke([x(point.unix_ms), 0], [x(point.unix_ms), bottom]);
}

let pointer = null; // its canvas and place
const texts = new WeakMap(); // of a point, by canvas

// Shows the text of the point under the pointer.
function showValues(canvas, text) {
  texts.set(canvas, text);
  canvas.addEventListener('pointermove', ({ clientX, clientY }) => {
    pointer = { canvas, clientX, clientY };
    drawLater();
  });
  canvas.addEventListener('pointerleave', () => {
    pointer = null;
    drawLater();
  });
}

function pointed() {
  const shown = span();
  if (!pointer?.canvas.isConnected || !shown) return null;
  const { left, width } = pointer.canvas.getBoundingClientRect();
  const at = shown.from + ((pointer.clientX - left - LEFT) / (width - LEFT)) * shown.length;
  // twice its length, as lengths and times are not exactly of one clock
  return points.find(({ unix_ms: end, seconds }) => end >= at && end - 2000 * seconds < at) ?? null;
}

function showTip() {
  const tip = byId('tip');
  const point = pointed();
  tip.hidden = !point;
  if (!point) return;
  tip.textContent = `${clock(point.unix_ms)}: ${texts.get(pointer.canvas)(point) || 'unknown'}`;
  const { clientWidth, clientHeight } = document.documentElement;
  const below = pointer.clientY + 16;
  tip.style.left = `${Math.max(0, Math.min(pointer.clientX + 12, clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${below + tip.offsetHeight < clientHeight ? below : pointer.clientY - tip.offsetHeight - 8}px`;
}

let pending = null;
function drawLater() {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(draw);
}

// --- cores

function shares(percent) {
  return states.map((name, at) => [name, percent[at]]).filter(([, share]) => share >= 0.05)
    .map(([name, share]) => `${name} ${share.toFixed(1)} %`).join(', ');
}

function makeCores(count) {
  byId('cores').replaceChildren();
  cores = Array.from({ length: count }, (_, at) => {
    const item = document.createElement('li');
    const [text, name, more, canvas] = ['p', 'b', 'span', 'canvas'].map((tag) => document.createElement(tag));
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', 'states: no data yet');
    text.append(name, ' ', more);
    item.append(text, canvas);
    byId('cores').append(item);
    showValues(canvas, (point) => shares(point.cores[at] ?? []));
    return { name, more, canvas };
  });
  drawCores();
}

function showCores(list) {
  if (cores.length !== list.length) makeCores(list.length);
  list.forEach(({ id, core, main, percent }, at) => {
    const place = core === null ? `Reactor ${id}` : `Core ${core}`;
    cores[at].name.textContent = `${place}${main ? ' (main)' : ''}`;
    cores[at].more.textContent = shares(percent);
  });
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawCores() {
  const colours = states.map((_, at) => colour(`--state-${at}`));
  cores.forEach(({ canvas }, at) => {
    const area = pen(canvas);
    if (!points.length) return;
    const { context, bottom: height, x } = area;
    const sums = states.map(() => 0);
    let whole = 0;
    for (const point of points) {
      const part = point.cores[at];
      if (!part) continue;
      const [left, right] = [x(point.unix_ms - point.seconds * 1000), x(point.unix_ms)];
      let bottom = height;
      part.forEach((share, state) => {
        const size = (share / 100) * height;
        context.fillStyle = colours[state];
        context.fillRect(Math.max(left, LEFT), bottom - size, right - Math.max(left, LEFT) + 0.5, size);
        bottom -= size;
        sums[state] += share * point.seconds;
      });
      whole += point.seconds;
    }
    drawAxes(area, [[0, '100 %'], [height, '0 %']]);
    const means = sums.map((sum) => sum / (whole || 1));
    canvas.setAttribute('aria-label', `states in the last ${ago(whole)}, on average: ${shares(means) || 'unknown'}`);
  });
}

// --- charts

// Each chart: the value of a point and its text; `limit` is drawn as a dashed line. The title of power depends on the sensor.
const CHARTS = {
  iops: { title: () => 'Requests per second', value: (point) => point.iops, text: perSecond, range: fromZero },
  p99: { title: () => 'Latency p99', value: (point) => point.p99_ns, text: time, range: decades, isLogarithmic: true },
  power: { title: powerTitle, value: (point) => point.power_uw[zone], text: watts, range: around, limit: (point) => point.budget_uw },
};
const known = (value) => Number.isFinite(value ?? NaN);

function powerTitle() {
  return zone ? `Power of ${zone}, ${byId('sensor').textContent}` : 'Power';
}

function fromZero(least, most) {
  return [0, Math.max(most * 1.1, 4)];
}

function decades(least, most) {
  const [bottom, top] = [Math.floor(Math.log10(Math.max(least, 1))), Math.ceil(Math.log10(Math.max(most, 1)))];
  return [10 ** bottom, 10 ** Math.max(top, bottom + 1)];
}

// At least 15 % of the value, so that noise does not fill the chart; up to three times as much if that includes the limits.
function around(least, most, limits) {
  const middle = (least + most) / 2;
  const half = Math.max(0.75 * Math.max(most - least, 0.1 * most), 1e5); // of 0 W too
  const near = limits.filter((limit) => Math.abs(limit - middle) < 3 * half);
  const bottom = Math.min(middle - half, ...near.map((limit) => limit - half / 4));
  return [Math.max(bottom, 0), Math.max(middle + half, ...near.map((limit) => limit + half / 4))];
}

// Round values from bottom to top.
function ticks(bottom, top, isLogarithmic) {
  if (isLogarithmic) {
    const from = Math.round(Math.log10(bottom));
    return Array.from({ length: Math.round(Math.log10(top)) - from + 1 }, (_, at) => 10 ** (from + at));
  }
  const part = (top - bottom) / 5;
  const power = 10 ** Math.floor(Math.log10(part));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= part);
  const from = Math.ceil(bottom / step);
  return Array.from({ length: Math.floor(top / step) - from + 1 }, (_, at) => (from + at) * step);
}
const tickText = (text) => text.replace(/\.(\d*?)0+(?!\d)/, (_, rest) => (rest ? `.${rest}` : ''));

function drawChart(name) {
  const { title, value, text, range, limit = () => null, isLogarithmic = false } = CHARTS[name];
  const area = pen(byId(`${name}-chart`));
  const values = points.map(value).filter(known);
  if (!values.length) {
    set(`${name}-range`, '');
    return;
  }
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const [bottom, top] = range(least, most, points.map(limit).filter(known));
  const size = (one) => (isLogarithmic ? Math.log(Math.max(one, 1)) : one);
  const y = (one) => area.bottom * (1 - (size(one) - size(bottom)) / (size(top) - size(bottom)));
  drawAxes(area, ticks(bottom, top, isLogarithmic).map((one) => [y(one), tickText(text(one))]));
  const inside = (one) => known(one) && one >= bottom && one <= top;
  const place = (of) => (point) => (inside(of(point)) ? [area.x(point.unix_ms), y(of(point))] : null);
  line(area.context, points.map(place(value)), colour('--chart'), []);
  line(area.context, points.map(place(limit)), colour('--limit'), [4, 3]);
  const last = limit(points.at(-1));
  if (known(last)) labelLimit(area, y(last), `budget ${text(last)}`);
  const shown = `${text(least)} to ${text(most)}`;
  set(`${name}-range`, shown);
  const budget = known(last) ? `, budget ${text(last)}` : '';
  byId(`${name}-chart`).setAttribute('aria-label', `${title()} in the last ${ago(span().length / 1000)}: ${shown}${budget}`);
}

// Above its line, or at the edge beyond which the line is.
function labelLimit({ context, width, bottom }, y, text) {
  const arrow = y < 0 ? ' \u2191' : y > bottom ? ' \u2193' : '';
  context.fillStyle = colour('--limit');
  context.textAlign = 'right';
  context.textBaseline = 'bottom';
  context.fillText(text + arrow, width - 4, Math.min(Math.max(y, 16), bottom) - 2);
}

function pointText({ value, text, limit = () => null }, point) {
  const parts = known(value(point)) ? [text(value(point))] : ['–'];
  if (known(limit(point))) parts.push(`budget ${text(limit(point))}`);
  return parts.join(', ');
}

// A line through points, with gaps at unknown ones.
function line(context, places, style, dashes) {
  context.lineWidth = 1.5;
  context.lineJoin = 'round';
  context.strokeStyle = style;
  context.setLineDash(dashes);
  context.beginPath();
  places.forEach((place, at) => {
    if (!place) return;
    if (places[at - 1]) context.lineTo(...place);
    else context.moveTo(place[0] - 3, place[1]); // makes a single point visible
    context.lineTo(...place);
  });
  context.stroke();
}

// Latency of the last point, so that tiles and chart agree.
function showLatency() {
  const last = points.at(-1);
  for (const name of ['p50', 'p99']) {
    const value = last?.[`${name}_ns`];
    set(name, known(value) ? time(value) : '–');
    set(`${name}-of`, last ? `in the server, last ${ago(last.seconds)}` : '');
  }
}

function draw() {
  drawCores();
  showLatency();
  set('power-title', zone ? `${zone}, ${byId('sensor').textContent}` : '');
  Object.keys(CHARTS).forEach(drawChart);
  showTip();
}

// --- events

function showHistory(history) {
  ({ states, points } = history);
  set('host', `on ${history.host}`);
  document.title = `${history.host} - Pilotlight`;
  // the time of an unfinished step is counted in no state
  byId('legend').replaceChildren(...[...states, 'unknown'].map((name, at) => {
    const item = document.createElement('li');
    const box = document.createElement('i');
    if (at < states.length) box.style.background = `var(--state-${at})`;
    item.append(box, name);
    return item;
  }));
  const select = byId('policies');
  if (!select.options.length) {
    select.replaceChildren(...history.policies.map((name) => new Option(name, name)));
    select.selectedIndex = -1; // the first sample has the active one
  }
  draw();
}

function addPoint(point) {
  points.push(point);
  points = points.slice(-POINTS);
  draw();
}

let source = null;
function listen() {
  source = new EventSource('/events');
  source.addEventListener('history', ({ data }) => showHistory(JSON.parse(data)));
  source.addEventListener('sample', ({ data }) => showSample(JSON.parse(data)));
  source.addEventListener('point', ({ data }) => addPoint(JSON.parse(data)));
  // the browser reconnects by itself unless the server refused
  source.onerror = () => {
    set('connection', 'the server does not respond; reconnecting');
    if (source.readyState === EventSource.CLOSED) askWhy();
  };
}

async function askWhy() {
  try {
    const { open, places, readers } = await (await fetch('/session')).json();
    if (!open) return location.replace('/'); // shows the login
    if (places > 0) return listen();
    set('connection', `${readers} pages of this server are open: close one of the others`);
  } catch {
    // the server is unreachable
  }
  setTimeout(askWhy, 1000);
}

// --- forms

async function post(path, body) {
  const headers = { 'Content-Type': 'application/json' };
  const response = await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
  if (response.status === 401) location.replace('/');
  return response.json();
}

function requestOf(form) {
  const request = { version: 1, command: form.dataset.command };
  for (const { name, type, value, checked } of form.elements) {
    const text = value.trim();
    if (!name || (type === 'checkbox' ? !checked : !text)) continue;
    if (type === 'checkbox') request[name] = true;
    else if (name === 'nsid') request[name] = Number(text);
    else if (name === 'parameters') request[name] = text.split(/\s+/);
    else request[name] = text;
  }
  return request;
}

function errorText({ field, message, help }) {
  return [`Refused: ${field ? `${field}: ` : ''}${message}`, ...(help ?? [])].join('\n');
}

function doneText(answer) {
  const holder = answer.inner_policy ? [`held by ${answer.policy}, inner policy ${answer.inner_policy}`] : [];
  const unused = answer.unused?.length ? [`not used by the policy: ${answer.unused.join(', ')}`] : [];
  return ['Done', ...holder, ...unused, ...(answer.help ? [answer.help] : [])].join('\n');
}

for (const opener of document.querySelectorAll('[data-opens]')) {
  const form = byId(opener.dataset.opens);
  const dialog = form.closest('dialog');
  opener.addEventListener('click', () => {
    form.querySelector('output').textContent = ''; // of an earlier change
    dialog.showModal();
  });
  form.querySelector('[value=close]').addEventListener('click', () => dialog.close());
}

for (const form of document.querySelectorAll('form')) {
  const output = form.querySelector('output');
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    output.className = '';
    output.textContent = 'sending';
    try {
      const answer = await post('/change', requestOf(form));
      output.className = answer.error ? 'refused' : 'done';
      output.textContent = answer.error ? errorText(answer.error) : doneText(answer.ok);
    } catch (error) {
      output.className = 'refused';
      output.textContent = `No answer; it is unknown whether the change was made: ${error.message}`;
    }
  });
}

byId('logout').addEventListener('click', async () => {
  source.close();
  await post('/logout', {});
  location.replace('/');
});

window.addEventListener('resize', drawLater);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawLater);
for (const [name, chart] of Object.entries(CHARTS)) showValues(byId(`${name}-chart`), (point) => pointText(chart, point));
listen();
