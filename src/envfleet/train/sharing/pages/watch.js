"use strict";
// The live page: asks the server what the runs do, and shows it. All texts of runs go in as texts, never as HTML.
{
  const { element, figure, legend, number, swatch } = EnvfleetCharts;
  const PANELS = [
    ["episode_return", "episode return", {}],
    ["eval_return", "evaluation return", {}],
    ["is_success", "success rate", {}],
    ["episode_length", "episode length (steps)", {}],
    ["critic_loss", "critic loss", { mayBeLog: true }],
    ["explained_variance", "explained variance", { atLeast: -1 }],
    ["actor_loss", "actor loss", {}],
    ["entropy", "policy entropy (nats)", {}],
    ["approx_kl", "approximate KL", { fromZero: true }],
    ["restarts", "restarts of environments", { fromZero: true }],
    ["steps_per_second", "speed (steps/s)", { fromZero: true }],
  ];
  const NOT_DRAWN = new Set(["step", "seconds", "episodes", "learning_rate", "dropped_episodes", "clip_fraction", "epochs"]);
  const FIRST_SHOWN = 4;
  const WINDOW = 0.02;

  const place = (id) => document.getElementById(id);
  const state = {
    runs: [],
    shown: null, // the keys of the runs whose curves are drawn, in order; null before the first answer
    metrics: new Map(), // by key: { etag, columns }
    charts: new Map(), // by column
    focus: null,
    said: "",
  };
  window.envfleet = state;

  async function get(path, headers = {}) {
    const answer = await fetch(path, { headers });
    if (answer.status !== 304 && !answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer;
  }

  async function refresh() {
    try {
      state.runs = await (await get("/api/runs")).json();
      if (state.shown === null && state.runs.length) {
        state.shown = state.runs.slice(0, FIRST_SHOWN).map((run) => run.key);
        state.focus = (state.runs.find((run) => run.status === "running") || state.runs[0]).key;
      }
      showLead();
      showRuns();
      await Promise.all((state.shown || []).map(fetchMetrics));
      showCurves();
      await showFocus();
    } catch (error) {
      place("lead").textContent = `No answer: ${error.message}. Is envfleet watch still running?`;
    }
    setTimeout(refresh, document.hidden ? 5000 : 1000);
  }

  function showLead() {
    const running = state.runs.filter((run) => run.status === "running").length;
    const all = `${state.runs.length} run${state.runs.length === 1 ? "" : "s"}`;
    place("lead").textContent = state.runs.length ? `${all}, ${running} running now.` : "There are no runs here yet.";
  }

  async function fetchMetrics(key) {
    const known = state.metrics.get(key);
    const answer = await get(`/api/runs/${key}/metrics`, known ? { "If-None-Match": known.etag } : {});
    if (answer.status === 304) return;
    state.metrics.set(key, { etag: answer.headers.get("etag"), ...(await answer.json()) });
  }

  function title(run) {
    return run.algo && run.env_id ? `${String(run.algo).toUpperCase()} on ${run.env_id}` : run.name;
  }

  function showRuns() {
    const rows = state.runs.map((run) => {
      const row = element("tr");
      row.dataset.key = run.key;
      const head = element("th");
      head.scope = "row";
      const label = element("label", "run-name");
      const box = element("input");
      box.type = "checkbox";
      box.checked = state.shown.includes(run.key);
      box.addEventListener("change", () => toggle(run.key, box.checked));
      label.append(box);
      if (box.checked) label.append(swatch(state.shown.indexOf(run.key)));
      label.append(run.name);
      head.append(label, element("div", "note", run.note || `${title(run)}, seed ${run.seed ?? "unknown"}`));
      const status = element("td");
      status.append(element("span", `status ${run.status}`, run.status));
      const { last } = run;
      const done = run.total_steps && last.step ? `${Math.min(100, (100 * last.step) / run.total_steps).toFixed(0)} %` : "";
      const cells = [last.episode_return, last.step, done, last.steps_per_second, last.episodes, last.restarts];
      row.append(head, status);
      cells.forEach((value, place) => {
        const cell = element("td", "", typeof value === "number" ? written(value, place) : value || "");
        if (typeof value === "number") cell.dataset.value = value;
        row.append(cell);
      });
      return row;
    });
    const body = place("runs").tBodies[0];
    const active = document.activeElement?.closest?.("tr")?.dataset.key;
    body.replaceChildren(...rows);
    if (active) body.querySelector(`tr[data-key="${CSS.escape(active)}"] input`)?.focus();
  }

  function whole(value) {
    return Math.round(value).toLocaleString("en");
  }

  function written(value, place) {
    return place === 0 ? number(value) : whole(value);
  }

  function toggle(key, on) {
    state.shown = on ? [...state.shown, key] : state.shown.filter((other) => other !== key);
    showRuns();
    Promise.all(state.shown.map(fetchMetrics)).then(showCurves, () => {});
  }

  // The mean of the values around each, as many as a fiftieth of the longest run has.
  function averaged(steps, values, window) {
    const spacing = steps.length > 1 ? (steps[steps.length - 1] - steps[0]) / (steps.length - 1) : Infinity;
    const half = Math.max(0, Math.round((window / spacing - 1) / 2)) || 0;
    return values.map((value, at) => {
      if (value === null) return null;
      let sum = 0;
      let count = 0;
      for (let near = Math.max(0, at - half); near <= Math.min(values.length - 1, at + half); near++) {
        if (values[near] === null) continue;
        sum += values[near];
        count += 1;
      }
      return sum / count;
    });
  }

  function showCurves() {
    const shown = (state.shown || []).filter((key) => state.metrics.has(key));
    const runs = shown.map((key) => state.runs.find((run) => run.key === key));
    const names = (state.shown || []).map((key) => state.runs.find((run) => run.key === key)?.name ?? "");
    const tables = shown.map((key) => state.metrics.get(key).columns);
    const longest = Math.max(0, ...tables.map((table) => (table.step ? table.step[table.step.length - 1] : 0)));
    const known = new Set(PANELS.map(([name]) => name));
    const others = new Set(tables.flatMap((table) => Object.keys(table)).filter((name) => !known.has(name) && !NOT_DRAWN.has(name)));
    const panels = [...PANELS, ...[...others].map((name) => [name, name.replaceAll("_", " "), {}])];
    const charts = panels.map((panel) => chart(panel, shown, tables, longest)).filter((made) => made !== null);
    draw(charts, names);
    place("legend").replaceChildren(...(runs.length > 1 ? [legend(names)] : []));
    place("curves-note").textContent = charts.length
      ? `Over environment steps. Lines: moving averages over a fiftieth of the run.${runs.length === 1 ? " Faint: values as logged." : ""}`
      : "No run is chosen, or none has logged anything yet.";
  }

  function chart([name, label, how], shown, tables, longest) {
    const having = tables.map((table, at) => [at, table]).filter(([, table]) => table[name]?.some((value) => value !== null));
    if (!having.length) return null;
    const x = [...new Set(having.flatMap(([, table]) => table.step))].sort((a, b) => a - b);
    const where = new Map(x.map((step, at) => [step, at]));
    const lines = having.map(([at, table]) => {
      const spread = (values) => {
        const along = new Array(x.length).fill(null);
        table.step.forEach((step, row) => (along[where.get(step)] = values[row]));
        return along;
      };
      const line = { series: state.shown.indexOf(shown[at]), values: spread(averaged(table.step, table[name], WINDOW * longest)) };
      if (having.length === 1) line.raw = spread(table[name]);
      return line;
    });
    return { name, title: label, x, lines, ...how };
  }

  function draw(charts, names) {
    const wanted = new Set(charts.map((each) => each.name));
    for (const [name, drawn] of state.charts) {
      if (!wanted.has(name)) {
        drawn.host.remove();
        state.charts.delete(name);
      }
    }
    for (const each of charts) {
      let drawn = state.charts.get(each.name);
      if (!drawn) {
        drawn = figure(each, names, "curves");
        drawn.host.dataset.name = each.name;
        state.charts.set(each.name, drawn);
        place("curves").append(drawn.host);
      }
      const told = JSON.stringify([each.x.length, each.lines, names]);
      if (drawn.told !== told) drawn.show(each, names);
      drawn.told = told;
    }
  }

  async function showFocus() {
    const run = state.runs.find((each) => each.key === state.focus);
    place("one").hidden = !run;
    if (!run) return;
    const choice = place("focus");
    const told = state.runs.map((each) => each.key + each.name).join();
    if (choice.dataset.told !== told) {
      choice.replaceChildren(...state.runs.map((each) => new Option(each.name, each.key)));
      choice.dataset.told = told;
    }
    choice.value = run.key;
    for (const button of document.querySelectorAll("[data-order]")) {
      const films = button.dataset.order === "film";
      button.disabled = films ? run.filming === "filming" : run.status !== "running";
    }
    place("said").textContent = run.filming === "filming" ? "Filming an episode." : run.filming || state.said;
    const live = await (await get(`/api/runs/${run.key}/live`)).json();
    showSpeed(live.state.parts);
    showFleet(run, live);
    showRestarts(live.state.restarts || []);
    showFilm(run);
  }

  function showSpeed(parts) {
    const host = place("speed");
    const total = parts ? parts.collecting + parts.update : 0;
    if (!parts || !total || !parts.steps) return;
    const split = parts.policy !== null && parts.policy !== undefined;
    const shares = split
      ? [["policy", parts.policy], ["engine", parts.collecting - parts.policy], ["update", parts.update]]
      : [["policy and engine, in one compiled call", parts.collecting], ["update", parts.update]];
    const bar = element("div", "shares");
    bar.setAttribute("aria-hidden", "true");
    const list = element("ul", "legend");
    shares.forEach(([name, seconds], series) => {
      const part = element("span");
      part.style.setProperty("--of", `var(--series-${series})`);
      part.style.flexGrow = seconds;
      bar.append(part);
      const entry = element("li");
      const alone = seconds > 0 ? `, alone ${whole(parts.steps / seconds)} steps/s` : "";
      entry.append(swatch(series), `${name}: ${((100 * seconds) / total).toFixed(0)} %${alone}`);
      list.append(entry);
    });
    host.replaceChildren(element("h3", "", `Speed: ${whole(parts.steps / total)} steps/s`), bar, list);
  }

  function showFleet(run, { running, state: live }) {
    const host = place("fleet");
    const envs = live.envs || [];
    if (!envs.length) {
      host.replaceChildren(element("p", "note", running ? "Asking the training what its environments do." : "Nobody has watched this run while it trained."));
      return;
    }
    const more = live.num_envs > envs.length ? `, ${envs.length} shown` : "";
    const age = Math.max(0, Date.now() / 1000 - live.time);
    const when = running && age < 15 ? "now" : `as it was on ${new Date(live.time * 1000).toLocaleString()}`;
    const head = element("h3", "", `Fleet ${when}: ${live.num_envs} environments${more}, step ${live.step.toLocaleString("en")}`);
    let grid = host.querySelector(".fleet");
    if (!grid || grid.dataset.key !== run.key || grid.children.length !== envs.length) {
      grid = element("div", "fleet");
      grid.dataset.key = run.key;
      grid.append(...envs.map((_, env) => tile(env)));
    }
    envs.forEach((env, at) => fill(grid.children[at], run, at, env, live.pictures === "live", live.time));
    const why = live.pictures === "live" ? "The pictures come one at a time: they take less than a hundredth of the training's time." : live.pictures;
    host.replaceChildren(head, grid, element("p", "note", why));
  }

  function tile(env) {
    const made = element("figure", "tile");
    const caption = element("figcaption");
    const line = element("div", "line");
    line.append(element("span", "", `#${env}`), element("strong", "return"), element("span", "length"));
    caption.append(line, element("div", "parameters"));
    made.append(caption);
    return made;
  }

  function pythonic(value) {
    if (typeof value === "number") return number(value);
    return value === true ? "True" : value === false ? "False" : String(value);
  }

  function fill(made, run, at, env, pictures, live) {
    made.querySelector(".return").textContent = number(env.return);
    made.querySelector(".length").textContent = `${env.length} steps`;
    const parameters = Object.entries(env.parameters || {}).map(([name, value]) => {
      const line = element("div", "line");
      line.append(element("span", "", name.replaceAll("_", " ")), element("span", "", pythonic(value)));
      return line;
    });
    made.querySelector(".parameters").replaceChildren(...parameters);
    if (pictures && !made.querySelector("img, .waiting")) made.prepend(element("div", "waiting"));
    if (!env.picture || made.dataset.picture === `${env.picture}`) return;
    made.dataset.picture = env.picture;
    const next = new Image();
    next.alt = `Environment ${at}`;
    next.onload = () => {
      made.querySelector("img, .waiting")?.remove();
      made.prepend(next);
    };
    next.src = `/api/runs/${run.key}/frames/${at}?${env.picture}-${live}`;
  }

  function showRestarts(restarts) {
    const host = place("restarts");
    if (!restarts.length) {
      host.replaceChildren();
      return;
    }
    const table = element("table", "words");
    const head = table.createTHead().insertRow();
    for (const name of ["step", "environment", "cause"]) {
      const cell = element("th", "", name);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    for (const { step, env, cause } of restarts.slice(-10).reverse()) {
      const row = body.insertRow();
      for (const text of [Number(step).toLocaleString("en"), `#${env}`, String(cause)]) row.append(element("td", "", text));
    }
    const scroll = element("div", "scroll");
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Restarts");
    scroll.tabIndex = 0;
    scroll.append(table);
    host.replaceChildren(element("h3", "", "Latest restarts"), scroll);
  }

  function showFilm(run) {
    const host = place("film");
    const told = run.film ? `${run.key} ${run.film} ${run.filming}` : "";
    if (host.dataset.told === told) return;
    host.dataset.told = told;
    if (!run.film || run.filming === "filming") {
      host.replaceChildren();
      return;
    }
    const film = element("video");
    Object.assign(film, { controls: true, muted: true, loop: true, playsInline: true, preload: "metadata" });
    film.setAttribute("aria-label", `Film of ${run.name}`);
    film.src = `/api/runs/${run.key}/film?${Date.now()}`;
    const shown = element("figure");
    shown.append(film, element("figcaption", "", run.film === "showcase.mp4" ? "The film of the end of the training" : "The film you asked for"));
    host.replaceChildren(element("h3", "", "Film"), shown);
  }

  const SAID = { save: "Saving after the update under way.", stop: "Stopping after the update under way; everything is saved.", film: "" };

  async function tell(order) {
    if (order === "stop" && !confirm("Stop this training? It is saved, and envfleet train --resume goes on with it.")) return;
    const answer = await fetch(`/api/runs/${state.focus}/${order}`, { method: "POST", headers: { "X-Envfleet": "1" } });
    state.said = answer.ok ? SAID[order] : (await answer.json()).error || `The server answered ${answer.status}.`;
    place("said").textContent = state.said;
  }

  for (const button of document.querySelectorAll("[data-order]")) {
    button.addEventListener("click", () => tell(button.dataset.order).catch((error) => (place("said").textContent = error.message)));
  }
  place("focus").addEventListener("change", (event) => {
    state.focus = event.target.value;
    state.said = "";
    for (const id of ["speed", "fleet", "restarts"]) place(id).replaceChildren();
    showFocus().catch(() => {});
  });
  refresh();
}
