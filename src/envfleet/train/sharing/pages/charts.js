"use strict";
// Draws charts with uPlot: lines over one axis, bands around them, one colour a run in all charts of a page.
const EnvfleetCharts = (() => {
  const COLOURS = 7;
  const DASHES = [[], [6, 4], [2, 3]];
  const HEIGHT = 190;
  const drawn = new Set();

  function style(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colour(series) {
    return style(`--series-${series % COLOURS}`);
  }

  function dash(series) {
    return DASHES[Math.floor(series / COLOURS) % DASHES.length];
  }

  // Numbers as people read them: 1.25M, 20k, 243.1, 0.0854.
  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return trimmed(value / 1e9) + "G";
    if (size >= 1e6) return trimmed(value / 1e6) + "M";
    if (size >= 1e4) return trimmed(value / 1e3) + "k";
    if (size >= 1000) return value.toFixed(0);
    if (size >= 10) return value.toFixed(1).replace(/\.0$/, "");
    return size === 0 ? "0" : size < 1e-3 ? value.toExponential(1) : trimmed(value);
  }

  function trimmed(value) {
    return String(Number(value.toPrecision(3)));
  }

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function swatch(series) {
    const made = element("span", "swatch");
    made.style.setProperty("--of", `var(--series-${series % COLOURS})`);
    if (dash(series).length) made.classList.add("dashed");
    return made;
  }

  // What uPlot wants: columns of numbers, a description of each, and which two of them enclose a band.
  function parts(chart) {
    const columns = [chart.x];
    const series = [{}];
    const bands = [];
    const add = (values, description) => {
      columns.push(values);
      series.push({ spanGaps: true, points: { show: false }, ...description });
      return columns.length - 1;
    };
    for (const line of chart.lines) {
      const stroke = () => colour(line.series);
      if (line.high) {
        const high = add(line.high, { stroke: "transparent", width: 0 });
        const low = add(line.low, { stroke: "transparent", width: 0 });
        bands.push({ series: [high, low], fill: () => `${colour(line.series)}2e` });
      }
      if (line.raw) add(line.raw, { stroke: () => `${colour(line.series)}59`, width: 1 });
      const known = line.values.filter((value) => value !== null).length;
      const points = chart.points || known === 1 ? { show: true, size: 6, fill: stroke } : { show: false };
      line.column = add(line.values, { stroke, width: 2, dash: dash(line.series), points });
    }
    return { columns, series, bands };
  }

  function extent(chart) {
    let low = Infinity;
    let high = -Infinity;
    for (const line of chart.lines) {
      for (const values of [line.values, line.low || [], line.high || []]) {
        for (const value of values) {
          if (value === null) continue;
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
    }
    return [low, high];
  }

  function vertical(chart) {
    let [low, high] = extent(chart);
    if (low > high) return { range: [0, 1] };
    if (chart.atLeast !== null && chart.atLeast !== undefined && high > chart.atLeast) low = Math.max(low, chart.atLeast);
    if (chart.mayBeLog && low > 0 && high / low > 100) return { distr: 3, range: [low / 1.3, high * 1.3] };
    const margin = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
    return { range: [chart.fromZero ? 0 : low - margin, high + margin] };
  }

  function horizontal(chart) {
    const first = chart.points ? chart.x[0] : Math.min(0, chart.x[0]);
    const last = chart.x[chart.x.length - 1];
    const margin = chart.points ? 0.03 * (last - first) : 0;
    return [first - margin, last > first ? last + margin : first + 1];
  }

  function axis(more) {
    return {
      stroke: () => style("--soft"),
      grid: { stroke: () => style("--line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      values: (_, splits) => splits.map((value) => (value === null ? "" : number(value))),
      ...more,
    };
  }

  // Say below the pointer what the lines are worth there.
  function read(plot, chart, reading) {
    const at = plot.cursor.idx;
    reading.replaceChildren();
    if (at === null || at === undefined) return;
    reading.append(element("span", "at", `${number(chart.x[at])}:`));
    for (const line of chart.lines) {
      if (line.values[at] === null) continue;
      const part = element("span", "value");
      part.append(swatch(line.series), number(line.values[at]));
      reading.append(part);
    }
  }

  function described(chart, names) {
    const ends = chart.lines.map((line) => {
      const known = line.values.filter((value) => value !== null);
      return `${names[line.series]} ends at ${number(known[known.length - 1])}`;
    });
    return `Line chart of ${chart.title}: ${ends.join("; ")}.`;
  }

  // A figure with a chart in it. `names` are what the lines are called, by number.
  function figure(chart, names, sync) {
    const host = element("figure", "chart");
    const caption = element("figcaption");
    const reading = element("span", "reading");
    caption.append(element("span", "title", chart.title), reading);
    const place = element("div", "plot");
    place.setAttribute("role", "img");
    host.append(caption, place);
    const state = { host, place, reading, sync, plot: null, chart };
    state.show = (next, nextNames) => show(state, next, nextNames);
    drawn.add(state);
    new ResizeObserver(() => {
      if (state.plot && place.clientWidth) state.plot.setSize({ width: place.clientWidth, height: HEIGHT });
      else if (!state.plot && place.clientWidth) show(state, state.chart, state.names);
    }).observe(place);
    state.names = names;
    return state;
  }

  function show(state, chart, names) {
    state.chart = chart;
    state.names = names;
    state.place.setAttribute("aria-label", described(chart, names));
    if (!state.place.clientWidth) return;
    if (state.plot) state.plot.destroy();
    const { columns, series, bands } = parts(chart);
    const options = {
      width: state.place.clientWidth,
      height: HEIGHT,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: state.sync }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: false, range: horizontal(chart) }, y: vertical(chart) },
      axes: [axis({ size: 28, space: 60 }), axis({ size: 52, space: 34 })],
      series,
      bands,
      hooks: { setCursor: [(plot) => read(plot, state.chart, state.reading)] },
    };
    state.plot = new uPlot(options, columns, state.place);
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const state of drawn) if (state.plot) state.plot.redraw(false);
  });

  function legend(names) {
    const list = element("ul", "legend");
    names.forEach((name, series) => {
      const entry = element("li");
      entry.append(swatch(series), name);
      list.append(entry);
    });
    return list;
  }

  return { element, figure, legend, number, swatch };
})();
