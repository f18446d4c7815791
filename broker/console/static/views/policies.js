// Policies and operator policies: listed, set and deleted.

import { path, put, remove } from "../api.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form, parseObject, vhostField } from "../forms.js";
import { number, shown } from "../format.js";
import { may } from "../session.js";
import { table } from "../table.js";

const APPLY_TO = ["queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all"];
const KINDS = { policies: "Policies", "operator-policies": "Operator policies" };

export const policies = {
  title: () => "Policies",
  nav: "policies",

  async load(ctx) {
    const list = (kind) => ctx.get(ctx.vhost ? path(kind, ctx.vhost) : path(kind));
    const [own, operator] = await Promise.all(Object.keys(KINDS).map(list));
    return { policies: own, "operator-policies": operator };
  },

  show(ctx, lists) {
    return Object.entries(KINDS).map(([kind, title]) => {
      const allowed = kind === "policies" ? may.setPolicies() : may.administer();
      return [
        h("h2", {}, title),
        list(ctx, kind, title, lists[kind], allowed),
        allowed && drawer(
          kind === "policies" ? "Set a policy" : "Set an operator policy",
          setForm(ctx, kind),
        ),
      ];
    });
  },
};

function list(ctx, kind, caption, rows, allowed) {
  return table({
    caption,
    rows,
    key: (row) => `${row.vhost} ${row.name}`,
    empty: "There are none.",
    columns: [
      { title: "Name", cell: (row) => name(row.name) },
      ...(ctx.vhost ? [] : [{ title: "Virtual host", cell: (row) => name(row.vhost) }]),
      { title: "Pattern", cell: (row) => h("code", {}, name(row.pattern, "(all)")) },
      { title: "Applies to", cell: (row) => row["apply-to"] },
      { title: "Priority", number: true, cell: (row) => number(row.priority) },
      {
        title: "Definition",
        cell: (row) => Object.entries(row.definition).map(
          ([key, value]) => h("div", {}, h("bdi", {}, `${key}: ${shown(value)}`)),
        ),
      },
      { title: "", cell: (row) => allowed && deletion(ctx, kind, row) },
    ],
  });
}

function deletion(ctx, kind, row) {
  return action(ctx, {
    text: "Delete",
    label: `Delete policy ${row.name}`,
    danger: true,
    question: {
      title: "Delete this policy?",
      text: `Queues and exchanges that “${row.name}” counted for are again as they were declared, at once.`,
      yes: "Delete",
    },
    run: async () => {
      await remove(path(kind, row.vhost, row.name));
      return `Policy “${row.name}” is deleted.`;
    },
  });
}

function setForm(ctx, kind) {
  return form({
    keep: `set-${kind}-${ctx.vhost}`,
    button: "Set policy",
    fields: [
      vhostField(ctx),
      field({ label: "Name", name: "name", required: true }),
      field({ label: "Pattern", name: "pattern", hint: "A regular expression that is searched for in names; anchor it with ^ and $." }),
      field({
        label: "Applies to",
        name: "apply",
        options: kind === "policies" ? APPLY_TO : APPLY_TO.filter(
          (each) => each !== "exchanges" && each !== "all",
        ),
      }),
      field({ label: "Priority", name: "priority", type: "number", value: 0 }),
      field({
        label: "Definition",
        name: "definition",
        rows: 3,
        required: true,
        hint: 'JSON, such as {"max-length": 100000, "dead-letter-exchange": "dead"}',
      }),
    ],
    submit: async (values) => {
      const definition = parseObject(values.definition, "The definition");
      const body = {
        pattern: values.pattern,
        definition,
        priority: Number(values.priority) || 0,
        "apply-to": values.apply,
      };
      await put(path(kind, values.vhost, values.name), body);
      return `Policy “${values.name}” is set.`;
    },
    after: () => ctx.reload(),
  });
}
