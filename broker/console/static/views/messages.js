// Messages of a queue: got from it, or looked at where they are, moved and deleted one by one.

import { get, path, post, remove } from "../api.js";
import { ask, open } from "../dialogs.js";
import { h, name, update } from "../dom.js";
import { field, form } from "../forms.js";
import { bytes, number, plural } from "../format.js";
import { complain, say } from "../notices.js";
import { table } from "../table.js";
import { pairs } from "./facts.js";

const PAGE = 25;
const PREVIEW_BYTES = 200;

/** A message in full. */
export function messageDetails(message) {
  const { headers, ...properties } = message.properties ?? {};
  return h(
    "article",
    { class: "message" },
    h(
      "p",
      { class: "dim" },
      "Exchange ",
      name(message.exchange ?? "", "(default)"),
      ", routing key ",
      name(message.routing_key ?? "", "(empty)"),
      `, ${bytes(message.payload_bytes)}`,
      message.redelivered && ", redelivered",
    ),
    h("h3", {}, "Properties"),
    pairs(properties),
    h("h3", {}, "Headers"),
    pairs(headers),
    h("h3", {}, message.payload_encoding === "base64" ? "Payload (Base64)" : "Payload"),
    h("pre", { tabindex: "0", "aria-label": "Payload" }, message.payload),
  );
}

export const preview = (message) => h(
  "code",
  { class: "preview" },
  h("bdi", {}, message.payload_encoding === "base64" ? `${message.payload} (Base64)` : message.payload),
);

/** What a row says of a message: its id, where it came from, and how it begins. */
export function messageColumns(more = []) {
  return [
    { title: "Id", number: true, cell: (row) => number(row.id) },
    ...more,
    { title: "Exchange", cell: (row) => name(row.exchange ?? "", "(default)") },
    { title: "Routing key", cell: (row) => name(row.routing_key ?? "", "(empty)") },
    { title: "Size", number: true, cell: (row) => bytes(row.payload_bytes) },
    { title: "Payload", cell: preview },
  ];
}

const ACK_MODES = [
  ["ack_requeue_true", "Look, and put back"],
  ["ack_requeue_false", "Take away for good"],
  ["reject_requeue_false", "Reject, to the dead letters"],
];

export function getForm(ctx, row) {
  const shownHere = h("div", { class: "got", "aria-live": "polite" });
  const inside = form({
    keep: "get",
    button: "Get messages",
    clear: false,
    fields: [
      field({ label: "What happens to them", name: "mode", options: ACK_MODES }),
      field({ label: "How many", name: "count", type: "number", value: 1, min: 1, max: 100 }),
    ],
    submit: async ({ mode, count }) => {
      const wants = { ackmode: mode, encoding: "auto", count: Number(count) || 1, truncate: 65536 };
      const gone = mode !== "ack_requeue_true";
      const question = {
        title: "Take messages out of the queue?",
        text: `Up to ${number(wants.count)} messages leave “${row.name}”.`,
        yes: "Take them",
      };
      if (gone && !(await ask(question))) return null;
      const found = await post(path("queues", row.vhost, row.name, "get"), wants);
      update(
        shownHere,
        h("p", {}, found.length ? plural(found.length, "message") : "The queue has no ready message."),
        found.map(messageDetails),
      );
      return null;
    },
    after: () => ctx.reload(),
  });
  return h("div", { keep: "getting" }, inside, shownHere);
}

/** Messages where they are, found by what is in them. */
export function browser(ctx, row) {
  const list = h("div", { class: "browsed", "aria-live": "polite" });
  const seen = { messages: [], after: -1, more: false, filter: {} };
  const target = path("queues", row.vhost, row.name, "messages");

  async function look(after) {
    const answer = await get(target, { ...seen.filter, after, count: PAGE, body_bytes: PREVIEW_BYTES });
    Object.assign(seen, { messages: answer.messages, after: answer.after, more: answer.more });
    draw();
  }
  const again = () => look(-1).catch(complain);
  function draw() {
    update(
      list,
      table({
        caption: "Messages found",
        rows: seen.messages,
        key: (each) => each.id,
        empty: "No message fits.",
        columns: [...messageColumns(), { title: "", cell: (each) => tools(row, each, target, again) }],
      }),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: again }, "From the start"),
        seen.more && h("button", { type: "button", onclick: () => look(seen.after).catch(complain) }, "Next"),
      ),
    );
  }
  return h(
    "details",
    { class: "drawer", keep: "browser" },
    h("summary", {}, "Browse without consuming"),
    h("div", { class: "drawn" }, filterForm(seen, look), list),
  );
}

function filterForm(seen, look) {
  return form({
    keep: "filter",
    button: "Browse",
    clear: false,
    fields: [
      field({ label: "Text in the payload", name: "text" }),
      field({ label: "Header", name: "header", hint: "name or name:value" }),
      field({ label: "Routing key", name: "routing_key" }),
      field({ label: "Exchange", name: "exchange" }),
      field({ label: "These are patterns", name: "regex", type: "checkbox" }),
    ],
    submit: async ({ regex, ...filter }) => {
      seen.filter = { ...filter, regex: regex ? "true" : undefined };
      await look(-1);
      return null;
    },
  });
}

function tools(row, message, target, again) {
  const one = `${target}/${message.id}`;
  const showAll = () => get(one).then(
    (whole) => open(`Message ${message.id}`, messageDetails(whole)),
    complain,
  );
  const drop = async () => {
    const text = `Message ${message.id} of “${row.name}” goes for good.`;
    if (!(await ask({ title: "Delete this message?", text, yes: "Delete" }))) return;
    await remove(one).then(() => say(`Message ${message.id} is deleted.`), complain);
    again();
  };
  const button = (text, onclick) => h(
    "button",
    { type: "button", "aria-label": `${text} message ${message.id}`, onclick },
    text,
  );
  return h(
    "div",
    { class: "buttons tight" },
    button("Show", showAll),
    button("Move", () => moveDialog(row, message, one, again)),
    button("Delete", drop),
  );
}

function moveDialog(row, message, one, again) {
  const close = open(
    `Move message ${message.id}`,
    form({
      button: "Move",
      fields: [
        field({
          label: "To queue",
          name: "to",
          required: true,
          autofocus: true,
          hint: `A queue of virtual host ${row.vhost}.`,
        }),
      ],
      submit: async ({ to }) => {
        await post(`${one}/move`, { to });
        close();
        again();
        return `Message ${message.id} is in “${to}”.`;
      },
    }),
  );
}

