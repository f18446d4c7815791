// Virtual hosts: listed, added, deleted.

import { path, put, remove } from "../api.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form } from "../forms.js";
import { table } from "../table.js";

export const vhosts = {
  title: () => "Virtual hosts",
  nav: "vhosts",

  load: (ctx) => ctx.get(path("vhosts")),

  show(ctx, rows) {
    return [
      table({
        caption: "Virtual hosts",
        rows,
        key: (row) => row.name,
        columns: [
          { title: "Name", cell: (row) => name(row.name) },
          { title: "Description", cell: (row) => row.description && name(row.description) },
          {
            title: "Tags",
            cell: (row) => (row.tags ?? []).map((tag) => h("span", { class: "flag" }, name(tag))),
          },
          { title: "", cell: (row) => deletion(ctx, row) },
        ],
      }),
      drawer("Add a virtual host", addForm(ctx)),
    ];
  },
};

function addForm(ctx) {
  return form({
    keep: "add-vhost",
    button: "Add virtual host",
    fields: [
      field({ label: "Name", name: "name", required: true }),
      field({ label: "Description", name: "description" }),
      field({ label: "Tags", name: "tags", hint: "Separated by commas" }),
    ],
    submit: async (values) => {
      await put(path("vhosts", values.name), { description: values.description, tags: values.tags });
      return `Virtual host “${values.name}” is added.`;
    },
    after: () => ctx.reloadAll(),
  });
}

function deletion(ctx, row) {
  return action(ctx, {
    text: "Delete",
    label: `Delete virtual host ${row.name}`,
    danger: true,
    question: {
      title: "Delete this virtual host?",
      text: `“${row.name}” goes for good: its queues with all that is in them, its exchanges, permissions and policies. Connections to it end.`,
      yes: "Delete it all",
    },
    reload: () => ctx.reloadAll(),
    run: async () => {
      await remove(path("vhosts", row.name));
      return `Virtual host “${row.name}” is deleted.`;
    },
  });
}
