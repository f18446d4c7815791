// Who consumes what.

import { path } from "../api.js";
import { h, name } from "../dom.js";
import { number, shown } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";

export const consumers = {
  title: () => "Consumers",
  nav: "consumers",

  async load(ctx) {
    const state = listState(ctx);
    return loadPage(
      ctx,
      ctx.vhost ? path("consumers", ctx.vhost) : path("consumers"),
      listQuery(state),
      state,
    );
  },

  show(ctx, answer) {
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search by queue"), pager(ctx, answer, "Consumers")),
      consumerTable(answer.items, { vhost: !ctx.vhost }),
    ];
  },
};

export function consumerTable(rows, { queue = true, vhost = false, caption = "Consumers" } = {}) {
  return table({
    caption,
    rows,
    key: (row) => `${row.channel_details.name} ${row.consumer_tag} ${row.queue.name}`,
    empty: "There are no consumers.",
    columns: [
      ...(
        queue ? [
          {
            title: "Queue",
            cell: (row) => h(
              "a",
              { href: link(["queues", row.queue.vhost, row.queue.name]) },
              name(row.queue.name),
            ),
          },
        ] : []
      ),
      ...(vhost ? [{ title: "Virtual host", cell: (row) => name(row.queue.vhost) }] : []),
      {
        title: "Channel",
        cell: (row) => h(
          "a",
          { href: link(["channels", row.channel_details.name]) },
          name(row.channel_details.name),
        ),
      },
      { title: "Consumer tag", cell: (row) => name(row.consumer_tag) },
      { title: "Acks", cell: (row) => (row.ack_required ? "manual" : "automatic") },
      {
        title: "Prefetch",
        number: true,
        cell: (row) => (row.prefetch_count ? number(row.prefetch_count) : "none"),
      },
      {
        title: "State",
        cell: (row) => [
          row.active ? row.activity_status : "waits",
          row.exclusive && h("span", { class: "flag" }, "exclusive"),
        ],
      },
      {
        title: "Arguments",
        cell: (row) => Object.entries(row.arguments).map(
          ([key, value]) => h("div", {}, h("bdi", {}, `${key}=${shown(value)}`)),
        ),
      },
    ],
  });
}
