// The queues, a page at a time: the broker sorts and searches.

import { path, put } from "../api.js";
import { levels, spark } from "../chart.js";
import { h, name } from "../dom.js";
import { drawer, field, form, parseLines, vhostField } from "../forms.js";
import { number, rate } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";

/** What is asked for to make rows of queues. */
export const COLUMNS = [
  "name",
  "vhost",
  "type",
  "state",
  "durable",
  "exclusive",
  "auto_delete",
  "policy",
  "consumers",
  "messages_ready",
  "messages_unacknowledged",
  "messages_details.samples",
  "message_stats.publish_details.rate",
  "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate",
];
export const RECENT = { lengths_age: 300, lengths_incr: 20 };
const ARGUMENTS_HINT = "One name=value per line, such as x-max-length=1000, x-message-ttl=60000, x-dead-letter-exchange=dead, x-partitions=3.";

export const queues = {
  title: () => "Queues",
  nav: "queues",

  async load(ctx) {
    const state = listState(ctx);
    const target = ctx.vhost ? path("queues", ctx.vhost) : path("queues");
    return loadPage(ctx, target, { ...listQuery(state, COLUMNS), ...RECENT }, state);
  },

  show(ctx, answer) {
    const state = listState(ctx);
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search queues"), pager(ctx, answer, "Queues")),
      table({
        caption: "Queues",
        rows: answer.items,
        key: (row) => `${row.vhost} ${row.name}`,
        sorted: state,
        empty: state.search ? "No queue's name fits." : "There are no queues yet.",
        columns: columns(ctx),
      }),
      drawer("Declare a queue", declareForm(ctx)),
    ];
  },
};

export function columns(ctx) {
  const rateOf = (kind) => (row) => rate(row.message_stats?.[`${kind}_details`]?.rate);
  return [
    { title: "Name", sort: "name", cell: queueLink },
    ...(ctx.vhost ? [] : [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }]),
    { title: "Type", sort: "type", cell: features },
    { title: "Ready", sort: "messages_ready", number: true, cell: (row) => number(row.messages_ready) },
    {
      title: "Unacked",
      sort: "messages_unacknowledged",
      number: true,
      cell: (row) => number(row.messages_unacknowledged),
    },
    {
      title: "5 minutes",
      cell: (row) => spark(levels(row.messages_details), `Messages in ${row.name} over five minutes`),
    },
    { title: "In /s", sort: "message_stats.publish_details.rate", number: true, cell: rateOf("publish") },
    {
      title: "Out /s",
      sort: "message_stats.deliver_get_details.rate",
      number: true,
      cell: rateOf("deliver_get"),
    },
    { title: "Acks /s", sort: "message_stats.ack_details.rate", number: true, cell: rateOf("ack") },
    { title: "Consumers", sort: "consumers", number: true, cell: (row) => number(row.consumers) },
    { title: "Policy", sort: "policy", cell: (row) => row.policy && name(row.policy) },
  ];
}

export function queueLink(row) {
  return h(
    "a",
    { href: link([row.type === "stream" ? "streams" : "queues", row.vhost, row.name]) },
    name(row.name),
  );
}

/** The type, and what is unusual about the queue. */
function features(row) {
  const flag = (text, hint) => h("abbr", { class: "flag", title: hint }, text);
  return [
    row.type,
    !row.durable && flag("transient", "Gone after a restart"),
    row.exclusive && flag("exclusive", "Of one connection"),
    row.auto_delete && flag("auto-delete", "Goes with its last consumer"),
    row.state !== "running" && h("span", { class: "badge bad" }, row.state),
  ];
}

function declareForm(ctx) {
  return form({
    keep: `declare-${ctx.vhost}`,
    button: "Declare queue",
    fields: [
      vhostField(ctx),
      field({ label: "Name", name: "name", required: true, maxlength: 255 }),
      field({ label: "Type", name: "type", options: ["quorum", "classic", "stream"] }),
      field({ label: "Durable", name: "durable", type: "checkbox", value: true }),
      field({ label: "Auto-delete", name: "auto", type: "checkbox" }),
      field({ label: "Arguments", name: "arguments", rows: 3, hint: ARGUMENTS_HINT }),
    ],
    submit: async (values) => {
      const given = { "x-queue-type": values.type, ...parseLines(values.arguments) };
      await put(
        path("queues", values.vhost, values.name),
        { durable: values.durable, auto_delete: values.auto, arguments: given },
      );
      return `Queue “${values.name}” is declared.`;
    },
    after: () => ctx.reload(),
  });
}
