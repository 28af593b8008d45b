// Two runs for a first visitor: the same load on a card with three tiers and on a plain one. With
// them, every page of runs has something to show.

import { get, post } from "./api.js";
import { t } from "./i18n.js";
import { isEnded } from "./run_data.js";

const PRESETS = ["tiers", "plain"];
/** Few messages, so that both end within seconds. */
const LENGTH = { messages: 400_000, warmup: 50_000 };
const LOOK_MS = 300;

/** Starts the example runs; resolves with their numbers when both have ended. */
export async function runExamples(signal) {
  const { presets } = await get("/api/form", { signal });
  const ids = [];
  for (const name of PRESETS) {
    const preset = presets.find(({ id }) => id === name) ?? presets[0];
    const body = { name: t(`example.${name}`), settings: { ...preset.settings, ...LENGTH } };
    const { id } = await post("/api/runs", body, { signal });
    ids.push(id);
  }
  for (const id of ids) {
    while (!isEnded((await get(`/api/runs/${id}`, { signal })).state)) {
      await new Promise((resolve) => {
        setTimeout(resolve, LOOK_MS);
      });
    }
  }
  return ids;
}
