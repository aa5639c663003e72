/* Buttons, fields, and what a page shows when there is nothing, or something went wrong. */
import { type ButtonHTMLAttributes, type ReactNode, useEffect, useRef, useState } from "react";
import { Problem } from "../api/client";
import { Check, Close, Copy } from "./icons";

type ButtonLook = "plain" | "primary" | "danger" | "quiet";

const BUTTON: Record<ButtonLook, string> = {
  plain: "border border-edge bg-raised hover:bg-hover",
  primary: "border border-accent bg-accent text-on-accent hover:opacity-90",
  danger: "border border-edge bg-raised text-bad hover:bg-bad-soft hover:border-bad",
  quiet: "border border-transparent text-ink-2 hover:bg-hover hover:text-ink",
};

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: ButtonLook;
  small?: boolean;
}

export function Button({ look = "plain", small, className = "", ...rest }: ButtonProps) {
  const size = small ? "h-6 px-1.5 text-xs gap-1" : "h-7.5 px-2.5 gap-1.5";
  return (
    <button
      type="button"
      className={`inline-flex shrink-0 items-center justify-center rounded-md font-medium whitespace-nowrap disabled:cursor-not-allowed disabled:opacity-45 ${size} ${BUTTON[look]} ${className}`}
      {...rest}
    />
  );
}

export function CopyButton({
  text,
  label,
  children,
}: {
  text: string | (() => string);
  label: string;
  children?: ReactNode;
}) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1200);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => setDone(await copyText(typeof text === "string" ? text : text()));
  return (
    <Button look="quiet" small onClick={() => void copy()} title={label} aria-label={children ? undefined : label}>
      {done ? <Check className="size-3.5 text-good" /> : <Copy className="size-3.5" />}
      {children}
      <span role="status" className="sr-only">
        {done ? "Copied" : ""}
      </span>
    </Button>
  );
}

/** The clipboard API is there on https and localhost alone; elsewhere the old way. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export const FIELD =
  "h-7.5 rounded-md border border-edge bg-page px-2 text-ink placeholder:text-ink-3 hover:border-ink-3 focus-visible:border-accent focus-visible:outline-1 focus-visible:outline-offset-0";

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="mx-auto flex max-w-2xl flex-col gap-2 px-6 py-16 text-center text-ink-2">
      <h2 className="text-base font-semibold text-ink">{title}</h2>
      {children}
    </div>
  );
}

export function Command({ children }: { children: string }) {
  return (
    <div className="flex items-start gap-2 rounded-md border bg-subtle py-1.5 pr-1.5 pl-3 text-left">
      <pre className="min-w-0 flex-1 overflow-x-auto font-mono text-xs leading-6 text-ink">{children}</pre>
      <CopyButton text={children} label="Copy the command" />
    </div>
  );
}

export function Trouble({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = error instanceof Problem ? error : null;
  return (
    <div
      role="alert"
      className="m-4 flex flex-col items-start gap-2 rounded-md border border-bad/40 bg-bad-soft px-3 py-2.5"
    >
      <p className="data font-medium text-bad">{error instanceof Error ? error.message : String(error)}</p>
      {problem?.errors.map((item, at) => (
        <p key={at} className="data text-xs text-ink-2">
          {item.loc.length > 0 && <span className="font-mono">{item.loc.join(".")}: </span>}
          {item.msg}
        </p>
      ))}
      {onRetry && (
        <Button small onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p role="status" className="p-6 text-ink-3">
      Loading {what}…
    </p>
  );
}

/** A native dialog: focus stays inside, Escape closes. */
export function Dialog({
  title,
  onClose,
  children,
  className = "max-w-lg",
}: {
  title: string;
  onClose: () => void;
  children: ReactNode;
  className?: string;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog || dialog.open) return;
    dialog.showModal();
    dialog.querySelector<HTMLElement>("input, select, textarea")?.focus(); // rather than the cross that comes first
  }, []);
  return (
    <dialog
      ref={ref}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => event.target === ref.current && ref.current.close()}
      className={`m-auto w-[calc(100vw-2rem)] rounded-lg border border-edge bg-raised p-0 shadow-xl ${className}`}
    >
      <div className="flex items-center justify-between border-b py-2 pr-2 pl-4">
        <h2 className="font-semibold">{title}</h2>
        <Button look="quiet" small onClick={() => ref.current?.close()} aria-label="Close">
          <Close />
        </Button>
      </div>
      {children}
    </dialog>
  );
}
