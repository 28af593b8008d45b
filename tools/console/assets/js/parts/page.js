// The head of a page, panels, and lists of figures.

import { data, h, uniqueId } from "../dom.js";
import { figure, withUnit } from "../format.js";

/** Title, a sentence, and what can be done on the page. */
export function head(title, { lead, actions, below, isData } = {}) {
  const shown = isData ? data(title) : title;
  return h(
    "div",
    { class: "head" },
    h(
      "div",
      { class: "head-text" },
      h("h1", { tabindex: "-1" }, shown),
      lead && h("p", { class: "lead" }, lead),
      below,
    ),
    actions && h("div", { class: "actions" }, actions),
  );
}

/** A panel with a title. */
export function panel(title, body, { actions, isFlush, className } = {}) {
  const heading = h("h2", { id: uniqueId("panel") }, title);
  return h(
    "section",
    { class: className ? `panel ${className}` : "panel", "aria-labelledby": heading.id },
    h("div", { class: "panel-head" }, heading, actions && h("div", { class: "actions" }, actions)),
    isFlush ? body : h("div", { class: "panel-body" }, body),
  );
}

/** Narrowest tile of a figure, in pixels. */
const TILE_MIN = 132;
/** The narrowest tile of each list that is spread. */
const narrowest = new WeakMap();

/** How much narrower tiles may be if that fills every row. */
const SQUEEZE = 0.9;

/** Tiles a row for a number of tiles, of which at most `fit` fit beside each other. */
function tilesARow(count, fit) {
  const rows = Math.ceil(count / Math.max(1, Math.floor(fit)));
  return Math.ceil(count / Math.max(1, rows));
}

const spreading = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const count = target.children.length;
    const fit = contentRect.width / narrowest.get(target);
    const usual = tilesARow(count, fit);
    const squeezed = tilesARow(count, fit / SQUEEZE);
    const tiles = count % usual === 0 || count % squeezed !== 0 ? usual : squeezed;
    target.style.setProperty("--tiles", String(tiles));
    // The last one fills its row if it is alone in it.
    target.lastElementChild?.classList.toggle("is-lone", tiles > 1 && count % tiles === 1);
  }
});

/** Narrowest chart of a page, with the gap beside it. */
export const CHART_MIN = 396;

/** Spreads the tiles of a list over its rows evenly, so that none is left alone if others fit. */
export function spread(list, least) {
  narrowest.set(list, least);
  spreading.observe(list);
  return list;
}

/** Figures side by side: triples of label, value and unit, and a note. */
export function figures(list) {
  const root = h(
    "dl",
    { class: "figures" },
    list.map(({ label, value, unit, note }) => {
      const [number, name] = figure(value, unit);
      return h(
        "div",
        null,
        h("dt", null, label),
        h("dd", { translate: "no" }, number, name && h("span", { class: "unit" }, name)),
        note && h("dd", { class: "note" }, note),
      );
    }),
  );
  return spread(root, TILE_MIN);
}

/** Pairs of label and figure, one a line. */
export function pairs(list) {
  return h(
    "dl",
    { class: "pairs" },
    list.map(({ label, value, unit, text }) => [
      h("dt", null, label),
      h("dd", { translate: "no" }, text ?? withUnit(value, unit)),
    ]),
  );
}
