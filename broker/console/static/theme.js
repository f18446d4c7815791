// Light or dark: as the system has it, or as it was chosen here.

const KEY = "leveret.theme";
const ORDER = ["auto", "light", "dark"];

export function theme() {
  const kept = localStorage.getItem(KEY);
  return ORDER.includes(kept) ? kept : "auto";
}

export function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

export function pickTheme(value) {
  localStorage.setItem(KEY, value);
  applyTheme();
}

export const THEMES = [
  ["auto", "Auto"],
  ["light", "Light"],
  ["dark", "Dark"],
];
