// Questions that must be answered before something is done that cannot be undone.

import { h } from "./dom.js";

/** Whether the user says yes. Escape and Cancel say no; focus goes back to where it was. */
export function ask({ title, text, yes }) {
  return new Promise((resolve) => {
    const answer = (value) => () => dialog.close(value);
    const dialog = h(
      "dialog",
      { "aria-labelledby": "ask-title", "aria-describedby": "ask-text" },
      h("h2", { id: "ask-title" }, title),
      h("p", { id: "ask-text" }, text),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", autofocus: true, onclick: answer("") }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: answer("yes") }, yes),
      ),
    );
    dialog.onclose = () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    };
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Something to read or to fill in, in a dialog of its own; returns how to close it. */
export function open(title, ...children) {
  const close = () => dialog.close();
  const dialog = h(
    "dialog",
    { class: "wide", "aria-labelledby": "dialog-title" },
    h("h2", { id: "dialog-title" }, title),
    children,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Close")),
  );
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  return close;
}
