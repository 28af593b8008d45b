// Charts: lines over a common axis, drawn by uPlot. A chart zooms by dragging and by keys, shows
// the values under the cursor in its legend, switches lines on and off, and exports what it shows
// as PNG and CSV. Charts of a group share cursor and zoom.
//
// Keys of a chart that has the focus: arrows move the cursor, + and - zoom, 0 shows all.

import { data, download, fill, h, icon, uniqueId } from "../dom.js";
import { tickText, withUnit } from "../format.js";
import { t } from "../i18n.js";
import { themeChanges } from "../preferences.js";
import { BINARY_STEPS, WHOLE_STEPS, powers, rangeOf, wide } from "./axes.js";
import { colour, faint } from "./colours.js";

const HEIGHT = 220;
/** Longest name at a tick, in characters. */
const NAME_MAX = 14;
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2]];
let library = null;

/** Loads uPlot once, as the file that its authors publish. */
function loadLibrary() {
  library ??= new Promise((resolve, reject) => {
    const script = h("script", { src: new URL("../../vendor/uPlot.iife.min.js", import.meta.url).href });
    const style = h("link", {
      rel: "stylesheet",
      href: new URL("../../vendor/uPlot.min.css", import.meta.url).href,
    });
    script.addEventListener("load", () => resolve(window.uPlot));
    script.addEventListener("error", () => {
      library = null;
      reject(new Error("uPlot did not load"));
    });
    document.head.append(style, script);
  });
  return library;
}

/** Charts that share cursor and zoom. */
export class ChartGroup {
  constructor() {
    this.key = uniqueId("charts");
    this.charts = new Set();
  }

  /** Shows a part of the x axis in every chart; `null` shows all. */
  zoom(range) {
    for (const chart of this.charts) {
      chart.applyZoom(range);
    }
  }
}

/**
 * A chart. Options:
 * - `title`, `unit` of the y axis, `isLog` if that is logarithmic
 * - `x`: `{label, unit, isLog, names, limits}`; a logarithmic axis doubles; with `names`, values
 *   are places in that list; `limits` may be a function
 * - `series`: `[{label, isData, dash, colour}]`
 * - `limits`: `[minimum, maximum]` of the y axis if it is fixed; `isFitted`: it need not begin at 0
 * - `kind`: `line` (default), `bars` or `points`; `isStacked`: areas upon each other
 * - `group`: a ChartGroup
 */
export class Chart {
  constructor(options, signal) {
    this.options = options;
    this.values = [[], ...options.series.map(() => [])];
    this.intervals = [];
    this.isShown = options.series.map(() => true);
    this.range = null;
    this.plot = null;
    this.isWaiting = false;
    this.group = options.group ?? new ChartGroup();
    this.group.charts.add(this);
    this.signal = signal;
    this.build();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.area);
    const redraw = () => this.redraw();
    themeChanges.addEventListener("change", redraw, { signal });
    signal.addEventListener("abort", () => this.destroy(), { once: true });
    /** Settles when the library is there. */
    this.ready = loadLibrary();
    this.ready.then(redraw, () => fill(this.area, h("p", { class: "soft" }, t("chart.failed"))));
  }

  build() {
    const { title, unit, series } = this.options;
    const tool = (text, picture, press) => h(
      "button",
      { class: "button quiet compact", type: "button", title: text, "aria-label": `${text}: ${title}`, on: { click: press } },
      icon(picture),
    );
    this.resetButton = tool(t("chart.show_all"), "reset", () => this.group.zoom(null));
    this.resetButton.hidden = true;
    const tools = h(
      "div",
      { class: "chart-tools" },
      this.resetButton,
      tool(t("chart.png"), "image", () => this.savePicture()),
      tool(t("chart.csv"), "table", () => this.saveTable()),
    );
    this.area = h("div", {
      class: "chart-area",
      tabindex: "0",
      role: "group",
      "aria-roledescription": t("chart.role"),
      "aria-label": title,
      on: { keydown: (event) => this.onKey(event), dblclick: () => this.group.zoom(null) },
    });
    this.time = h("span", { class: "legend-time", translate: "no" });
    this.entries = series.map((one, index) => this.entry(one, index));
    this.root = h(
      "figure",
      { class: "panel chart" },
      h(
        "figcaption",
        { class: "chart-head" },
        h("h3", null, title, unit && h("span", { class: "soft" }, ` · ${t(`axis.${unit}`)}`)),
        tools,
      ),
      this.area,
      h("div", { class: "legend" }, this.time, this.entries.map(({ root }) => root)),
    );
  }

  entry(one, index) {
    const value = h("span", { class: "value", translate: "no" });
    const name = one.isData ? data(one.label, "name") : h("span", { class: "name" }, one.label);
    const swatch = h("span", { class: `swatch series-${this.colourOf(index)}` });
    const root = h("button", { type: "button", "aria-pressed": "true" }, swatch, name, value);
    root.addEventListener("click", () => {
      this.isShown[index] = !this.isShown[index];
      root.setAttribute("aria-pressed", String(this.isShown[index]));
      if (this.options.isStacked) {
        this.redraw();
      } else {
        this.plot?.setSeries(index + 1, { show: this.isShown[index] });
      }
    });
    return { root, value };
  }

  colourOf(index) {
    return (this.options.series[index].colour ?? index) % 5 + 1;
  }

  /**
   * Sets the values: the x axis, then one list a line. `intervals` has a list a line, too, of
   * `[low, high]` where a value has an interval. Draws at most once a frame.
   */
  set(values, intervals = []) {
    this.values = values;
    this.intervals = intervals;
    if (this.isWaiting) {
      return;
    }
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      if (this.plot) {
        this.plot.setData(this.drawn(), this.range === null);
        if (this.range !== null) {
          this.plot.redraw();
        }
      }
      this.describe(null);
    });
  }

  /** The values as they are drawn: stacked, or only those that a logarithmic axis can show. */
  drawn() {
    const [places, ...lists] = this.values;
    if (this.options.isStacked) {
      const sums = places.map(() => 0);
      const stack = (list) => list.map((value, place) => {
        sums[place] += value ?? 0;
        return sums[place];
      });
      return [places, ...lists.map((list, index) => (this.isShown[index] ? stack(list) : list))];
    }
    if (this.options.isLog) {
      return [places, ...lists.map((list) => list.map((value) => (value <= 0 ? null : value)))];
    }
    return this.values;
  }

  /** The areas between stacked lines that are shown. */
  bands() {
    const shown = this.isShown.flatMap((isShown, index) => (isShown ? [index + 1] : []));
    return shown.slice(1).map((one, place) => ({ series: [one, shown[place]] }));
  }

  redraw() {
    if (window.uPlot === undefined || this.signal.aborted) {
      return;
    }
    this.plot?.destroy();
    this.plot = new window.uPlot(this.plotOptions(), this.drawn(), this.area);
    this.applyZoom(this.range);
    this.describe(null);
  }

  plotOptions() {
    const { x, unit, limits, isLog, isStacked, isFitted } = this.options;
    const log = (is, of) => (is ? { distr: 3, log: of === "bytes" ? 2 : 10 } : {});
    const steps = (of) => (of === "bytes" ? { incrs: BINARY_STEPS } : {});
    const soft = colour("text-soft");
    const axis = {
      stroke: soft,
      grid: { stroke: colour("line"), width: 1 },
      ticks: { stroke: colour("line"), width: 1, size: 4 },
      font: `11px ${getComputedStyle(document.body).fontFamily}`,
      gap: 4,
    };
    return {
      width: Math.max(this.area.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: {
        sync: { key: this.group.key, setSeries: false },
        drag: { x: true, y: false, setScale: false },
        points: { size: 7 },
      },
      select: { show: true },
      scales: {
        x: { time: false, ...(x.isLog ? { distr: 3, log: 2 } : {}), range: (_, low, high) => this.rangeOfX(low, high) },
        y: {
          ...log(isLog, unit),
          range: (_, low, high) => (isLog
            ? powers(low, high, unit === "bytes" ? 2 : 10)
            : wide(...rangeOf(low, high, limits, isFitted))),
        },
      },
      axes: [
        {
          ...axis,
          ...(x.names ? { incrs: WHOLE_STEPS } : steps(x.unit)),
          size: 34,
          values: (_, ticks) => ticks.map((tick) => this.tickOfX(tick)),
          space: x.names ? 90 : 70,
        },
        {
          ...axis,
          ...(isLog ? {} : steps(unit)),
          size: 66,
          values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : tickText(tick, unit))),
          space: 34,
        },
      ],
      ...(isStacked ? { bands: this.bands() } : {}),
      series: [{}, ...this.options.series.map((one, index) => this.line(one, index))],
      hooks: {
        draw: [(plot) => this.drawIntervals(plot)],
        setCursor: [(plot) => this.describe(plot.cursor.idx)],
        setSelect: [(plot) => this.onSelect(plot)],
      },
    };
  }

  line(one, index) {
    const stroke = colour(`series-${this.colourOf(index)}`);
    const { paths } = window.uPlot;
    const { isStacked, series, x } = this.options;
    // Bars at a name stand side by side.
    const beside = x.names ? series.length : 1;
    const kinds = {
      bars: { paths: paths.bars({ size: [0.7 / beside, 60] }), fill: stroke, points: { show: false } },
      points: { paths: () => null, points: { show: true, size: 6, fill: stroke } },
    };
    return {
      stroke,
      width: 1.75,
      dash: one.dash ? DASHES[one.dash % DASHES.length] : undefined,
      show: this.isShown[index],
      fill: isStacked ? faint(stroke) : undefined,
      points: { show: (plot) => plot.data[0].length < 2 },
      spanGaps: false,
      ...kinds[this.options.kind],
    };
  }

  /** Draws the intervals of lines that are shown, as bars from low to high. */
  drawIntervals(plot) {
    const { ctx, bbox } = plot;
    const [places] = plot.data;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineWidth = 1.25 * window.devicePixelRatio;
    this.intervals.forEach((ends, index) => {
      if (!this.isShown[index]) {
        return;
      }
      ctx.strokeStyle = colour(`series-${this.colourOf(index)}`);
      ctx.beginPath();
      places.forEach((place, at) => {
        if (ends[at]) {
          const x = plot.valToPos(place, "x", true);
          const [low, high] = ends[at].map((end) => plot.valToPos(end, "y", true));
          ctx.moveTo(x, low);
          ctx.lineTo(x, high);
        }
      });
      ctx.stroke();
    });
    ctx.restore();
  }

  /** The x axis: its limits, unless it is zoomed, or else all values. */
  rangeOfX(low, high) {
    const { limits, names, isLog } = this.options.x;
    if (this.range !== null) {
      return wide(low, high);
    }
    if (names) {
      return [-0.6, names.length - 0.4];
    }
    if (limits) {
      return typeof limits === "function" ? limits() : limits;
    }
    return isLog && low === null ? [1, 2] : wide(low, high);
  }

  tickOfX(tick) {
    const { names, unit } = this.options.x;
    if (tick === null) {
      return "";
    }
    if (!names) {
      return tickText(tick, unit);
    }
    const name = names[tick] ?? "";
    return name.length > NAME_MAX ? `${name.slice(0, NAME_MAX - 1)}…` : name;
  }

  /** A place of the x axis as a text. */
  textOfX(value) {
    const { names, unit } = this.options.x;
    return names ? names[Math.round(value)] ?? "" : withUnit(value, unit);
  }

  onSelect(plot) {
    const { left, width } = plot.select;
    if (width < 4) {
      return;
    }
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.group.zoom(range);
  }

  applyZoom(range) {
    this.range = range;
    this.resetButton.hidden = range === null;
    const [times] = this.values;
    if (this.plot && times.length > 0) {
      const [min, max] = range ?? [times[0], times.at(-1)];
      this.plot.setScale("x", { min, max });
    }
  }

  /** Shows the values at a place of the x axis, or the last ones. */
  describe(place) {
    const [times] = this.values;
    const isInside = place !== null && place !== undefined && place < times.length;
    const at = isInside ? place : times.length - 1;
    if (at < 0) {
      return;
    }
    this.place = at;
    this.time.textContent = this.textOfX(times[at]);
    this.entries.forEach(({ value }, index) => {
      value.textContent = withUnit(lastOf(this.values[index + 1] ?? [], at) ?? Number.NaN, this.options.unit);
    });
  }

  onKey(event) {
    const [times] = this.values;
    if (!this.plot || times.length === 0) {
      return;
    }
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -times.length, End: times.length }[event.key];
    if (step !== undefined) {
      const at = Math.min(Math.max((this.place ?? 0) + step, 0), times.length - 1);
      this.place = at;
      this.plot.setCursor({ left: this.plot.valToPos(times[at], "x"), top: HEIGHT / 3 });
    } else if (event.key === "+" || event.key === "=") {
      this.zoomBy(0.5);
    } else if (event.key === "-") {
      this.zoomBy(2);
    } else if (event.key === "0") {
      this.group.zoom(null);
    } else {
      return;
    }
    event.preventDefault();
  }

  zoomBy(factor) {
    const [times] = this.values;
    const [low, high] = this.range ?? [times[0], times.at(-1)];
    const centre = times[this.place ?? 0];
    const half = ((high - low) * factor) / 2;
    const next = [Math.max(times[0], centre - half), Math.min(times.at(-1), centre + half)];
    const isAll = next[0] <= times[0] && next[1] >= times.at(-1);
    this.group.zoom(isAll ? null : next);
  }

  resize() {
    const width = this.area.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) {
      this.plot.setSize({ width, height: HEIGHT });
    }
  }

  fileName(ending) {
    const name = (this.options.file ?? this.options.title).replace(/[^\p{L}\p{N}]+/gu, "-");
    return `${name.slice(0, 80)}.${ending}`;
  }

  /** The chart with title and legend on the ground of the page. */
  savePicture() {
    if (!this.plot) {
      return;
    }
    const source = this.plot.ctx.canvas;
    const ratio = source.width / this.plot.width;
    const top = 34 * ratio;
    const bottom = 30 * ratio;
    const canvas = h("canvas", { width: source.width, height: source.height + top + bottom });
    const context = canvas.getContext("2d");
    const font = getComputedStyle(document.body).fontFamily;
    context.fillStyle = colour("surface");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = colour("text");
    context.font = `600 ${14 * ratio}px ${font}`;
    context.fillText(this.options.title, 10 * ratio, 22 * ratio);
    context.drawImage(source, 0, top);
    context.font = `${11 * ratio}px ${font}`;
    let left = 10 * ratio;
    this.options.series.forEach((one, index) => {
      if (this.isShown[index]) {
        context.fillStyle = colour(`series-${this.colourOf(index)}`);
        context.fillRect(left, canvas.height - 21 * ratio, 10 * ratio, 10 * ratio);
        context.fillStyle = colour("text");
        context.fillText(one.label, left + 15 * ratio, canvas.height - 12 * ratio);
        left += 31 * ratio + context.measureText(one.label).width;
      }
    });
    canvas.toBlob((blob) => blob && download(this.fileName("png"), blob), "image/png");
  }

  /** The values that the zoom shows. */
  saveTable() {
    const names = [this.options.x.label, ...this.options.series.map(({ label }) => label)];
    const [times] = this.values;
    const lines = [names.map(cell).join(",")];
    times.forEach((time, row) => {
      if (this.range === null || (time >= this.range[0] && time <= this.range[1])) {
        const place = this.options.x.names ? cell(this.textOfX(time)) : time;
        lines.push([place, ...this.values.slice(1).map((list) => list[row] ?? "")].join(","));
      }
    });
    download(this.fileName("csv"), new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
  }

  destroy() {
    this.observer.disconnect();
    this.group.charts.delete(this);
    this.plot?.destroy();
    this.plot = null;
  }
}

/** The value at a place, or the one before it: joined series have gaps at each other's times. */
function lastOf(list, place) {
  let at = place;
  while (at > 0 && list[at] === undefined) {
    at -= 1;
  }
  return list[at];
}

/** A cell of a CSV file. A leading apostrophe keeps spreadsheets from reading it as a formula. */
function cell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
