// Users: add, change the role, disable, set a password, delete. Administrators only.

import { errorText, get, patch, post, remove, session } from "../api.js";
import { data, fill, h, icon } from "../dom.js";
import { shortTime } from "../format.js";
import { t } from "../i18n.js";
import { button, formDialog, inputField, selectField } from "../parts/field.js";
import { say, sayError } from "../parts/notice.js";
import { head, panel } from "../parts/page.js";
import { table } from "../parts/table.js";

const ROLES = ["viewer", "operator", "administrator"];
const PASSWORD = { autocomplete: "new-password", minlength: "12", maxlength: "200" };

function roleOptions() {
  return ROLES.map((role) => [role, t(`role.${role}`)]);
}

async function addUser() {
  const name = inputField({ label: t("user.name"), isRequired: true, attributes: { maxlength: "64", autocomplete: "off", autocapitalize: "none" } });
  const role = selectField({ label: t("user.role"), options: roleOptions(), value: "viewer", hint: t("user.role.text") });
  const password = inputField({ label: t("user.password"), type: "password", isRequired: true, hint: t("user.password.text"), attributes: PASSWORD });
  let isDone = false;
  await formDialog({
    title: t("users.add"),
    fields: [name.root, role.root, password.root],
    action: t("users.add.action"),
    explain: errorText,
    submit: async () => {
      await post("/api/users", { name: name.control.value, role: role.control.value, password: password.control.value });
      isDone = true;
    },
  });
  return isDone;
}

async function setPassword(user) {
  const password = inputField({ label: t("account.new"), type: "password", isRequired: true, hint: t("user.password.text"), attributes: PASSWORD });
  let isDone = false;
  await formDialog({
    title: t("users.set_password"),
    text: t("users.set_password.text"),
    fields: [h("p", { class: "breaks" }, data(user.name)), password.root],
    action: t("users.set_password"),
    explain: errorText,
    submit: async () => {
      await patch(`/api/users/${user.id}`, { password: password.control.value });
      isDone = true;
    },
  });
  return isDone;
}

async function removeUser(user) {
  let isDone = false;
  await formDialog({
    title: t("users.delete"),
    text: t("users.delete.text"),
    fields: [h("p", { class: "breaks" }, data(user.name))],
    action: t("delete"),
    danger: true,
    explain: errorText,
    submit: async () => {
      await remove(`/api/users/${user.id}`);
      isDone = true;
    },
  });
  return isDone;
}

function columns(reload) {
  const after = async (work, text) => {
    try {
      if (await work()) {
        await reload();
        say(t(text));
      }
    } catch (error) {
      await reload();
      sayError(error);
    }
  };
  const change = (user, body) => after(() => patch(`/api/users/${user.id}`, body).then(() => true), "users.changed");
  const isSelf = (user) => user.id === session.user.id;
  return [
    {
      title: t("user.name"),
      isTitle: true,
      cell: (user) => [data(user.name, "breaks"), isSelf(user) && h("span", { class: "soft" }, ` ${t("users.self")}`)],
    },
    {
      title: t("user.role"),
      cell: (user) => selectField({
        label: t("users.role_of", { name: user.name }),
        hideLabel: true,
        value: user.role,
        options: roleOptions(),
        change: (role) => change(user, { role }),
      }).root,
    },
    {
      title: t("users.state"),
      cell: (user) => h("span", { class: user.disabled ? "badge warn" : "badge good" }, t(user.disabled ? "users.disabled" : "users.enabled")),
    },
    { title: t("users.created"), cell: (user) => data(shortTime(user.created_ms), "nowrap") },
    {
      title: t("users.last"),
      cell: (user) => (user.last_sign_in_ms ? data(shortTime(user.last_sign_in_ms), "nowrap") : t("users.never")),
    },
    {
      title: t("users.actions"),
      hideTitle: true,
      cell: (user) => h(
        "div",
        { class: "row-actions" },
        button(t("users.set_password"), { kind: "compact", press: () => after(() => setPassword(user), "users.password_set") }),
        !isSelf(user) && button(t(user.disabled ? "users.enable" : "users.disable"), {
          kind: "compact",
          press: () => change(user, { disabled: !user.disabled }),
        }),
        !isSelf(user) && button(t("delete"), { kind: "quiet compact", press: () => after(() => removeUser(user), "users.gone") }),
      ),
    },
  ];
}

/** Shows the page. */
export async function render({ main, signal, reload }) {
  const { users } = await get("/api/users", { signal });
  const add = button(t("users.add"), {
    kind: "primary",
    press: async () => {
      if (await addUser().catch(sayError)) {
        await reload();
        say(t("users.added"));
      }
    },
  }, icon("plus"));
  const list = table({ caption: t("nav.users"), columns: columns(reload), rows: users, className: "user-table" }).root;
  fill(main, head(t("nav.users"), { lead: t("users.lead"), actions: add }), panel(t("users.list"), list, { isFlush: true }));
}
