// Sign-in. It says why it is shown, and after it the page that was open is shown again.

import { errorText, signIn } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { t } from "../i18n.js";
import { busy, button, inputField } from "../parts/field.js";
import { preferences } from "../preferences.js";

function text(key) {
  const kind = key === "sign_in.expired" ? "warn" : "bad";
  return h("div", { class: `notice ${kind}`, role: "status" }, icon("warning"), h("p", null, t(key)));
}

/** Shows the page in `root`. `done` follows a sign-in, `again` a change of language. */
export function renderSignIn(root, { reason, done, again }) {
  const name = inputField({
    label: t("user.name"),
    attributes: { autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" },
  });
  const password = inputField({
    label: t("user.password"),
    type: "password",
    attributes: { autocomplete: "current-password", required: true },
  });
  const problem = h("p", { class: "problem", role: "alert", hidden: true, translate: "no" });
  const send = button(t("sign_in.action"), { kind: "primary", type: "submit" });
  const form = h(
    "form",
    { novalidate: true },
    h("div", { class: "sign-in-brand" },
      h("img", { src: "/icon.svg", alt: "" }),
      h("div", null, h("h1", null, t("brand")), h("p", { class: "soft" }, t("brand.lead")))),
    reason && text(`sign_in.${reason}`),
    name.root,
    password.root,
    problem,
    send,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    const missing = [name, password].filter(({ control }) => control.value === "");
    for (const one of [name, password]) {
      one.setProblem(missing.includes(one) ? t("problem.empty") : null);
    }
    if (missing.length > 0) {
      missing[0].control.focus();
      return;
    }
    try {
      await busy(send, () => signIn(name.control.value, password.control.value));
      await done();
    } catch (error) {
      problem.textContent = errorText(error);
      problem.hidden = false;
      password.control.value = "";
      password.control.focus();
    }
  });
  const card = h("div", { class: "sign-in-card" }, h("div", { class: "panel" }, form), preferences(again));
  fill(root, h("main", { class: "sign-in" }, card));
  name.control.focus();
}
