// Graphs over time: lines in SVG, their labels and numbers in HTML, so that they are sharp at any width.

import { h, svg } from "./dom.js";
import { clock, number, short } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
export const AGES = [
  [60, 5, "1 minute"],
  [600, 5, "10 minutes"],
  [3600, 60, "1 hour"],
  [28800, 600, "8 hours"],
  [86400, 1800, "1 day"],
];

/** Samples as the API has them, newest first → points, oldest first. */
export const levels = (details) => (details?.samples ?? []).map(
  (each) => [each.timestamp, each.sample],
).reverse();

/** The same of a counter: what was added per second between two samples. */
export function rates(details) {
  const points = levels(details);
  return points.slice(1).map(([at, count], place) => {
    const [before, had] = points[place];
    return [at, Math.max(0, ((count - had) * 1000) / (at - before))];
  });
}

/** `series`: {title, points, now?}; `format` is for values. */
export function chart({ title, series, format = number, unit = "" }) {
  const filled = series.filter((each) => each.points.length > 1);
  const top = ceiling(Math.max(0, ...filled.flatMap((each) => each.points.map(([, value]) => value))));
  const said = series.map(
    (each) => `${each.title} ${format(each.now ?? last(each.points))}${unit}`,
  ).join(", ");
  return h(
    "figure",
    { class: "chart", key: `chart-${title}` },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), legend(series, format, unit)),
    h(
      "div",
      { class: "plot" },
      scale(top),
      drawing(filled, top, `${title}, now: ${said}`),
      cursor(filled, format, unit),
    ),
    span(filled),
  );
}

const last = (points) => (points.length ? points[points.length - 1][1] : 0);

/** The next round number, of which half is round enough. */
function ceiling(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value) * power;
}

function legend(series, format, unit) {
  return h(
    "ul",
    { class: "legend" },
    series.map((each, place) =>
      h(
        "li",
        {},
        h("span", { class: `swatch s${place}`, "aria-hidden": "true" }),
        `${each.title} `,
        h("b", { class: "numbers" }, `${format(each.now ?? last(each.points))}${unit}`),
      ),
    ),
  );
}

function scale(top) {
  return h(
    "div",
    { class: "scale numbers", "aria-hidden": "true" },
    [top, top / 2, 0].map((value) => h("span", {}, short(value))),
  );
}

function drawing(series, top, label) {
  const lines = [0, HEIGHT / 2, HEIGHT].map(
    (y) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }),
  );
  const paths = series.map((each, place) => [
    place === 0 && svg(
      "path",
      {
        class: `area s${each.place ?? place}`,
        d: `${outline(each.points, top)}L${WIDTH},${HEIGHT}L0,${HEIGHT}Z`,
      },
    ),
    svg("path", { class: `line s${each.place ?? place}`, d: outline(each.points, top) }),
  ]);
  return svg(
    "svg",
    { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    lines,
    paths,
  );
}

function outline(points, top) {
  const begin = points[0][0];
  const length = points[points.length - 1][0] - begin || 1;
  const place = ([at, value]) => `${round(((at - begin) / length) * WIDTH)},${round(HEIGHT - (value / top) * HEIGHT)}`;
  return `M${points.map(place).join("L")}`;
}

const round = (value) => Math.round(value * 10) / 10;

/** A line that follows the pointer, with the values there. For eyes only: the legend has the numbers. */
function cursor(series, format, unit) {
  const mark = h(
    "div",
    { class: "mark", hidden: true, keep: "mark", "aria-hidden": "true" },
    h("span", { class: "mark-text" }),
  );
  const plot = h("div", { class: "cursor" }, mark);
  plot.onpointermove = (event) => follow(event, series, format, unit);
  plot.onpointerleave = (event) => {
    event.currentTarget.firstChild.hidden = true;
  };
  plot._handlers = new Set(["onpointermove", "onpointerleave"]);
  return plot;
}

function follow(event, series, format, unit) {
  const area = event.currentTarget;
  const mark = area.firstChild;
  const points = series[0]?.points;
  if (!points) return;
  const share = Math.min(1, Math.max(0, event.offsetX / area.clientWidth));
  const place = Math.round(share * (points.length - 1));
  const values = series.map((each) => `${each.title} ${format(each.points[place]?.[1] ?? 0)}${unit}`);
  mark.hidden = false;
  mark.style.left = `${(place / (points.length - 1)) * 100}%`;
  mark.classList.toggle("left", share > 0.5);
  mark.firstChild.textContent = [clock(points[place][0]), ...values].join("\n");
}

function span(series) {
  const points = series[0]?.points;
  if (!points) return h("p", { class: "span dim" }, "No samples yet.");
  return h(
    "div",
    { class: "span numbers dim", "aria-hidden": "true" },
    h("span", {}, clock(points[0][0])),
    h("span", {}, clock(last(points.map(([at]) => [at, at])))),
  );
}

/** A small line without numbers, for rows of a table. */
export function spark(points, label) {
  if (points.length < 2 || !points.some(([, value]) => value)) return null;
  const top = Math.max(1, ...points.map(([, value]) => value));
  return svg(
    "svg",
    {
      class: "spark",
      viewBox: `0 -6 ${WIDTH} ${HEIGHT + 12}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    svg("path", { class: "line s0", d: outline(points, top) }),
  );
}

/** How far back graphs go: chosen once, for all of them. */
export function agePicker(ctx, most = AGES.length) {
  const chosen = ageOf(ctx, most);
  const pick = (event) => ctx.setQuery({ age: event.target.value });
  return h(
    "label",
    { class: "inline" },
    "Last ",
    h(
      "select",
      { keep: `age-${chosen[0]}`, onchange: pick },
      AGES.slice(0, most).map(
        ([age, , text]) => h("option", { value: age, selected: age === chosen[0] }, text),
      ),
    ),
  );
}

export const ageOf = (ctx, most = AGES.length) => AGES.slice(0, most).find(
  ([age]) => String(age) === ctx.query.age,
) ?? AGES[1];

/** What the API is to be asked for graphs. */
export function ageQuery([age, step]) {
  return { lengths_age: age, lengths_incr: step, msg_rates_age: age, msg_rates_incr: step };
}

/** How full something is. */
export function gauge(used, limit, label, warn = false) {
  const share = limit > 0 ? Math.min(1, used / limit) : 0;
  return svg(
    "svg",
    {
      class: `gauge ${warn || share > 0.9 ? "warn" : ""}`,
      viewBox: "0 0 100 6",
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    svg("rect", { class: "track", width: 100, height: 6 }),
    svg("rect", { class: "fill", width: round(share * 100), height: 6 }),
  );
}
