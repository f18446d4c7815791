// The form that publishes one message.

import { exchangeSegment, path, post } from "../api.js";
import { field, form, parseLines } from "../forms.js";
import { plural } from "../format.js";

export function publishForm(ctx, { vhost, exchange, key }) {
  return form({
    keep: "publish",
    button: "Publish",
    clear: false,
    fields: [
      field({
        label: "Routing key",
        name: "key",
        value: key,
        readonly: exchange === "" && key !== undefined,
      }),
      field({ label: "Payload", name: "payload", rows: 4 }),
      field({ label: "Payload is", name: "encoding", options: [["string", "text"], ["base64", "Base64"]] }),
      field({ label: "Copies", name: "copies", type: "number", value: 1, min: 1, max: 100 }),
      field({ label: "Persistent", name: "persistent", type: "checkbox", value: true }),
      field({ label: "Headers", name: "headers", rows: 2, hint: "One name=value per line; x-delay=60000 has it wait a minute." }),
      field({
        label: "Properties",
        name: "properties",
        rows: 2,
        hint: "One name=value per line: content_type, message_id, correlation_id, reply_to, expiration, priority, type, app_id …",
      }),
    ],
    submit: async (values) => {
      const properties = {
        delivery_mode: values.persistent ? 2 : 1,
        ...texts(parseLines(values.properties)),
      };
      const headers = parseLines(values.headers);
      if (Object.keys(headers).length) properties.headers = headers;
      const message = {
        properties,
        routing_key: values.key,
        payload: values.payload,
        payload_encoding: values.encoding,
      };
      const target = path("exchanges", vhost, exchangeSegment(exchange), "publish");
      const copies = Math.min(100, Math.max(1, Number(values.copies) || 1));
      let routed = 0;
      for (let copy = 0; copy < copies; copy += 1) routed += (await post(target, message)).routed ? 1 : 0;
      if (!routed) {
        throw new Error("The message was published and went nowhere: no binding fits its routing key.");
      }
      return `${plural(copies, "message")} published.`;
    },
    after: () => ctx.reload(),
  });
}

/** All properties but these are texts. */
function texts(properties) {
  const numbers = ["delivery_mode", "priority", "timestamp"];
  return Object.fromEntries(
    Object.entries(properties).map(([key, value]) => [key, numbers.includes(key) ? value : String(value)]),
  );
}
