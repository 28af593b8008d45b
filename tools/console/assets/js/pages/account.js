// The user's own account: role, password, language, theme, and the tour again.

import { errorText, post, session } from "../api.js";
import { data, fill, h } from "../dom.js";
import { t } from "../i18n.js";
import { busy, button, inputField } from "../parts/field.js";
import { say } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";

const SHORTEST = 12;

function passwordForm() {
  const make = (key, autocomplete, hint) => inputField({
    label: t(`account.${key}`),
    type: "password",
    hint,
    isRequired: true,
    attributes: { autocomplete, maxlength: "200" },
  });
  const current = make("current", "current-password");
  const fresh = make("new", "new-password", t("user.password.text"));
  const again = make("again", "new-password");
  const problem = h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  const send = button(t("account.change"), { kind: "primary", type: "submit" });
  const form = h(
    "form",
    { class: "stack narrow-form", novalidate: true },
    h("input", { type: "text", hidden: true, autocomplete: "username", value: session.user.name, "aria-hidden": "true" }),
    current.root,
    fresh.root,
    again.root,
    problem,
    h("div", { class: "form-actions" }, send),
  );
  const check = () => {
    current.setProblem(current.control.value ? null : t("problem.empty"));
    fresh.setProblem([...fresh.control.value].length < SHORTEST ? t("account.short") : null);
    again.setProblem(again.control.value === fresh.control.value ? null : t("account.different"));
    return [current, fresh, again].find(({ control }) => control.getAttribute("aria-invalid") === "true");
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    const wrong = check();
    if (wrong) {
      wrong.control.focus();
      return;
    }
    try {
      await busy(send, () => post("/api/password", { current: current.control.value, new: fresh.control.value }));
      form.reset();
      say(t("account.changed"));
    } catch (error) {
      problem.textContent = errorText(error);
      problem.hidden = false;
    }
  });
  return form;
}

/** Shows the page. */
export async function render({ main }) {
  const about = h(
    "dl",
    { class: "pairs" },
    h("dt", null, t("user.name")),
    h("dd", null, data(session.user.name)),
    h("dt", null, t("user.role")),
    h("dd", null, t(`role.${session.user.role}`)),
    h("dt", null, t("account.may")),
    h("dd", null, t(`role.${session.user.role}.text`)),
  );
  fill(
    main,
    head(t("nav.account"), { lead: t("account.lead") }),
    h("div", { class: "columns" }, panel(t("account.about"), about), panel(t("account.password"), passwordForm())),
  );
}
