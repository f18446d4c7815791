// One stream: its partitions, who reads it, the lag of its groups, and its records.

import { get, path } from "../api.js";
import { h, name, update } from "../dom.js";
import { drawer, field, form } from "../forms.js";
import { bytes, moment, number } from "../format.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { facts, settings } from "./facts.js";
import { lagTable, loadGroups } from "./groups.js";
import { publishForm } from "./publish.js";
import { queueActions } from "./queue.js";

const RECORDS = 50;
const INTERNAL = "__"; // streams of the broker's own begin so

export const stream = {
  title: ({ name }) => `Stream ${name}`,
  nav: "streams",

  async load(ctx) {
    const { vhost, name } = ctx.params;
    const [row, groups] = await Promise.all([ctx.get(path("streams", vhost, name)), loadGroups(ctx, vhost)]);
    return {
      row,
      groups: groups.found.filter((group) => group.offsets.some((each) => each.stream === name)),
      more: groups.more,
      trouble: groups.trouble,
    };
  },

  show(ctx, { row, groups, more, trouble }) {
    const own = row.name.startsWith(INTERNAL);
    return [
      row.damaged && h("p", { class: "health bad", role: "alert" }, `This stream is damaged: ${row.damaged}`),
      facts({
        "Virtual host": name(row.vhost),
        Partitions: number(row.partitions.length),
        Records: number(row.messages),
        Size: bytes(row.size_bytes),
        Readers: number(row.readers.length),
        Policy: row.policy ? name(row.policy) : "none",
      }),
      h("h2", {}, "Partitions"),
      partitionTable(row),
      h("h2", {}, "Groups"),
      groups.map((group) => [
        h(
          "h3",
          { key: group.group },
          h("a", { href: link(["groups", row.vhost, group.group]) }, name(group.group)),
        ),
        lagTable(group, row.name),
      ]),
      !groups.length && h("p", { class: "empty" }, trouble ?? "No group has read this stream yet."),
      more > 0 && h(
        "p",
        { class: "dim" },
        `${number(more)} more groups of this virtual host were not looked at.`,
      ),
      h("h2", {}, "Readers over AMQP"),
      readerTable(row),
      h("h2", {}, "Arguments"),
      settings({ Arguments: row.arguments }),
      h("h2", {}, "Records"),
      records(row),
      !own && [
        drawer("Publish a record", publishForm(ctx, { vhost: row.vhost, exchange: "", key: row.name })),
        h("h2", {}, "Actions"),
        h(
          "p",
          {},
          h(
            "a",
            { href: link(["queues", row.vhost, row.name]) },
            "Rates, bindings and arguments of this queue",
          ),
        ),
        queueActions(ctx, row, true),
      ],
    ];
  },
};

function partitionTable(row) {
  return table({
    caption: "Partitions",
    rows: row.partitions,
    key: (each) => each.partition,
    columns: [
      { title: "Partition", cell: (each) => each.partition },
      { title: "First offset", number: true, cell: (each) => number(each.first_offset) },
      { title: "Next offset", number: true, cell: (each) => number(each.next_offset) },
      {
        title: "Stable",
        number: true,
        hint: "Readers see what is before this offset",
        cell: (each) => number(each.stable_offset),
      },
      { title: "Size", number: true, cell: (each) => bytes(each.size_bytes) },
      { title: "Segments", number: true, cell: (each) => number(each.segments.length) },
      { title: "Oldest", cell: (each) => oldest(each) },
      { title: "Trouble", cell: (each) => each.trouble && h("span", { class: "badge bad" }, each.trouble) },
    ],
  });
}

function oldest(partition) {
  const at = partition.segments[0]?.first_ms;
  return at ? h("time", {}, moment(at)) : "";
}

function readerTable(row) {
  return table({
    caption: "Readers over AMQP",
    rows: row.readers,
    key: (each) => each.tag,
    empty: "Nobody reads it over AMQP now.",
    columns: [
      { title: "Consumer tag", cell: (each) => name(each.tag) },
      {
        title: "Next offsets, by partition",
        cell: (each) => Object.entries(each.positions).map(
          ([partition, offset]) => h("span", { class: "flag numbers" }, `${partition}: ${number(offset)}`),
        ),
      },
      { title: "Unacked", number: true, cell: (each) => number(each.unacked) },
    ],
  });
}

/** Records from an offset on, which reading does not take away. */
function records(row) {
  const list = h("div", { "aria-live": "polite" });
  const target = path("streams", row.vhost, row.name, "records");
  let following = "";
  async function look(from) {
    const answer = await get(target, { from, count: RECORDS });
    following = Object.entries(answer.next).map(([partition, offset]) => `${partition}:${offset}`).join(",");
    draw(answer.records);
  }
  function draw(rows) {
    update(
      list,
      table({
        caption: "Records",
        rows,
        key: (each) => `${each.partition}:${each.offset}`,
        empty: "There are no records from there on.",
        columns: [
          { title: "Partition", cell: (each) => each.partition },
          { title: "Offset", number: true, cell: (each) => number(each.offset) },
          { title: "Time", cell: (each) => h("time", {}, moment(each.timestamp_ms)) },
          { title: "Key", cell: (each) => each.key !== null && name(each.key) },
          { title: "Value", cell: (each) => h("code", { class: "preview" }, h("bdi", {}, each.value ?? "")) },
        ],
      }),
      rows.length > 0 && h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => look(following) }, "Next records"),
      ),
    );
  }
  const inside = form({
    keep: "records",
    button: "Read",
    clear: false,
    fields: [
      field({ label: "From", name: "from", hint: "partition:offset, such as 0:17,1:5; empty for the start of all" }),
    ],
    submit: async ({ from }) => {
      await look(from.trim());
      return null;
    },
  });
  return h(
    "details",
    { class: "drawer", keep: "records" },
    h("summary", {}, "Read records"),
    h("div", { class: "drawn" }, inside, list),
  );
}
