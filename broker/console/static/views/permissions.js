// Who may do what in which vhost, and with which keys of topic exchanges.

import { path, put, remove } from "../api.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form, vhostField } from "../forms.js";
import { link } from "../router.js";
import { table } from "../table.js";

export const permissions = {
  title: () => "Permissions",
  nav: "permissions",

  async load(ctx) {
    const list = (kind) => ctx.get(ctx.vhost ? path("vhosts", ctx.vhost, kind) : path(kind));
    const [rows, topics, users] = await Promise.all([
      list("permissions"),
      list("topic-permissions"),
      ctx.get(path("users")),
    ]);
    return { rows, topics, users: users.map((each) => each.name) };
  },

  show(ctx, { rows, topics, users }) {
    return [
      h(
        "p",
        { class: "dim" },
        "Patterns are searched for in names of queues and exchanges; .* allows all, an empty one nothing.",
      ),
      permissionTable(ctx, rows, { vhost: !ctx.vhost }),
      drawer("Set permissions", permissionForm(ctx, { users })),
      h("h2", {}, "Topic permissions"),
      topicTable(ctx, topics, { vhost: !ctx.vhost }),
      drawer("Set topic permissions", topicForm(ctx, { users })),
    ];
  },
};

const pattern = (text) => h("code", {}, name(text, "(nothing)"));

function whoAndWhere({ user = true, vhost = true }) {
  return [
    ...(
      user ? [
        { title: "User", cell: (row) => h("a", { href: link(["users", row.user]) }, name(row.user)) },
      ] : []
    ),
    ...(vhost ? [{ title: "Virtual host", cell: (row) => name(row.vhost) }] : []),
  ];
}

export function permissionTable(ctx, rows, shown = {}) {
  return table({
    caption: "Permissions",
    rows,
    key: (row) => `${row.vhost} ${row.user}`,
    empty: "There are no permissions: nobody may enter.",
    columns: [
      ...whoAndWhere(shown),
      { title: "Configure", cell: (row) => pattern(row.configure) },
      { title: "Write", cell: (row) => pattern(row.write) },
      { title: "Read", cell: (row) => pattern(row.read) },
      {
        title: "",
        cell: (row) => clearing(ctx, row, path("permissions", row.vhost, row.user), "all permissions"),
      },
    ],
  });
}

export function topicTable(ctx, rows, shown = {}) {
  return table({
    caption: "Topic permissions",
    rows,
    key: (row) => `${row.vhost} ${row.user} ${row.exchange}`,
    empty: "There are none: every key is allowed.",
    columns: [
      ...whoAndWhere(shown),
      { title: "Exchange", cell: (row) => name(row.exchange, "(default exchange)") },
      { title: "Write", cell: (row) => pattern(row.write) },
      { title: "Read", cell: (row) => pattern(row.read) },
      {
        title: "",
        cell: (row) => clearing(
          ctx,
          row,
          path("topic-permissions", row.vhost, row.user, row.exchange || "amq.default"),
          `the topic permission for “${row.exchange}”`,
        ),
      },
    ],
  });
}

function clearing(ctx, row, target, what) {
  return action(ctx, {
    text: "Clear",
    label: `Clear ${what} of ${row.user} in ${row.vhost}`,
    danger: true,
    question: {
      title: "Clear permissions?",
      text: `“${row.user}” loses ${what} in virtual host “${row.vhost}”.`,
      yes: "Clear",
    },
    run: async () => {
      await remove(target);
      return "Cleared.";
    },
  });
}

function userField({ users, user }) {
  if (user !== undefined) return field({ label: "User", name: "user", value: user, readonly: true });
  return field({ label: "User", name: "user", options: users });
}

export function permissionForm(ctx, who) {
  return form({
    keep: "permissions",
    button: "Set permissions",
    clear: false,
    fields: [
      userField(who),
      vhostField(ctx),
      field({ label: "Configure", name: "configure", value: ".*", hint: "Declare and delete" }),
      field({ label: "Write", name: "write", value: ".*", hint: "Publish, bind" }),
      field({ label: "Read", name: "read", value: ".*", hint: "Consume, get, purge" }),
    ],
    submit: async ({ user, vhost, configure, write, read }) => {
      await put(path("permissions", vhost, user), { configure, write, read });
      return `Permissions of “${user}” in “${vhost}” are set.`;
    },
    after: () => ctx.reload(),
  });
}

export function topicForm(ctx, who) {
  return form({
    keep: "topics",
    button: "Set topic permissions",
    clear: false,
    fields: [
      userField(who),
      vhostField(ctx),
      field({ label: "Exchange", name: "exchange", value: "amq.topic", required: true }),
      field({ label: "Write", name: "write", value: ".*", hint: "Keys to publish with" }),
      field({ label: "Read", name: "read", value: ".*", hint: "Keys to bind with" }),
    ],
    submit: async ({ user, vhost, exchange, write, read }) => {
      await put(path("topic-permissions", vhost, user), { exchange, write, read });
      return `Topic permissions of “${user}” for “${exchange}” are set.`;
    },
    after: () => ctx.reload(),
  });
}
