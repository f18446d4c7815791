// What surrounds every view: header, navigation, heading; and the page for logging in.

import { h, name } from "./dom.js";
import { form, field } from "./forms.js";
import { link } from "./router.js";
import { THEMES, pickTheme, theme } from "./theme.js";
import { groups } from "./views.js";

export function loginPage(why, logIn) {
  const inside = form({
    keep: "login",
    fields: [
      field({
        label: "User",
        name: "username",
        required: true,
        autocomplete: "username",
        autocapitalize: "none",
      }),
      field({ label: "Password", name: "password", type: "password", autocomplete: "current-password" }),
    ],
    button: "Log in",
    clear: false,
    submit: logIn,
  });
  return h(
    "main",
    { id: "main", class: "login", tabindex: "-1", key: "login" },
    h("img", { src: "/console/icon.svg", alt: "", width: "48", height: "48" }),
    h("h1", { id: "heading" }, "Leveret"),
    h("p", { class: "dim", role: "status" }, why || "Log in with a user of the broker."),
    inside,
    themePicker(),
  );
}

export function shell({ title, ctx, state, pickVhost, logOut, nav }) {
  return h(
    "div",
    { class: "shell", key: "shell" },
    h(
      "header",
      { class: "top" },
      h(
        "a",
        { class: "brand", href: "#/overview" },
        h("img", { src: "/console/icon.svg", alt: "", width: "24", height: "24" }),
        "Leveret",
      ),
      h("span", { class: "cluster" }, name(state.cluster, "")),
      h("span", { class: "spring" }),
      vhostPicker(ctx, state, pickVhost),
      themePicker(),
      h(
        "span",
        { class: "who" },
        h("span", { class: "unseen" }, "Logged in as "),
        name(ctx.user?.name ?? ""),
      ),
      h("button", { type: "button", onclick: logOut }, "Log out"),
    ),
    nav,
    h(
      "main",
      { id: "main", tabindex: "-1" },
      state.away && h(
        "p",
        { class: "away", role: "alert", key: "away" },
        "The broker does not answer. What is shown is how it was; trying again every 5 seconds.",
      ),
      h("h1", { id: "heading", tabindex: "-1" }, title),
      h("div", { id: "content", keep: "content", class: "content" }),
    ),
  );
}

function vhostPicker(ctx, state, pickVhost) {
  const options = state.vhosts.map((each) => [each, each]);
  if (options.length > 1) options.unshift(["", "All virtual hosts"]);
  // Made anew when the choice differs, and only then: an open list must not vanish.
  return h(
    "label",
    { class: "inline", key: `vhosts-${JSON.stringify([state.vhosts, ctx.vhost])}` },
    h("span", { class: "unseen" }, "Virtual host"),
    h(
      "select",
      { keep: "vhost", onchange: (event) => pickVhost(event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: value === ctx.vhost }, text)),
    ),
  );
}

function themePicker() {
  return h(
    "label",
    { class: "inline theme" },
    h("span", { class: "unseen" }, "Colours"),
    h(
      "select",
      { keep: "theme", onchange: (event) => pickTheme(event.target.value) },
      THEMES.map(([value, text]) => h("option", { value, selected: value === theme() }, text)),
    ),
  );
}

export function navigation(ctx, state) {
  const chosen = ctx.view.nav;
  return h(
    "nav",
    { class: "side", "aria-label": "Views" },
    groups(state).map(({ title, entries }) => [
      h("h2", {}, title),
      h(
        "ul",
        {},
        entries.map(
          (entry) => h(
            "li",
            {},
            h(
              "a",
              { href: link([entry.nav]), "aria-current": entry.nav === chosen ? "page" : null },
              entry.text,
            ),
          ),
        ),
      ),
    ]),
    h("p", { class: "version dim" }, state.version && `Leveret ${state.version}`),
  );
}
