// The console's page. It asks the console for everything, with the token from the address, and sets
// texts as texts: names of disks, files and paths never become markup.
'use strict';

const REFRESH_MS = 1000;
const MOVES_MS = 6000;
const CHART_POINTS_MAX = 300;
const EVENTS_MAX = 200;
const DENSE_FROM = 49;
const TINY_FROM = 301;

const find = (id) => document.getElementById(id);
const token = takeToken();
let role = 'look';
let group = '';
let shown = null;
let selected = null;
let lastEvent = 0;
let movesAsked = 0;
const tiles = new Map();
const history = [[], [], [], [], []];
const charts = [];

// Out of the address, so that it stays in no history and on no picture of the screen.
function takeToken() {
  const given = location.hash.slice(1);
  if (/^[0-9a-f]{64}$/.test(given)) {
    sessionStorage.setItem('token', given);
    window.history.replaceState(null, '', '/');
    return given;
  }
  return sessionStorage.getItem('token') || '';
}

async function ask(path, body) {
  const request = { headers: { 'Spindle-Token': token }, credentials: 'omit', cache: 'no-store' };
  if (body !== undefined) {
    request.method = 'POST';
    request.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Error('the console does not answer: it has ended, or the connection to it is lost');
  }
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.message || value.text || 'the console refused: ' + answer.status);
  return value;
}

function element(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function put(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function bytes(count) {
  const sign = count < 0 ? '-' : '';
  let rest = Math.abs(count);
  let unit = 0;
  while (rest >= 1024 && unit < 5) { rest /= 1024; unit += 1; }
  const digits = unit === 0 || rest >= 100 ? 0 : rest >= 10 ? 1 : 2;
  return sign + rest.toFixed(digits) + ['', 'K', 'M', 'G', 'T', 'P'][unit];
}

const rate = (count) => bytes(count) + '/s';
const percent = (part, whole) => (whole > 0 ? Math.round((100 * part) / whole) : 0) + '%';

function milliseconds(us) {
  if (us === null || us === undefined) return '-';
  const ms = us / 1000;
  return (ms >= 100 ? ms.toFixed(0) : ms >= 1 ? ms.toFixed(1) : ms.toFixed(2)) + ' ms';
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return 'time left not known yet';
  if (seconds < 90) return seconds + ' s';
  if (seconds < 5400) return Math.round(seconds / 60) + ' min';
  if (seconds < 172800) return (seconds / 3600).toFixed(1) + ' h';
  return Math.round(seconds / 86400) + ' days';
}

function bar(...parts) {
  const made = element('div', { className: 'bar' });
  for (const [share, kind] of parts) {
    const piece = element('i', { className: kind || '' });
    piece.style.width = 100 * Math.max(0, Math.min(1, share || 0)) + '%';
    made.append(piece);
  }
  return made;
}

// The mean number of requests under way: requests a second, times the seconds that each takes.
function heat(it) {
  if (!it) return 0;
  return (it.reads_per_s * (it.read_latency_us || 0) + it.writes_per_s * (it.write_latency_us || 0)) / 1e6;
}

const heatClass = (busy) => 'heat-' + (busy < 0.01 ? 0 : busy < 0.25 ? 1 : busy < 1 ? 2 : busy < 8 ? 3 : 4);

const isAway = (disk) => disk.mode !== 'online';

function standing(disk) {
  if (isAway(disk)) return disk.state === 'normal' ? disk.mode : disk.mode + ', ' + disk.state;
  if (disk.state !== 'normal') return disk.state;
  return disk.slow ? 'slow' : '';
}

function showHead(report) {
  const { group: it, health } = report;
  set(find('group'), it.name);
  document.title = it.name + ': ' + health.status;
  const status = find('status');
  status.className = 'pill ' + health.status;
  set(status, health.status);
  const mounts = it.mounts.map((mount) => mount.directory).join(', ');
  set(find('facts'), it.redundancy + ' redundancy, ' + it.disks.length + ' disks' + (mounts ? ', at ' + mounts : ''));
}

function showFindings(health) {
  find('findings-section').hidden = health.findings.length === 0;
  put(find('findings'), ...health.findings.map((finding) =>
    element('li', {}, element('b', { className: finding.severity }, finding.severity), ' ' + finding.text,
      element('span', { className: 'advice' }, finding.advice))));
}

function showSpace(it) {
  const used = it.total_bytes - it.free_bytes;
  const figures = [
    bytes(used) + ' used of ' + bytes(it.total_bytes) + ' (' + percent(used, it.total_bytes) + ')',
    bytes(it.usable_bytes) + ' usable for files',
    bytes(it.required_mirror_free_bytes) + ' kept free for a failure (hatched)',
  ];
  put(find('space'), bar([used / it.total_bytes], [it.required_mirror_free_bytes / it.total_bytes, 'kept']),
    element('div', { className: 'figures' }, ...figures.map((text) => element('span', {}, text))));
}

function showOperations(operations) {
  const list = operations.operations;
  if (list.length === 0) {
    put(find('operations'), element('p', { className: 'soft' }, 'Nothing: no rebalance, resync or scrub runs or waits.'));
    put(find('moves'));
    return;
  }
  put(find('operations'), ...list.map((it) => {
    const whole = it.done_bytes + it.left_bytes;
    const state = it.state === 'run' ? 'power ' + it.power : it.state;
    return element('div', { className: 'operation' },
      element('p', {}, element('b', {}, it.pass), element('span', {}, state),
        element('span', {}, whole > 0 ? bytes(it.done_bytes) + ' of ' + bytes(whole) : 'how much is not known yet'),
        element('span', {}, rate(it.rate_bytes_per_s)),
        element('span', {}, it.state === 'run' ? duration(it.left_s) : '')),
      bar([whole > 0 ? it.done_bytes / whole : 0]),
      it.error ? element('p', { className: 'critical' }, it.error) : null);
  }));
  const moves = list.some((it) => it.pass !== 'scrub' && it.state !== 'done');
  if (!moves) put(find('moves'));
  else if (Date.now() - movesAsked > MOVES_MS) { movesAsked = Date.now(); refreshMoves(); }
}

async function refreshMoves() {
  try {
    const report = await ask('/api/moves');
    const left = report.moved_bytes + report.restored_bytes + report.resynced_bytes;
    put(find('moves'), left > 0 ? element('h3', {}, 'Still to move: ' + bytes(left)) : null, ...flows(report.flows, 8));
  } catch {
    // The state's own request says what is wrong.
  }
}

function flows(list, most) {
  const sorted = [...list].sort((left, right) => right.bytes - left.bytes);
  const largest = sorted.length > 0 ? sorted[0].bytes : 1;
  const rows = sorted.slice(0, most).map((flow) => element('div', { className: 'row flow' },
    element('span', { title: flow.from + ' → ' + flow.to }, flow.from + ' → ' + flow.to), bar([flow.bytes / largest]), element('span', {}, bytes(flow.bytes))));
  if (sorted.length > most) rows.push(element('p', { className: 'soft' }, 'and ' + (sorted.length - most) + ' more pairs of disks'));
  return rows;
}

function makeTile(disk) {
  const tile = { button: null, name: element('span', {}), state: element('span', { className: 'state' }), fill: element('i', {}), rates: element('span', {}), latency: element('span', {}) };
  tile.button = element('button', { type: 'button', className: 'tile', 'aria-pressed': 'false', onclick: () => select(disk.number) },
    element('b', {}, tile.name, tile.state), element('div', { className: 'bar' }, tile.fill),
    element('span', { className: 'rates' }, tile.rates, tile.latency));
  return tile;
}

// Disks keep their tiles while the same disks stand in the same failure groups.
let layout = '';
function layDisks(disks) {
  const wanted = disks.map((disk) => disk.number + ' ' + disk.failure_group).join('|');
  if (wanted === layout) return;
  layout = wanted;
  tiles.clear();
  const groups = new Map();
  for (const disk of disks) {
    if (!groups.has(disk.failure_group)) groups.set(disk.failure_group, []);
    groups.get(disk.failure_group).push(disk);
  }
  const many = disks.length >= TINY_FROM ? 'tiny' : disks.length >= DENSE_FROM ? 'dense' : '';
  find('disks').className = many;
  const sections = [];
  for (const [name, members] of groups) {
    const grid = element('div', { className: 'failure-group' });
    for (const disk of members) {
      const tile = makeTile(disk);
      tiles.set(disk.number, tile);
      grid.append(tile.button);
    }
    sections.push(element('h3', {}, name + ' ', element('span', { className: 'soft' }, members.length === 1 ? '1 disk' : members.length + ' disks')), grid);
  }
  put(find('disks'), ...sections);
}

function showDisks(report) {
  const disks = report.group.disks;
  const rates = new Map(report.activity.disks.map((it) => [it.id, it]));
  layDisks(disks);
  for (const disk of disks) {
    const tile = tiles.get(disk.number);
    const now = rates.get(disk.number);
    const used = disk.total_bytes - disk.free_bytes;
    const name = 'tile ' + heatClass(heat(now)) + (isAway(disk) ? ' away' : '');
    if (tile.button.className !== name) tile.button.className = name;
    tile.button.setAttribute('aria-pressed', String(disk.number === selected));
    set(tile.name, disk.name);
    const state = standing(disk);
    set(tile.state, state || percent(used, disk.total_bytes));
    tile.state.className = 'state ' + (isAway(disk) ? 'critical' : state ? 'warning' : '');
    const width = percent(used, disk.total_bytes);
    if (tile.fill.style.width !== width) tile.fill.style.width = width;
    set(tile.rates, now ? 'r ' + rate(now.read_bytes_per_s) + ' w ' + rate(now.written_bytes_per_s) : '-');
    set(tile.latency, now ? 'r ' + milliseconds(now.read_latency_us) + ' w ' + milliseconds(now.write_latency_us) : '');
    tile.button.title = disk.name + ': ' + width + ' used' + (state ? ', ' + state : '');
  }
  const away = disks.filter(isAway).length;
  set(find('disks-facts'), disks.length + ' in ' + new Set(disks.map((disk) => disk.failure_group)).size + ' failure groups' + (away ? ', ' + away + ' away' : ''));
  showDisk(report, rates);
}

function select(number) {
  selected = selected === number ? null : number;
  if (shown) showDisks(shown);
}

function actions(disk) {
  if (role !== 'operate') return null;
  const button = (text, request) => element('button', { type: 'button', onclick: () => dryRun(text + ' ' + disk.name, request) }, text);
  const list = [];
  if (isAway(disk)) list.push(button('Bring online', { online: [disk.name] }));
  else list.push(button('Take offline', { offline: [disk.name] }));
  if (disk.state === 'dropping') list.push(button('Keep', { disks: { undrop: [disk.name] } }));
  else if (!isAway(disk)) list.push(button('Drop', { disks: { drop: [disk.name] } }));
  return element('p', { className: 'buttons' }, ...list);
}

let diskLine = '';
function showDisk(report, rates) {
  const box = find('disk');
  const disk = report.group.disks.find((it) => it.number === selected);
  box.hidden = !disk;
  if (!disk) { diskLine = ''; return; }
  const now = rates.get(disk.number);
  const facts = [
    ['Failure group', disk.failure_group],
    ['Path', disk.path || 'not found'],
    ['State', standing(disk) || 'online'],
    ['Used', bytes(disk.total_bytes - disk.free_bytes) + ' of ' + bytes(disk.total_bytes)],
    ['Reads', now ? now.reads_per_s.toFixed(0) + '/s, ' + rate(now.read_bytes_per_s) + ', ' + milliseconds(now.read_latency_us) : '-'],
    ['Writes', now ? now.writes_per_s.toFixed(0) + '/s, ' + rate(now.written_bytes_per_s) + ', ' + milliseconds(now.write_latency_us) : '-'],
    ['Heat', heat(now).toFixed(2) + ' requests under way'],
    ['Errors', disk.read_errors_count + ' reads, ' + disk.write_errors_count + ' writes'],
  ];
  if (disk.repair_time_left_s !== null) facts.push(['Given up in', duration(disk.repair_time_left_s)]);
  // Buttons that are made anew each second cannot be pressed: only where something differs.
  const line = JSON.stringify([disk.number, disk.name, facts, disk.mode, disk.state]);
  if (line === diskLine) return;
  const sameActions = diskLine && JSON.parse(diskLine)[0] === disk.number && JSON.parse(diskLine)[3] === disk.mode && JSON.parse(diskLine)[4] === disk.state;
  diskLine = line;
  const list = element('dl', {}, ...facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  if (sameActions && box.querySelector('dl')) box.querySelector('dl').replaceWith(list);
  else put(box, element('h3', {}, disk.name), list, actions(disk));
}

function showFiles(files) {
  if (files.length === 0) { put(find('files'), element('p', { className: 'soft' }, 'No file is read or written.')); return; }
  const row = (it) => element('tr', {}, element('td', {}, it.name), element('td', {}, rate(it.read_bytes_per_s)), element('td', {}, rate(it.written_bytes_per_s)),
    element('td', {}, milliseconds(Math.max(it.read_latency_us || 0, it.write_latency_us || 0))));
  put(find('files'), element('table', { className: 'list' }, element('thead', {}, element('tr', {}, ...['File', 'read', 'written', 'latency'].map((name) => element('th', {}, name)))),
    element('tbody', {}, ...files.slice(0, 12).map(row))));
}

function showEvents(events) {
  const list = find('events');
  for (const event of events) {
    if (event.number <= lastEvent) continue;
    lastEvent = event.number;
    const time = new Date(event.time_ms || event.time_s * 1000);
    list.prepend(element('li', {}, element('time', { dateTime: time.toISOString() }, time.toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'medium' })),
      event.severity === 'info' ? null : element('b', { className: event.severity }, event.severity + ' '),
      (event.disk_name ? event.disk_name + ': ' : '') + event.text));
  }
  while (list.children.length > EVENTS_MAX) list.lastChild.remove();
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// At least a minute, however few points there are.
function lastMinutes() {
  const times = history[0];
  const last = times.length > 0 ? times[times.length - 1] : Date.now() / 1000;
  return [Math.min(times.length > 0 ? times[0] : last, last - 60), last];
}

function makeChart(id, text) {
  const box = find(id);
  const line = (label, name) => ({ label, stroke: () => colour(name), width: 1.6, value: (_, value) => (value === null || value === undefined ? '-' : text(value)) });
  const axis = { stroke: () => colour('--soft'), grid: { stroke: () => colour('--faint'), width: 1 }, ticks: { stroke: () => colour('--faint') } };
  const size = () => ({ width: Math.max(200, box.clientWidth), height: 160 });
  const chart = new uPlot({
    ...size(), scales: { x: { range: lastMinutes }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    series: [{}, line('read', '--read'), line('written', '--written')],
    axes: [axis, { ...axis, size: 64, values: (_, values) => values.map(text) }],
  }, [[], [], []], box);
  new ResizeObserver(() => chart.setSize(size())).observe(box);
  charts.push(chart);
}

function addPoint(report) {
  const sums = [0, 0, 0, 0, 0, 0];
  for (const disk of report.activity.disks) {
    sums[0] += disk.read_bytes_per_s;
    sums[1] += disk.written_bytes_per_s;
    sums[2] += disk.reads_per_s;
    sums[3] += disk.writes_per_s;
    sums[4] += disk.reads_per_s * (disk.read_latency_us || 0);
    sums[5] += disk.writes_per_s * (disk.write_latency_us || 0);
  }
  const mean = (time, count) => (count > 0 ? time / count / 1000 : null);
  const point = [Date.now() / 1000, sums[0], sums[1], mean(sums[4], sums[2]), mean(sums[5], sums[3])];
  history.forEach((series, index) => {
    series.push(point[index]);
    if (series.length > CHART_POINTS_MAX) series.shift();
  });
  charts[0].setData([history[0], history[1], history[2]]);
  charts[1].setData([history[0], history[3], history[4]]);
}

function tell(text) {
  find('trouble').hidden = !text;
  set(find('trouble'), text || '');
}

async function refresh() {
  if (!document.hidden) {
    try {
      const report = await ask('/api/state');
      shown = report;
      showHead(report);
      showFindings(report.health);
      showSpace(report.group);
      showOperations(report.operations);
      showDisks(report);
      showFiles(report.activity.files);
      showEvents(report.events);
      addPoint(report);
      tell('');
      document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed || 0) + 1);
    } catch (error) {
      tell(error.message);
    }
  }
  setTimeout(refresh, REFRESH_MS);
}

// What a change would come to, as sentences and as a picture; only then can it be made.
function estimatePicture(judged, request) {
  const report = judged.report;
  const parts = [element('p', {}, 'The same as ', element('code', {}, judged.command))];
  const sentences = [];
  if (report.moved_bytes) sentences.push(bytes(report.moved_bytes) + ' will move to other disks.');
  if (report.restored_bytes) sentences.push(bytes(report.restored_bytes) + ' will be copied again from other copies.');
  if (report.resynced_bytes) sentences.push(bytes(report.resynced_bytes) + ' that the disks missed will be copied to them.');
  if (sentences.length === 0) sentences.push('No data moves.');
  if (request.offline) sentences.push('Until they come back, what these disks hold has a copy less; disks that stay away longer than the repair time of the group are given up.');
  const own = report.times.find((time) => time.is_default);
  if (own && own.seconds) sentences.push('That takes about ' + duration(own.seconds) + ' at power ' + own.power + '.');
  sentences.push('Usable space: ' + bytes(report.usable_before_bytes) + ' now, ' + bytes(report.usable_bytes) + ' afterwards.');
  parts.push(element('p', {}, sentences.join(' ')));
  if (report.stuck_bytes) parts.push(element('p', { className: 'critical' }, 'There is no place for ' + bytes(report.stuck_bytes) + ': the change would not come to its end.'));
  if (report.usable_bytes < 0) parts.push(element('p', { className: 'critical' }, 'Afterwards there is not enough free space to repair a failure.'));
  const used = (disk, free) => (free === null ? 0 : (disk.total_bytes - free) / disk.total_bytes);
  const changed = report.disks.filter((disk) => disk.free_before_bytes !== disk.free_bytes || !disk.receives);
  const rows = (changed.length > 0 ? changed : report.disks).slice(0, 40);
  parts.push(element('h3', {}, 'Disks: used now (upper bar) and afterwards (lower half)'));
  parts.push(...rows.map((disk) => element('div', { className: 'row' }, element('span', { title: disk.name }, disk.name),
    bar([used(disk, disk.free_before_bytes)], [used(disk, disk.free_bytes), 'after']),
    element('span', {}, (disk.free_before_bytes === null ? 'new' : percent(used(disk, disk.free_before_bytes), 1)) + ' → ' + percent(used(disk, disk.free_bytes), 1)))));
  if (changed.length > rows.length) parts.push(element('p', { className: 'soft' }, 'and ' + (changed.length - rows.length) + ' more disks'));
  const gone = shown ? shown.group.disks.filter((disk) => !report.disks.some((it) => it.number === disk.number)) : [];
  if (gone.length > 0) parts.push(element('p', {}, 'Leaving the group: ' + gone.map((disk) => disk.name).join(', ') + '.'));
  if (report.flows.length > 0) parts.push(element('h3', {}, 'From disk to disk'), ...flows(report.flows, 10));
  return parts;
}

function openDialog(title) {
  set(find('dialog-title'), title);
  const confirm = find('confirm');
  confirm.hidden = true;
  confirm.disabled = true;
  confirm.onclick = null;
  if (!find('dialog').open) find('dialog').showModal();
}

async function dryRun(title, request) {
  openDialog(title);
  put(find('dialog-body'), element('p', {}, 'Looking what it would come to …'));
  try {
    const judged = await ask('/api/estimate', request);
    put(find('dialog-body'), ...estimatePicture(judged, request));
    const confirm = find('confirm');
    set(confirm, title);
    confirm.hidden = false;
    confirm.disabled = false;
    confirm.onclick = () => make(judged.ticket);
  } catch (error) {
    put(find('dialog-body'), element('p', { className: 'critical' }, error.message));
  }
}

async function make(ticket) {
  find('confirm').disabled = true;
  try {
    const report = await ask('/api/change', { ticket });
    const names = report.disks.map((disk) => disk.name + (standing(disk) ? ' (' + standing(disk) + ')' : ''));
    put(find('dialog-body'), element('p', { className: 'ok' }, 'Done' + (names.length > 0 ? ': ' + names.join(', ') : '') + '.'),
      report.note ? element('p', {}, report.note) : null);
    movesAsked = 0;
  } catch (error) {
    put(find('dialog-body'), element('p', { className: 'critical' }, error.message));
  }
  find('confirm').hidden = true;
}

async function chooseDisk() {
  openDialog('Add a disk');
  put(find('dialog-body'), element('p', {}, 'Looking for disks …'));
  try {
    const scan = await ask('/api/candidates');
    const free = scan.disks.filter((disk) => (disk.status === 'candidate' || disk.status === 'former') && !disk.in_use);
    if (free.length === 0) {
      put(find('dialog-body'), element('p', {}, 'No disk is free on the search path: ' + scan.search_path));
      return;
    }
    const failureGroup = element('input', { id: 'failure-group', placeholder: 'a failure group of its own', autocomplete: 'off' });
    const choice = free.map((disk, index) => element('label', {}, element('input', { type: 'radio', name: 'candidate', value: disk.path, checked: index === 0 }),
      ' ' + disk.path + ', ' + (disk.size_bytes === null ? 'size not known' : bytes(disk.size_bytes)) + ', ' + disk.status));
    const next = element('button', { type: 'button', onclick: () => {
      const path = document.querySelector('input[name=candidate]:checked').value;
      const disk = failureGroup.value.trim() ? { path, failure_group: failureGroup.value.trim() } : { path };
      dryRun('Add ' + path, { disks: { add: [disk] } });
    } }, 'What would it come to?');
    put(find('dialog-body'), ...choice, element('label', { htmlFor: 'failure-group' }, 'Failure group'), failureGroup, element('p', { className: 'buttons' }, next));
  } catch (error) {
    put(find('dialog-body'), element('p', { className: 'critical' }, error.message));
  }
}

async function showPath(path) {
  find('path').value = path;
  const query = '?path=' + encodeURIComponent(path);
  put(find('map'));
  put(find('listing'));
  try {
    const entries = await ask('/api/files' + query);
    // A file is its own only entry.
    if (entries.length === 1 && entries[0].kind === 'file' && entries[0].path === path) {
      drawMap(await ask('/api/map' + query));
      return;
    }
    const parent = path.replace(/\/[^/]*\/?$/, '') || '/';
    const open = (text, target) => element('button', { type: 'button', onclick: () => showPath(target) }, text);
    const at = (name) => path.replace(/\/$/, '') + '/' + name;
    const isOpened = (entry) => entry.kind === 'directory' || entry.kind === 'file';
    put(find('listing'), path === '/' ? null : open('..', parent), ...entries.filter(isOpened).slice(0, 500).map((entry) =>
      open(entry.name + (entry.kind === 'directory' ? '/' : '  ' + bytes(entry.size_bytes)), at(entry.name))));
    if (entries.length === 0) find('listing').append(element('span', { className: 'soft' }, 'empty'));
  } catch (error) {
    put(find('map'), element('p', { className: 'critical' }, error.message));
  }
}

function drawMap(map) {
  const copies = { external: 1, normal: 2, high: 3 }[map.redundancy] || 1;
  const facts = [bytes(map.size_bytes), map.redundancy + ' redundancy', map.striping + ' striping', map.extents_count + ' extents', 'a column is ' + bytes(map.column_bytes)];
  if (map.missing_copies_count) facts.push(map.missing_copies_count + ' copies are missing');
  const rows = map.rows.map((row) => {
    const picture = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    picture.setAttribute('viewBox', '0 0 ' + row.columns_bytes.length + ' 1');
    picture.setAttribute('preserveAspectRatio', 'none');
    row.columns_bytes.forEach((count, column) => {
      if (count === 0) return;
      const cell = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
      cell.setAttribute('x', column);
      cell.setAttribute('width', 0.92);
      cell.setAttribute('height', 1);
      cell.setAttribute('opacity', (0.25 + 0.75 * Math.min(1, count / map.column_bytes)).toFixed(2));
      picture.append(cell);
    });
    return element('div', { className: 'row' }, element('span', { title: row.disk_name }, row.disk_name), picture, element('span', {}, bytes(row.bytes)));
  });
  const sum = map.rows.reduce((total, row) => total + row.bytes, 0);
  put(find('map'), element('p', {}, element('b', {}, map.path), ' '), element('div', { className: 'figures' }, ...facts.map((fact) => element('span', {}, fact))),
    element('p', { className: 'soft' }, bytes(sum) + ' on ' + map.rows.length + ' disks, ' + copies + (copies === 1 ? ' copy' : ' copies') + ' of each extent; the file runs from left to right.'), ...rows);
}

async function begin() {
  makeChart('bytes-chart', bytes);
  makeChart('latency-chart', (value) => (value >= 10 ? value.toFixed(0) : value.toFixed(2)));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => charts.forEach((chart) => chart.redraw()));
  set(find('zone'), 'times in ' + Intl.DateTimeFormat().resolvedOptions().timeZone);
  find('cancel').addEventListener('click', () => find('dialog').close());
  find('add').addEventListener('click', chooseDisk);
  find('file-form').addEventListener('submit', (event) => { event.preventDefault(); showPath(find('path').value || '/'); });
  try {
    const session = await ask('/api/session');
    role = session.role;
    group = session.group;
    set(find('group'), group);
    set(find('role'), role === 'operate' ? 'may change disks' : 'looking only');
    find('add-line').hidden = role !== 'operate';
    showEvents(await ask('/api/events'));
    refresh();
    showPath('/');
  } catch (error) {
    set(find('status'), 'refused');
    tell(error.message);
  }
}

begin();
