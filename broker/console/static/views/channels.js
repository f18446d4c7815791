// Channels: all, and one with its consumers.

import { path } from "../api.js";
import { h, name } from "../dom.js";
import { number, rate } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";
import { consumerTable } from "./consumers.js";
import { facts } from "./facts.js";

export const channels = {
  title: () => "Channels",
  nav: "channels",

  async load(ctx) {
    const state = listState(ctx);
    return loadPage(
      ctx,
      ctx.vhost ? path("vhosts", ctx.vhost, "channels") : path("channels"),
      listQuery(state),
      state,
    );
  },

  show(ctx, answer) {
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search channels"), pager(ctx, answer, "Channels")),
      channelTable(answer.items, { sorted: listState(ctx), vhost: !ctx.vhost }),
    ];
  },
};

export function channelTable(rows, { connection = true, vhost = false, sorted } = {}) {
  const rateOf = (kind) => (row) => rate(row.message_stats?.[`${kind}_details`]?.rate);
  return table({
    caption: "Channels",
    rows,
    sorted,
    key: (row) => row.name,
    empty: "There are no channels.",
    columns: [
      {
        title: "Name",
        sort: "name",
        cell: (row) => h(
          "a",
          { href: link(["channels", row.name]) },
          name(connection ? row.name : `(${row.number})`),
        ),
      },
      ...(vhost ? [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }] : []),
      { title: "User", sort: "user", cell: (row) => name(row.user) },
      {
        title: "Mode",
        cell: (row) => [
          row.confirm && h("span", { class: "flag" }, "confirms"),
          row.transactional && h("span", { class: "flag" }, "transactions"),
        ],
      },
      {
        title: "Prefetch",
        sort: "prefetch_count",
        number: true,
        cell: (row) => (row.prefetch_count ? number(row.prefetch_count) : "none"),
      },
      {
        title: "Unacked",
        sort: "messages_unacknowledged",
        number: true,
        cell: (row) => number(row.messages_unacknowledged),
      },
      {
        title: "Unconfirmed",
        sort: "messages_unconfirmed",
        number: true,
        cell: (row) => number(row.messages_unconfirmed),
      },
      { title: "Consumers", sort: "consumer_count", number: true, cell: (row) => number(row.consumer_count) },
      { title: "In /s", sort: "message_stats.publish_details.rate", number: true, cell: rateOf("publish") },
      {
        title: "Out /s",
        sort: "message_stats.deliver_get_details.rate",
        number: true,
        cell: rateOf("deliver_get"),
      },
      { title: "Acks /s", sort: "message_stats.ack_details.rate", number: true, cell: rateOf("ack") },
    ],
  });
}

export const channel = {
  title: ({ name }) => `Channel ${name}`,
  nav: "channels",

  load: (ctx) => ctx.get(path("channels", ctx.params.name)),

  show(ctx, row) {
    return [
      facts({
        Connection: h(
          "a",
          { href: link(["connections", row.connection_details.name]) },
          name(row.connection_details.name),
        ),
        User: name(row.user),
        "Virtual host": name(row.vhost),
        Node: name(row.node),
        State: row.state,
        Confirms: row.confirm ? "yes" : "no",
        Transactions: row.transactional ? "yes" : "no",
        Prefetch: row.prefetch_count ? number(row.prefetch_count) : "none",
        Unacked: number(row.messages_unacknowledged),
        Unconfirmed: number(row.messages_unconfirmed),
        "In /s": rate(row.message_stats?.publish_details?.rate),
        "Out /s": rate(row.message_stats?.deliver_get_details?.rate),
        "Acks /s": rate(row.message_stats?.ack_details?.rate),
      }),
      h("h2", {}, "Consumers"),
      consumerTable(row.consumer_details),
    ];
  },
};
