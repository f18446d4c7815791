// Which view the address names: #/queues/%2F/orders?page=2 → ["queues", "/", "orders"], {page: "2"}.

export function parse(hash) {
  const [address, query] = split(hash.replace(/^#\/?/, ""));
  return { parts: address.split("/").map(decode), query: Object.fromEntries(new URLSearchParams(query)) };
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a view; a query with nothing in it is left out. */
export function link(parts, query = {}) {
  const found = Object.entries(query).filter(
    ([, value]) => value !== undefined && value !== "" && value !== null,
  );
  const address = parts.map(
    (part) => encodeURIComponent(part.toWellFormed ? part.toWellFormed() : part),
  ).join("/");
  return `#/${address}${found.length ? `?${new URLSearchParams(found)}` : ""}`;
}
