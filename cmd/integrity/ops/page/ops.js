// Draws what /ops/sample answers. Counts become rates between two samples; a
// count that falls means that the process was started again, and starts anew.
"use strict";

const every = 2000, spans = [60000, 120000, 300000, 600000], longest = spans.at(-1), width = 460, height = 190;
const left = 52, right = 8, above = 10, bottom = 24;
const samples = [];
let paused = false, failures = 0;

const sum = (values) => Object.values(values).reduce((a, b) => a + b, 0);

// rate is a second's rise of a count between two samples; null where none is known.
function rate(before, now, count) {
  const seconds = (now.at - before.at) / 1000, rise = count(now) - count(before);
  return seconds > 0 && rise >= 0 ? rise / seconds : null;
}

// quantile is in milliseconds, read off the buckets of a histogram as Prometheus
// does, between two samples; null where nothing happened.
function quantile(before, now, buckets, q) {
  const old = new Map(buckets(before).map((b) => [b.le, b.count]));
  const rises = buckets(now).map((b) => ({ le: b.le, count: b.count - (old.get(b.le) ?? 0) }));
  const total = rises.length ? rises[rises.length - 1].count : 0;
  if (total <= 0) return null;
  let le = 0, count = 0;
  for (const b of rises) {
    if (b.count >= q * total) {
      if (b.le === null) return le * 1000;
      return 1000 * (le + (b.le - le) * (q * total - count) / Math.max(b.count - count, 1));
    }
    le = b.le ?? le;
    count = b.count;
  }
  return le * 1000;
}

const charts = [
  { title: "Requests", unit: "per second", lines: {
    "2xx, 3xx": (b, n) => rate(b, n, (s) => (s.requests["2xx"] ?? 0) + (s.requests["3xx"] ?? 0)),
    "4xx": (b, n) => rate(b, n, (s) => s.requests["4xx"] ?? 0),
    "5xx": (b, n) => rate(b, n, (s) => s.requests["5xx"] ?? 0) } },
  { title: "Log", unit: "per second", lines: {
    registrations: (b, n) => rate(b, n, (s) => s.events["integrity.registered"] ?? 0),
    "all events": (b, n) => rate(b, n, (s) => sum(s.events)),
    transactions: (b, n) => rate(b, n, (s) => s.groups) } },
  { title: "Latency of requests", unit: "milliseconds", lines: {
    median: (b, n) => quantile(b, n, (s) => s.latency, 0.5),
    "99 %": (b, n) => quantile(b, n, (s) => s.latency, 0.99),
    "99 % of transactions": (b, n) => quantile(b, n, (s) => s.group, 0.99) } },
  { title: "Lag", unit: "commands, events", lines: {
    "commands waiting": (b, n) => sum(n.queue),
    "events a consumer is behind": (b, n) => sum(n.lag) } },
  { title: "Outbox: oldest due", unit: "seconds", lines: {
    webhooks: (b, n) => n.outboxAge, mails: (b, n) => n.mailAge } },
  { title: "Outbox: deliveries waiting", unit: "deliveries", lines: { waiting: (b, n) => sum(n.outbox) } },
  { title: "Webhooks", unit: "per second", lines: {
    delivered: (b, n) => rate(b, n, (s) => s.deliveries.delivered ?? 0),
    "failed, again later": (b, n) => rate(b, n, (s) => s.deliveries.retried ?? 0),
    "given up": (b, n) => rate(b, n, (s) => (s.deliveries.exhausted ?? 0) + (s.deliveries.cancelled ?? 0) + (s.deliveries.suppressed ?? 0)) } },
  { title: "Connections in use, readers waiting", unit: "number", lines: {
    commit: (b, n) => n.pools.commit ?? 0, read: (b, n) => n.pools.read ?? 0, public: (b, n) => n.pools.public ?? 0,
    queue: (b, n) => n.pools.queue ?? 0, "waiting readers": (b, n) => n.readers } },
];

function svg(name, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

function html(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

// nice is the round number at or above one whose quarters are round, too.
function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 8, 10].map((m) => m * power).find((n) => n >= value);
}

function figure(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return (value / 1e6).toFixed(1) + " M";
  if (value >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(2);
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (value >= 1024 && i < units.length - 1) { value /= 1024; i++; }
  return (i === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)) + " " + units[i];
}

function lineChart(chart, now) {
  const span = spans.find((s) => s >= now - samples[0].at) ?? longest;
  const names = Object.keys(chart.lines);
  const series = names.map((name) => samples.slice(1).map((s, i) => ({ at: s.at, value: chart.lines[name](samples[i], s) })));
  const most = nice(Math.max(0, ...series.flat().map((p) => p.value ?? 0)));
  const x = (at) => left + (width - left - right) * Math.max(0, 1 - (now - at) / span);
  const y = (value) => height - bottom - (height - bottom - above) * value / most;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label":
    `${chart.title}, ${chart.unit}: ` + names.map((name, i) => `${name} ${figure(series[i].at(-1)?.value)}`).join(", ") });
  for (let i = 0; i <= 4; i++) {
    const value = most * i / 4;
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, figure(value)));
  }
  for (let i = 0; i <= 4; i++) {
    const seconds = span / 4000 * i;
    drawing.append(svg("text", { x: x(now - seconds * 1000), y: height - 6, "text-anchor": i === 0 ? "end" : i === 4 ? "start" : "middle" },
      i === 0 ? "now" : span > 120000 ? `−${seconds / 60} min` : `−${seconds} s`));
  }
  series.forEach((points, i) => {
    let part = [];
    const flush = () => {
      if (part.length === 1) part.push(part[0]);
      if (part.length) drawing.append(svg("polyline", { class: "s" + i, points: part.join(" ") }));
      part = [];
    };
    for (const p of points) {
      if (p.value === null) flush(); else part.push(`${x(p.at).toFixed(1)},${y(p.value).toFixed(1)}`);
    }
    flush();
  });
  const legend = html("ul", {}, ...names.map((name, i) => html("li", {},
    svg("svg", { viewBox: "0 0 20 6", "aria-hidden": "true" }, svg("polyline", { class: "s" + i, points: "0,3 20,3" })),
    `${name} ${figure(series[i].at(-1)?.value)}`)));
  return html("figure", {}, html("figcaption", {}, chart.title, html("span", {}, chart.unit)), drawing, legend);
}

function storage(sample) {
  const tables = Object.entries(sample.tables).sort((a, b) => b[1] - a[1]);
  const shown = tables.slice(0, 8), rest = tables.slice(8).reduce((n, t) => n + t[1], 0);
  if (rest > 0) shown.push(["all others", rest]);
  const most = Math.max(1, ...shown.map((t) => t[1])), from = 132, room = width - from - 72;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${Math.max(1, shown.length) * 21 + 6}`, role: "img",
    "aria-label": "Storage by table: " + shown.map(([name, size]) => `${name} ${bytes(size)}`).join(", ") });
  shown.forEach(([name, size], i) => {
    const y = i * 21 + 4, w = Math.max(1, room * size / most);
    drawing.append(svg("text", { x: from - 6, y: y + 13, "text-anchor": "end" }, name), svg("rect", { class: "bar", x: from, y, width: w, height: 16, rx: 2 }),
      svg("text", { class: "value", x: from + w + 6, y: y + 13 }, bytes(size)));
  });
  return html("figure", {}, html("figcaption", {}, "Storage by table", html("span", {}, "with indexes, " + bytes(sum(sample.tables)))), drawing);
}

function draw() {
  const last = samples.at(-1);
  if (!last) return;
  document.getElementById("charts").replaceChildren(...charts.map((c) => lineChart(c, last.at)), storage(last));
}

function tell(text, bad) {
  const state = document.getElementById("state");
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("bad", bad);
}

async function look() {
  if (!paused) {
    try {
      const answer = await fetch("/ops/sample", { cache: "no-store", signal: AbortSignal.timeout(8000) });
      if (!answer.ok) throw new Error("status " + answer.status);
      const s = await answer.json();
      samples.push(s);
      while (samples.length > 0 && s.at - samples[0].at > longest) samples.shift();
      failures = 0;
      const wrong = [];
      if (!s.trusted) wrong.push("no trusted signing key: nothing is signed");
      if (!s.database) wrong.push("the database does not answer");
      tell(wrong.length ? wrong.join("; ") : "signing key trusted, database answers", wrong.length > 0);
      draw();
    } catch (error) {
      failures++;
      tell(`No answer from the service (${failures}): ${error.message}`, true);
    }
  }
  setTimeout(look, every);
}

document.getElementById("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  event.target.textContent = paused ? "Go on" : "Pause";
});
look();
