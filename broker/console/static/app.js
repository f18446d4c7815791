// The page: logs in, shows the view that the address names, and keeps it up to date.

import * as api from "./api.js";
import { h, update } from "./dom.js";
import { complain } from "./notices.js";
import { Poller } from "./poller.js";
import { link, parse } from "./router.js";
import { begin, forget, isOver, noteUse, recall, session, wantsRenewal } from "./session.js";
import { loginPage, navigation, shell } from "./shell.js";
import { applyTheme } from "./theme.js";
import { findView, hasEtl } from "./views.js";

const POLL_MS = 5000;
const CONTEXT_EVERY = 6; // polls; vhosts and the cluster's name change rarely
const VHOST_KEY = "leveret.vhost";

const state = {
  vhosts: [],
  cluster: "",
  version: "",
  etl: null, // not known yet
  away: false,
  shown: null, // the view whose data is on the page
  hash: null,
  rounds: 0,
  stale: false, // vhosts have come or gone
};
const poller = new Poller(refresh, POLL_MS);

function start() {
  applyTheme();
  recall();
  for (const event of ["pointerdown", "keydown"]) addEventListener(event, noteUse, { passive: true });
  addEventListener("keydown", shortcuts);
  addEventListener("hashchange", () => navigate());
  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault();
    document.getElementById("main")?.focus();
  };
  session.token ? enter() : showLogin("");
}

// Logging in and out

function showLogin(why) {
  poller.stop();
  state.shown = null;
  document.title = "Log in – Leveret";
  update(document.getElementById("app"), loginPage(why, logIn));
  document.querySelector("#app input")?.focus();
}

async function logIn({ username, password }) {
  try {
    begin(await api.post(api.path("login"), { username, password }));
  } catch (error) {
    if (error.kind === "login") {
      throw new Error("This name and password do not fit, or may not be used from here.");
    }
    if (error.kind === "denied") {
      throw new Error("This user has no tag that allows to use the console, such as “management”.");
    }
    throw error;
  }
  enter();
}

async function logOut() {
  poller.stop();
  const target = api.path("login");
  await api.remove(target).catch(() => {});
  forget();
  showLogin("You are logged out.");
}

async function enter() {
  state.rounds = 0;
  try {
    await loadContext();
  } catch (error) {
    if (error.kind === "login") return loggedOut();
    state.away = true;
  }
  await navigate({ focus: false });
}

function loggedOut() {
  forget();
  state.etl = null;
  showLogin("The session is over, or the broker was restarted. Please log in again.");
}

/** What every view needs: the vhosts that there are, and whose broker this is. */
async function loadContext(signal) {
  const [overview, vhosts, etl] = await Promise.all([
    api.get(api.path("overview"), {}, signal),
    api.get(api.path("vhosts"), {}, signal),
    state.etl ?? hasEtl(signal),
  ]);
  state.stale = false;
  Object.assign(
    state,
    {
      cluster: overview.cluster_name,
      version: overview.product_version,
      vhosts: vhosts.map((each) => each.name),
      etl,
    },
  );
}

async function renew() {
  const old = session.token;
  begin(await api.call("POST", api.path("login")));
  await api.call("DELETE", api.path("login"), { token: old }).catch(() => {});
}

// Showing views

/** The one that lists are of; empty for all. */
function currentVhost() {
  if (state.vhosts.length === 1) return state.vhosts[0];
  const kept = sessionStorage.getItem(VHOST_KEY) ?? "";
  return state.vhosts.includes(kept) ? kept : "";
}

function pickVhost(vhost) {
  sessionStorage.setItem(VHOST_KEY, vhost);
  const { parts } = parse(location.hash);
  // What one thing is shown of is in a vhost already; lists begin anew.
  const target = link(parts.slice(0, 1));
  if (location.hash === target) navigate({ focus: false });
  else location.hash = target;
}

async function navigate({ focus = true } = {}) {
  if (!session.token) return;
  const { parts, query } = parse(location.hash);
  if (!parts[0]) {
    history.replaceState(null, "", "#/overview");
    return navigate({ focus });
  }
  const sameView = state.hash !== null && parse(state.hash).parts.join("/") === parts.join("/");
  state.hash = location.hash;
  const { view, params } = findView(parts);
  const ctx = context(view, params, query);
  state.shown = ctx;
  drawShell(ctx);
  if (!sameView) {
    update(document.getElementById("content"), h("p", { class: "empty", role: "status" }, "Loading …"));
    if (focus) document.getElementById("heading")?.focus();
    scrollTo(0, 0);
  }
  await poller.start();
}

function context(view, params, query) {
  return {
    view,
    params,
    query,
    vhost: currentVhost(),
    vhosts: state.vhosts,
    user: session.user,
    signal: undefined,
    get(target, asked) {
      return api.get(target, asked, this.signal);
    },
    /** The same for what may be missing, or not for this user: null then. */
    async tryGet(target, asked) {
      try {
        return await this.get(target, asked);
      } catch (error) {
        if (error.kind === "denied" || error.kind === "missing") return null;
        throw error;
      }
    },
    reload: () => poller.soon(),
    /** The same, with the vhosts that there are. */
    reloadAll: () => {
      state.stale = true;
      return poller.soon();
    },
    alone: (task) => poller.alone(task),
    go: (parts, asked) => {
      poller.stop(); // what was shown may be gone: it is not asked for again
      location.hash = link(parts, asked);
    },
    setQuery(patch) {
      history.replaceState(
        null,
        "",
        link(parse(location.hash).parts, { ...parse(location.hash).query, ...patch }),
      );
      navigate({ focus: false });
    },
  };
}

async function refresh(signal) {
  const ctx = state.shown;
  if (!ctx) return;
  if (isOver()) return loggedOut();
  ctx.signal = signal;
  try {
    if (wantsRenewal()) await renew();
    if (state.away || state.stale || state.rounds % CONTEXT_EVERY === CONTEXT_EVERY - 1) {
      await loadContext(signal);
      Object.assign(ctx, { vhosts: state.vhosts, vhost: currentVhost() });
    }
    state.rounds += 1;
    const data = await ctx.view.load(ctx);
    if (signal.aborted) return;
    setAway(false, ctx);
    update(document.getElementById("content"), ctx.view.show(ctx, data));
  } catch (error) {
    if (!signal.aborted) failed(error, ctx);
  }
}

function failed(error, ctx) {
  if (error.name === "AbortError") return;
  if (error.kind === "login") loggedOut();
  else if (error.kind === "away") setAway(true, ctx);
  else if (error.kind === "missing" || error.kind === "denied") {
    setAway(false, ctx);
    const text = error.kind === "missing" ? "This is not there (any more)." : `You may not see this: ${error.message}.`;
    update(document.getElementById("content"), h("p", { class: "empty", role: "alert" }, text));
  } else if (error.kind === "refused") {
    setAway(false, ctx);
    update(
      document.getElementById("content"),
      h("p", { class: "empty", role: "alert" }, `The broker refuses this: ${error.message}.`),
    );
  } else {
    complain(error);
    throw error;
  }
}

function setAway(away, ctx) {
  state.away = away;
  drawShell(ctx);
}

function drawShell(ctx) {
  const title = ctx.view.title(ctx.params);
  document.title = `${title} – Leveret`;
  update(
    document.getElementById("app"),
    shell({ title, ctx, state, pickVhost, logOut, nav: navigation(ctx, state) }),
  );
}

function shortcuts(event) {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("[data-search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
  search.select();
}

start();
