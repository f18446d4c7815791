// Bindings as a table, from either of their ends.

import { exchangeSegment, path, remove } from "../api.js";
import { h, name } from "../dom.js";
import { action } from "../forms.js";
import { number, shown } from "../format.js";
import { link } from "../router.js";
import { table } from "../table.js";

/** `end` is the one that is shown: "source" or "destination". `answer` is a page of them. */
export function bindingTable(ctx, answer, end, caption = "Bindings") {
  const others = answer.filtered_count - answer.items.length;
  return [
    table({
      caption,
      rows: answer.items,
      key: (row) => [row.source, row.destination_type, row.destination, row.properties_key].join(" "),
      empty: "There are no bindings.",
      columns: [
        { title: end === "source" ? "From" : "To", cell: (row) => endOf(row, end) },
        {
          title: "Routing key",
          cell: (row) => (
            row.routing_key ? h("code", {}, name(row.routing_key)) : h("span", { class: "dim" }, "(empty)")
          ),
        },
        {
          title: "Arguments",
          cell: (row) => Object.entries(row.arguments).map(
            ([key, value]) => h("div", {}, h("bdi", {}, `${key}=${shown(value)}`)),
          ),
        },
        { title: "", cell: (row) => row.source !== "" && unbind(ctx, row) },
      ],
    }),
    others > 0 && h("p", { class: "dim" }, `and ${number(others)} more`),
  ];
}

function endOf(row, end) {
  const isQueue = end === "destination" && row.destination_type === "queue";
  const view = isQueue ? "queues" : "exchanges";
  return [
    h("a", { href: link([view, row.vhost, row[end]]) }, name(row[end], "(default exchange)")),
    h("span", { class: "dim" }, isQueue ? " queue" : " exchange"),
  ];
}

function unbind(ctx, row) {
  return action(ctx, {
    text: "Unbind",
    label: `Unbind ${row.destination} from ${row.source}, key ${row.routing_key || "empty"}`,
    question: {
      title: "Unbind?",
      text: `“${row.destination}” gets no more messages from “${row.source}” by “${row.routing_key}”.`,
      yes: "Unbind",
    },
    run: async () => {
      const kind = row.destination_type === "queue" ? "q" : "e";
      await remove(
        path(
          "bindings",
          row.vhost,
          "e",
          exchangeSegment(row.source),
          kind,
          row.destination,
          row.properties_key,
        ),
      );
      return "Unbound.";
    },
  });
}
