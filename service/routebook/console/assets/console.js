// The console's script: live updates, keyboard, times in the viewer's zone. Pages work without it, but do not update.
"use strict";
(() => {
  const LOST_MS = 2500; // The worker sends an event every second.
  const byId = (id) => document.getElementById(id);
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private mode */ } },
  };

  // -- colours
  const theme = store.get("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  byId("theme").addEventListener("click", () => {
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (isDark ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    store.set("theme", next);
  });

  // -- times
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  const localTime = (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ` +
    `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const showTimes = (root) => {
    for (const element of root.querySelectorAll("time:not([title])")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      element.title = `${element.dateTime.replace("T", " ").replace("Z", "")} UTC`;
      element.textContent = localTime(at);
    }
    for (const input of root.querySelectorAll("input[data-ms]")) {
      input.value = localTime(new Date(Number(input.dataset.ms))).replace(" ", "T");
      delete input.dataset.ms;
    }
  };
  // A form with a local time sends it in UTC.
  document.addEventListener("submit", (event) => {
    for (const input of event.target.querySelectorAll("input[data-zone]")) {
      if (!input.value) { input.disabled = true; continue; }
      const sent = document.createElement("input");
      sent.type = "hidden";
      sent.name = input.name;
      sent.value = new Date(input.value).toISOString();
      input.after(sent);
      input.removeAttribute("name");
    }
    for (const field of event.target.querySelectorAll("input:not([type=hidden]), select")) {
      if (event.target.method === "get" && field.value === "" && !field.required) field.disabled = true;
    }
  });
  addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("main form :disabled")) field.disabled = false;
  });

  // -- the connection
  const connection = byId("connection");
  const showConnection = (state, text) => {
    if (connection.dataset.state !== state) connection.dataset.state = state;
    if (byId("connection-text").textContent !== text) byId("connection-text").textContent = text;
  };
  let source = null, lastId = byId("main").dataset.position, lastHeard = 0, lostSince = 0, retryAt = 0, attempts = 0;
  let paceMs = 250, worker = "", isPaused = false, note = "";
  let clockSkew = 0; // What the worker's clock is ahead of this one.

  const connect = () => {
    if (source) source.close();
    lastHeard = performance.now();
    source = new EventSource(`/console/events?last=${encodeURIComponent(lastId)}`);
    source.addEventListener("hello", (event) => {
      const hello = heard(event);
      paceMs = hello.pace_ms;
      const wasLost = lostSince > 0;
      if (hello.state === "reset") note = " · the store began a new history, so the page was read again";
      else if (wasLost && hello.state === "behind") note = " · back, and read what was missed";
      else if (wasLost) note = " · back, nothing was missed";
      if (worker && worker !== hello.worker) note += ` · now served by ${hello.worker}`;
      worker = hello.worker;
      lostSince = 0;
      attempts = 0;
      if (hello.state !== "same" && hello.state !== "new" || wasLost) refresh();
      if (note) setTimeout(() => { note = ""; }, 8000);
    });
    source.addEventListener("state", (event) => showState(heard(event)));
    source.addEventListener("change", (event) => {
      const change = heard(event);
      paceMs = change.pace_ms;
      if (concerns(change)) refresh();
    });
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) retryAt = performance.now() + 500; };
  };
  const heard = (event) => {
    lastHeard = performance.now();
    if (event.lastEventId) lastId = event.lastEventId;
    return JSON.parse(event.data);
  };
  const showState = (state) => {
    clockSkew = state.now_ms - Date.now();
    document.body.classList.toggle("stale", state.stale_s > 0);
    const wasStale = connection.dataset.state === "stale";
    if (state.stale_s > 0) {
      showConnection("stale", `live, but stale: the worker has not reached the store for ${Math.round(state.stale_s)} s`);
      for (const element of document.querySelectorAll("[data-stale]")) element.textContent = `${Math.round(state.stale_s)} s`;
      if (!byId("stale-note")) refresh();
    } else {
      if (wasStale || byId("stale-note")) refresh();
      showConnection(isPaused ? "paused" : "live", `${isPaused ? "paused" : "live"} · version ${state.version.toLocaleString("en")} · ${worker}${note}`);
    }
    state.rates.forEach((rate, index) => { if (rate !== null) addPoint(index, rate); });
  };
  const addPoint = (index, rate) => {
    const spark = document.querySelector(`[data-spark="${index}"]`);
    if (!spark) return;
    const points = spark.dataset.points.split(" ").filter(Boolean).map(Number).concat(rate).slice(-120);
    spark.dataset.points = points.join(" ");
    const top = Math.max(1, ...points), step = 120 / Math.max(points.length - 1, 1);
    spark.firstElementChild.setAttribute("points",
      points.map((value, at) => `${(at * step).toFixed(1)},${(27 - value / top * 26).toFixed(1)}`).join(" "));
    document.querySelector(`[data-rate="${index}"]`).textContent = rate.toLocaleString("en");
  };
  const watch = () => {
    if (document.hidden || !source) return;
    const now = performance.now();
    if (now - lastHeard > LOST_MS) {
      if (!lostSince) lostSince = Date.now() - Math.round(now - lastHeard);
      const seconds = Math.round((Date.now() - lostSince) / 1000);
      showConnection("lost", `Connection to the worker lost ${seconds} s ago; what you see is from ${localTime(new Date(lostSince))}. Trying again…`);
      if (now >= retryAt) {
        attempts += 1;
        retryAt = now + Math.min(500 * 2 ** attempts, 5000);
        const heardBefore = lastHeard;
        connect();
        lastHeard = heardBefore;
      }
    }
  };

  // -- reading the page again
  const follow = () => { const text = byId("main").dataset.follow; return text ? JSON.parse(text) : null; };
  const concerns = (change) => {
    if (byId("timeline")?.dataset.newest) return true;
    const wanted = follow();
    if (!wanted) return false;
    const any = (names, found) => (names || []).some((name) => found.includes(name));
    return wanted.all || any(wanted.kinds, change.kinds) || any(wanted.brokers, change.brokers) ||
      any(wanted.topics, change.topics) || (change.all && (wanted.brokers || wanted.topics || wanted.kinds));
  };
  let isReading = false, isWanted = false, nextRead = 0, timer = 0;
  const refresh = () => {
    if (isPaused) { isWanted = true; byId("waiting") && (byId("waiting").textContent = "new entries are waiting"); return; }
    if (isReading) { isWanted = true; return; }
    if (timer) return;
    timer = setTimeout(read, Math.max(nextRead - performance.now(), 0));
  };
  // Consoles that show the same page read it at the same time, so that the worker renders it once for all of them.
  // Different pages have different times.
  let phase = 0;
  for (const letter of location.pathname + location.search) phase = (phase * 31 + letter.charCodeAt(0)) % 65521;
  const untilTurn = (period) => {
    const left = period - (Date.now() + clockSkew + phase) % period;
    return left < 250 ? left + period : left;
  };
  const read = async () => {
    timer = 0;
    isReading = true;
    isWanted = false;
    try {
      const timeline = byId("timeline");
      if (timeline?.dataset.newest) await readTimeline(timeline);
      else if (follow() || document.body.classList.contains("stale") || byId("stale-note")) await readMain(location.href);
    } catch { /* The watch of the connection reports it. */ }
    isReading = false;
    nextRead = performance.now() + (paceMs > 1000 ? untilTurn(paceMs) : paceMs);
    if (isWanted) refresh();
  };
  const readMain = async (address) => {
    const answer = await fetch(address, { headers: { "X-Routebook-Part": "main" } });
    if (answer.redirected && new URL(answer.url).pathname === "/console/sign-in") { location.assign(answer.url); return; }
    if (answer.status >= 500) return;
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = parsed.getElementById("main"), main = byId("main");
    if (!fresh) return;
    showTimes(fresh);
    for (const area of fresh.querySelectorAll("[data-live]")) {
      const old = byId(area.id);
      if (!old || area.hasAttribute("data-keep")) continue;
      if (old.contains(document.activeElement) && document.activeElement.matches("input, select")) continue;
      if (old.innerHTML === area.innerHTML) continue;
      const open = [...old.querySelectorAll("details")].map((one) => one.open);
      const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      old.replaceChildren(...area.childNodes);
      old.querySelectorAll("details").forEach((one, at) => { one.open = Boolean(open[at]); });
      if (focused) [...old.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    }
    if (fresh.dataset.follow) main.dataset.follow = fresh.dataset.follow;
    main.dataset.position = fresh.dataset.position;
  };
  const readTimeline = async (timeline) => {
    for (let more = true; more;) {
      const link = new URL(timeline.dataset.source, location.href);
      link.searchParams.set("after", timeline.dataset.newest);
      const answer = await fetch(link);
      if (!answer.ok) return;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      timeline.dataset.newest = answer.headers.get("X-Routebook-Cursor");
      more = answer.headers.get("X-Routebook-More") === "true";
      const rows = [...parsed.querySelectorAll("li")].filter((row) => !byId(row.id));
      if (rows.length) timeline.querySelector(".empty-row")?.remove();
      for (const row of rows) { row.classList.add("new"); showTimes(row); }
      timeline.prepend(...rows);
      while (timeline.children.length > 500) timeline.lastElementChild.remove();
    }
  };

  // -- filters: results while typing
  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-filter]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(async () => {
      const link = new URL(form.action, location.href);
      for (const [name, value] of new FormData(form)) if (value) link.searchParams.set(name, value);
      const position = event.target.selectionStart;
      await readMain(link.href).catch(() => {});
      history.replaceState(null, "", link);
      if (document.activeElement === event.target) event.target.setSelectionRange?.(position, position);
    }, 120);
  });

  // -- keyboard
  const help = byId("help");
  byId("help-button").addEventListener("click", () => help.showModal());
  const pause = byId("pause");
  const togglePause = () => {
    isPaused = !isPaused;
    if (pause) { pause.setAttribute("aria-pressed", String(isPaused)); pause.textContent = isPaused ? "Continue" : "Pause"; }
    showConnection(isPaused ? "paused" : "live", isPaused ? "paused" : "live");
    if (!isPaused) { if (byId("waiting")) byId("waiting").textContent = ""; if (isWanted) refresh(); }
  };
  pause?.addEventListener("click", togglePause);
  let went = 0, row = -1;
  const move = (step) => {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    rows[row]?.classList.remove("focused");
    row = Math.min(Math.max(row + step, 0), rows.length - 1);
    rows[row].classList.add("focused");
    rows[row].querySelector("a")?.focus({ preventScroll: true });
    rows[row].scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (went && performance.now() - went < 1500) {
      went = 0;
      const link = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.assign(link.href); }
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      const search = document.querySelector("form[data-filter] input[type=search]") || byId("search");
      search.focus();
      search.select();
    } else if (event.key === "g") went = performance.now();
    else if (event.key === "?") help.showModal();
    else if (event.key === "p") togglePause();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
  });
  const menu = document.querySelector(".menu");
  menu.addEventListener("click", () => {
    menu.setAttribute("aria-expanded", String(byId("nav").classList.toggle("open")));
  });

  // A link of another site comes without the cookie. From this page, the same address is read with it.
  const signIn = document.querySelector("form[data-next]");
  if (signIn) {
    fetch(signIn.dataset.next, { method: "HEAD" }).then((answer) => {
      if (answer.ok && !answer.redirected) location.replace(signIn.dataset.next);
    }).catch(() => {});
  }

  // -- start
  showTimes(document);
  connect();
  setInterval(watch, 250);
  const every = follow()?.every_ms;
  const wantEvery = () => setTimeout(() => { if (!document.hidden && !lostSince) refresh(); wantEvery(); }, untilTurn(every));
  if (every) wantEvery();
  // A hidden page costs nothing, and browsers allow only six connections to one address.
  let hiding = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => { source?.close(); source = null; }, 30000);
    else if (!source) { connect(); refresh(); }
    else lastHeard = performance.now();
  });
})();
