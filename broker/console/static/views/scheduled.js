// Messages that wait for their time: in which queues, which are next, cancelled or given another time.

import { path, put, remove } from "../api.js";
import { open } from "../dialogs.js";
import { h, name } from "../dom.js";
import { action, field, form } from "../forms.js";
import { fromNow, moment, number } from "../format.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";
import { messageColumns, messageDetails } from "./messages.js";

const SHOWN = 100;
const UNITS = [
  [1000, "seconds"],
  [60_000, "minutes"],
  [3_600_000, "hours"],
  [86_400_000, "days"],
];

export const scheduled = {
  title: () => "Scheduled messages",
  nav: "scheduled",

  async load(ctx) {
    const state = listState(ctx);
    return loadPage(
      ctx,
      ctx.vhost ? path("scheduled", ctx.vhost) : path("scheduled"),
      listQuery(state),
      state,
    );
  },

  show(ctx, answer) {
    return [
      h("div", { class: "bar" }, searchBox(ctx, "Search queues"), pager(ctx, answer, "Queues")),
      table({
        caption: "Queues with scheduled messages",
        rows: answer.items,
        key: (row) => `${row.vhost} ${row.name}`,
        sorted: listState(ctx),
        empty: "No message waits for its time.",
        columns: [
          {
            title: "Queue",
            sort: "name",
            cell: (row) => h("a", { href: link(["scheduled", row.vhost, row.name]) }, name(row.name)),
          },
          ...(ctx.vhost ? [] : [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }]),
          {
            title: "Waiting",
            sort: "messages_delayed",
            number: true,
            cell: (row) => number(row.messages_delayed),
          },
        ],
      }),
    ];
  },
};

export const scheduledIn = {
  title: ({ name }) => `Scheduled messages in ${name}`,
  nav: "scheduled",

  load: (ctx) => ctx.get(path("scheduled", ctx.params.vhost, ctx.params.name), { count: SHOWN }),

  show(ctx, rows) {
    const due = {
      title: "Due",
      cell: (row) => h(
        "time",
        { datetime: new Date(row.due_ms).toISOString(), title: moment(row.due_ms) },
        fromNow(row.due_ms),
      ),
    };
    const tries = { title: "Tries", number: true, cell: (row) => number(row.delivery_count) };
    return [
      h("p", {}, h("a", { href: link(["queues", ctx.params.vhost, ctx.params.name]) }, "The queue itself")),
      table({
        caption: "Scheduled messages",
        rows,
        key: (row) => row.id,
        empty: "No message of this queue waits for its time.",
        columns: [...messageColumns([due, tries]), { title: "", cell: (row) => tools(ctx, row) }],
      }),
      rows.length === SHOWN && h("p", { class: "dim" }, `The next ${number(SHOWN)} are shown.`),
    ];
  },
};

function tools(ctx, row) {
  const { vhost, name } = ctx.params;
  const target = path("scheduled", vhost, name, row.id);
  const button = (text, onclick) => h(
    "button",
    { type: "button", "aria-label": `${text} message ${row.id}`, onclick },
    text,
  );
  return h(
    "div",
    { class: "buttons tight" },
    button("Show", () => open(`Message ${row.id}`, messageDetails(row))),
    button("Reschedule", () => reschedule(ctx, row, target)),
    action(ctx, {
      text: "Cancel",
      label: `Cancel message ${row.id}`,
      question: {
        title: "Cancel this message?",
        text: `Message ${row.id} of “${name}” is never delivered.`,
        yes: "Cancel it",
      },
      run: async () => {
        await remove(target);
        return `Message ${row.id} is cancelled.`;
      },
    }),
  );
}

function reschedule(ctx, row, target) {
  const close = open(
    `Reschedule message ${row.id}`,
    h("p", { class: "dim" }, `It is due ${moment(row.due_ms)}.`),
    form({
      button: "Reschedule",
      fields: [
        field({
          label: "From now",
          name: "amount",
          type: "number",
          min: 0,
          step: "any",
          value: 10,
          required: true,
          autofocus: true,
        }),
        field({ label: "Unit", name: "unit", options: UNITS, value: 60_000 }),
      ],
      submit: async ({ amount, unit }) => {
        await put(target, { delay_ms: Math.round(Number(amount) * Number(unit)) });
        close();
        return `Message ${row.id} has another time.`;
      },
      after: () => ctx.reload(),
    }),
  );
}
