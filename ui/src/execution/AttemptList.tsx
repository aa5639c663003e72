/* The attempts of a node with their errors and waits, and what the handler said in each. */
import type { Attempt } from "../api/client";
import { ErrorBox } from "../parts/ErrorBox";
import { State } from "../parts/State";
import { visible } from "../parts/text";
import { clock, ms, span } from "../parts/time";

export function AttemptList({ attempts }: { attempts: Attempt[] }) {
  if (!attempts.length) return <p className="text-ink-3">It has not been tried yet.</p>;
  return (
    <ol className="flex flex-col gap-3">
      {[...attempts].reverse().map((one) => (
        <One key={`${one.run} ${one.attempt} ${one.queued_at}`} attempt={one} />
      ))}
    </ol>
  );
}

function One({ attempt }: { attempt: Attempt }) {
  const queued = ms(attempt.queued_at);
  const started = ms(attempt.started_at);
  const ended = ms(attempt.finished_at);
  const next = ms(attempt.next_attempt_at);
  return (
    <li className="flex flex-col gap-1.5 border-b pb-3 last:border-0">
      <header className="flex flex-wrap items-center gap-x-2">
        <h3 className="num font-medium">
          Run {attempt.run}, attempt {attempt.attempt}
        </h3>
        <State status={attempt.status} className="text-xs" />
        {started !== null && <time className="num ml-auto font-mono text-xs text-ink-3">{clock(started)}</time>}
      </header>
      <p className="num flex flex-wrap gap-x-3 text-xs text-ink-2">
        {queued !== null && started !== null && <span>waited {span(started - queued)}</span>}
        {started !== null && ended !== null && <span>ran {span(ended - started)}</span>}
        {next !== null && ended !== null && <span className="text-retrying">next after {span(next - ended)}</span>}
        {attempt.worker && <span className="data font-mono text-2xs leading-4.5 text-ink-3">{attempt.worker}</span>}
      </p>
      {attempt.error && <ErrorBox error={attempt.error} />}
    </li>
  );
}

const LEVELS: Record<string, string> = {
  error: "text-bad",
  critical: "text-bad",
  warning: "text-retrying",
  info: "text-ink-2",
  debug: "text-ink-3",
};

export function LogLines({ attempts }: { attempts: Attempt[] }) {
  const said = attempts.filter((one) => one.logs.length);
  if (!said.length)
    return (
      <p className="text-ink-3">
        The handler has said nothing. <code className="font-mono text-xs">ctx.log.info(…)</code> writes here.
      </p>
    );
  return (
    <div className="flex flex-col gap-3">
      {said.map((one) => (
        <section key={`${one.run} ${one.attempt}`}>
          <h3 className="mb-1 text-xs font-medium text-ink-3">
            Run {one.run}, attempt {one.attempt}
          </h3>
          <ol className="overflow-x-auto rounded-md border bg-subtle py-1 font-mono text-xs leading-5">
            {one.logs.map((line, at) => (
              <Line key={at} line={line} />
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}

function Line({ line }: { line: Record<string, unknown> }) {
  const { event, level, timestamp, ...rest } = line;
  const at = typeof timestamp === "string" ? ms(timestamp) : null;
  return (
    <li className="flex gap-2 px-2.5">
      {at !== null && <time className="shrink-0 text-ink-3">{clock(at)}</time>}
      <span className={`w-9 shrink-0 ${LEVELS[String(level)] ?? "text-ink-2"}`}>{String(level ?? "").slice(0, 5)}</span>
      <span className="data min-w-0">
        {visible(String(event ?? ""))}
        {Object.entries(rest).map(([key, value]) => (
          <span key={key} className="text-ink-3">
            {" "}
            {visible(key)}=
            <span className="text-ink-2">{visible(typeof value === "string" ? value : JSON.stringify(value))}</span>
          </span>
        ))}
      </span>
    </li>
  );
}
