/* An error as the server keeps it: a type, a message, and whatever else there is, all as text. */
import { CopyButton } from "./controls";
import { visible } from "./text";

export function ErrorBox({ error }: { error: Record<string, unknown> }) {
  const { type, message, code, ...rest } = error;
  const details = Object.entries(rest).filter(([, value]) => value !== null && value !== undefined);
  const text = visible(typeof message === "string" ? message : JSON.stringify(message ?? ""));
  return (
    <section className="rounded-md border border-bad/40 bg-bad-soft">
      <header className="flex items-center gap-2 py-0.5 pr-1 pl-3 text-xs">
        <h3 className="font-semibold text-bad">{String(type ?? "Error")}</h3>
        {typeof code === "string" && <span className="font-mono text-ink-3">{code}</span>}
        <span className="ml-auto">
          <CopyButton text={() => JSON.stringify(error, null, 2)} label="Copy the error" />
        </span>
      </header>
      <pre className="data max-h-72 overflow-auto px-3 pb-2 font-mono text-xs whitespace-pre-wrap">{text}</pre>
      {details.length > 0 && (
        <p className="data border-t border-bad/20 px-3 py-1.5 font-mono text-2xs text-ink-2">
          {details
            .map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : String(value)}`)
            .join(" · ")}
        </p>
      )}
    </section>
  );
}
