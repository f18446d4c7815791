// Numbers, sizes and times as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const TENTH = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];
const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

export const number = (value) => (typeof value === "number" ? WHOLE.format(value) : "–");

/** For the side of a graph: 20K, 1.5M. */
export const short = (value) => SHORT.format(value);

/** Per second; nothing at all is a dash, so that what is busy stands out. */
export function rate(value) {
  if (!value) return "–";
  return Math.abs(value) < 100 ? TENTH.format(value) : WHOLE.format(value);
}

export function bytes(value) {
  if (typeof value !== "number") return "–";
  let power = 0;
  while (Math.abs(value) >= 1024 && power < SIZES.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${power && Math.abs(value) < 100 ? TENTH.format(value) : WHOLE.format(value)} ${SIZES[power]}`;
}

/** A length of time, by its two biggest units. */
export function duration(milliseconds) {
  let seconds = Math.round(milliseconds / 1000);
  if (seconds < 1) return "0 s";
  const parts = [];
  for (const [unit, size] of UNITS) {
    if (seconds >= size && parts.length < 2) {
      parts.push(`${Math.floor(seconds / size)} ${unit}`);
      seconds %= size;
    } else if (parts.length) break;
  }
  return parts.join(" ");
}

export function fromNow(atMs) {
  const away = atMs - Date.now();
  return away >= 0 ? `in ${duration(away)}` : `${duration(-away)} ago`;
}

/** Local date and time, to the second. */
export function moment(atMs) {
  const at = new Date(atMs);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(atMs)}`;
}

export function clock(atMs) {
  const at = new Date(atMs);
  return [
    at.getHours(),
    at.getMinutes(),
    at.getSeconds(),
  ].map((part) => String(part).padStart(2, "0")).join(":");
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** A value of an argument or header, on one line. */
export const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
