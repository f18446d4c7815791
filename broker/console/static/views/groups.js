// Consumer groups of streams: members, offsets, lag, and offsets set anew.

import { path, post } from "../api.js";
import { h, name } from "../dom.js";
import { ask } from "../dialogs.js";
import { drawer, field, form } from "../forms.js";
import { moment, number } from "../format.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { facts } from "./facts.js";

const DESCRIBED_MAX = 20; // each is a request
const VHOSTS_MAX = 20;
const STATUS_UNAVAILABLE = 503;

/** Groups of a vhost with their offsets, and of how many more there was nothing asked. */
export async function loadGroups(ctx, vhost) {
  let listed;
  try {
    listed = await ctx.get(path("stream-groups", vhost));
  } catch (error) {
    // In a cluster nobody may lead the groups for a moment; the rest can be shown.
    if (error.status === STATUS_UNAVAILABLE) return { found: [], more: 0, trouble: error.message };
    throw error;
  }
  const described = listed.slice(0, DESCRIBED_MAX).map(
    (each) => ctx.tryGet(path("stream-groups", vhost, each.group)),
  );
  const found = (await Promise.all(described)).filter((each) => each !== null);
  return { found: found.map((each) => ({ vhost, ...each })), more: listed.length - described.length };
}

const lagOf = (group) => group.offsets.reduce((sum, each) => sum + each.lag, 0);

export const streamGroups = {
  title: () => "Stream groups",
  nav: "groups",

  async load(ctx) {
    const vhosts = ctx.vhost ? [ctx.vhost] : ctx.vhosts.slice(0, VHOSTS_MAX);
    const parts = await Promise.all(vhosts.map((vhost) => loadGroups(ctx, vhost)));
    return {
      groups: parts.flatMap((each) => each.found),
      more: parts.reduce((sum, each) => sum + each.more, 0),
      left: ctx.vhost ? 0 : ctx.vhosts.length - vhosts.length,
      trouble: parts.find((each) => each.trouble)?.trouble,
    };
  },

  show(ctx, { groups, more, left, trouble }) {
    return [
      table({
        caption: "Stream groups",
        rows: groups,
        key: (row) => `${row.vhost} ${row.group}`,
        empty: trouble ?? "There are no consumer groups.",
        columns: [
          {
            title: "Group",
            cell: (row) => h("a", { href: link(["groups", row.vhost, row.group]) }, name(row.group)),
          },
          ...(ctx.vhost ? [] : [{ title: "Virtual host", cell: (row) => name(row.vhost) }]),
          {
            title: "Streams",
            cell: (row) => [...new Set(row.offsets.map((each) => each.stream))].map(
              (each) => h("span", { class: "flag" }, name(each)),
            ),
          },
          { title: "Members", number: true, cell: (row) => number(row.members.length) },
          { title: "Lag", number: true, cell: (row) => number(lagOf(row)) },
          { title: "Generation", number: true, cell: (row) => number(row.generation) },
        ],
      }),
      more > 0 && h("p", { class: "dim" }, `${number(more)} more groups are not shown.`),
      left > 0 && h(
        "p",
        { class: "dim" },
        `${number(left)} more virtual hosts were not looked at: choose one above.`,
      ),
    ];
  },
};

export const group = {
  title: ({ name }) => `Group ${name}`,
  nav: "groups",

  load: (ctx) => ctx.get(path("stream-groups", ctx.params.vhost, ctx.params.name)),

  show(ctx, row) {
    const { vhost } = ctx.params;
    return [
      facts({
        "Virtual host": name(vhost),
        Members: number(row.members.length),
        Lag: number(lagOf(row)),
        Generation: number(row.generation),
      }),
      h("h2", {}, "Offsets and lag"),
      lagTable(row),
      h("h2", {}, "Members"),
      memberTable(row),
      h("h2", {}, "Actions"),
      drawer("Reset offsets", resetForm(ctx, vhost, row)),
    ];
  },
};

/** Offsets and lag by partition: of all streams, or of one. */
export function lagTable(row, stream) {
  const owner = (each) => row.members.find(
    (member) => member.assigned.some(([name, number]) => name === each.stream && number === each.number),
  );
  return table({
    caption: `Offsets and lag of group ${row.group}`,
    rows: row.offsets.filter((each) => stream === undefined || each.stream === stream),
    key: (each) => `${each.stream} ${each.number}`,
    empty: "The group has not committed anything yet.",
    columns: [
      ...(stream === undefined ? [{ title: "Stream", cell: (each) => name(each.stream) }] : []),
      { title: "Partition", number: true, cell: (each) => number(each.number) },
      { title: "Committed", number: true, cell: (each) => number(each.offset) },
      { title: "Next", number: true, cell: (each) => number(each.next_offset) },
      {
        title: "Lag",
        number: true,
        cell: (each) => h("b", { class: each.lag ? "" : "dim" }, number(each.lag)),
      },
      { title: "At", cell: (each) => (each.at_ms ? h("time", {}, moment(each.at_ms)) : "") },
      { title: "Member", cell: (each) => owner(each) && name(owner(each).member) },
    ],
  });
}

function memberTable(row) {
  return table({
    caption: "Members",
    rows: row.members,
    key: (each) => each.member,
    empty: "Nobody is in the group now.",
    columns: [
      { title: "Member", cell: (each) => name(each.member) },
      { title: "Instance", cell: (each) => each.instance && name(each.instance) },
      {
        title: "Partitions",
        cell: (each) => each.assigned.map(
          ([stream, partition]) => h("span", { class: "flag" }, name(stream), ` ${partition}`),
        ),
      },
    ],
  });
}

function resetForm(ctx, vhost, row) {
  const streams = [
    ...new Set([...row.offsets.map((each) => each.stream), ...row.members.flatMap((each) => each.streams)]),
  ];
  return form({
    keep: "reset",
    button: "Reset offsets",
    danger: true,
    clear: false,
    fields: [
      streams.length ? field({
        label: "Stream",
        name: "stream",
        options: streams,
      }) : field({ label: "Stream", name: "stream", required: true }),
      field({
        label: "To",
        name: "to",
        options: [
          ["first", "the first record"],
          ["last", "the last record"],
          ["next", "the end"],
          ["time", "a time"],
          ["offset", "an offset"],
        ],
      }),
      field({ label: "Time or offset", name: "value", hint: "A time as 2026-01-31 12:00, in this browser's zone; an offset as a number." }),
      field({ label: "Partitions", name: "partitions", hint: "Such as 0,2; empty for all." }),
    ],
    submit: async (values) => {
      const body = { stream: values.stream, ...target(values) };
      const partitions = values.partitions.split(",").filter((each) => each.trim());
      if (partitions.length) body.partitions = partitions.map(Number);
      const text = `Group “${row.group}” goes on at another place of “${values.stream}”. It must have no members now.`;
      if (!(await ask({ title: "Reset offsets?", text, yes: "Reset" }))) return null;
      await post(path("stream-groups", vhost, row.group, "offsets"), body);
      return `Offsets of “${row.group}” are reset.`;
    },
    after: () => ctx.reload(),
  });
}

function target({ to, value }) {
  if (to === "offset") {
    if (!/^\d+$/.test(value.trim())) throw new Error("The offset is to be a number.");
    return { offset: Number(value) };
  }
  if (to !== "time") return { to };
  const at = new Date(value.trim().replace(" ", "T")).getTime();
  if (Number.isNaN(at)) throw new Error("The time is to be as 2026-01-31 12:00.");
  return { to: String(at) };
}
