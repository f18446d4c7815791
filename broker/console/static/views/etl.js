// ETL jobs, as they report themselves.

import { path } from "../api.js";
import { h, name } from "../dom.js";
import { fromNow, moment, number, rate } from "../format.js";
import { table } from "../table.js";

// What jobs call their state is theirs; these are nothing to worry about, or not yet.
const LOOKS = { running: "good", paused: "warn", finished: "plain", stopped: "plain" };

export const etl = {
  title: () => "ETL jobs",
  nav: "etl",

  load: (ctx) => ctx.get(path("etl", "jobs")),

  show(_ctx, rows) {
    return table({
      caption: "ETL jobs",
      rows,
      key: (row) => row.name,
      empty: "No job has reported itself yet.",
      columns: [
        { title: "Job", cell: (row) => name(row.name) },
        {
          title: "State",
          cell: (row) => h("span", { class: `badge ${LOOKS[row.state] ?? "bad"}` }, row.state),
        },
        { title: "Rows", number: true, cell: (row) => number(row.processed) },
        { title: "Rows /s", number: true, cell: (row) => rate(row.rows_per_second) },
        {
          title: "Lag",
          number: true,
          cell: (row) => (typeof row.lag_seconds === "number" ? `${number(row.lag_seconds)} s` : "–"),
        },
        {
          title: "Batch",
          number: true,
          cell: (row) => (typeof row.batch_ms === "number" ? `${number(row.batch_ms)} ms` : "–"),
        },
        { title: "Errors", number: true, cell: (row) => number(row.errors) },
        { title: "Dead letters", number: true, cell: (row) => number(row.dead_letters) },
        {
          title: "Reported",
          cell: (row) => (
            row.updated_ms ? h("time", { title: moment(row.updated_ms) }, fromNow(row.updated_ms)) : ""
          ),
        },
      ],
    });
  },
};
