// Colours of the page as a canvas needs them.

import { h } from "../dom.js";

/** The colour that a custom property of the page has in the theme in use. */
export function colour(name) {
  const probe = h("span", { hidden: true });
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** A colour of the page, less opaque. */
export function faint(value) {
  return value.replace(/^rgb\((.*)\)$/, "rgba($1, 0.45)");
}
