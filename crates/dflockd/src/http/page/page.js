// Asks the server once a second for holders and waiters, and shows them. Keys are text from
// strangers, so they become text nodes and nothing else. One variable of this page has the secret.
"use strict";

const EVERY_MS = 1000;
// After this time without an answer, the page is not "Live".
const LATE_MS = 3000;
const HISTORY_MS = 300000;
const SHORTEST_HISTORY_MS = 30000;
// A lease is nearly over when this part of its length is left.
const SHORT = 0.2;
const SLOWEST_MS = 10000;
const PATIENCE_MS = 10000;
const TYPING_MS = 250;
// The rows shown of each key. If there are only a few keys, all rows are shown.
const PARTIES = 5;
const FEW_KEYS = 5;

const id = (name) => document.getElementById(name);
const [board, table, login, state] = ["board", "table", "login", "state"].map(id);

let secret = "";
let failures = 0;
let paused = false;
let timer = 0;
let asking = null;
let newsAt = 0;
let adminSecret = "";
const canAdminister = document.documentElement.dataset.admin === "offered";
let waiting = [];
// For each lease, the time left when last seen, and when it began or was renewed (nearly its length).
let leases = new Map();

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Changes as little as possible, so that a selection stays.
function patch(old, fresh) {
  const [was, now] = [[...old.childNodes], [...fresh.childNodes]];
  now.forEach((node, place) => {
    const known = was[place];
    if (!known) old.append(node);
    else if (known.nodeName !== node.nodeName) known.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) {
      if (known.data !== node.data) known.data = node.data;
    } else {
      for (const { name } of [...known.attributes])
        if (!node.hasAttribute(name)) known.removeAttribute(name);
      for (const { name, value } of node.attributes)
        if (known.getAttribute(name) !== value) known.setAttribute(name, value);
      patch(known, node);
    }
  });
  for (const node of was.slice(now.length)) node.remove();
}

// As all our programs show it: 5s, 3m20s, 2h05m, 4d07h.
function span(seconds) {
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor(whole / 3600) % 24)}h`;
}

const count = (number) => number.toLocaleString("en");

// Characters that are invisible, or change the direction of text, are shown as numbers.
function visible(key) {
  const escape = (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`;
  return key.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escape);
}

function party({ connection, address, connected, name, value }) {
  const number = `#${connection}`;
  const where = connected === false ? `${number} (gone)` : address === null ? number : `${number} ${address}`;
  const named = name ? [make("bdi", { class: "name" }, visible(name)), ` ${where}`] : [where];
  return value ? [...named, " ", make("bdi", { class: "value soft" }, visible(value))] : named;
}

// If more time is left than expected from the last answer, the lease was renewed.
function lengthOf(key, { connection, lease_left_s: left }, seen) {
  const label = `${connection} ${key}`;
  const [last, at] = [leases.get(label), Date.now()];
  const isSame = last && Math.abs(last.left - (at - last.at) / 1000 - left) < 1;
  const length = isSame ? last.length : left;
  seen.set(label, { left, at, length });
  return length;
}

function deeds(key, { connection, connected }) {
  if (!adminSecret) return [];
  const button = (deed, text) => make("button", { type: "button", class: "small", "data-deed": deed, "data-connection": connection, "data-key": key, "aria-label": `${text} #${connection}` }, text);
  const release = button("release", "Release");
  return [make("span", { class: "deeds" }, ...(connected === false ? [release] : [release, button("kick", "Kick")]))];
}

function holderCells(key, holder, seen) {
  const short = holder.lease_left_s < SHORT * lengthOf(key, holder, seen) ? "number short" : "number";
  return [
    make("td", { role: "cell", class: "party", "data-label": "Holder" }, ...party(holder), ...deeds(key, holder)),
    make("td", { role: "cell", class: "number", "data-label": "Held for" }, span(holder.held_s)),
    make("td", { role: "cell", class: short, "data-label": "Lease left" }, span(holder.lease_left_s)),
  ];
}

function keyCell(entry, rows) {
  const kind = `semaphore, ${count(entry.held)} of ${count(entry.limit)} held`;
  const shared = entry.holders.some((holder) => holder.reader) ? [make("span", {}, `shared, readers: ${count(entry.held)}`)] : [];
  const notes = entry.limit === 1 ? shared : [make("span", {}, kind)];
  const attributes = { scope: "rowgroup", role: "rowheader", rowspan: rows };
  return make("th", attributes, make("bdi", {}, visible(entry.key)), ...notes);
}

function queueCell(entry, rows, most) {
  const attributes = { role: "cell", class: "queue", rowspan: rows };
  if (entry.waiters === 0) return make("td", attributes);
  const line = (waiter) => make("li", {}, ...party(waiter), `${waiter.reader ? ", reader" : ""}, ${span(waiter.waiting_s)}`);
  const lines = entry.queue.slice(0, most).map(line);
  const list = make("ol", {}, ...lines);
  const more = entry.waiters - lines.length;
  if (more > 0) list.append(make("li", { class: "more soft" }, `and ${count(more)} more`));
  return make("td", { ...attributes, "data-label": `Waiting (${count(entry.waiters)})` }, list);
}

function body(entry, most, seen) {
  const lines = entry.holders.slice(0, most).map((holder) => holderCells(entry.key, holder, seen));
  const more = entry.held - lines.length;
  const note = (text) => make("td", { role: "cell", class: "soft", colspan: 3 }, text);
  if (entry.held === 0) lines.push([note("nobody")]);
  else if (more > 0) lines.push([note(`and ${count(more)} more`)]);
  const rows = lines.map((cells) => make("tr", { role: "row" }, ...cells));
  rows[0].prepend(keyCell(entry, rows.length));
  rows[0].append(queueCell(entry, rows.length, most));
  return make("tbody", { role: "rowgroup" }, ...rows);
}

function extent({ shown, matching }) {
  const keys = `${count(matching)} ${matching === 1 ? "key" : "keys"}`;
  if (shown === matching) return id("part").value ? keys : "";
  return `${count(shown)} of ${keys}, those with the longest queues first`;
}

const ORDERS = {
  waiting: (a, b) => b.waiters - a.waiters,
  held: (a, b) => longest(b) - longest(a),
  left: (a, b) => least(a) - least(b),
  key: (a, b) => (a.key < b.key ? -1 : 1),
};
const longest = (entry) => Math.max(-1, ...entry.holders.map((holder) => holder.held_s));
const least = (entry) => Math.min(Infinity, ...entry.holders.map((holder) => holder.lease_left_s));

// The last five minutes, as far as this page was open.
function remember(waiters) {
  const now = Date.now();
  waiting = [...waiting.filter(([at]) => now - at < HISTORY_MS), [now, waiters]];
  const most = Math.max(1, ...waiting.map(([, number]) => number));
  const width = Math.max(SHORTEST_HISTORY_MS, now - waiting[0][0]);
  const point = ([at, number]) => `${(150 * (1 - (now - at) / width)).toFixed(1)},${(23 - (22 * number) / most).toFixed(1)}`;
  const line = id("history").firstElementChild;
  line.setAttribute("points", waiting.map(point).join(" "));
  const lowest = Math.min(...waiting.map(([, number]) => number));
  const highest = Math.max(...waiting.map(([, number]) => number));
  id("history").setAttribute("aria-label", `in the last five minutes between ${count(lowest)} and ${count(highest)}`);
}

function put(name, text) {
  if (id(name).textContent !== text) id(name).textContent = text;
}

function say(kind, text) {
  state.dataset.state = kind;
  put("state", text);
}

function show(news) {
  put("keys", count(news.keys_in_use));
  put("holders", count(news.holders));
  put("waiters", count(news.waiters));
  put("connections", count(news.connections));
  put("uptime", span(news.uptime_s));
  put("version", `dflockd ${news.version}`);
  put("extent", extent(news));
  put("empty", news.keys_in_use === 0 ? "Nobody holds anything." : "No key in use has this in its name.");
  const most = news.keys.length <= FEW_KEYS ? Infinity : PARTIES;
  const seen = new Map();
  const bodies = news.keys.sort(ORDERS[id("order").value]).map((entry) => body(entry, most, seen));
  leases = seen;
  remember(news.waiters);
  const fresh = make("table", {}, table.tHead.cloneNode(true), ...bodies);
  // White space in the markup would shift the positions.
  for (const node of [...table.childNodes]) if (node.nodeType === Node.TEXT_NODE) node.remove();
  patch(table, fresh);
  table.hidden = news.keys.length === 0;
  id("empty").hidden = news.keys.length > 0;
  board.hidden = false;
  id("pause").hidden = false;
  id("unlock").hidden = !canAdminister;
  put("unlock", adminSecret ? "Administer no more" : "Administer");
  delete board.dataset.stale;
  newsAt = Date.now();
  if (paused) sayPaused();
  else if (news.draining) say("draining", "Draining: nobody gets anything new, the server ends when the last client has left");
  else say("live", "Live");
}

// While the page is paused, the clock shows the time of its picture.
function sayPaused() {
  say("paused", `Paused, as of ${new Date(newsAt).toLocaleTimeString()}`);
}

// A server that is suspended gives no error, but no answer either.
function watch() {
  const age = Date.now() - newsAt;
  if (paused || board.hidden || document.hidden || age < LATE_MS || !asking || failures > 0) return;
  board.dataset.stale = "";
  say("late", `No answer for ${span(age / 1000)}. What you see is old.`);
}

function lost() {
  board.dataset.stale = "";
  say("lost", board.hidden ? "No answer, trying again …" : "Connection lost, trying again … What you see is old.");
}

function askForSecret(why) {
  secret = "";
  board.hidden = true;
  id("pause").hidden = true;
  id("unlock").hidden = true;
  login.hidden = false;
  put("refused", why);
  say("loading", "Locked");
  id("secret").focus();
}

// Headers take bytes: the UTF-8 of the secret, with one character for each byte.
function bytes(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
}

async function look() {
  clearTimeout(timer);
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  const patience = setTimeout(() => mine.abort(), PATIENCE_MS);
  const headers = secret ? { Authorization: `Bearer ${bytes(secret)}` } : {};
  const query = new URLSearchParams({ key: id("part").value });
  try {
    const response = await fetch(`v1/holders?${query}`, { headers, cache: "no-store", signal: mine.signal });
    if (asking !== mine) return;
    if (response.status === 401) return askForSecret(secret ? "This is not it." : "");
    if (!response.ok) throw new Error(`status ${response.status}`);
    const news = await response.json();
    if (asking !== mine) return;
    login.hidden = true;
    failures = 0;
    show(news);
    asking = null;
  } catch {
    // A newer loop asks now, or the page is paused.
    if (asking !== mine) return;
    failures += 1;
    lost();
  } finally {
    clearTimeout(patience);
  }
  if (!paused) timer = setTimeout(look, Math.min(EVERY_MS * 2 ** Math.min(failures, 8), SLOWEST_MS));
}

function rest() {
  clearTimeout(timer);
  asking?.abort();
  asking = null;
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  secret = id("secret").value.trim();
  id("secret").value = "";
  put("refused", "");
  look();
});

id("search").addEventListener("submit", (event) => event.preventDefault());

// The search is part of the address, so that it can be kept and passed on.
function note() {
  const address = new URL(location.href);
  for (const [name, field, usual] of [["key", "part", ""], ["order", "order", "waiting"]]) {
    if (id(field).value === usual) address.searchParams.delete(name);
    else address.searchParams.set(name, id(field).value);
  }
  history.replaceState(null, "", address);
}

for (const field of ["part", "order"])
  id(field).addEventListener("input", () => {
    note();
    clearTimeout(timer);
    timer = setTimeout(look, field === "part" ? TYPING_MS : 0);
  });

id("pause").addEventListener("click", () => {
  paused = !paused;
  put("pause", paused ? "Go on" : "Pause");
  if (!paused) return look();
  rest();
  sayPaused();
});

// An action of an administrator needs a confirmation, which explains its effect.
const QUESTIONS = {
  unlock: () => ["Administer this server", "The secret stays in this page and is forgotten with it."],
  release: ({ key }) => [`Take ${visible(key)} away from its holders?`, "The next client in line gets it at once. dflock run stops the command of the old holder. Other clients may work on until they renew."],
  kick: ({ connection }) => [`Hang up on connection #${connection}?`, "What it holds comes free unless the server keeps the holds of those who are gone. A client that comes back and renews keeps its locks."],
};
let deed = null;

function question(wanted) {
  deed = wanted;
  const [title, consequence] = QUESTIONS[wanted.deed](wanted);
  put("question", title);
  put("consequence", consequence);
  put("failed", "");
  put("confirm", { unlock: "Go on", release: "Release", kick: "Hang up" }[wanted.deed]);
  id("key-field").hidden = wanted.deed !== "unlock";
  id("admin-secret").value = "";
  id("admin").showModal();
}

async function perform({ deed, connection, key }) {
  const path = deed === "kick" ? `v1/admin/kick?connection=${connection}` : `v1/admin/release?key=${encodeURIComponent(key)}`;
  const headers = { Authorization: `Bearer ${bytes(adminSecret)}` };
  const response = await fetch(path, { method: "POST", headers, cache: "no-store" });
  if (response.status === 401) adminSecret = "";
  if (response.ok) return "";
  return { 401: "The server refuses this secret.", 404: "It is gone already." }[response.status] ?? `The server answers ${response.status}.`;
}

id("unlock").addEventListener("click", () => {
  if (adminSecret === "") return question({ deed: "unlock" });
  adminSecret = "";
  look();
});

table.addEventListener("click", ({ target }) => {
  const button = target.closest("button[data-deed]");
  if (button) question({ ...button.dataset });
});

id("leave").addEventListener("click", () => id("admin").close());

id("deed").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (deed.deed === "unlock") {
    adminSecret = id("admin-secret").value.trim();
    id("admin-secret").value = "";
  } else {
    const why = await perform(deed).catch(() => "The server does not answer.");
    put("failed", why);
    if (why) return;
  }
  id("admin").close();
  look();
});

// The page is not visible, so it does not ask.
document.addEventListener("visibilitychange", () => {
  if (!login.hidden || paused) return;
  if (document.hidden) rest();
  else look();
});

document.title = `${location.host} – dflockd`;
const asked = new URLSearchParams(location.search);
id("part").value = asked.get("key") ?? "";
if (Object.hasOwn(ORDERS, asked.get("order") ?? "")) id("order").value = asked.get("order");
setInterval(watch, EVERY_MS);

if (document.documentElement.dataset.auth === "needed") askForSecret("");
else look();
