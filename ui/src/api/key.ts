/* The API key of this tab. Session storage alone: it is gone with the tab, and no other tab sees it. */
import { store } from "../parts/store";

const NAME = "headrace.key";

export const keyNeeded = store<string | null>(null); // what the server said when it refused

export function apiKey(): string | null {
  return sessionStorage.getItem(NAME);
}

export function keepKey(key: string): void {
  if (key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
  keyNeeded.set(null);
}

export function authorization(): Record<string, string> {
  const key = apiKey();
  return key ? { Authorization: `Bearer ${key}` } : {};
}
