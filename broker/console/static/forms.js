// Forms: labelled fields, arguments as lines of text, buttons that do something at the broker.

import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { complain, say } from "./notices.js";

let lastId = 0;

/** {label, name, type?, value?, options?, rows?, required?, hint?, …attributes of the input}. */
export function field({ label, hint, options, rows, type = "text", ...attributes }) {
  const id = `field-${(lastId += 1)}`;
  const described = hint ? `${id}-hint` : null;
  const common = { id, "aria-describedby": described, autocomplete: "off", ...attributes };
  const { value, ...others } = common;
  let input;
  if (options) input = h("select", others, options.map((each) => option(each, value)));
  else if (rows) input = h("textarea", { rows, spellcheck: "false", ...others }, value ?? "");
  else input = h(
    "input",
    { type, spellcheck: "false", ...(type === "checkbox" ? { ...others, checked: value } : common) },
  );
  const text = h("span", { class: "label" }, label);
  return h(
    "div",
    { class: `field ${type === "checkbox" ? "check" : ""} ${rows ? "long" : ""}` },
    h("label", { for: id }, text),
    input,
    hint && h("small", { id: described }, hint),
  );
}

function option(each, value) {
  const [key, text] = Array.isArray(each) ? each : [each, each];
  return h("option", { value: key, selected: key === value }, text);
}

/** A form that stays as it is filled in. `submit(values)` may return what to say when it is done. */
export function form({ keep, fields, button, danger = false, submit, after, clear = true }) {
  const send = h("button", { type: "submit", class: danger ? "danger" : "primary" }, button);
  const element = h("form", { class: "fields", keep }, fields, h("div", { class: "buttons" }, send));
  element.onsubmit = async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      const text = await submit(valuesOf(element), element);
      if (text) say(text);
      if (clear && text) element.reset();
      await after?.();
    } catch (error) {
      complain(error);
    } finally {
      send.disabled = false;
    }
  };
  return element;
}

function valuesOf(element) {
  const values = {};
  for (const input of element.elements) {
    if (input.name) values[input.name] = input.type === "checkbox" ? input.checked : input.value;
  }
  return values;
}

/** What opens to show a form, so that pages stay short. */
export function drawer(title, ...children) {
  return h(
    "details",
    { class: "drawer", key: `drawer-${title}` },
    h("summary", {}, title),
    h("div", { class: "drawn" }, children),
  );
}

/** A button that does something; `question` is asked first. */
export function action(ctx, { text, label, run, question, danger = false, disabled = false, reload }) {
  const onclick = async (event) => {
    const button = event.currentTarget;
    if (question && !(await ask(question))) return;
    button.disabled = true;
    try {
      // Alone: what asks about a thing while it is deleted would only hear that it is gone.
      const said = await ctx.alone(run);
      if (said) say(said);
    } catch (error) {
      complain(error);
    } finally {
      button.disabled = false;
      (reload ?? ctx.reload)();
    }
  };
  return h(
    "button",
    { type: "button", class: danger ? "danger" : null, "aria-label": label, disabled, onclick },
    text,
  );
}

/** Lines of name=value; a value is JSON (100, true, ["a"], null) or, if it is not, a text. */
export function parseLines(text) {
  const found = {};
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`“${line.trim()}” is not name=value`);
    found[line.slice(0, at).trim()] = parseValue(line.slice(at + 1).trim());
  }
  return found;
}

export function parseValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export function parseObject(text, what) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${what} is not a JSON object such as {"max-length": 1000}`);
  }
  return value;
}

export function vhostField(ctx, name = "vhost") {
  return field({ label: "Virtual host", name, options: ctx.vhosts, value: ctx.vhost || ctx.vhosts[0] });
}
