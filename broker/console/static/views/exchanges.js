// The exchanges.

import { path, put } from "../api.js";
import { h, name } from "../dom.js";
import { drawer, field, form, parseLines, vhostField } from "../forms.js";
import { rate } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message"];
const COLUMNS = [
  "name",
  "vhost",
  "type",
  "durable",
  "auto_delete",
  "internal",
  "policy",
  "message_stats.publish_in_details.rate",
  "message_stats.publish_out_details.rate",
];

export const exchanges = {
  title: () => "Exchanges",
  nav: "exchanges",

  async load(ctx) {
    const state = listState(ctx);
    return loadPage(
      ctx,
      ctx.vhost ? path("exchanges", ctx.vhost) : path("exchanges"),
      listQuery(state, COLUMNS),
      state,
    );
  },

  show(ctx, answer) {
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search exchanges"), pager(ctx, answer, "Exchanges")),
      table({
        caption: "Exchanges",
        rows: answer.items,
        key: (row) => `${row.vhost} ${row.name}`,
        sorted: listState(ctx),
        empty: "No exchange's name fits.",
        columns: [
          {
            title: "Name",
            sort: "name",
            cell: (row) => h(
              "a",
              { href: link(["exchanges", row.vhost, row.name]) },
              name(row.name, "(default exchange)"),
            ),
          },
          ...(ctx.vhost ? [] : [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }]),
          {
            title: "Type",
            sort: "type",
            cell: (row) => [
              row.type,
              !row.durable && h("span", { class: "flag" }, "transient"),
              row.internal && h("span", { class: "flag" }, "internal"),
              row.auto_delete && h("span", { class: "flag" }, "auto-delete"),
            ],
          },
          {
            title: "In /s",
            sort: "message_stats.publish_in_details.rate",
            number: true,
            cell: (row) => rate(row.message_stats?.publish_in_details?.rate),
          },
          {
            title: "Out /s",
            sort: "message_stats.publish_out_details.rate",
            number: true,
            cell: (row) => rate(row.message_stats?.publish_out_details?.rate),
          },
          { title: "Policy", cell: (row) => row.policy && name(row.policy) },
        ],
      }),
      drawer("Declare an exchange", declareForm(ctx)),
    ];
  },
};

function declareForm(ctx) {
  return form({
    keep: `declare-${ctx.vhost}`,
    button: "Declare exchange",
    fields: [
      vhostField(ctx),
      field({ label: "Name", name: "name", required: true, maxlength: 255 }),
      field({ label: "Type", name: "type", options: TYPES }),
      field({ label: "Durable", name: "durable", type: "checkbox", value: true }),
      field({ label: "Auto-delete", name: "auto", type: "checkbox" }),
      field({ label: "Internal", name: "internal", type: "checkbox" }),
      field({
        label: "Arguments",
        name: "arguments",
        rows: 2,
        hint: "One name=value per line, such as alternate-exchange=unrouted.",
      }),
    ],
    submit: async (values) => {
      const body = {
        type: values.type,
        durable: values.durable,
        auto_delete: values.auto,
        internal: values.internal,
        arguments: parseLines(values.arguments),
      };
      await put(path("exchanges", values.vhost, values.name), body);
      return `Exchange “${values.name}” is declared.`;
    },
    after: () => ctx.reload(),
  });
}
