// What is known of one thing: names and values side by side.

import { h, name } from "../dom.js";
import { shown } from "../format.js";

/** Values may be elements; what is null is left out. */
export function facts(known) {
  const found = Object.entries(known).filter(([, value]) => value !== null && value !== undefined);
  return h(
    "dl",
    { class: "facts" },
    found.map(([title, value]) => h("div", { key: title }, h("dt", {}, title), h("dd", {}, value))),
  );
}

/** Objects of any names and values, by their titles. */
export function settings(objects) {
  return h(
    "div",
    { class: "settings" },
    Object.entries(objects).map(
      ([title, values]) => h("div", { key: title }, h("h3", {}, title), pairs(values)),
    ),
  );
}

export function pairs(values) {
  const found = Object.entries(values ?? {});
  if (!found.length) return h("p", { class: "dim" }, "none");
  return h(
    "dl",
    { class: "pairs" },
    found.map(
      ([key, value]) => h("div", { key }, h("dt", {}, name(key)), h("dd", {}, h("bdi", {}, shown(value)))),
    ),
  );
}
