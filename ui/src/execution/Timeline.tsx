/* What ran when: waits hatched, work solid, one bar for each attempt, the critical path marked. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef } from "react";
import type { Attempt } from "../api/client";
import { Empty } from "../parts/controls";
import { look, StateIcon } from "../parts/State";
import { ms, span, useNow } from "../parts/time";
import { type Bar, barsOf } from "./attempts";
import type { Live, LiveNode } from "./live";

const ROW = 30;
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 432e5, 864e5];
const TICK_PX = 84;

interface Props {
  execution: NonNullable<Live["execution"]>;
  attempts: Map<string, Attempt[]>;
  critical: Set<string>;
  chosen: string | undefined;
  onSelect: (id: string) => void;
}

interface Row {
  node: LiveNode;
  bars: Bar[];
  isOld: boolean; // completed in an earlier run
}

export function Timeline({ execution, attempts, critical, chosen, onSelect }: Props) {
  const isLive = execution.status === "RUNNING";
  const now = useNow(200, isLive);
  const rows = useMemo(() => rowsOf(execution, attempts), [execution, attempts]);
  const { from, to } = useMemo(() => rangeOf(rows, execution, isLive), [rows, execution, isLive]);
  const end = Math.max(isLive ? now : to, from + 1);
  const scale = (at: number) => `${(100 * (at - from)) / (end - from)}%`;

  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 12 });
  const place = rows.findIndex((row) => row.node.id === chosen);
  useEffect(() => {
    if (place >= 0) virtual.scrollToIndex(place, { align: "auto" });
  }, [place]); // rows that move do not scroll

  if (!Number.isFinite(from)) return <Empty title="Nothing has run yet">The timeline begins with the first node.</Empty>;
  return (
    <div ref={box} className="h-full overflow-auto">
      <div className="min-w-80">
        <Axis length={end - from} width={box.current?.clientWidth ?? 800} />
        <ul className="relative" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index]!;
            return (
              <li key={row.node.id} className="absolute inset-x-0 top-0" style={{ height: ROW, transform: `translateY(${item.start}px)` }}>
                <RowLine row={row} end={end} scale={scale} isCritical={critical.has(row.node.id)} isChosen={row.node.id === chosen} onSelect={onSelect} />
              </li>
            );
          })}
        </ul>
        <Legend />
      </div>
    </div>
  );
}

function RowLine({ row, end, scale, isCritical, isChosen, onSelect }: { row: Row; end: number; scale: (at: number) => string; isCritical: boolean; isChosen: boolean; onSelect: (id: string) => void }) {
  const { node, bars } = row;
  const started = ms(node.started_at);
  const ended = ms(node.finished_at);
  const took = started === null ? "" : span((ended ?? end) - started);
  return (
    <button type="button" aria-pressed={isChosen} onClick={() => onSelect(node.id)} className={`grid h-full w-full grid-cols-[12rem_1fr] max-md:grid-cols-[8rem_1fr] text-left ${isChosen ? "bg-accent-soft" : "hover:bg-subtle"}`}>
      <span className="sticky left-0 z-1 flex min-w-0 items-center gap-2 border-r bg-inherit pr-2 pl-4 max-md:pl-2">
        <StateIcon status={node.status} />
        <span className="data truncate font-mono text-xs">{node.id}</span>
        {isCritical && <span title="On the critical path: what came last before the end" className="ml-auto size-1.5 shrink-0 rotate-45 bg-accent"><span className="sr-only">critical path</span></span>}
      </span>
      <span className="relative my-1.5 mr-20 ml-2 block">
        {row.isOld && <span className="text-2xs leading-4.5 text-ink-3">kept from an earlier run</span>}
        {bars.slice(1).map((bar, at) => <Pause key={bar.attempt} from={bars[at]!.endedMs} to={bar.queuedMs ?? bar.startedMs} scale={scale} />)}
        {node.status === "RETRYING" && <Pause from={bars.at(-1)?.endedMs ?? null} to={end} scale={scale} />}
        {bars.map((bar) => <BarMark key={`${bar.run} ${bar.attempt}`} bar={bar} end={end} scale={scale} isCritical={isCritical} />)}
        {bars.length > 0 && <span className="num absolute inset-y-0 left-0 flex items-center pl-1 text-2xs whitespace-nowrap text-ink-2" style={{ left: scale(node.status === "RETRYING" ? end : (bars.at(-1)!.endedMs ?? end)) }}>{took}{node.attempt > 1 && <span className="ml-1 text-retrying">×{node.attempt}</span>}</span>}
      </span>
    </button>
  );
}

function BarMark({ bar, end, scale, isCritical }: { bar: Bar; end: number; scale: (at: number) => string; isCritical: boolean }) {
  const tone = look(bar.status === "FAILED" ? "FAILED" : bar.status).text;
  const queued = bar.queuedMs ?? bar.startedMs ?? end;
  const worked = bar.startedMs;
  const ended = bar.endedMs ?? end;
  const width = (a: number, b: number) => `calc(${scale(b)} - ${scale(a)})`;
  const title = `attempt ${bar.attempt}: ${look(bar.status).word.toLowerCase()}${worked === null ? `, waits ${span(ended - queued)}` : `, waited ${span(worked - queued)}, ran ${span(ended - worked)}`}`;
  return (
    <span title={title}>
      {(worked ?? ended) > queued && <span className={`hatched absolute inset-y-1 rounded-l-sm ${look("QUEUED").text}`} style={{ left: scale(queued), width: width(queued, worked ?? ended) }} />}
      {worked !== null && (
        <span className={`absolute inset-y-0.5 min-w-[3px] rounded-[3px] bg-current ${tone} ${bar.status === "RUNNING" ? "animate-pulse" : ""} ${isCritical ? "" : "opacity-75"}`} style={{ left: scale(worked), width: width(worked, ended) }} />
      )}
    </span>
  );
}

/** Between two attempts: no worker is held meanwhile. */
function Pause({ from, to, scale }: { from: number | null; to: number | null; scale: (at: number) => string }) {
  if (from === null || to === null || to <= from) return null;
  return <span className="absolute top-1/2 border-t-2 border-dotted border-retrying" style={{ left: scale(from), width: `calc(${scale(to)} - ${scale(from)})` }} />;
}

function Axis({ length, width }: { length: number; width: number }) {
  const step = STEPS_MS.find((each) => length / each <= Math.max(1, (width - 270) / TICK_PX)) ?? 864e5;
  const ticks = Array.from({ length: Math.floor(length / step) + 1 }, (_, at) => at * step).filter((at) => at < length * 0.94);
  return (
    <div aria-hidden="true" className="sticky top-0 z-2 grid h-7 grid-cols-[12rem_1fr] max-md:grid-cols-[8rem_1fr] border-b bg-page text-2xs text-ink-3">
      <span className="sticky left-0 flex items-center border-r bg-page pl-4">Node</span>
      <span className="relative mr-20 ml-2 block overflow-hidden">
        {ticks.map((at) => <span key={at} className="num absolute top-1.5 border-l border-edge pl-1 whitespace-nowrap" style={{ left: `${(100 * at) / length}%` }}>{at === 0 ? "0" : `+${span(at)}`}</span>)}
      </span>
    </div>
  );
}

function Legend() {
  return (
    <p className="flex flex-wrap items-center gap-x-5 gap-y-1 px-4 py-3 text-2xs text-ink-3">
      <span className="flex items-center gap-1.5"><span className="hatched h-2.5 w-5 text-queued" />waits for a worker</span>
      <span className="flex items-center gap-1.5"><span className="h-2.5 w-5 rounded-sm bg-good" />an attempt</span>
      <span className="flex items-center gap-1.5"><span className="w-5 border-t-2 border-dotted border-retrying" />waits for the next attempt</span>
      <span className="flex items-center gap-1.5"><span className="size-1.5 rotate-45 bg-accent" />critical path</span>
    </p>
  );
}

function rowsOf(execution: Props["execution"], attempts: Map<string, Attempt[]>): Row[] {
  const rows = execution.nodes.map((node) => {
    const all = barsOf(node, attempts.get(node.id));
    const bars = all.filter((bar) => bar.run === null || bar.run === execution.run);
    return { node, bars, isOld: !bars.length && all.length > 0 };
  });
  const begin = ({ bars }: Row) => bars[0]?.queuedMs ?? bars[0]?.startedMs ?? Infinity;
  return rows.sort((a, b) => begin(a) - begin(b) || 0);
}

function rangeOf(rows: Row[], execution: Props["execution"], isLive: boolean): { from: number; to: number } {
  let from = Infinity;
  let to = -Infinity;
  for (const { bars } of rows) {
    for (const bar of bars) {
      from = Math.min(from, bar.queuedMs ?? bar.startedMs ?? Infinity);
      to = Math.max(to, bar.endedMs ?? bar.startedMs ?? bar.queuedMs ?? -Infinity);
    }
  }
  const ended = ms(execution.finished_at);
  return { from, to: !isLive && ended !== null ? Math.max(to, ended) : to };
}
