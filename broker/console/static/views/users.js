// Users: who there is, with which tags; one with permissions, password and limits.

import { get, path, put, remove } from "../api.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form } from "../forms.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { facts } from "./facts.js";
import { permissionForm, permissionTable, topicForm, topicTable } from "./permissions.js";

const TAGS_HINT = "Separated by commas: administrator, monitoring, policymaker, management; none for users of AMQP alone.";

export const users = {
  title: () => "Users",
  nav: "users",

  async load(ctx) {
    const [rows, without] = await Promise.all([
      ctx.get(path("users")),
      ctx.get(path("users", "without-permissions")),
    ]);
    return { rows, without: new Set(without.map((each) => each.name)) };
  },

  show(ctx, { rows, without }) {
    return [
      table({
        caption: "Users",
        rows,
        key: (row) => row.name,
        columns: [
          { title: "Name", cell: (row) => h("a", { href: link(["users", row.name]) }, name(row.name)) },
          { title: "Tags", cell: (row) => tagsOf(row).map((tag) => h("span", { class: "flag" }, name(tag))) },
          {
            title: "Limits",
            cell: (row) => Object.entries(row.limits ?? {}).map(
              ([limit, value]) => h("span", { class: "flag numbers" }, `${limit} ${value}`),
            ),
          },
          {
            title: "",
            cell: (row) => without.has(row.name) && h("span", { class: "badge warn" }, "no permissions"),
          },
        ],
      }),
      drawer("Add a user", addForm(ctx)),
    ];
  },
};

const tagsOf = (row) => (
  Array.isArray(row.tags) ? row.tags : String(row.tags ?? "").split(",").filter(Boolean)
);
const splitTags = (text) => text.split(",").map((tag) => tag.trim()).filter(Boolean).join(",");

function addForm(ctx) {
  return form({
    keep: "add-user",
    button: "Add user",
    fields: [
      field({ label: "Name", name: "name", required: true }),
      field({
        label: "Password",
        name: "password",
        type: "password",
        required: true,
        autocomplete: "new-password",
      }),
      field({ label: "Tags", name: "tags", hint: TAGS_HINT }),
    ],
    submit: async (values) => {
      await put(path("users", values.name), { password: values.password, tags: splitTags(values.tags) });
      return `User “${values.name}” is added; permissions are set next.`;
    },
    after: () => ctx.reload(),
  });
}

export const user = {
  title: ({ name }) => `User ${name}`,
  nav: "users",

  async load(ctx) {
    const target = path("users", ctx.params.name);
    const [row, permissions, topics] = await Promise.all([
      ctx.get(target),
      ctx.get(`${target}/permissions`),
      ctx.get(`${target}/topic-permissions`),
    ]);
    return { row, permissions, topics };
  },

  show(ctx, { row, permissions, topics }) {
    const named = { user: row.name };
    return [
      facts({
        Tags: tagsOf(row).length ? tagsOf(row).map((tag) => h("span", { class: "flag" }, name(tag))) : "none",
        Password: row.password_hash ? "set" : "none",
      }),
      h("h2", {}, "Permissions"),
      permissionTable(ctx, permissions, { user: false }),
      drawer("Set permissions", permissionForm(ctx, named)),
      h("h2", {}, "Topic permissions"),
      topicTable(ctx, topics, { user: false }),
      drawer("Set topic permissions", topicForm(ctx, named)),
      h("h2", {}, "Actions"),
      drawer("Change tags", tagsForm(ctx, row)),
      drawer("Change password", passwordForm(ctx, row)),
      h("div", { class: "buttons" }, deletion(ctx, row)),
    ];
  },
};

function tagsForm(ctx, row) {
  return form({
    keep: "tags",
    button: "Set tags",
    clear: false,
    fields: [field({ label: "Tags", name: "tags", value: tagsOf(row).join(","), hint: TAGS_HINT })],
    submit: async ({ tags }) => {
      // Without a hash the password would be taken away; it may have been changed since this was opened.
      const now = await get(path("users", row.name));
      await put(
        path("users", row.name),
        { tags: splitTags(tags), password_hash: now.password_hash, hashing_algorithm: now.hashing_algorithm },
      );
      return `Tags of “${row.name}” are set.`;
    },
    after: () => ctx.reload(),
  });
}

function passwordForm(ctx, row) {
  return form({
    keep: "password",
    button: "Change password",
    fields: [
      field({ label: "User", name: "username", value: row.name, readonly: true, autocomplete: "username" }),
      field({
        label: "New password",
        name: "password",
        type: "password",
        required: true,
        autocomplete: "new-password",
      }),
    ],
    submit: async ({ password }) => {
      const now = await get(path("users", row.name));
      await put(path("users", row.name), { password, tags: tagsOf(now).join(",") });
      return `The password of “${row.name}” is changed.`;
    },
    after: () => ctx.reload(),
  });
}

function deletion(ctx, row) {
  return action(ctx, {
    text: "Delete user",
    danger: true,
    question: {
      title: "Delete this user?",
      text: `“${row.name}” goes, and the user's connections end.`,
      yes: "Delete",
    },
    run: async () => {
      await remove(path("users", row.name));
      ctx.go(["users"]);
      return `User “${row.name}” is deleted.`;
    },
  });
}
