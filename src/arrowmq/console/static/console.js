// What pages do beyond showing: live numbers, search, sorting, forms. Every text goes in by textContent, never as markup.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const words = JSON.parse(document.body.dataset.words || "{}");
  const csrf = ($('meta[name="csrf"]') || {}).content || "";
  const remember = (name, value) => { document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=strict`; };

  // -- talking to the API

  async function ask(method, path, body) {
    const options = { method, headers: { "X-CSRF-Token": csrf } };
    if (body !== undefined) {
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    let answer;
    try { answer = await fetch(path, options); } catch (failure) { throw new Error(words.lost || String(failure)); }
    const value = await answer.json().catch(() => ({}));
    if (answer.status === 401 && !document.body.classList.contains("login")) location.href = "/login?next=" + encodeURIComponent(location.pathname + location.search);
    if (!answer.ok) throw new Error(value.error || `${words.failed} (${answer.status})`);
    return value;
  }
  function toast(text, isBad) {
    const line = document.createElement("p");
    line.textContent = text;
    if (isBad) line.className = "bad";
    $("#toasts").append(line);
    setTimeout(() => line.remove(), isBad ? 9000 : 4000);
  }

  // -- forms: names of fields are names of the API

  function valueOf(field) {
    if (field.type === "checkbox") return field.checked;
    const text = field.value;
    switch (field.dataset.type) {
      case "int": return text === "" ? undefined : Number(text);
      case "words": return text.split(/[\s,]+/).filter(Boolean);
      case "moment": return text === "" ? undefined : momentOf(text);
      case "pairs": return Object.fromEntries(text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
        const at = line.indexOf("=");
        return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1)];
      }));
      case "exact": return text;
      case "changed": return text === field.dataset.was ? undefined : text;
      default: return text === "" ? undefined : text;
    }
  }
  // What a person types as a time is in the zone that the page shows.
  const momentOf = (text) => Times.isUtc() ? Date.parse(text + "Z") : new Date(text).getTime();
  function bodyOf(form) {
    const body = {};
    for (const field of form.elements) {
      if (!field.name || field.closest("[hidden]")) continue;
      const value = valueOf(field);
      if (value === undefined) continue;
      const dot = field.name.indexOf(".");
      if (dot > 0) { (body[field.name.slice(0, dot)] ||= {})[field.name.slice(dot + 1).replace(/^\+/, "")] = value; }
      else body[field.name] = value;
    }
    return body;
  }
  function wrong(form, text) {
    const line = $(".wrong", form);
    if (!line) { if (text) toast(text, true); return; }
    line.textContent = text || "";
    line.hidden = !text;
  }
  function follow(then, answer, body) {
    if (!then) return;
    if (then === "reload") { location.reload(); return; }
    location.href = then.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer[name] ?? body[name] ?? ""));
  }
  async function submit(form) {
    const [method, path] = form.dataset.api.split(" ");
    const body = bodyOf(form);
    if (form.dataset.places) body.filter = { places: $$(`input[data-pick="${form.dataset.places}"]:checked`).map((each) => each.value) };
    for (const field of $$("[data-mustbe]", form)) {
      if (field.value !== field.dataset.mustbe) { wrong(form, words.typed); field.focus(); return; }
    }
    const button = $("button:not([type=button])", form);
    wrong(form, "");
    if (button) button.disabled = true;
    try {
      const target = "query" in form.dataset ? path + "?" + new URLSearchParams(body) : path;
      const answer = await ask(method, target, "query" in form.dataset ? undefined : body);
      const said = answer.done || form.dataset.said;
      if (said) toast(said);
      if (form.dataset.result) showResult(form, answer);
      follow(form.dataset.then, answer, body);
    } catch (failure) { wrong(form, failure.message); }
    if (button) button.disabled = false;
  }
  function showResult(form, answer) {
    const box = $(form.dataset.result);
    box.hidden = false;
    $("pre", box).textContent = JSON.stringify(answer, null, 2);
  }
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.api) { event.preventDefault(); submit(form); }
    else if ("login" in form.dataset) { event.preventDefault(); login(form); }
    else if ("plan" in form.dataset) { event.preventDefault(); plan(form); }
    else if ((form.method || "get") === "get") {
      // Times go as milliseconds, and what is empty stays out of the address.
      event.preventDefault();
      const query = new URLSearchParams();
      for (const field of form.elements) {
        if (!field.name) continue;
        const value = field.dataset.type === "moment" ? valueOf(field) : field.value;
        if (value !== undefined && value !== "" && !Number.isNaN(value)) query.set(field.name, value);
      }
      location.href = location.pathname + (query.size ? "?" + query : "");
    }
  });
  async function login(form) {
    try {
      const answer = await ask("POST", "/login?next=" + encodeURIComponent(form.dataset.next), bodyOf(form));
      location.href = answer.done;
    } catch (failure) { wrong(form, failure.message); }
  }

  // -- a reset: first the plan, then that very plan

  async function plan(form) {
    const body = { group: form.dataset.group, topic: form.elements.topic.value, to: form.elements.to.value };
    if (body.to === "time") body.value = momentOf(form.elements.time.value);
    if (body.to === "offset") body.value = Number(form.elements.offset.value);
    wrong(form, "");
    const apply = $('[data-step="apply"]', form);
    apply.hidden = true;
    if (Number.isNaN(body.value)) { wrong(form, words.failed); return; }
    try {
      const answer = await ask("POST", "/api/offsets/plan", body);
      const table = $(".plan tbody", form);
      table.replaceChildren(...answer.rows.map((row) => {
        const line = document.createElement("tr");
        for (const text of [row.broker, row.queueId, row.current ?? "–", row.target, row.moved > 0 ? "+" + row.moved : row.moved]) {
          const cell = document.createElement("td");
          cell.textContent = text;
          if (typeof text === "number" || text === "–" || String(text).startsWith("+")) cell.className = "number";
          line.append(cell);
        }
        return line;
      }));
      $(".plan", form).hidden = false;
      apply.hidden = false;
      apply.onclick = async () => {
        apply.disabled = true;
        try {
          const steps = answer.rows.map((row) => ({ broker: row.broker, queueId: row.queueId, target: row.target }));
          toast((await ask("POST", "/api/offsets/reset", { group: body.group, topic: body.topic, steps })).done);
          setTimeout(() => location.reload(), 600);
        } catch (failure) { wrong(form, failure.message); apply.disabled = false; }
      };
    } catch (failure) { wrong(form, failure.message); }
  }
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field.name === "to" && field.form && "plan" in field.form.dataset) {
      for (const part of $$("[data-for]", field.form)) part.hidden = part.dataset.for !== field.value;
      $(".plan", field.form).hidden = true;
      $('[data-step="apply"]', field.form).hidden = true;
    }
    if ("submit" in field.dataset) field.form.requestSubmit();
    if (field.id === "lang") { remember("lang", field.value); location.reload(); }
    if ("pick" in field.dataset) picked(field.dataset.pick);
  });
  function picked(name) {
    const chosen = $$(`input[data-pick="${name}"]:checked`).map((box) => box.value);
    for (const node of $$(`[data-picked="${name}"]`)) {
      node.textContent = chosen.length;
      if ("value" in node.dataset) node.dataset.value = chosen.join("\n");
    }
    for (const node of $$(`[data-needs="${name}"]`)) node.disabled = !chosen.length;
  }

  // -- clicks

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("button, [data-copy], tr[data-href]");
    if (!target) return;
    if (target.dataset.copy !== undefined) {
      try { await navigator.clipboard.writeText(target.dataset.copy); toast(words.copied); } catch { toast(target.dataset.copy); }
    } else if (target.dataset.dialog) {
      const box = document.getElementById(target.dataset.dialog);
      box.showModal();
      const first = $("input:not([type=hidden]), textarea, select", box);
      if (first) first.focus();
    } else if ("close" in target.dataset) target.closest("dialog").close();
    else if ("back" in target.dataset) history.back();
    else if (target.dataset.tab) tab(target);
    else if (target.id === "logout") location.href = (await ask("POST", "/logout")).done;
    else if (target.id === "menu-button") menu(!$("#menu").classList.contains("open"));
    else if (target.id === "theme") {
      const dark = getComputedStyle(document.documentElement).colorScheme.startsWith("dark");
      document.documentElement.dataset.theme = dark ? "light" : "dark";
      remember("theme", dark ? "light" : "dark");
    } else if ("zone" in target.dataset) { remember("zone", Times.isUtc() ? "local" : "utc"); location.reload(); }
    else if (target.dataset.sortcolumn !== undefined) sort(target);
    else if ("copytable" in target.dataset) copyTable(target);
    else if (target.dataset.api && target.tagName === "BUTTON") {
      const [method, path] = target.dataset.api.split(" ");
      if (target.dataset.sure && !confirm(target.dataset.sure)) return;
      target.disabled = true;
      try {
        const answer = await ask(method, path, target.dataset.body ? JSON.parse(target.dataset.body) : undefined);
        if (answer.done) toast(answer.done);
        follow(target.dataset.then, answer, {});
      } catch (failure) { toast(failure.message, true); }
      target.disabled = false;
    }
  });
  // What is shown of a table, for a spreadsheet or a mail: cells apart by tabs, rows by lines.
  async function copyTable(button) {
    const table = $("table", button.closest(".card") || $("main")) || $("main table");
    if (!table) return;
    const cell = (node) => (node.dataset.value ?? node.innerText).replace(/\s+/g, " ").trim();
    const text = $$("tr", table).filter((row) => !row.hidden).map((row) => [...row.children].map(cell).join("\t")).join("\n");
    try { await navigator.clipboard.writeText(text); toast(words.copied); } catch { toast(words.failed, true); }
  }
  function menu(isOpen) {
    $("#menu").classList.toggle("open", isOpen);
    $("#menu-button").setAttribute("aria-expanded", isOpen);
  }
  function tab(button) {
    for (const other of $$("[data-tab]", button.parentElement)) {
      const isChosen = other === button;
      other.setAttribute("aria-selected", isChosen);
      document.getElementById(other.dataset.tab).hidden = !isChosen;
    }
  }

  // -- tables: sorted and filtered where all rows are there

  function prepareTables(root) {
    // A narrow screen shows rows as cards (style.css): each cell then needs the name of its column.
    for (const table of $$(".scroll > table", root)) {
      if (table.closest("dialog")) continue;  // few and short columns
      const heads = $$("thead th", table).map((head) => head.textContent.trim());
      table.classList.add("cards");
      for (const row of $$("tbody tr", table)) {
        [...row.children].forEach((cell, index) => {
          if (heads[index]) cell.dataset.label = heads[index];
          cell.classList.toggle("none", !cell.childElementCount && ["", "–"].includes(cell.textContent.trim()));
        });
      }
    }
    for (const table of $$("table[data-sortable]", root)) {
      for (const head of $$("thead th", table)) {
        if ($("button, a", head) || !head.textContent.trim()) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.sortcolumn = "";
        button.textContent = head.textContent;
        head.replaceChildren(button);
      }
    }
    for (const field of $$("input[data-filter]", root)) {
      field.addEventListener("input", () => {
        const text = field.value.toLowerCase();
        for (const row of $$("tbody tr", document.getElementById(field.dataset.filter))) row.hidden = !row.textContent.toLowerCase().includes(text);
      });
    }
  }
  function sort(button) {
    const head = button.closest("th"), table = head.closest("table"), index = [...head.parentElement.children].indexOf(head);
    const isDown = head.getAttribute("aria-sort") === "ascending";
    for (const other of $$("th[aria-sort]", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.children[index];
      if (!cell) return "";
      const time = $("time", cell);
      const text = cell.dataset.value ?? (time ? time.dataset.ms : cell.textContent.trim().replace(/,/g, ""));
      return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text.toLowerCase();
    };
    const rows = $$("tbody tr", table).map((row) => [key(row), row]);
    rows.sort(([a], [b]) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? 1 : -1) * (isDown ? -1 : 1));
    $("tbody", table).append(...rows.map(([, row]) => row));
  }

  // -- search

  const box = $("#search"), hits = $("#hits");
  let chosen = -1, asked = 0;
  function choose(index) {
    const all = $$("li[data-url]", hits);
    if (!all.length) return;
    chosen = (index + all.length) % all.length;
    all.forEach((hit, number) => hit.setAttribute("aria-selected", number === chosen));
    box.setAttribute("aria-activedescendant", all[chosen].id);
    all[chosen].scrollIntoView({ block: "nearest" });
  }
  function closeHits() { if (hits) { hits.hidden = true; box.setAttribute("aria-expanded", "false"); } }
  if (box) {
    let wait = 0;
    box.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(search, 120); });
    box.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") { choose(chosen + 1); event.preventDefault(); }
      else if (event.key === "ArrowUp") { choose(chosen - 1); event.preventDefault(); }
      else if (event.key === "Enter") { clearTimeout(wait); search().then(() => { const hit = $('li[aria-selected="true"]', hits); if (hit) location.href = hit.dataset.url; }); }
      else if (event.key === "Escape") { closeHits(); box.blur(); }
    });
    hits.addEventListener("pointerdown", (event) => { const hit = event.target.closest("li[data-url]"); if (hit) location.href = hit.dataset.url; });
    box.addEventListener("blur", closeHits);
  }
  // Who has moved to a hit and presses Enter means that one.
  const kept = (rows) => Math.max(0, rows.findIndex((row) => row.url === chosenUrl));
  let chosenUrl = "";
  async function search() {
    chosenUrl = $('li[aria-selected="true"]', hits)?.dataset.url ?? "";
    const number = ++asked;
    if (!box.value.trim()) { closeHits(); return; }
    const answer = await ask("GET", "/api/search?q=" + encodeURIComponent(box.value)).catch(() => ({ rows: [] }));
    if (number !== asked) return;
    hits.replaceChildren(...answer.rows.map((row, index) => {
      const item = document.createElement("li"), kind = document.createElement("small"), name = document.createElement("span");
      item.setAttribute("role", "option");
      item.id = "hit-" + index;
      item.dataset.url = row.url;
      kind.textContent = row.kind;
      name.textContent = row.name;
      item.append(kind, name);
      return item;
    }));
    if (!answer.rows.length) { const item = document.createElement("li"); item.textContent = words.none; hits.append(item); }
    hits.hidden = false;
    box.setAttribute("aria-expanded", "true");
    chosen = -1;
    if (answer.rows.length) choose(kept(answer.rows));
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName) && !event.ctrlKey && !event.metaKey && box) { event.preventDefault(); box.focus(); box.select(); }
    if (event.key === "Escape" && $("#menu")) menu(false);
  });

  // -- live

  const number = (value) => value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en-US") : value.toFixed(1);
  function live(name, value) {
    for (const node of $$(`[data-live="${name}"]`)) node.textContent = value;
  }
  let source = null;
  function connect() {
    if (source || document.hidden || !$("#live")) return;
    source = new EventSource("/api/events");
    source.onopen = () => {
      state(true);
      // A job may have ended between the page and its connection.
      if ($('[data-job][data-state="running"], [data-job][data-state="selecting"]')) refresh("job");
    };
    source.onerror = () => state(false);
    source.addEventListener("beat", (event) => {
      const value = JSON.parse(event.data);
      live("in", number(value.in)); live("out", number(value.out));
      for (const chart of Charts.all) {
        chart.add("in", value.at, value.in); chart.add("out", value.at, value.out);
        for (const row of value.brokers) if (!row.problem && !row.brokerId) {
          chart.add("in:" + row.broker, value.at, row.inPerSecond || 0); chart.add("out:" + row.broker, value.at, row.outPerSecond || 0);
          chart.add("disk:" + row.broker, value.at, (row.diskRatio || 0) * 100);
        }
      }
      refresh("beat");
    });
    source.addEventListener("survey", (event) => {
      const value = JSON.parse(event.data);
      for (const name of ["lag", "topics", "groups"]) live(name, number(value[name]));
      live("letters-tile", number(value.letters));
      for (const badge of $$('.badge[data-live="letters"]')) { badge.hidden = !value.letters; badge.textContent = number(value.letters); }
      for (const chart of Charts.all) {
        chart.add("lag", value.at, value.lag);
        if (chart.names.some((name) => /^(lag|lagtime|topic):/.test(name))) chart.load();
      }
      refresh("survey");
    });
    source.addEventListener("findings", () => refresh("findings"));
    source.addEventListener("job", (event) => job(JSON.parse(event.data)));
  }
  function state(isOn) {
    const mark = $("#live");
    mark.classList.toggle("on", isOn); mark.classList.toggle("off", !isOn);
    $("span", mark).textContent = isOn ? words.live : words.lost;
  }
  function job(value) {
    for (const box of $$(`[data-job="${value.id}"]`)) {
      const bar = $("progress", box);
      if (bar) { bar.max = value.total || 1; bar.value = value.total - value.waiting; }
      for (const name of ["total", "waiting", "sent", "failed", "skipped"]) for (const node of $$(`[data-count="${name}"]`, box)) node.textContent = number(value[name]);
      if (box.dataset.state !== value.state) { box.dataset.state = value.state; refresh("job"); }
    }
  }
  // Parts of a page that follow the cluster are fetched again as a page; a dialog or a selection is not disturbed.
  const pending = new Map();
  let firstOf = {};
  function refresh(kind) {
    if (!firstOf[kind] && kind !== "job") { firstOf[kind] = true; return; }  // the newest event comes with the connection
    const parts = $$(`[data-refresh~="${kind}"]`);
    if (!parts.length || pending.get(kind) || document.hidden || $("dialog[open]") || String(getSelection())) return;
    if (parts.some((part) => part.contains(document.activeElement) && document.activeElement !== document.body)) return;
    pending.set(kind, true);
    fetch(location.href).then((answer) => answer.ok ? answer.text() : null).then((text) => {
      if (text === null) return;
      const page = new DOMParser().parseFromString(text, "text/html");
      for (const part of parts) {
        const fresh = page.getElementById(part.id);
        if (!fresh) continue;
        const sorted = $("th[aria-sort] button", part), filter = $("input[data-filter]", part);
        part.replaceWith(fresh);
        prepareTables(fresh); Times.show(fresh);
        if (sorted) { const again = $$("th button", fresh).find((each) => each.textContent === sorted.textContent); if (again) { sort(again); if (sorted.closest("th").getAttribute("aria-sort") === "descending") sort(again); } }
        if (filter && filter.value) { const again = $("input[data-filter]", fresh); again.value = filter.value; again.dispatchEvent(new Event("input")); }
      }
    }).catch(() => {}).finally(() => pending.delete(kind));
  }
  document.addEventListener("visibilitychange", () => {
    // A browser has few connections to a host: a page that nobody sees gives its own back.
    if (document.hidden && source) { source.close(); source = null; firstOf = {}; } else connect();
  });

  // -- begin

  Times.show(document);
  for (const field of $$("input[data-moment]")) if (field.dataset.moment) field.value = Times.text(Number(field.dataset.moment), Times.isUtc()).replace(" ", "T").slice(0, 19);
  for (const field of $$("textarea[data-raw]")) { field.value = JSON.parse(field.dataset.raw); field.dataset.was = field.value; }
  prepareTables(document);
  Charts.all = $$("figure[data-chart]").map((figure) => new Charts.Chart(figure));
  for (const chart of Charts.all) chart.load();
  addEventListener("resize", () => { for (const chart of Charts.all) chart.draw(); });
  connect();
})();
