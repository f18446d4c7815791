// One exchange: its rates, its routing graph, its bindings, and publishing to it.

import { exchangeSegment, path, post, remove } from "../api.js";
import { ageOf, agePicker, ageQuery, chart, rates } from "../chart.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form, parseLines } from "../forms.js";
import { number, rate } from "../format.js";
import { NODES_MAX, routingGraph } from "../graph.js";
import { bindingTable } from "./bindings.js";
import { facts, settings } from "./facts.js";
import { publishForm } from "./publish.js";

const AGES_MAX = 2;
const BINDINGS = 100; // shown; and of exchanges further on, as many as fit the picture
const FURTHER_MAX = 6;
const FURTHER_BINDINGS = 20;

export const exchange = {
  title: ({ name }) => (name === "" ? "Default exchange" : `Exchange ${name}`),
  nav: "exchanges",

  async load(ctx) {
    const { vhost, name } = ctx.params;
    const target = path("exchanges", vhost, exchangeSegment(name));
    const row = await ctx.get(target, ageQuery(ageOf(ctx, AGES_MAX)));
    // Every queue is bound to the default exchange by its own name: there is nothing to draw.
    if (name === "") return { row };
    const page = { page: 1, page_size: BINDINGS };
    const [from, to] = await Promise.all([
      ctx.get(`${target}/bindings/source`, page),
      ctx.get(`${target}/bindings/destination`, page),
    ]);
    const further = [
      ...new Set(
        from.items.filter((each) => each.destination_type === "exchange").map((each) => each.destination),
      ),
    ].filter((each) => each !== name);
    const answers = await Promise.all(
      further.slice(0, FURTHER_MAX).map(
        (each) => ctx.tryGet(
          path("exchanges", vhost, each, "bindings", "source"),
          { page: 1, page_size: FURTHER_BINDINGS },
        ),
      ),
    );
    return { row, from, to, further: answers.flatMap((each) => each?.items ?? []) };
  },

  show(ctx, { row, from, to, further }) {
    const { vhost } = ctx.params;
    const stats = row.message_stats;
    return [
      facts({
        "Virtual host": name(vhost),
        Type: row.type,
        Durable: row.durable ? "yes" : "no",
        Internal: row.internal ? "yes" : null,
        "Auto-delete": row.auto_delete ? "yes" : null,
        Policy: row.policy ? name(row.policy) : null,
      }),
      h("div", { class: "bar" }, h("h2", {}, "Rates"), agePicker(ctx, AGES_MAX)),
      h(
        "div",
        { class: "charts" },
        chart({
          title: "Messages per second",
          format: rate,
          series: [
            {
              title: "In",
              points: rates(stats?.publish_in_details),
              now: stats?.publish_in_details?.rate ?? 0,
            },
            {
              title: "Out",
              points: rates(stats?.publish_out_details),
              now: stats?.publish_out_details?.rate ?? 0,
            },
          ],
        }),
      ),
      Object.keys(row.arguments).length > 0 && settings({ Arguments: row.arguments }),
      h("h2", {}, "Routing"),
      from ? routing(ctx, row, from, to, further) : h(
        "p",
        {},
        "A message goes to the queue whose name is its routing key. No binding is needed, or possible.",
      ),
      !row.internal && drawer("Publish a message", publishForm(ctx, { vhost, exchange: row.name })),
      from && !row.name.startsWith("amq.") && [
        h("h2", {}, "Actions"),
        h("div", { class: "buttons" }, deletion(ctx, row)),
      ],
    ];
  },
};

function routing(ctx, row, from, to, further) {
  return [
    picture(row, from, to, further),
    h("h3", {}, "Bindings from this exchange"),
    bindingTable(ctx, from, "destination", "Bindings from this exchange"),
    drawer("Bind a queue or an exchange", bindForm(ctx, row)),
    to.items.length > 0 && [
      h("h3", {}, "Bindings to this exchange"),
      bindingTable(ctx, to, "source", "Bindings to this exchange"),
    ],
  ];
}

/** Layers: exchanges that lead here, this one, what it leads to, and what those lead to. */
function picture(row, from, to, further) {
  const own = idOf("exchange", row.name);
  const alternate = row.arguments["alternate-exchange"];
  const nodes = new Map([[own, { id: own, name: row.name, kind: "exchange", vhost: row.vhost, self: true }]]);
  const edges = new Map();
  const layers = [[], [own], [], []];
  const place = (kind, called, layer) => {
    const id = idOf(kind, called);
    if (!nodes.has(id) && nodes.size < NODES_MAX) {
      nodes.set(id, { id, name: called, kind, vhost: row.vhost });
      layers[layer].push(id);
    }
    return id;
  };
  const join = (binding, source, target) => {
    const key = `${source} ${target}`;
    const edge = edges.get(key) ?? { from: source, to: target, labels: [] };
    edges.set(key, edge);
    const said = binding.routing_key || Object.keys(binding.arguments).join(", ");
    if (said) edge.labels.push(said);
  };
  for (const each of to.items) join(each, place("exchange", each.source, 0), own);
  for (const each of from.items) join(each, own, place(each.destination_type, each.destination, 2));
  for (const each of further) {
    join(each, idOf("exchange", each.source), place(each.destination_type, each.destination, 3));
  }
  if (typeof alternate === "string") {
    edges.set(
      "alternate",
      { from: own, to: place("exchange", alternate, 2), labels: ["otherwise"], dashed: true },
    );
  }
  if (!edges.size) {
    return h(
      "p",
      { class: "empty" },
      "Nothing is bound to this exchange: what is published here goes nowhere.",
    );
  }
  const left = from.filtered_count + to.filtered_count - from.items.length - to.items.length;
  const more = left > 0 || nodes.size >= NODES_MAX;
  return h(
    "figure",
    {},
    routingGraph({
      title: `Routing of exchange ${row.name}`,
      nodes: [...nodes.values()],
      edges: [...edges.values()].map((edge) => ({ ...edge, label: edge.labels.join(", ") })),
      layers: layers.filter((layer) => layer.length),
    }),
    h(
      "figcaption",
      { class: "dim" },
      "Rounded boxes are exchanges, square ones queues; along the lines are routing keys. The tables below say the same.",
      more && ` There are more than are drawn: ${number(from.total_count)} bindings from here.`,
    ),
  );
}

const idOf = (kind, called) => `${kind} ${called}`;

function bindForm(ctx, row) {
  return form({
    keep: "bind",
    button: "Bind",
    fields: [
      field({ label: "To", name: "kind", options: [["q", "queue"], ["e", "exchange"]] }),
      field({ label: "Its name", name: "destination", required: true }),
      field({ label: "Routing key", name: "key" }),
      field({ label: "Arguments", name: "arguments", rows: 2, hint: "One name=value per line; for a headers exchange what to match, and x-match=all or any." }),
    ],
    submit: async (values) => {
      await post(
        path("bindings", row.vhost, "e", row.name, values.kind, values.destination),
        { routing_key: values.key, arguments: parseLines(values.arguments) },
      );
      return `“${values.destination}” is bound.`;
    },
    after: () => ctx.reload(),
  });
}

function deletion(ctx, row) {
  return action(ctx, {
    text: "Delete",
    danger: true,
    question: {
      title: "Delete this exchange?",
      text: `“${row.name}” goes for good, with its bindings. Publishers to it get errors.`,
      yes: "Delete",
    },
    run: async () => {
      await remove(path("exchanges", row.vhost, row.name));
      ctx.go(["exchanges"]);
      return `“${row.name}” is deleted.`;
    },
  });
}
