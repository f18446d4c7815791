// Connections of clients: all, and one with its channels, which can be closed.

import { call, path } from "../api.js";
import { h, name } from "../dom.js";
import { action } from "../forms.js";
import { bytes, moment, number, rate } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";
import { channelTable } from "./channels.js";
import { facts, settings } from "./facts.js";

const COLUMNS = [
  "name",
  "vhost",
  "user",
  "user_provided_name",
  "state",
  "node",
  "ssl",
  "protocol",
  "channels",
  "recv_oct_details.rate",
  "send_oct_details.rate",
  "connected_at",
  "client_properties.product",
];

export const connections = {
  title: () => "Connections",
  nav: "connections",

  async load(ctx) {
    const state = listState(ctx);
    return loadPage(
      ctx,
      ctx.vhost ? path("vhosts", ctx.vhost, "connections") : path("connections"),
      listQuery(state, COLUMNS),
      state,
    );
  },

  show(ctx, answer) {
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search connections"), pager(ctx, answer, "Connections")),
      table({
        caption: "Connections",
        rows: answer.items,
        key: (row) => row.name,
        sorted: listState(ctx),
        empty: "There are no connections.",
        columns: [
          {
            title: "Name",
            sort: "name",
            cell: (row) => h("a", { href: link(["connections", row.name]) }, name(row.name)),
          },
          {
            title: "Client",
            sort: "user_provided_name",
            cell: (row) => row.user_provided_name && name(String(row.user_provided_name)),
          },
          ...(ctx.vhost ? [] : [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }]),
          { title: "User", sort: "user", cell: (row) => name(row.user) },
          {
            title: "State",
            sort: "state",
            cell: (row) => h(
              "span",
              { class: row.state === "running" ? "badge good" : "badge warn" },
              row.state,
            ),
          },
          { title: "TLS", cell: (row) => (row.ssl ? "yes" : "no") },
          { title: "Channels", sort: "channels", number: true, cell: (row) => number(row.channels) },
          {
            title: "From client",
            sort: "recv_oct_details.rate",
            number: true,
            cell: (row) => perSecond(row.recv_oct_details?.rate),
          },
          {
            title: "To client",
            sort: "send_oct_details.rate",
            number: true,
            cell: (row) => perSecond(row.send_oct_details?.rate),
          },
          { title: "Since", sort: "connected_at", cell: (row) => h("time", {}, moment(row.connected_at)) },
        ],
      }),
    ];
  },
};

const perSecond = (value) => (value ? `${bytes(value)}/s` : rate(0));

export const connection = {
  title: ({ name }) => `Connection ${name}`,
  nav: "connections",

  async load(ctx) {
    const target = path("connections", ctx.params.name);
    const [row, found] = await Promise.all([ctx.get(target), ctx.get(`${target}/channels`)]);
    return { row, found };
  },

  show(ctx, { row, found }) {
    return [
      facts({
        Client: row.user_provided_name ? name(String(row.user_provided_name)) : null,
        User: name(row.user),
        "Virtual host": name(row.vhost),
        Node: name(row.node),
        State: row.state,
        Protocol: row.protocol,
        TLS: row.ssl ? `${row.ssl_protocol}, ${row.ssl_cipher}` : "no",
        "Logged in by": row.auth_mechanism,
        Heartbeat: `${row.timeout} s`,
        "Frame size": bytes(row.frame_max),
        Since: moment(row.connected_at),
        "From client": `${bytes(row.recv_oct)}, ${perSecond(row.recv_oct_details.rate)}`,
        "To client": `${bytes(row.send_oct)}, ${perSecond(row.send_oct_details.rate)}`,
      }),
      h("h2", {}, "Channels"),
      channelTable(found, { connection: false }),
      h("h2", {}, "The client says"),
      settings({ Properties: row.client_properties }),
      h("h2", {}, "Actions"),
      h("div", { class: "buttons" }, closing(ctx, row)),
    ];
  },
};

function closing(ctx, row) {
  return action(ctx, {
    text: "Close connection",
    danger: true,
    question: {
      title: "Close this connection?",
      text: `The client at ${row.peer_host}:${row.peer_port} is told and cut off. What it has not acked is delivered again. Most clients connect anew.`,
      yes: "Close it",
    },
    run: async () => {
      await call("DELETE", path("connections", row.name));
      ctx.go(["connections"]);
      return "The connection is closed.";
    },
  });
}
