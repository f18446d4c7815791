// The routing graph of an exchange: what leads to it, itself, and where its bindings lead, left to right.

import { h, svg } from "./dom.js";
import { link } from "./router.js";

const BOX_WIDTH = 190;
const BOX_HEIGHT = 30;
const GAP_X = 190;
const GAP_Y = 18;
const MARGIN = 12;
const NAME_CHARS_MAX = 24;
const KEY_CHARS_MAX = 22;
export const NODES_MAX = 60; // more cannot be read; the table has them all

/** `edges`: {from, to, label, dashed?} between nodes {id, name, kind, vhost}; `layers`: ids by column. */
export function routingGraph({ title, nodes, edges, layers }) {
  const places = arrange(layers, edges);
  const height = Math.max(...[...places.values()].map(({ y }) => y)) + BOX_HEIGHT + MARGIN;
  const width = layers.length * (BOX_WIDTH + GAP_X) - GAP_X + 2 * MARGIN;
  const arrow = svg(
    "marker",
    { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { class: "head", d: "M0,0L8,4L0,8Z" }),
  );
  const drawn = edges.filter((edge) => places.has(edge.from) && places.has(edge.to));
  return h(
    "div",
    { class: "graph scroll", tabindex: "0", role: "region", "aria-label": `${title}, drawn` },
    svg(
      "svg",
      {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": summary(title, nodes, drawn),
      },
      svg("defs", {}, arrow),
      drawn.map((edge) => line(edge, places)),
      nodes.filter((node) => places.has(node.id)).map((node) => box(node, places.get(node.id))),
      drawn.map((edge) => label(edge, places, drawn)),
    ),
  );
}

/** In words what the picture shows; the table of bindings has every one. */
function summary(title, nodes, edges) {
  const called = new Map(nodes.map((node) => [node.id, `${node.kind} ${node.name || "(default)"}`]));
  const said = edges.map((edge) => {
    const key = edge.label ? ` by ${edge.label}` : "";
    return `${called.get(edge.from)} to ${called.get(edge.to)}${key}`;
  });
  return `${title}: ${said.join("; ")}`;
}

/** Columns around the middle of the longest; but what is further on stands beside what leads there. */
function arrange(layers, edges) {
  const step = BOX_HEIGHT + GAP_Y;
  const most = Math.max(...layers.map((layer) => layer.length));
  const places = new Map();
  layers.forEach((layer, column) => {
    let y = MARGIN + ((most - layer.length) * step) / 2;
    layer.forEach((id, row) => {
      const source = edges.find((edge) => edge.to === id && places.get(edge.from)?.column === column - 1);
      const beside = places.get(source?.from)?.y;
      const isFurther = column > 1 && column === layers.length - 1 && layers[column - 1].length > 1;
      if (isFurther && beside !== undefined) y = row === 0 ? beside : Math.max(y, beside);
      places.set(id, { x: MARGIN + column * (BOX_WIDTH + GAP_X), y, column });
      y += step;
    });
  });
  return places;
}

function line(edge, places) {
  const from = places.get(edge.from);
  const to = places.get(edge.to);
  const [x1, y1, x2, y2] = [from.x + BOX_WIDTH, from.y + BOX_HEIGHT / 2, to.x, to.y + BOX_HEIGHT / 2];
  const classes = `edge ${edge.dashed ? "dashed" : ""}`;
  if (from.column < to.column) {
    const bend = (x2 - x1) * 0.4;
    return svg(
      "path",
      {
        class: classes,
        d: `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend * 1.6},${y2} ${x2 - 1},${y2}`,
        "marker-end": "url(#arrow)",
      },
    );
  }
  const out = from.x + BOX_WIDTH / 2; // backwards, or to itself: around the outside
  const into = to.x + BOX_WIDTH / 2;
  const low = Math.max(from.y, to.y) + BOX_HEIGHT + GAP_Y - 4;
  return svg(
    "path",
    {
      class: `${classes} back`,
      d: `M${out},${from.y + BOX_HEIGHT}C${out + 40},${low} ${into - 40},${low} ${into},${to.y + BOX_HEIGHT + 1}`,
      "marker-end": "url(#arrow)",
    },
  );
}

function label(edge, places, edges) {
  if (!edge.label) return null;
  const to = places.get(edge.to);
  const others = edges.filter((each) => each.to === edge.to);
  const y = to.y + BOX_HEIGHT / 2 - 5 + others.indexOf(edge) * 12;
  return svg(
    "text",
    { class: "key", x: to.x - 14, y, "text-anchor": "end" },
    svg("title", {}, edge.label),
    cut(edge.label, KEY_CHARS_MAX),
  );
}

function box(node, { x, y }) {
  const view = node.kind === "exchange" ? [
    "exchanges",
    node.vhost,
    node.name,
  ] : ["queues", node.vhost, node.name];
  const shape = svg(
    "rect",
    { x, y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: node.kind === "exchange" ? 15 : 4 },
  );
  const text = svg(
    "text",
    { x: x + BOX_WIDTH / 2, y: y + BOX_HEIGHT / 2 + 4, "text-anchor": "middle" },
    cut(node.name || "(default)", NAME_CHARS_MAX),
  );
  const classes = `box ${node.kind} ${node.self ? "self" : ""} ${node.missing ? "missing" : ""}`;
  if (node.missing) return svg("g", { class: classes }, shape, text);
  return svg(
    "a",
    { class: classes, href: link(view), tabindex: "-1" },
    svg("title", {}, node.name),
    shape,
    text,
  );
}

function cut(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}
