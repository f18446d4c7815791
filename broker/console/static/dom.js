// Elements out of plain values, and a page brought up to date without disturbing who uses it.
//
// Whatever is shown goes in as text. Nothing here, or anywhere in the console, makes markup out of a
// string: names of queues, messages and users are whatever somebody called them.

const SVG = "http://www.w3.org/2000/svg";
const UNBROKEN_CHARS_MAX = 40; // longer names may take several lines
// What the user has done to an element and a refresh must not undo.
const THEIRS = { DETAILS: ["open"], DIALOG: ["open"] };

/** An HTML element. Attributes: `onclick` and the like are functions, `key` tells siblings apart,
 *  `keep` names a part that stays as it is once it is there (forms). */
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "key" || name === "keep") element[`_${name}`] = value;
    else if (typeof value === "function") listen(element, name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function listen(element, name, handler) {
  element[name] = handler;
  (element._handlers ??= new Set()).add(name);
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Make an element's content this, changing only what differs: focus, selection, scroll positions
 *  and what is being typed stay. */
export function update(parent, ...children) {
  const focused = document.activeElement;
  const fresh = document.createDocumentFragment();
  append(fresh, children);
  merge(parent, fresh);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function merge(old, fresh) {
  const byKey = new Map();
  for (const child of old.childNodes) if (child._key !== undefined) byKey.set(child._key, child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const found = wanted._key === undefined ? place : byKey.get(wanted._key);
    if (!found || !alike(found, wanted)) {
      old.insertBefore(wanted, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else old.insertBefore(found, place);
    change(found, wanted);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function alike(one, other) {
  return one.nodeName === other.nodeName && one._key === other._key && one._keep === other._keep;
}

function change(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old._keep !== undefined) return;
  const theirs = THEIRS[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !theirs.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !theirs.includes(name)) old.setAttribute(name, value);
  }
  for (const name of old._handlers ?? []) old[name] = null;
  for (const name of fresh._handlers ?? []) old[name] = fresh[name];
  old._handlers = fresh._handlers;
  merge(old, fresh);
}

/** A name of somebody's choosing: kept apart from the text around it, whichever way it is written. */
export function name(text, otherwise = "(no name)") {
  if (text === "") return h("span", { class: "dim" }, otherwise);
  return h("bdi", { class: text.length <= UNBROKEN_CHARS_MAX ? "name short" : "name" }, text);
}
