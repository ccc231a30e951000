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
  const { count, p50_ns: p50, p99_ns: p99 } = sample.latency;
  set('p50', count ? time(p50) : '–');
  set('p99', count ? time(p99) : '–');
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
  byId('set-background').hidden = classes.length === 0;
  const select = byId('classes');
  const names = classes.map((one) => one.class);
  if (select.options.length !== names.length) select.replaceChildren(...names.map((name) => new Option(name, name)));
}

// --- cores

function shares(percent) {
  return states.map((name, at) => [name, percent[at]]).filter(([, share]) => share >= 0.05)
    .map(([name, share]) => `${name} ${share.toFixed(1)} %`).join(', ');
}

function makeCores(count) {
  byId('cores').replaceChildren();
  cores = Array.from({ length: count }, () => {
    const item = document.createElement('li');
    const [text, name, more, canvas] = ['p', 'b', 'span', 'canvas'].map((tag) => document.createElement(tag));
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', 'states: no data yet');
    text.append(name, ' ', more);
    item.append(text, canvas);
    byId('cores').append(item);
    return { name, more, canvas };
  });
  drawCores();
}

function showCores(list) {
  if (cores.length !== list.length) makeCores(list.length);
  list.forEach(({ id, core, main, state, percent }, at) => {
    const place = core === null ? `Reactor ${id}` : `Core ${core}`;
    cores[at].name.textContent = `${place}${main ? ' (main)' : ''}: ${state}`;
    cores[at].more.textContent = shares(percent);
  });
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Sizes a canvas in device pixels; returns its size in CSS pixels.
function pen(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  return { context, width, height };
}

// The period shown by strips and charts.
function span() {
  const last = points.at(-1);
  if (!last) return null;
  const length = POINTS * last.seconds * 1000;
  return { from: last.unix_ms - length, length };
}

function drawCores() {
  const shown = span();
  set('since', shown ? `${ago(shown.length / 1000)} ago` : 'collecting');
  const colours = states.map((_, at) => colour(`--state-${at}`));
  cores.forEach(({ canvas }, at) => {
    const { context, width, height } = pen(canvas);
    if (!shown) return;
    const sums = states.map(() => 0);
    let whole = 0;
    for (const point of points) {
      const part = point.cores[at];
      if (!part) continue;
      const right = ((point.unix_ms - shown.from) / shown.length) * width;
      const left = right - ((point.seconds * 1000) / shown.length) * width;
      let bottom = height;
      part.forEach((share, state) => {
        const size = (share / 100) * height;
        context.fillStyle = colours[state];
        context.fillRect(left, bottom - size, right - left + 0.5, size);
        bottom -= size;
        sums[state] += share * point.seconds;
      });
      whole += point.seconds;
    }
    const means = sums.map((sum) => sum / (whole || 1));
    canvas.setAttribute('aria-label', `states in the last ${ago(whole)}, on average: ${shares(means) || 'unknown'}`);
  });
}

// --- charts

// A line for `value` of each point, and a dashed one for `limit`.
function drawChart(name, title, { value, text, limit = () => null, isLogarithmic = false }) {
  const { context, width, height } = pen(byId(`${name}-chart`));
  const shown = span();
  const known = points.filter((point) => Number.isFinite(value(point)));
  if (!shown || !known.length) {
    set(`${name}-range`, '');
    return;
  }
  const values = known.map(value);
  const limits = points.map(limit).filter((one) => one !== null);
  const size = (one) => (isLogarithmic ? Math.log(Math.max(one, 1)) : one);
  const bottom = isLogarithmic ? size(Math.min(...values)) * 0.9 : 0;
  const top = size(Math.max(...values, ...limits)) * (isLogarithmic ? 1 : 1.1) || 1;
  const y = (one) => height - 3 - ((size(one) - bottom) / (top - bottom || 1)) * (height - 6);
  const x = (point) => ((point.unix_ms - shown.from) / shown.length) * width;
  const place = (of) => (point) => (Number.isFinite(of(point) ?? NaN) ? [x(point), y(of(point))] : null);
  line(context, points.map(place(value)), colour('--chart'), []);
  line(context, points.map(place(limit)), colour('--limit'), [4, 3]);
  const range = `${text(Math.min(...values))} to ${text(Math.max(...values))}`;
  set(`${name}-range`, range);
  byId(`${name}-chart`).setAttribute('aria-label', `${title} in the last ${ago(shown.length / 1000)}: ${range}`);
}

// A line through points, with gaps at unknown ones.
function line(context, places, style, dashes) {
  context.lineWidth = 1.5;
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

function draw() {
  drawCores();
  drawChart('iops', 'Requests per second', { value: (point) => point.iops, text: perSecond });
  drawChart('p99', 'Latency p99', { value: (point) => point.p99_ns, text: time, isLogarithmic: true });
  const title = zone ? `${zone}, ${byId('sensor').textContent}` : '';
  set('power-title', title);
  const limit = (point) => point.budget_uw;
  drawChart('power', `Power of ${title}`, { value: (point) => point.power_uw[zone], text: watts, limit });
}

// --- events

function showHistory(history) {
  ({ states, points } = history);
  // the time of an unfinished step is counted in no state
  byId('legend').replaceChildren(...[...states, 'not known'].map((name, at) => {
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

let pending = null;
function drawLater() {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(draw);
}
window.addEventListener('resize', drawLater);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawLater);
listen();
