// One queue: how it does, what is set, who consumes, what is in it, and what can be done with it.

import { patch, path, post, remove } from "../api.js";
import { ageOf, agePicker, ageQuery } from "../chart.js";
import { h, name } from "../dom.js";
import { action, drawer, field, form, parseLines } from "../forms.js";
import { bytes, number } from "../format.js";
import { link } from "../router.js";
import { bindingTable } from "./bindings.js";
import { consumerTable } from "./consumers.js";
import { facts, settings } from "./facts.js";
import { browser, getForm } from "./messages.js";
import { depth, messageRates } from "./overview.js";
import { publishForm } from "./publish.js";

const AGES_MAX = 2; // samples of single queues are kept for ten minutes
const KINDS = [
  ["In", "publish"],
  ["Out", "deliver_get"],
  ["Acked", "ack"],
  ["Redelivered", "redeliver"],
];

export const queue = {
  title: ({ name }) => `Queue ${name}`,
  nav: "queues",

  async load(ctx) {
    const { vhost, name } = ctx.params;
    const [row, bindings] = await Promise.all([
      ctx.get(path("queues", vhost, name), ageQuery(ageOf(ctx, AGES_MAX))),
      ctx.get(path("queues", vhost, name, "bindings"), { page: 1, page_size: 100 }),
    ]);
    return { row, bindings };
  },

  show(ctx, { row, bindings }) {
    const isStream = row.type === "stream";
    return [
      isStream && h(
        "p",
        {},
        h(
          "a",
          { href: link(["streams", row.vhost, row.name]) },
          "Partitions, offsets and groups of this stream",
        ),
      ),
      row.state !== "running" && h(
        "p",
        { class: "health bad", role: "alert" },
        `This queue is ${row.state}.`,
      ),
      facts(about(row)),
      h("div", { class: "bar" }, h("h2", {}, "Rates and depth"), agePicker(ctx, AGES_MAX)),
      h("div", { class: "charts" }, messageRates(row.message_stats, KINDS), depth(row)),
      h("h2", {}, "Arguments and policy"),
      settings({ Arguments: row.arguments, "Set by policy": row.effective_policy_definition }),
      drawer("Change arguments", alterForm(ctx, row)),
      h("h2", {}, "Consumers"),
      consumerTable(row.consumer_details, { queue: false, caption: "Consumers of this queue" }),
      h("h2", {}, "Bindings"),
      bindingTable(ctx, bindings, "source"),
      drawer("Bind to an exchange", bindForm(ctx, row)),
      h("h2", {}, "Messages"),
      drawer("Publish a message", publishForm(ctx, { vhost: row.vhost, exchange: "", key: row.name })),
      !isStream && [drawer("Get messages", getForm(ctx, row)), browser(ctx, row)],
      h("h2", {}, "Actions"),
      actions(ctx, row, isStream),
    ];
  },
};

function about(row) {
  return {
    "Virtual host": name(row.vhost),
    Type: row.type,
    Node: name(row.node ?? ""),
    Members: row.members?.length > 1 ? `${row.online.length} of ${row.members.length} up: ${row.members.join(", ")}` : null,
    Ready: number(row.messages_ready),
    Unacked: number(row.messages_unacknowledged),
    "Size of ready": row.message_bytes === undefined ? null : bytes(row.message_bytes),
    "In memory": row.messages_ram === undefined ? null : number(row.messages_ram),
    Consumers: number(row.consumers),
    Durable: row.durable ? "yes" : "no",
    Exclusive: row.exclusive ? "yes" : null,
    "Auto-delete": row.auto_delete ? "yes" : null,
    Policy: row.policy ? name(row.policy) : "none",
    "Operator policy": row.operator_policy ? name(row.operator_policy) : null,
  };
}

function alterForm(ctx, row) {
  return form({
    keep: "alter",
    button: "Change",
    fields: [
      field({
        label: "Arguments",
        name: "arguments",
        rows: 3,
        required: true,
        hint: "One name=value per line, at once and while it is used: x-max-length=1000. The value null takes an argument away.",
      }),
    ],
    submit: async (values) => {
      await patch(path("queues", row.vhost, row.name), { arguments: parseLines(values.arguments) });
      return `Arguments of “${row.name}” are changed.`;
    },
    after: () => ctx.reload(),
  });
}

function bindForm(ctx, row) {
  return form({
    keep: "bind",
    button: "Bind",
    fields: [
      field({ label: "Exchange", name: "exchange", required: true }),
      field({ label: "Routing key", name: "key" }),
      field({
        label: "Arguments",
        name: "arguments",
        rows: 2,
        hint: "One name=value per line, for a headers exchange.",
      }),
    ],
    submit: async (values) => {
      await post(
        path("bindings", row.vhost, "e", values.exchange, "q", row.name),
        { routing_key: values.key, arguments: parseLines(values.arguments) },
      );
      return `Bound to “${values.exchange}”.`;
    },
    after: () => ctx.reload(),
  });
}

function actions(ctx, row, isStream) {
  const target = path("queues", row.vhost, row.name);
  return h(
    "div",
    { class: "buttons" },
    !isStream &&
      action(ctx, {
        text: "Purge",
        danger: true,
        question: {
          title: "Purge this queue?",
          text: `All ${number(row.messages_ready)} ready messages of “${row.name}” go for good.`,
          yes: "Purge",
        },
        run: async () => {
          await remove(`${target}/contents`);
          return `“${row.name}” is purged.`;
        },
      }),
    action(ctx, {
      text: "Delete",
      danger: true,
      question: {
        title: "Delete this queue?",
        text: `“${row.name}” goes for good, with its ${number(row.messages)} messages and its bindings.`,
        yes: "Delete",
      },
      run: async () => {
        await remove(target);
        ctx.go([isStream ? "streams" : "queues"]);
        return `“${row.name}” is deleted.`;
      },
    }),
  );
}

export { actions as queueActions };
