// Builds elements. Text reaches the page only as text nodes and attributes, so that no name of a
// run, user or data set is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Sets one property: `on` takes listeners, `class` and `data` what they say, others attributes. */
function set(element, name, value) {
  if (value === null || value === undefined || value === false) {
    return;
  }
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) {
      element.addEventListener(event, listener);
    }
  } else if (name === "data") {
    Object.assign(element.dataset, value);
  } else if (name === "value" || name === "checked" || name === "selected") {
    element[name] = value;
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** Appends nodes, texts and nested lists of them; null, undefined and false are left out. */
export function append(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return parent;
}

/** An element with properties and children. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  append(element, ...children);
  // After the children: a select takes its value from its options.
  for (const [name, value] of Object.entries(properties ?? {})) {
    set(element, name, value);
  }
  return element;
}

/** Replaces all children. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  return append(parent, ...children);
}

/** Text that is data: names, messages, figures. Translators and the tests leave it alone. */
export function data(text, className) {
  return h("span", { translate: "no", class: className }, text);
}

const ICONS = {
  overview: "M3 3h6v7H3zM11 3h6v4h-6zM11 9h6v8h-6zM3 12h6v5H3z",
  runs: "M5 3.5l11 6.5-11 6.5z",
  fit: "M3 3v14h14M5 6h4c4 0 3 8 8 8",
  compare: "M3 17V9M8 17V4M13 17v-6M18 17V7",
  data: "M3 5c0-3 14-3 14 0v10c0 3-14 3-14 0zM3 5c0 3 14 3 14 0M3 10c0 3 14 3 14 0",
  logs: "M4 5h12M4 10h12M4 15h8",
  live: "M2 10h4l2.5-6 3 12 2.500-6H18",
  users: "M8 10a3 3 0 100-6 3 3 0 000 6zM2 17c0-6 12-6 12 0M13 4.500a3 3 0 010 5M15 12.500c2 .500 3 2 3 4.500",
  account: "M10 10a3.500 3.500 0 100-7 3.500 3.500 0 000 7zM3 18c0-8 14-8 14 0",
  tour: "M10 18a8 8 0 100-16 8 8 0 000 16zM7.500 7.500c0-3 5-3 5 0 0 2-2.500 2-2.500 4M10 14.500v.100",
  leave: "M8 3H4v14h4M8 10h9M13 6l4 4-4 4",
  menu: "M3 5h14M3 10h14M3 15h14",
  close: "M5 5l10 10M15 5L5 15",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
  image: "M3 4h14v12H3zM3 13l4-4 4 4 2-2 4 4",
  table: "M3 4h14v12H3zM3 8h14M3 12h14M8 4v12",
  download: "M10 3v10M6 9l4 4 4-4M3 17h14",
  reset: "M4 10a6 6 0 112 4.500M4 15v-4h4",
  search: "M9 15A6 6 0 109 3a6 6 0 000 12zM13.500 13.500L18 18",
  warning: "M10 3l8 14H2zM10 8v4M10 14.500v.100",
};

/** A decorative picture; its text stands beside it. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

let numbers = 0;

/** An id that is unique in the page. */
export function uniqueId(prefix) {
  numbers += 1;
  return `${prefix}-${numbers}`;
}

/** Offers a file to the user. */
export function download(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
