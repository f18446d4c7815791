// Tables, and lists of which the broker gives a page at a time.

import { h } from "./dom.js";
import { number } from "./format.js";

const SEARCH_PAUSE_MS = 300;
const PAGE_SIZES = [25, 50, 100, 250];
const PAGE_SIZE = 50;

/** `columns`: {title, cell(row), sort?: field, number?: bool, hint?}. `sorted`: {by, reverse, pick(field)}. */
export function table({ caption, columns, rows, key, sorted, empty }) {
  if (!rows.length) {
    return h("p", { class: "empty", key: `${caption}-empty` }, empty ?? "There is nothing here.");
  }
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, key: caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => header(column, sorted)))),
      h("tbody", {}, rows.map((row) => line(row, columns, key))),
    ),
  );
}

function line(row, columns, key) {
  const cells = columns.map((column, place) => {
    const heads = place === 0 && !column.plain;
    return h(heads ? "th" : "td", { class: classOf(column), scope: heads ? "row" : null }, column.cell(row));
  });
  return h("tr", { key: key ? key(row) : undefined }, cells);
}

const classOf = (column) => (column.number ? "number" : column.title === "" ? "tools" : null);

function header(column, sorted) {
  const attributes = { scope: "col", class: column.number ? "number" : null, title: column.hint };
  if (column.title === "") return h("td", {});
  if (!column.sort || !sorted) return h("th", attributes, column.title);
  const chosen = sorted.by === column.sort;
  const direction = sorted.reverse ? "descending" : "ascending";
  return h(
    "th",
    { ...attributes, "aria-sort": chosen ? direction : "none" },
    h(
      "button",
      { type: "button", class: "sorter", onclick: () => sorted.pick(column) },
      column.title,
      h("span", { class: "arrow", "aria-hidden": "true" }, chosen ? (sorted.reverse ? "▾" : "▴") : ""),
    ),
  );
}

/** What the address asks of a list: page, size, order, search. */
export function listState(ctx, { sort = "", reverse = false } = {}) {
  const { query } = ctx;
  const size = Number(query.size);
  return {
    page: Math.max(1, Number(query.page) || 1),
    size: PAGE_SIZES.includes(size) ? size : PAGE_SIZE,
    by: query.sort ?? sort,
    reverse: query.sort ? query.reverse === "true" : reverse,
    search: query.name ?? "",
    regex: query.regex === "true",
    pick: (column) => {
      const current = query.sort ?? sort;
      const backwards = query.sort ? query.reverse === "true" : reverse;
      const turned = current === column.sort ? !backwards : Boolean(column.number);
      ctx.setQuery({ sort: column.sort, reverse: turned ? "true" : "false", page: undefined });
    },
  };
}

/** The same as the API takes it. */
export function listQuery(state, columns) {
  return {
    page: state.page,
    page_size: state.size,
    name: state.search,
    use_regex: state.search && state.regex ? "true" : undefined,
    sort: state.by,
    sort_reverse: state.by ? String(state.reverse) : undefined,
    columns: columns?.join(","),
  };
}

/** One page of a list. If that has become shorter than where we were, its first page. */
export async function loadPage(ctx, target, query, state) {
  try {
    return await ctx.get(target, query);
  } catch (error) {
    if (error.status !== 400 || state.page === 1) throw error;
    return ctx.get(target, { ...query, page: 1 });
  }
}

export function searchBox(ctx, label, { regex = true } = {}) {
  const state = listState(ctx);
  let timer;
  const changed = (event) => {
    clearTimeout(timer);
    const text = event.target.value;
    timer = setTimeout(() => ctx.setQuery({ name: text, page: undefined }), SEARCH_PAUSE_MS);
  };
  const turned = (event) => ctx.setQuery({
    regex: event.target.checked ? "true" : undefined,
    page: undefined,
  });
  return h(
    "form",
    { class: "search", role: "search", keep: `search-${label}`, onsubmit: (event) => event.preventDefault() },
    h(
      "label",
      {},
      h("span", { class: "unseen" }, label),
      h(
        "input",
        {
          type: "search",
          placeholder: `${label}  ( / )`,
          value: state.search,
          oninput: changed,
          spellcheck: "false",
          autocomplete: "off",
          "data-search": true,
        },
      ),
    ),
    regex && h(
      "label",
      { class: "check" },
      h("input", { type: "checkbox", checked: state.regex, onchange: turned }),
      "Pattern",
    ),
  );
}

/** Which part of the whole this is, and the way to the others. */
export function pager(ctx, answer, what) {
  const {
    page,
    page_count: pages,
    filtered_count: found,
    total_count: total,
    item_count: here,
    page_size: size,
  } = answer;
  const first = (page - 1) * size + 1;
  const part = found ? `${number(first)}–${number(first + here - 1)} of ${number(found)}` : "none";
  const go = (target) => () => ctx.setQuery({ page: target === 1 ? undefined : target });
  const turn = (label, target, text) =>
    h(
      "button",
      {
        type: "button",
        "aria-label": label,
        disabled: target < 1 || target > pages || target === page,
        onclick: go(target),
      },
      text,
    );
  return h(
    "div",
    { class: "pager", role: "group", "aria-label": "Pages" },
    h(
      "span",
      { class: "numbers", role: "status" },
      `${what}: ${part}`,
      found !== total && ` (${number(total)} in all)`,
    ),
    pages > 1 && [
      turn("First page", 1, "«"),
      turn("Previous page", page - 1, "‹"),
      h("span", { class: "numbers" }, `${number(page)} / ${number(pages)}`),
      turn("Next page", page + 1, "›"),
      turn("Last page", pages, "»"),
    ],
    found > PAGE_SIZES[0] && sizes(ctx, size),
  );
}

function sizes(ctx, size) {
  const pick = (event) => ctx.setQuery({ size: event.target.value, page: undefined });
  return h(
    "label",
    { class: "inline", key: "sizes" },
    "Rows ",
    h(
      "select",
      { onchange: pick, keep: `size-${size}` },
      PAGE_SIZES.map((each) => h("option", { value: each, selected: each === size }, each)),
    ),
  );
}
