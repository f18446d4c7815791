// What happened and what went wrong, said once, where screen readers hear it.

import { h } from "./dom.js";

const SHOWN_MS = 8000;
const NOTICES_MAX = 4;

export const say = (text) => add(text, "done");

/** An error, or a text. It stays until it is closed. */
export function complain(error) {
  if (error?.name === "AbortError" || error?.kind === "login") return;
  add(error?.message ?? String(error), "failed");
}

export function clearNotices() {
  region().replaceChildren();
}

const region = () => document.getElementById("notices");

function add(text, kind) {
  const close = h(
    "button",
    { type: "button", class: "plain", "aria-label": "Close message", onclick: () => notice.remove() },
    "×",
  );
  const notice = h(
    "div",
    { class: `notice ${kind}`, role: kind === "failed" ? "alert" : null },
    h("span", {}, text),
    close,
  );
  const place = region();
  while (place.childElementCount >= NOTICES_MAX) place.firstChild.remove();
  place.append(notice);
  if (kind === "done") setTimeout(() => notice.remove(), SHOWN_MS);
}
