/* Short words about what was just done, at the edge of the page. */
import { useEffect } from "react";
import { Button } from "./controls";
import { Close } from "./icons";
import { store, useStore } from "./store";

interface Toast {
  id: number;
  text: string;
  isBad: boolean;
}

const toasts = store<Toast[]>([]);
let next = 0;

export function say(text: string, isBad = false): void {
  toasts.update((all) => [...all.slice(-3), { id: next++, text, isBad }]);
}

export function sayProblem(error: unknown): void {
  say(error instanceof Error ? error.message : String(error), true);
}

function drop(id: number): void {
  toasts.update((all) => all.filter((toast) => toast.id !== id));
}

export function Toasts() {
  const all = useStore(toasts);
  return (
    <div
      role="status"
      aria-live="polite"
      className="pointer-events-none fixed right-4 bottom-4 z-50 flex max-w-[calc(100vw-2rem)] flex-col items-end gap-2 max-md:bottom-16"
    >
      {all.map((toast) => (
        <Card key={toast.id} toast={toast} />
      ))}
    </div>
  );
}

function Card({ toast }: { toast: Toast }) {
  useEffect(() => {
    const timer = setTimeout(() => drop(toast.id), toast.isBad ? 9000 : 4000);
    return () => clearTimeout(timer);
  }, [toast]);
  const tone = toast.isBad ? "border-bad/50 bg-bad-soft text-bad" : "border-edge bg-raised";
  return (
    <div
      className={`pointer-events-auto flex max-w-md items-start gap-2 rounded-md border py-1.5 pr-1.5 pl-3 shadow-lg ${tone}`}
    >
      <span className="data py-0.5">{toast.text}</span>
      <Button look="quiet" small onClick={() => drop(toast.id)} aria-label="Dismiss">
        <Close className="size-3.5" />
      </Button>
    </div>
  );
}
