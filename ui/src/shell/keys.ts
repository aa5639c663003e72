/* Keyboard: single keys that work wherever nobody is typing. The newest page to ask for a key gets it. */
import { useEffect, useRef } from "react";

type Keys = Record<string, (event: KeyboardEvent) => void>;

const GO_WITHIN_MS = 900;
const stack: { current: Keys }[] = [];
let goUntil = 0; // after `g`, the next key says where to

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.("input, textarea, select, [contenteditable], .cm-editor") || !!element?.shadowRoot;
}

function onKey(event: KeyboardEvent): void {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    run("mod+k", event);
    return;
  }
  if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "g") {
    goUntil = Date.now() + GO_WITHIN_MS;
    return;
  }
  const isGoing = Date.now() < goUntil;
  goUntil = 0;
  run(isGoing ? `g ${event.key}` : event.key, event);
}

function run(key: string, event: KeyboardEvent): void {
  const found = stack.findLast((keys) => key in keys.current);
  if (!found) return;
  event.preventDefault();
  found.current[key]!(event);
}

window.addEventListener("keydown", onKey);

export function useKeys(keys: Keys): void {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    const entry = current;
    stack.push(entry);
    return () => {
      stack.splice(stack.indexOf(entry), 1);
    };
  }, []);
}

export const SHORTCUTS: [string, string][] = [
  ["⌘K or Ctrl K", "Search and commands"],
  ["g e · g w · g d · g q", "Executions, workflows, dead letters, workers and queues"],
  ["/", "Search in this list"],
  ["j · k", "Next and previous row or node"],
  ["Enter", "Open the row"],
  ["x", "Select the row"],
  ["1 · 2 · 3", "Graph, timeline, event log"],
  ["Esc", "Close what is open"],
  ["t", "Light, dark or as the system"],
  ["?", "This list"],
];
