// Who is logged in: a token of the node, kept for this tab and for as long as it holds.

const KEY = "leveret.session";

export const session = {
  token: null,
  user: null, // { name, tags }
  expiresMs: 0,
  lifeMs: 0,
  usedMs: 0, // when somebody last pressed a key or a button
};

/** As it was left in this tab. */
export function recall() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY));
    if (kept && kept.expiresMs > Date.now()) Object.assign(session, kept);
  } catch {
    forget();
  }
}

/** After `POST /api/login`. */
export function begin(login) {
  const lifeMs = login.expires_in * 1000;
  Object.assign(session, { token: login.token, user: login.user, lifeMs, expiresMs: Date.now() + lifeMs });
  try {
    sessionStorage.setItem(
      KEY,
      JSON.stringify({ token: login.token, user: login.user, lifeMs, expiresMs: session.expiresMs }),
    );
  } catch {
    // Without storage the session lives as long as the page.
  }
}

export function forget() {
  Object.assign(session, { token: null, user: null, expiresMs: 0 });
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There was none.
  }
}

export const noteUse = () => {
  session.usedMs = Date.now();
};

export const isOver = () => Date.now() >= session.expiresMs;

/** Half of its time is over, and it was used since it began. */
export function wantsRenewal() {
  const begunMs = session.expiresMs - session.lifeMs;
  return session.token !== null && Date.now() > begunMs + session.lifeMs / 2 && session.usedMs > begunMs;
}

const has = (...tags) => session.user?.tags?.some((tag) => tags.includes(tag)) ?? false;

/** What the user's tags allow; permissions in vhosts are the broker's to check. */
export const may = {
  administer: () => has("administrator"),
  watch: () => has("administrator", "monitoring"),
  setPolicies: () => has("administrator", "policymaker"),
};
