// All views, by their addresses, and where the navigation has them.

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { may } from "./session.js";
import { channel, channels } from "./views/channels.js";
import { connection, connections } from "./views/connections.js";
import { consumers } from "./views/consumers.js";
import { deadLetters, deadLettersOf } from "./views/dead_letters.js";
import { etl } from "./views/etl.js";
import { exchange } from "./views/exchange.js";
import { exchanges } from "./views/exchanges.js";
import { group, streamGroups } from "./views/groups.js";
import { limits } from "./views/limits.js";
import { overview } from "./views/overview.js";
import { permissions } from "./views/permissions.js";
import { policies } from "./views/policies.js";
import { queue } from "./views/queue.js";
import { queues } from "./views/queues.js";
import { scheduled, scheduledIn } from "./views/scheduled.js";
import { stream } from "./views/stream.js";
import { streams } from "./views/streams.js";
import { user, users } from "./views/users.js";
import { vhosts } from "./views/vhosts.js";

// Address → view. A part that begins with a colon is a parameter.
const ADDRESSES = [
  ["overview", overview],
  ["queues", queues],
  ["queues/:vhost/:name", queue],
  ["streams", streams],
  ["streams/:vhost/:name", stream],
  ["groups", streamGroups],
  ["groups/:vhost/:name", group],
  ["exchanges", exchanges],
  ["exchanges/:vhost/:name", exchange],
  ["connections", connections],
  ["connections/:name", connection],
  ["channels", channels],
  ["channels/:name", channel],
  ["consumers", consumers],
  ["dead-letters", deadLetters],
  ["dead-letters/:vhost/:name", deadLettersOf],
  ["scheduled", scheduled],
  ["scheduled/:vhost/:name", scheduledIn],
  ["policies", policies],
  ["etl", etl],
  ["users", users],
  ["users/:name", user],
  ["permissions", permissions],
  ["vhosts", vhosts],
  ["limits", limits],
].map(([address, view]) => ({ parts: address.split("/"), view }));

const NOWHERE = {
  title: () => "Not found",
  nav: "",
  load: async () => null,
  show: () => h("p", { class: "empty" }, "There is no such page."),
};

export function findView(parts) {
  for (const { parts: pattern, view } of ADDRESSES) {
    if (pattern.length !== parts.length) continue;
    const params = {};
    const fits = pattern.every((part, place) => {
      if (!part.startsWith(":")) return part === parts[place];
      params[part.slice(1)] = parts[place];
      return true;
    });
    if (fits) return { view, params };
  }
  return { view: NOWHERE, params: {} };
}

/** What the navigation shows to this user. */
export function groups(state) {
  const entry = (nav, text) => ({ nav, text });
  return [
    {
      title: "Broker",
      entries: [
        entry("overview", "Overview"),
        entry("connections", "Connections"),
        entry("channels", "Channels"),
        entry("consumers", "Consumers"),
      ],
    },
    {
      title: "Messages",
      entries: [
        entry("queues", "Queues"),
        entry("streams", "Streams"),
        entry("groups", "Stream groups"),
        entry("exchanges", "Exchanges"),
        entry("dead-letters", "Dead letters"),
        entry("scheduled", "Scheduled"),
        ...(state.etl ? [entry("etl", "ETL jobs")] : []),
      ],
    },
    {
      title: "Admin",
      entries: [
        entry("policies", "Policies"),
        ...(
          may.administer() ? [
            entry("users", "Users"),
            entry("permissions", "Permissions"),
            entry("vhosts", "Virtual hosts"),
            entry("limits", "Limits"),
          ] : []
        ),
      ],
    },
  ];
}

/** Whether this broker hears of ETL jobs. */
export async function hasEtl(signal) {
  try {
    await get(path("etl", "jobs"), {}, signal);
    return true;
  } catch (error) {
    if (error.kind === "missing" || error.kind === "denied") return false;
    throw error;
  }
}
