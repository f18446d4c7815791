// Limits of users and vhosts.

import { path, put, remove } from "../api.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form } from "../forms.js";
import { number } from "../format.js";
import { table } from "../table.js";

const KINDS = {
  "vhost-limits": {
    title: "Limits of virtual hosts",
    who: "vhost",
    called: "Virtual host",
    names: ["max-connections", "max-queues"],
    button: "Set a limit of a virtual host",
  },
  "user-limits": {
    title: "Limits of users",
    who: "user",
    called: "User",
    names: ["max-connections", "max-channels"],
    button: "Set a limit of a user",
  },
};

export const limits = {
  title: () => "Limits",
  nav: "limits",

  async load(ctx) {
    const [vhost, user, users] = await Promise.all([
      ctx.get(path("vhost-limits")),
      ctx.get(path("user-limits")),
      ctx.get(path("users")),
    ]);
    return { "vhost-limits": vhost, "user-limits": user, users: users.map((each) => each.name) };
  },

  show(ctx, data) {
    return Object.entries(KINDS).map(([kind, about]) => {
      const owners = about.who === "vhost" ? ctx.vhosts : data.users;
      return [
        h("h2", {}, about.title),
        list(ctx, kind, about, rowsOf(data[kind], about)),
        drawer(about.button, setForm(ctx, kind, about, owners)),
      ];
    });
  },
};

function rowsOf(answer, { who }) {
  return answer.flatMap(
    (each) => Object.entries(each.value).map(([limit, value]) => ({ owner: each[who], limit, value })),
  );
}

function list(ctx, kind, about, rows) {
  return table({
    caption: about.title,
    rows,
    key: (row) => `${row.owner} ${row.limit}`,
    empty: "There are no limits.",
    columns: [
      { title: about.called, cell: (row) => name(row.owner) },
      { title: "Limit", cell: (row) => row.limit },
      { title: "Value", number: true, cell: (row) => (row.value < 0 ? "none" : number(row.value)) },
      { title: "", cell: (row) => lifting(ctx, kind, row) },
    ],
  });
}

function lifting(ctx, kind, row) {
  return action(ctx, {
    text: "Lift",
    label: `Lift ${row.limit} of ${row.owner}`,
    question: {
      title: "Lift this limit?",
      text: `“${row.owner}” has no ${row.limit} any more.`,
      yes: "Lift",
    },
    run: async () => {
      await remove(path(kind, row.owner, row.limit));
      return "The limit is lifted.";
    },
  });
}

function setForm(ctx, kind, about, owners) {
  return form({
    keep: `set-${kind}`,
    button: "Set limit",
    clear: false,
    fields: [
      field({ label: about.called, name: "owner", options: owners }),
      field({ label: "Limit", name: "limit", options: about.names }),
      field({
        label: "Value",
        name: "value",
        type: "number",
        required: true,
        value: 100,
        hint: "0 for none at all",
      }),
    ],
    submit: async ({ owner, limit, value }) => {
      await put(path(kind, owner, limit), { value: Number(value) });
      return `${limit} of “${owner}” is ${value}.`;
    },
    after: () => ctx.reload(),
  });
}
