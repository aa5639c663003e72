/* What ran when: waits hatched, work solid, one bar for each attempt, the critical path marked. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { Empty } from "../parts/controls";
import { span, useNow } from "../parts/time";
import { type Bar, barsOf } from "./bars";
import type { Live, LiveNode } from "./live";
import type { LogEvent } from "./log";
import { COLUMNS, PLOT, type Row, type Scale, TimelineRow } from "./TimelineRow";

const ROW = 30;
const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5,
  432e5, 864e5,
];
const TICK_PX = 84;
const BESIDE_PX = 270; // the names, and room for the last label
const BESIDE_NARROW_PX = 200;
const NOT_CRITICAL = new Set<string>();

interface Props {
  execution: NonNullable<Live["execution"]>;
  events: LogEvent[];
  critical: Set<string>;
  chosen: string | undefined;
  onSelect: (id: string) => void;
}

export function Timeline({ execution, events, critical, chosen, onSelect }: Props) {
  const [picked, setPicked] = useState<number | null>(null);
  const run = picked ?? execution.run;
  const isNewest = run === execution.run;
  const isLive = execution.status === "RUNNING" && isNewest;
  const now = useNow(200, isLive);
  const rows = useMemo(() => rowsOf(execution.nodes, barsOf(events), run), [execution.nodes, events, run]);
  const { from, to } = useMemo(() => rangeOf(rows), [rows]);
  const endMs = Math.max(isLive ? now : to, from + 1);
  const scale: Scale = Object.assign((at: number) => `${(100 * (at - from)) / (endMs - from)}%`, { endMs });
  const marked = isNewest ? critical : NOT_CRITICAL;

  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
    useFlushSync: false, // a frame later is soon enough
  });
  const place = rows.findIndex((row) => row.node.id === chosen);
  // biome-ignore lint/correctness/useExhaustiveDependencies: rows that move do not scroll
  useEffect(() => {
    if (place >= 0) virtual.scrollToIndex(place, { align: "auto" });
  }, [place]);

  if (!Number.isFinite(from)) {
    return <Empty title="Nothing has run yet">The timeline begins with the first node.</Empty>;
  }
  return (
    <div ref={box} className="h-full overflow-auto">
      <div className="min-w-80">
        <Axis length={endMs - from} width={box.current?.clientWidth ?? 800}>
          {execution.run > 1 ? <RunPicker run={run} runs={execution.run} onPick={setPicked} /> : "Node"}
        </Axis>
        <ul className="relative" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index]!;
            const { id } = row.node;
            const style = { height: ROW, transform: `translateY(${item.start}px)` };
            return (
              <li key={id} className="absolute inset-x-0 top-0" style={style}>
                <TimelineRow
                  row={row}
                  scale={scale}
                  isCritical={marked.has(id)}
                  isChosen={id === chosen}
                  onSelect={onSelect}
                />
              </li>
            );
          })}
        </ul>
        <Legend />
      </div>
    </div>
  );
}

function Axis({ length, width, children }: { length: number; width: number; children: ReactNode }) {
  const step =
    STEPS_MS.find(
      (each) => length / each <= Math.max(1, (width - (width < 640 ? BESIDE_NARROW_PX : BESIDE_PX)) / TICK_PX),
    ) ?? 864e5;
  const ticks = Array.from({ length: Math.floor(length / step) + 1 }, (_, at) => at * step);
  return (
    <div className={`${COLUMNS} sticky top-0 z-2 h-7 border-b bg-page text-2xs text-ink-3`}>
      <span className="sticky left-0 flex items-center border-r bg-page pl-4 max-md:pl-2">{children}</span>
      <span aria-hidden="true" className={`${PLOT} overflow-hidden`}>
        {ticks.map((at) => (
          <span
            key={at}
            className="num absolute top-1.5 border-l border-edge pl-1 whitespace-nowrap"
            style={{ left: `${(100 * at) / length}%` }}
          >
            {at === 0 ? "0" : at < length * 0.94 ? `+${span(at)}` : ""}
          </span>
        ))}
      </span>
    </div>
  );
}

function RunPicker({ run, runs, onPick }: { run: number; runs: number; onPick: (run: number) => void }) {
  return (
    <select
      aria-label="Run"
      value={run}
      onChange={(event) => onPick(Number(event.target.value))}
      className="-ml-1 h-5 rounded bg-page text-2xs text-ink-2"
    >
      {Array.from({ length: runs }, (_, at) => (
        <option key={at} value={runs - at}>
          Run {runs - at}
        </option>
      ))}
    </select>
  );
}

function Legend() {
  return (
    <p className="flex flex-wrap items-center gap-x-5 gap-y-1 px-4 py-3 text-2xs text-ink-3">
      <span className="flex items-center gap-1.5">
        <span className="hatched h-2.5 w-5 text-queued" />
        waits for a worker
      </span>
      <span className="flex items-center gap-1.5">
        <span className="h-2.5 w-5 rounded-sm bg-good" />
        an attempt
      </span>
      <span className="flex items-center gap-1.5">
        <span className="w-5 border-t-2 border-dotted border-retrying" />
        waits for the next attempt
      </span>
      <span className="flex items-center gap-1.5">
        <span className="size-1.5 rotate-45 bg-accent" />
        critical path
      </span>
    </p>
  );
}

/** In the order in which they began. */
function rowsOf(nodes: LiveNode[], bars: Map<string, Bar[]>, run: number): Row[] {
  const rows = nodes.map((node) => {
    const all = bars.get(node.id) ?? [];
    const own = all.filter((bar) => bar.run === run);
    const before = own.length ? undefined : all.findLast((bar) => bar.run < run && bar.status === "COMPLETED");
    return { node, bars: own, keptFrom: before?.run ?? null };
  });
  const begin = ({ bars: [first] }: Row) => first?.queuedMs ?? first?.startedMs ?? Infinity;
  return rows.sort((a, b) => begin(a) - begin(b) || 0);
}

function rangeOf(rows: Row[]): { from: number; to: number } {
  let [from, to] = [Infinity, -Infinity];
  for (const { bars } of rows) {
    for (const { queuedMs, startedMs, endedMs } of bars) {
      from = Math.min(from, queuedMs ?? startedMs ?? Infinity);
      to = Math.max(to, endedMs ?? startedMs ?? queuedMs ?? -Infinity);
    }
  }
  return { from, to };
}
