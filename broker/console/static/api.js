// Calls to the node that served this page, as whoever is logged in.

import { session } from "./session.js";

const TIMEOUT_MS = 30_000;
const STATUS_UNAUTHORISED = 401;
const STATUS_UNAVAILABLE = 503;

/** `kind`: "away" (no answer), "login" (the token is void), "denied", "missing", or "refused". */
export class ApiError extends Error {
  constructor(kind, message, status = 0) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

/** A path out of names, each in its own segment. */
export function path(...parts) {
  return `/api/${parts.map(segment).join("/")}`;
}

function segment(part) {
  const text = String(part);
  if (text === "." || text === "..") {
    // Browsers resolve these before they send a path, however they are encoded.
    throw new ApiError(
      "refused",
      `A browser cannot send the name “${text}” to the broker. Use the leveret command for it.`,
    );
  }
  return encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text);
}

/** An exchange as paths name it. */
export const exchangeSegment = (name) => (name === "" ? "amq.default" : name);

export const get = (target, query, signal) => call("GET", target, { query, signal });
export const put = (target, body = {}) => call("PUT", target, { body });
export const post = (target, body = {}) => call("POST", target, { body });
export const patch = (target, body) => call("PATCH", target, { body });
export const remove = (target) => call("DELETE", target, {});

export async function call(method, target, { query, body, signal, token = session.token, again = true } = {}) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await send(target + queryString(query), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([
      signal,
      AbortSignal.timeout(TIMEOUT_MS),
    ]) : AbortSignal.timeout(TIMEOUT_MS),
  });
  const renewedMeanwhile = response.status === STATUS_UNAUTHORISED && session.token && session.token !== token;
  if (renewedMeanwhile && again) return call(method, target, { query, body, signal, again: false });
  return answer(response);
}

async function send(target, options) {
  try {
    // No cookies and no remembered password: the token is all that says who this is.
    return await fetch(target, { ...options, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (options.signal.aborted && options.signal.reason?.name === "AbortError") throw error;
    throw new ApiError("away", "The broker does not answer.");
  }
}

function queryString(query) {
  const found = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "");
  return found.length ? `?${new URLSearchParams(found)}` : "";
}

async function answer(response) {
  let text;
  try {
    text = await response.text();
  } catch {
    throw new ApiError("away", "The broker's answer broke off.");
  }
  const value = parsed(text);
  if (response.ok) return value;
  const reason = typeof value?.reason === "string" ? value.reason : `The broker answered ${response.status}.`;
  throw new ApiError(kindOf(response, reason), reason, response.status);
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

function kindOf(response, reason) {
  if (response.status === STATUS_UNAUTHORISED) {
    return response.headers.has("WWW-Authenticate") ? "login" : "denied";
  }
  if (response.status === STATUS_UNAVAILABLE && reason.includes("is stopping")) return "away";
  if (response.status === 403) return "denied";
  return response.status === 404 ? "missing" : "refused";
}
