// How the broker is: rates, depths, alarms, nodes.

import { path } from "../api.js";
import { ageOf, agePicker, ageQuery, chart, gauge, levels, rates } from "../chart.js";
import { h, name } from "../dom.js";
import { bytes, duration, number, rate } from "../format.js";
import { link } from "../router.js";
import { may } from "../session.js";
import { table } from "../table.js";
import { COLUMNS, RECENT, columns } from "./queues.js";

// Sorting very many every five seconds, for every open page, would be felt.
const SORTED_QUEUES_MAX = 5000;
const LONGEST = {
  ...RECENT,
  page: 1,
  page_size: 8,
  sort: "messages_ready",
  sort_reverse: "true",
  columns: COLUMNS.join(","),
};

export const overview = {
  title: () => "Overview",
  nav: "overview",

  async load(ctx) {
    const [totals, nodes] = await Promise.all([
      ctx.get(path("overview"), ageQuery(ageOf(ctx))),
      may.watch() ? ctx.tryGet(path("nodes")) : null,
    ]);
    const cluster = nodes?.length > 1 ? await ctx.tryGet(path("cluster")) : null;
    const few = totals.object_totals.queues <= SORTED_QUEUES_MAX;
    const longest = few ? await ctx.get(path("queues"), LONGEST) : null;
    return { totals, nodes, cluster, longest };
  },

  show(ctx, { totals, nodes, cluster, longest }) {
    return [
      alarms(nodes, cluster),
      tiles(totals),
      h("div", { class: "bar" }, h("h2", {}, "Rates and depth"), agePicker(ctx)),
      h("div", { class: "charts" }, messageRates(totals.message_stats), depth(totals.queue_totals)),
      nodes && [h("h2", {}, "Nodes"), nodeTable(nodes, cluster)],
      cluster && clusterFacts(cluster),
      longest?.items.length > 0 && [
        h("h2", {}, "Longest queues"),
        table({
          caption: "Longest queues",
          rows: longest.items,
          key: (row) => `${row.vhost} ${row.name}`,
          columns: columns({ vhost: ctx.vhosts.length === 1 }),
        }),
      ],
    ];
  },
};

function alarms(nodes, cluster) {
  const found = [];
  for (const node of nodes ?? []) {
    if (!node.running) found.push(`Node ${node.name} is down.`);
    if (node.mem_alarm) found.push(`Node ${node.name} is short of memory: publishers are held back.`);
    if (node.disk_free_alarm) {
      found.push(`Node ${node.name} is short of disk space: publishers are held back.`);
    }
  }
  if (cluster?.queues_without_leader) {
    found.push(`${number(cluster.queues_without_leader)} queues have no leader now.`);
  }
  if (cluster?.damaged_groups) {
    found.push(`${number(cluster.damaged_groups)} damaged replicas are being made anew.`);
  }
  if (!nodes) return null;
  if (!found.length) {
    return h(
      "p",
      { class: "health good", role: "status", key: "health" },
      "No alarms. ",
      nodes.length > 1 ? `All ${nodes.length} nodes are up.` : "The node is up.",
    );
  }
  return h(
    "ul",
    { class: "health bad", role: "alert", key: "alarms" },
    found.map((text) => h("li", {}, text)),
  );
}

function tiles({ queue_totals: held, object_totals: objects }) {
  const tile = (title, value, view) => h(
    "a",
    { class: "tile", href: link([view]) },
    h("span", {}, title),
    h("b", { class: "numbers" }, number(value)),
  );
  return h(
    "div",
    { class: "tiles" },
    tile("Ready", held.messages_ready, "queues"),
    tile("Unacked", held.messages_unacknowledged, "queues"),
    tile("Queues", objects.queues, "queues"),
    tile("Exchanges", objects.exchanges, "exchanges"),
    tile("Connections", objects.connections, "connections"),
    tile("Channels", objects.channels, "channels"),
    tile("Consumers", objects.consumers, "consumers"),
  );
}

export function messageRates(stats, kinds = KINDS) {
  const series = kinds.map(
    ([title, field]) => ({
      title,
      points: rates(stats?.[`${field}_details`]),
      now: stats?.[`${field}_details`]?.rate ?? 0,
    }),
  );
  return chart({ title: "Messages per second", series, format: rate });
}

const KINDS = [
  ["Published", "publish"],
  ["Delivered", "deliver_get"],
  ["Acked", "ack"],
  ["Confirmed", "confirm"],
];

export function depth(held) {
  const series = [
    { title: "Ready", points: levels(held.messages_ready_details), now: held.messages_ready },
    {
      title: "Unacked",
      points: levels(held.messages_unacknowledged_details),
      now: held.messages_unacknowledged,
    },
  ];
  return chart({ title: "Messages held", series });
}

function nodeTable(nodes, cluster) {
  const member = (node) => cluster?.nodes.find((each) => each.name === node.name);
  return table({
    caption: "Nodes",
    rows: nodes,
    key: (node) => node.name,
    columns: [
      { title: "Node", cell: (node) => name(node.name) },
      {
        title: "State",
        cell: (node) => h(
          "span",
          { class: node.running ? "badge good" : "badge bad" },
          node.running ? (member(node)?.draining ? "draining" : "up") : "down",
        ),
      },
      {
        title: "Memory",
        cell: (node) => node.running && used(node.mem_used, node.mem_limit, "memory used", node.mem_alarm),
      },
      { title: "Disk free", cell: (node) => node.running && free(node) },
      {
        title: "Files",
        number: true,
        cell: (node) => node.running && `${number(node.fd_used)} / ${number(node.fd_total)}`,
      },
      { title: "Sockets", number: true, cell: (node) => number(node.sockets_used) },
      { title: "Up for", number: true, cell: (node) => (node.running ? duration(node.uptime) : "–") },
      ...(
        cluster ? [
          { title: "Leads", number: true, cell: (node) => number(member(node)?.leaders) },
          {
            title: "Behind",
            number: true,
            hint: "Log entries that it does not have yet",
            cell: (node) => number(member(node)?.behind_entries),
          },
        ] : []
      ),
    ],
  });
}

function used(value, limit, what, alarm) {
  return [
    h("span", { class: "numbers" }, `${bytes(value)} of ${bytes(limit)}`),
    gauge(value, limit, `${Math.round((value / limit) * 100)} % of ${what}`, alarm),
  ];
}

function free(node) {
  return h(
    "span",
    { class: `numbers ${node.disk_free_alarm ? "bad" : ""}` },
    bytes(node.disk_free),
    h("span", { class: "dim" }, ` (alarm below ${bytes(node.disk_free_limit)})`),
  );
}

function clusterFacts(cluster) {
  return h(
    "p",
    { class: "dim" },
    `Definitions are led by ${cluster.leader ?? "nobody now"}. ${number(cluster.queues)} replicated queues, ${number(cluster.queues_without_leader)} without a leader.`,
  );
}
