/* Light, dark, or as the system has it. */
import { store } from "../parts/store";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
const NAME = "headrace.theme";

export const theme = store<Theme>(THEMES.find((each) => each === localStorage.getItem(NAME)) ?? "system");

export function applyTheme(): void {
  const chosen = theme.get();
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export function nextTheme(): void {
  const chosen = THEMES[(THEMES.indexOf(theme.get()) + 1) % THEMES.length]!;
  localStorage.setItem(NAME, chosen);
  theme.set(chosen);
  applyTheme();
}
