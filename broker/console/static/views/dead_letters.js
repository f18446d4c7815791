// Dead letters: which queues have them, what they are, and sending them back or dropping them.

import { get, path, post } from "../api.js";
import { ask, open } from "../dialogs.js";
import { h, name } from "../dom.js";
import { number, plural } from "../format.js";
import { complain, say } from "../notices.js";
import { link } from "../router.js";
import { listQuery, listState, loadPage, pager, searchBox, table } from "../table.js";
import { messageColumns, messageDetails } from "./messages.js";

const PAGE = 50;
const PREVIEW_BYTES = 200;
const DONE = { replay: "sent back", drop: "dropped" };

export const deadLetters = {
  title: () => "Dead letters",
  nav: "dead-letters",

  async load(ctx) {
    const state = listState(ctx, { sort: "messages_ready", reverse: true });
    return loadPage(ctx, ctx.vhost ? path("dlq", ctx.vhost) : path("dlq"), listQuery(state), state);
  },

  show(ctx, answer) {
    return [
      h("p", { class: "dim" }, "Queues that dead letters of other queues are routed to."),
      h("div", { class: "bar" }, searchBox(ctx, "Search dead-letter queues"), pager(ctx, answer, "Queues")),
      table({
        caption: "Queues with dead letters",
        rows: answer.items,
        key: (row) => `${row.vhost} ${row.name}`,
        sorted: listState(ctx, { sort: "messages_ready", reverse: true }),
        empty: "No queue takes dead letters. Queues send theirs where x-dead-letter-exchange says.",
        columns: [
          {
            title: "Queue",
            sort: "name",
            cell: (row) => h("a", { href: link(["dead-letters", row.vhost, row.name]) }, name(row.name)),
          },
          ...(ctx.vhost ? [] : [{ title: "Virtual host", sort: "vhost", cell: (row) => name(row.vhost) }]),
          {
            title: "Dead letters",
            sort: "messages_ready",
            number: true,
            cell: (row) => number(row.messages_ready),
          },
          {
            title: "Unacked",
            sort: "messages_unacknowledged",
            number: true,
            cell: (row) => number(row.messages_unacknowledged),
          },
          { title: "Of queues", cell: (row) => sources(row.sources) },
        ],
      }),
    ];
  },
};

function sources(names) {
  const few = names.slice(0, 5);
  return [
    few.map((each) => h("span", { class: "flag" }, name(each))),
    names.length > few.length && h(
      "span",
      { class: "dim" },
      ` and ${number(names.length - few.length)} more`,
    ),
  ];
}

export const deadLettersOf = {
  title: ({ name }) => `Dead letters in ${name}`,
  nav: "dead-letters",

  async load(ctx) {
    const { vhost, name } = ctx.params;
    const after = /^\d+$/.test(ctx.query.after ?? "") ? ctx.query.after : "-1";
    return ctx.get(path("dlq", vhost, name), { count: PAGE, after, body_bytes: PREVIEW_BYTES });
  },

  show(ctx, rows) {
    return [
      h("p", {}, h("a", { href: link(["queues", ctx.params.vhost, ctx.params.name]) }, "The queue itself")),
      tools(ctx, rows),
      table({
        caption: "Dead letters",
        rows,
        key: (row) => row.id,
        empty: "There are no messages here.",
        columns: columns(ctx),
      }),
      turning(ctx, rows),
    ];
  },
};

function columns(ctx) {
  const death = (field) => (row) => row.death && name(String(row.death[field]));
  return [
    {
      title: "Select",
      plain: true,
      cell: (row) => h(
        "input",
        { type: "checkbox", class: "pick", "aria-label": `Select message ${row.id}`, value: row.id },
      ),
    },
    { title: "Died in", cell: death("queue") },
    { title: "Why", cell: death("reason") },
    { title: "Times", number: true, cell: (row) => row.death && number(row.death.count) },
    { title: "Replays", number: true, cell: (row) => row.death && number(row.death.replays) },
    ...messageColumns(),
    {
      title: "",
      cell: (row) => h(
        "button",
        { type: "button", "aria-label": `Show message ${row.id}`, onclick: () => show(ctx, row) },
        "Show",
      ),
    },
  ];
}

function show(ctx, row) {
  const { vhost, name } = ctx.params;
  get(path("dlq", vhost, name), { after: row.id - 1, count: 1, body_bytes: 1024 * 1024 }).then(
    ([whole]) => (
      whole?.id === row.id ? open(
        `Message ${row.id}`,
        messageDetails(whole),
      ) : complain("The message is not there any more.")
    ),
    complain,
  );
}

const picked = () => [...document.querySelectorAll("input.pick:checked")].map((input) => Number(input.value));

function tools(ctx, rows) {
  const { vhost, name } = ctx.params;
  const doing = (what, ids, question) => async () => {
    const chosen = ids();
    if (chosen && !chosen.length) return complain("Select messages first.");
    if (question && !(await ask(question(chosen)))) return undefined;
    try {
      const answer = await post(path("dlq", vhost, name, what), chosen ? { ids: chosen } : { all: true });
      const count = answer.replayed ?? answer.dropped;
      const left = answer.left ? `, ${number(answer.left)} left where they are` : "";
      say(`${plural(count, "message")} ${DONE[what]}${left}.`);
      for (const input of document.querySelectorAll("input.pick")) input.checked = false;
      await ctx.reload();
    } catch (error) {
      complain(error);
    }
    return undefined;
  };
  const every = () => null;
  const goes = (chosen) => ({
    title: "Drop dead letters?",
    text: `${chosen ? plural(chosen.length, "message") : "All messages"} of “${name}” go for good.`,
    yes: "Drop",
  });
  const back = () => ({
    title: "Replay all?",
    text: `All dead letters of “${name}” go back to the queues they died in.`,
    yes: "Replay",
  });
  const button = (text, onclick, danger) => h(
    "button",
    { type: "button", class: danger ? "danger" : null, disabled: !rows.length, onclick },
    text,
  );
  return h(
    "div",
    { class: "buttons" },
    button("Select all shown", () => {
      for (const input of document.querySelectorAll("input.pick")) input.checked = true;
    }),
    button("Replay selected", doing("replay", picked)),
    button("Replay all", doing("replay", every, back)),
    button("Drop selected", doing("drop", picked, goes), true),
    button("Drop all", doing("drop", every, goes), true),
  );
}

function turning(ctx, rows) {
  const later = rows.length === PAGE ? rows[rows.length - 1].id : null;
  return h(
    "div",
    { class: "buttons" },
    ctx.query.after && h(
      "button",
      { type: "button", onclick: () => ctx.setQuery({ after: undefined }) },
      "From the start",
    ),
    later !== null && h("button", { type: "button", onclick: () => ctx.setQuery({ after: later }) }, "Next"),
  );
}

