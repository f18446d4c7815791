// The streams.

import { path } from "../api.js";
import { h, name } from "../dom.js";
import { bytes, number } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";

export const streams = {
  title: () => "Streams",
  nav: "streams",

  async load(ctx) {
    const state = listState(ctx);
    return loadPage(ctx, ctx.vhost ? path("streams", ctx.vhost) : path("streams"), listQuery(state), state);
  },

  show(ctx, answer) {
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search streams"), pager(ctx, answer, "Streams")),
      table({
        caption: "Streams",
        rows: answer.items,
        key: (row) => `${row.vhost} ${row.name}`,
        sorted: listState(ctx),
        empty: "There are no streams. Declare one among the queues, of type stream.",
        columns: [
          {
            title: "Name",
            sort: "name",
            cell: (row) => h("a", { href: link(["streams", row.vhost, row.name]) }, name(row.name)),
          },
          ...(ctx.vhost ? [] : [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }]),
          { title: "Partitions", sort: "partitions", number: true, cell: (row) => number(row.partitions) },
          { title: "Records", sort: "messages", number: true, cell: (row) => number(row.messages) },
          { title: "Size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
          { title: "Readers", sort: "readers", number: true, cell: (row) => number(row.readers) },
          {
            title: "",
            cell: (row) => row.damaged && h("span", { class: "badge bad", title: row.damaged }, "damaged"),
          },
        ],
      }),
    ];
  },
};
