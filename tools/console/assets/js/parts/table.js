// Tables. A column has a title and makes the cell of a row; on narrow screens rows become cards
// whose cells carry their titles.

import { h } from "../dom.js";

/**
 * A table of rows. `columns`: `{title, cell(row), isNumber, isTitle, className, order}`; `caption`
 * is read out, not shown. With `sort`, `{order, isRising, change(order)}`, headings of columns that
 * have an order are buttons.
 */
export function table({ caption, columns, rows, className = "", sort = null }) {
  const body = h("tbody");
  const add = (list) => {
    for (const row of list) {
      body.append(line(columns, row));
    }
  };
  add(rows);
  const element = h(
    "table",
    { class: `cards ${className}` },
    h("caption", { class: "hidden-text" }, caption),
    h("thead", null, h("tr", null, columns.map((column) => heading(column, sort)))),
    body,
  );
  return { root: h("div", { class: "scroll" }, element), add, body };
}

function heading({ title, isNumber, hideTitle, order }, sort) {
  if (sort === null || !order) {
    return h(
      "th",
      { scope: "col", class: isNumber ? "number" : null },
      hideTitle ? h("span", { class: "hidden-text" }, title) : title,
    );
  }
  const isChosen = sort.order === order;
  const way = sort.isRising ? "ascending" : "descending";
  return h(
    "th",
    { scope: "col", class: isNumber ? "number" : null, "aria-sort": isChosen ? way : "none" },
    h("button", { type: "button", class: "sort", data: { order }, on: { click: () => sort.change(order) } }, title),
  );
}

function line(columns, row) {
  return h(
    "tr",
    null,
    columns.map(({ title, cell, isNumber, isTitle, hideTitle, className }) => h(
      isTitle ? "th" : "td",
      {
        scope: isTitle ? "row" : null,
        class: [isNumber && "number", isTitle && "row-title", className].filter(Boolean).join(" ") || null,
        "data-label": hideTitle ? null : title,
      },
      cell(row),
    )),
  );
}
