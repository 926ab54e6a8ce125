// The dashboard without this script is complete: the script only keeps a page up to date. It reads one event stream
// per tab, and replaces what has changed, so that focus, selection and scroll positions stay.
"use strict";
(() => {
  const main = document.getElementById("main");
  const base = document.documentElement.dataset.base || "";
  let stream = null, opened = 0, last = Date.now();
  let lost = null; // what the page said before the connection was lost

  // key returns what identifies a node among its siblings.
  const key = n => n.nodeType === 1 ? n.id || "" : "";
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);

  function attributes(from, to) {
    for (const a of to.attributes) if (from.getAttribute(a.name) !== a.value) from.setAttribute(a.name, a.value);
    for (const a of [...from.attributes]) {
      const kept = a.name === "open" && from.nodeName === "DETAILS"; // the reader has opened it
      if (!to.hasAttribute(a.name) && !kept) from.removeAttribute(a.name);
    }
  }

  // morph makes the children of from equal to those of to, and keeps the nodes that stay.
  function morph(from, to) {
    const byKey = new Map();
    for (const n of from.children) if (n.id) byKey.set(n.id, n);
    let at = from.firstChild;
    for (const want of [...to.childNodes]) {
      let node = at;
      const keyed = key(want) && byKey.get(key(want));
      if (keyed && keyed.nodeName === want.nodeName) node = keyed;
      else if (!at || !alike(at, want)) node = null;
      if (!node) {
        from.insertBefore(want, at);
        continue;
      }
      if (node === at) at = at.nextSibling;
      else from.insertBefore(node, at);
      update(node, want);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function update(node, want) {
    if (node.isEqualNode(want)) return;
    if (node.nodeType !== 1) {
      if (node.data !== want.data) node.data = want.data;
      return;
    }
    attributes(node, want);
    if (node.nodeName === "INPUT") {
      if (node !== document.activeElement) node.value = want.getAttribute("value") || "";
      return;
    }
    if (node.nodeName === "SELECT" && node === document.activeElement) return;
    morph(node, want);
  }

  function show(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    ages(fresh.body);
    morph(main, fresh.body);
  }

  // ages writes how long ago the times were: 5s, 3m, 2h or 4d, as the command line does, and what is left until others.
  function ages(root) {
    const now = Date.now();
    for (const t of root.querySelectorAll("time[data-age]")) {
      const left = "left" in t.dataset;
      const s = Math.max(0, Math.floor((left ? Date.parse(t.dateTime) - now : now - Date.parse(t.dateTime)) / 1000));
      const text = left ? (s < 3600 ? "" : Math.floor(s / 3600) + "h") + (s < 60 ? "" : Math.floor(s / 60) % 60 + "m") +
        s % 60 + "s" : s < 60 ? s + "s" : s < 3600 ? Math.floor(s / 60) + "m" :
        s < 172800 ? Math.floor(s / 3600) + "h" : Math.floor(s / 86400) + "d";
      if (t.textContent !== text) t.textContent = text;
    }
  }

  function stale() {
    const state = document.getElementById("state");
    if (lost || !state) return;
    lost = { kind: state.className, text: state.textContent };
    state.className = "stale";
    state.textContent = "Stale since " + new Date(last).toTimeString().slice(0, 8) +
      ": the dashboard does not answer. What is below is from then.";
  }

  // answered notes that the dashboard answers.
  function answered() {
    last = Date.now();
    const state = document.getElementById("state");
    if (lost && state) {
      state.className = lost.kind;
      state.textContent = lost.text;
    }
    lost = null;
  }

  function open() {
    if (stream || document.hidden || !main.dataset.live) return;
    opened = Date.now();
    stream = new EventSource(base + "/stream?page=" + encodeURIComponent(location.pathname.slice(base.length) +
      location.search) + "&have=" + encodeURIComponent(main.dataset.etag || ""));
    stream.addEventListener("page", e => {
      answered();
      main.dataset.etag = e.lastEventId;
      show(e.data);
    });
    stream.addEventListener("same", e => { // what the page shows was read again, and has not changed
      answered();
      const read = document.getElementById("read");
      if (read) read.dateTime = e.data;
    });
    stream.onerror = () => {
      stale();
      if (stream && stream.readyState === EventSource.CLOSED) reopen(3000);
    };
  }

  function reopen(after) {
    close();
    setTimeout(open, after);
  }

  function close() {
    if (stream) stream.close();
    stream = null;
  }

  let typed = 0;
  document.addEventListener("input", e => {
    const form = e.target.form;
    if (!form || !form.classList.contains("filter")) return;
    clearTimeout(typed);
    typed = setTimeout(async () => {
      const query = new URLSearchParams(new FormData(form));
      for (const [name, value] of [...query]) if (!value) query.delete(name);
      const url = form.getAttribute("action") + (query.size ? "?" + query : "");
      const answer = await fetch(url, { headers: { "Fairlead-Part": "main" } });
      if (!answer.ok) return;
      history.replaceState(null, "", url);
      main.dataset.etag = answer.headers.get("Fairlead-Etag") || "";
      show(await answer.text());
      close();
      open();
    }, 250);
  });

  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  setInterval(() => {
    if (document.hidden) return;
    if (!lost) ages(document);
    if (stream && Date.now() - Math.max(last, opened) > 40000) { // the server sends something every 15 s
      stale();
      reopen(0);
    }
  }, 1000);
  open();
})();
