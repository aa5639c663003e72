/* One node in the timeline: its bars, and the waits between them. */
import { look, StateIcon } from "../parts/State";
import { span } from "../parts/time";
import type { Bar } from "./bars";
import type { LiveNode } from "./live";

export interface Row {
  node: LiveNode;
  bars: Bar[];
  keptFrom: number | null; // the earlier run that it was completed in
}

export interface Scale {
  (atMs: number): string;
  endMs: number; // of what is drawn: what goes on, goes on to there
}

/** The columns of the rows and of the axis above them. */
export const COLUMNS = "grid grid-cols-[12rem_1fr] max-md:grid-cols-[8rem_1fr]";
export const PLOT = "relative mr-20 ml-2 block";

interface Props {
  row: Row;
  scale: Scale;
  isCritical: boolean;
  isChosen: boolean;
  onSelect: (id: string) => void;
}

export function TimelineRow({ row, scale, isCritical, isChosen, onSelect }: Props) {
  const { node, bars, keptFrom } = row;
  const last = bars.at(-1);
  const isWaiting = node.status === "RETRYING" && last?.endedMs !== null;
  return (
    <button
      type="button"
      aria-pressed={isChosen}
      onClick={() => onSelect(node.id)}
      className={`${COLUMNS} h-full w-full text-left ${isChosen ? "bg-accent-soft" : "hover:bg-subtle"}`}
    >
      <span className="sticky left-0 z-1 flex min-w-0 items-center gap-2 border-r bg-inherit pr-2 pl-4 max-md:pl-2">
        <StateIcon status={node.status} />
        <span className="data truncate font-mono text-xs">{node.id}</span>
        {isCritical && (
          <span
            title="On the critical path: what came last before the end"
            className="ml-auto size-1.5 shrink-0 rotate-45 bg-accent"
          >
            <span className="sr-only">critical path</span>
          </span>
        )}
      </span>
      <span className={`${PLOT} my-1.5`}>
        {keptFrom !== null && <span className="text-2xs leading-4.5 text-ink-3">kept from run {keptFrom}</span>}
        {bars.slice(1).map((bar, at) => (
          <Pause key={at} from={bars[at]!.endedMs} to={bar.queuedMs ?? bar.startedMs} scale={scale} />
        ))}
        {isWaiting && <Pause from={last!.endedMs} to={scale.endMs} scale={scale} />}
        {bars.map((bar, at) => (
          <BarMark key={at} bar={bar} scale={scale} isCritical={isCritical} />
        ))}
        {last && (
          <span
            className="num absolute inset-y-0 flex items-center pl-1 text-2xs whitespace-nowrap text-ink-2"
            style={{ left: scale(isWaiting ? scale.endMs : (last.endedMs ?? scale.endMs)) }}
          >
            {last.startedMs !== null && span((last.endedMs ?? scale.endMs) - last.startedMs)}
            {bars.length > 1 && <span className="ml-1 text-retrying">×{bars.length}</span>}
          </span>
        )}
      </span>
    </button>
  );
}

function BarMark({ bar, scale, isCritical }: { bar: Bar; scale: Scale; isCritical: boolean }) {
  const { status, startedMs: started } = bar;
  const { word, text: tone } = look(status);
  const queued = bar.queuedMs ?? started ?? scale.endMs;
  const ended = bar.endedMs ?? scale.endMs;
  const begun = started ?? ended;
  const times =
    started === null
      ? `waits ${span(ended - queued)}`
      : `waited ${span(started - queued)}, ran ${span(ended - started)}`;
  const motion = status === "RUNNING" ? "animate-pulse" : "";
  return (
    <span title={`attempt ${bar.attempt}: ${word.toLowerCase()}, ${times}`}>
      {begun > queued && (
        <span
          className={`hatched absolute inset-y-1 rounded-l-sm ${look("QUEUED").text}`}
          style={{ left: scale(queued), width: between(queued, begun, scale) }}
        />
      )}
      {started !== null && (
        <span
          className={`absolute inset-y-0.5 min-w-[3px] rounded-[3px] bg-current ${tone} ${motion} ${isCritical ? "" : "opacity-75"}`}
          style={{ left: scale(started), width: between(started, ended, scale) }}
        />
      )}
    </span>
  );
}

/** Between two attempts: no worker is held meanwhile. */
function Pause({ from, to, scale }: { from: number | null; to: number | null; scale: Scale }) {
  if (from === null || to === null || to <= from) return null;
  return (
    <span
      title={`waits ${span(to - from)} for the next attempt`}
      className="absolute inset-y-0 flex items-center"
      style={{ left: scale(from), width: between(from, to, scale) }}
    >
      <span className="w-full border-t-2 border-dotted border-retrying" />
    </span>
  );
}

function between(from: number, to: number, scale: Scale): string {
  return `calc(${scale(to)} - ${scale(from)})`;
}
