// Language and theme: two selects, remembered in this browser.

import { h, uniqueId } from "./dom.js";
import { LANGUAGES, currentLanguage, t, useLanguage } from "./i18n.js";

const THEMES = ["system", "light", "dark"];
const KEY = "farcore.theme";

/** Told when the colours of the page have changed: charts draw them anew. */
export const themeChanges = new EventTarget();

function useTheme(name) {
  document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(KEY, name);
  } catch {
    // It holds until the page is closed.
  }
  themeChanges.dispatchEvent(new Event("change"));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  themeChanges.dispatchEvent(new Event("change"));
});

function choice(label, options, value, choose) {
  const id = uniqueId("preference");
  return h(
    "div",
    null,
    h("label", { class: "hidden-text", for: id }, label),
    h(
      "select",
      { id, value, on: { change: (event) => choose(event.target.value) } },
      options.map(([name, text]) => h("option", { value: name }, text)),
    ),
  );
}

/** Both selects; `again` builds the page in the new language. */
export function preferences(again) {
  const languages = Object.entries(LANGUAGES);
  const themes = THEMES.map((name) => [name, t(`theme.${name}`)]);
  return h(
    "div",
    { class: "preferences" },
    choice(t("preferences.language"), languages, currentLanguage(), async (name) => {
      await useLanguage(name);
      await again();
    }),
    choice(t("preferences.theme"), themes, document.documentElement.dataset.theme, useTheme),
  );
}
