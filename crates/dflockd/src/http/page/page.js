// Asks the server once a second who holds what and who waits, and shows it. Keys are strangers'
// text: they become text nodes and nothing else. The secret lives in one variable of this page.
"use strict";

const EVERY_MS = 1000;
const SLOWEST_MS = 10000;
const PATIENCE_MS = 10000;
const TYPING_MS = 250;
// Of each key; of a few keys all that the server tells.
const PARTIES = 5;
const FEW_KEYS = 5;

const id = (name) => document.getElementById(name);
const [board, table, login, state] = ["board", "table", "login", "state"].map(id);

let secret = "";
let failures = 0;
let paused = false;
let timer = 0;
let asking = null;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Changes as little as possible, so that what is selected stays selected.
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

function span(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

const count = (number) => number.toLocaleString("en");

// What cannot be seen, or turns the writing round, is shown by its number.
function visible(key) {
  const escape = (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`;
  return key.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, escape);
}

function party({ connection, address, connected }) {
  const name = `#${connection}`;
  if (connected === false) return `${name} (gone)`;
  return address === null ? name : `${name} ${address}`;
}

function holderCells(holder) {
  const short = holder.lease_left_s < 5 ? "number short" : "number";
  return [
    make("td", { role: "cell", class: "party", "data-label": "Holder" }, party(holder)),
    make("td", { role: "cell", class: "number", "data-label": "Held for" }, span(holder.held_s)),
    make("td", { role: "cell", class: short, "data-label": "Lease left" }, span(holder.lease_left_s)),
  ];
}

function keyCell(entry, rows) {
  const kind = `semaphore, ${count(entry.held)} of ${count(entry.limit)} held`;
  const notes = entry.limit === 1 ? [] : [make("span", {}, kind)];
  const attributes = { scope: "rowgroup", role: "rowheader", rowspan: rows };
  return make("th", attributes, make("bdi", {}, visible(entry.key)), ...notes);
}

function queueCell(entry, rows, most) {
  const attributes = { role: "cell", class: "queue", rowspan: rows };
  if (entry.waiters === 0) return make("td", attributes);
  const line = (waiter) => make("li", {}, `${party(waiter)}, ${span(waiter.waiting_s)}`);
  const lines = entry.queue.slice(0, most).map(line);
  const list = make("ol", {}, ...lines);
  const more = entry.waiters - lines.length;
  if (more > 0) list.append(make("li", { class: "more soft" }, `and ${count(more)} more`));
  return make("td", { ...attributes, "data-label": `Waiting (${count(entry.waiters)})` }, list);
}

function body(entry, most) {
  const lines = entry.holders.slice(0, most).map(holderCells);
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
  put("uptime", news.uptime_s < 60 ? `${news.uptime_s} s` : span(news.uptime_s));
  put("version", `dflockd ${news.version}`);
  put("extent", extent(news));
  put("empty", news.keys_in_use === 0 ? "Nobody holds anything." : "No key in use has this in its name.");
  const most = news.keys.length <= FEW_KEYS ? Infinity : PARTIES;
  const bodies = news.keys.map((entry) => body(entry, most));
  const fresh = make("table", {}, table.tHead.cloneNode(true), ...bodies);
  // White space of the markup would shift the places.
  for (const node of [...table.childNodes]) if (node.nodeType === Node.TEXT_NODE) node.remove();
  patch(table, fresh);
  table.hidden = news.keys.length === 0;
  id("empty").hidden = news.keys.length > 0;
  board.hidden = false;
  id("pause").hidden = false;
  delete board.dataset.stale;
  if (news.draining) say("draining", "Draining: nobody gets anything new, the server ends when the last client has left");
  else say("live", "Live");
}

function lost() {
  board.dataset.stale = "";
  say("lost", board.hidden ? "No answer, trying again …" : "Connection lost, trying again … What you see is old.");
}

function askForSecret(why) {
  secret = "";
  board.hidden = true;
  id("pause").hidden = true;
  login.hidden = false;
  put("refused", why);
  say("loading", "Locked");
  id("secret").focus();
}

// Headers take bytes: the secret's UTF-8, one character for each.
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
  } catch {
    // Somebody else asks by now, or nobody shall.
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

id("part").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(look, TYPING_MS);
});

id("pause").addEventListener("click", () => {
  paused = !paused;
  id("pause").setAttribute("aria-pressed", String(paused));
  put("pause", paused ? "Go on" : "Pause");
  if (!paused) return look();
  rest();
  say("paused", "Paused");
});

// Nobody looks: do not ask.
document.addEventListener("visibilitychange", () => {
  if (!login.hidden || paused) return;
  if (document.hidden) rest();
  else look();
});

if (document.documentElement.dataset.auth === "needed") askForSecret("");
else look();
