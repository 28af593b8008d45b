// Fields of forms: a label, a control, a hint and the problem, tied together for screen readers.

import { h, uniqueId } from "../dom.js";
import { t } from "../i18n.js";

/**
 * A field. `control` is an input, select or textarea. A required one has a mark. The result has
 * `root`, `control` and `setProblem(text or null)`.
 */
export function field({ label, control, hint, unit, className, hideLabel, isRequired }) {
  const id = uniqueId("field");
  control.id = id;
  const problem = h("p", { class: "problem", id: `${id}-problem`, hidden: true, translate: "no" });
  const hintElement = hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null;
  const isCheck = control.type === "checkbox";
  if (isRequired) {
    control.required = true;
  }
  const unitElement = unit ? h("span", { class: "unit", "aria-hidden": "true" }, unit) : null;
  const shown = unit ? h("div", { class: "with-unit" }, control, unitElement) : control;
  const labelElement = h("label", { for: id, class: hideLabel ? "hidden-text" : null }, label);
  const root = h(
    "div",
    { class: ["field", isCheck && "check", isRequired && "is-required", className].filter(Boolean).join(" ") },
    isCheck ? [shown, labelElement] : [labelElement, shown],
    hintElement,
    problem,
  );
  const describe = () => {
    const ids = [hintElement && `${id}-hint`, !problem.hidden && `${id}-problem`].filter(Boolean);
    if (ids.length > 0) {
      control.setAttribute("aria-describedby", ids.join(" "));
    } else {
      control.removeAttribute("aria-describedby");
    }
  };
  describe();
  return {
    root,
    control,
    setProblem(text) {
      problem.hidden = !text;
      problem.textContent = text ?? "";
      if (text) {
        control.setAttribute("aria-invalid", "true");
      } else {
        control.removeAttribute("aria-invalid");
      }
      describe();
    },
  };
}

/** A field with a select; `options` are pairs of value and text. */
export function selectField({ options, value, change, ...rest }) {
  const control = h(
    "select",
    { value, on: change ? { change: () => change(control.value) } : null },
    options.map(([name, text]) => h("option", { value: name }, text)),
  );
  return field({ control, ...rest });
}

/** A field with an input. */
export function inputField({ type = "text", value = "", attributes, input, ...rest }) {
  const control = h("input", { type, value, ...attributes });
  if (input) {
    control.addEventListener("input", () => input(control.value));
  }
  return field({ control, ...rest });
}

/** A button. */
export function button(text, { kind = "", press, type = "button", ...attributes } = {}, picture) {
  return h(
    "button",
    { type, class: `button ${kind}`.trim(), on: press ? { click: press } : null, ...attributes },
    picture,
    text,
  );
}

/** Runs work while a button cannot be pressed again. */
export async function busy(element, work) {
  element.disabled = true;
  try {
    return await work();
  } finally {
    element.disabled = false;
  }
}

/**
 * A dialog with a form. `submit` gets nothing and may throw; its error is shown in the dialog.
 * Resolves when it is closed.
 */
export function formDialog({ title, text, fields, action, danger, submit, explain }) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  const send = button(action, { kind: danger ? "danger" : "primary", type: "submit" });
  const cancel = button(t("cancel"), { press: () => dialog.close() });
  const heading = h("h2", { id: uniqueId("dialog") }, title);
  const form = h(
    "form",
    { class: "dialog-form", novalidate: true },
    heading,
    text && h("p", null, text),
    fields,
    problem,
    h("div", { class: "form-actions" }, cancel, send),
  );
  const dialog = h("dialog", { "aria-labelledby": heading.id }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      await busy(send, submit);
      dialog.close();
    } catch (error) {
      problem.textContent = explain(error);
      problem.hidden = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve();
    });
  });
}
