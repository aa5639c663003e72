/* The rows of the list. Only those in sight are in the page, so thousands cost no more than fifty. */
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useRef } from "react";
import type { ExecutionItem } from "../api/client";
import { errorText } from "../execution/log";
import { State, StateIcon } from "../parts/State";
import { plural, visible } from "../parts/text";
import { age, full, ms, span, useNow } from "../parts/time";
import type { useFeed } from "./feed";

const ROW = 38;
const COLUMNS =
  "grid grid-cols-[1.5rem_7rem_minmax(8rem,14rem)_9rem_minmax(6rem,1fr)_5.5rem_5rem] items-center gap-x-3 px-4 max-lg:grid-cols-[1.5rem_7rem_minmax(8rem,14rem)_7rem_minmax(6rem,1fr)_5rem_5rem] max-md:grid-cols-[1.5rem_1.25rem_minmax(0,1fr)_3.5rem_4.5rem] max-md:gap-x-2";

interface RowsProps {
  items: ExecutionItem[];
  picked: ReadonlySet<string>;
  at: string | null;
  place: number;
  onPick: (id: string, isRange: boolean) => void;
  onPickAll: () => void;
  feed: ReturnType<typeof useFeed>;
}

export function Rows({ items, picked, at, place, onPick, onPickAll, feed }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const now = useNow(1000);
  const virtual = useVirtualizer({
    count: items.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 15,
    useFlushSync: false, // a frame later is soon enough
    getItemKey: (index) => items[index]!.execution_id,
  });
  const shown = virtual.getVirtualItems();
  const picking = useRef(onPick);
  picking.current = onPick;
  const pick = useCallback((id: string, isRange: boolean) => picking.current(id, isRange), []);
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (feed.hasMore && last >= items.length - 20) feed.loadMore();
  }, [last, items.length, feed]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: new rows do not scroll
  useEffect(() => {
    if (place >= 0) virtual.scrollToIndex(place, { align: "auto" });
  }, [at]);
  return (
    <>
      <div className={`${COLUMNS} h-7 border-y bg-subtle text-2xs font-medium text-ink-3`}>
        <input
          type="checkbox"
          aria-label="Select all that are loaded"
          checked={picked.size > 0}
          ref={(box) => {
            if (box) box.indeterminate = picked.size > 0 && picked.size < items.length;
          }}
          onChange={onPickAll}
        />
        <span className="max-md:hidden">Status</span>
        <span className="max-md:col-span-2">Workflow</span>
        <span className="max-md:text-right">Progress</span>
        <span className="max-md:hidden">Execution</span>
        <span className="text-right max-md:hidden">Duration</span>
        <span className="text-right">Created</span>
      </div>
      <div ref={box} className="min-h-0 flex-1 overflow-y-auto">
        <ul aria-label="Executions" className="relative" style={{ height: virtual.getTotalSize() }}>
          {shown.map((row) => (
            <li
              key={row.key}
              className="absolute inset-x-0 top-0"
              style={{ height: ROW, transform: `translateY(${row.start}px)` }}
            >
              <Row
                item={items[row.index]!}
                now={now}
                isPicked={picked.has(items[row.index]!.execution_id)}
                isAt={items[row.index]!.execution_id === at}
                onPick={pick}
              />
            </li>
          ))}
        </ul>
        <p role="status" className="px-4 py-2 text-center text-xs text-ink-3">
          {feed.isLoadingMore
            ? "Loading older ones…"
            : feed.hasMore
              ? ""
              : `${items.length.toLocaleString("en")} in all`}
        </p>
      </div>
    </>
  );
}

interface RowProps {
  item: ExecutionItem;
  now: number;
  isPicked: boolean;
  isAt: boolean;
  onPick: RowsProps["onPick"];
}

const Row = memo(function Row({ item, now, isPicked, isAt, onPick }: RowProps) {
  const id = item.execution_id;
  const created = ms(item.created_at)!;
  const started = ms(item.started_at);
  const ended = ms(item.finished_at) ?? (item.status === "RUNNING" ? now : null);
  return (
    <div
      className={`${COLUMNS} relative h-full border-b ${isPicked ? "bg-accent-soft" : isAt ? "bg-hover" : "hover:bg-subtle"} ${isAt ? "shadow-[inset_2px_0_var(--color-accent)]" : ""}`}
    >
      <input
        type="checkbox"
        aria-label={`Select ${item.workflow} ${id}`}
        checked={isPicked}
        onChange={(event) => onPick(id, (event.nativeEvent as MouseEvent).shiftKey)}
        className="relative z-1"
      />
      <State status={item.status} className="text-xs max-md:hidden" />
      <span className="md:hidden">
        <StateIcon status={item.status} />
      </span>
      <span className="flex min-w-0 items-baseline gap-1.5">
        <Link
          to="/executions/$id"
          params={{ id }}
          search={{}}
          className="truncate font-medium after:absolute after:inset-0"
        >
          {item.workflow}
        </Link>
        <span className="text-2xs text-ink-3">v{item.version}</span>
        {item.run > 1 && (
          <span className="rounded bg-hover px-1 text-2xs whitespace-nowrap text-ink-2">run {item.run}</span>
        )}
      </span>
      <Progress progress={item.progress} />
      <span className="flex min-w-0 items-baseline gap-2 max-md:hidden">
        <span className="font-mono text-xs whitespace-nowrap text-ink-3" title={id}>
          …{id.slice(-12)}
        </span>
        {item.error && (
          <span className="data truncate text-xs text-bad">{visible(errorText(item.error).slice(0, 300))}</span>
        )}
      </span>
      <span className="num text-right text-xs text-ink-2 max-md:hidden">
        {started !== null && ended !== null ? span(ended - started) : ""}
      </span>
      <time
        dateTime={item.created_at}
        title={full(created)}
        className="num text-right text-xs whitespace-nowrap text-ink-3"
      >
        {age(now - created)}
      </time>
    </div>
  );
});

/** Nodes that are done, and those that failed. Not known yet: nothing. */
function Progress({ progress }: { progress: ExecutionItem["progress"] | undefined }) {
  if (!progress) return <span />;
  const { done, failed, total } = progress;
  const share = (count: number) => ({ width: `${(100 * count) / Math.max(1, total)}%` });
  return (
    <span
      title={`${done} of ${plural(total, "node")} done${failed ? `, ${failed} failed` : ""}`}
      className="flex items-center gap-2"
    >
      <span aria-hidden="true" className="flex h-1.5 flex-1 overflow-hidden rounded-full bg-hover max-md:hidden">
        <span className="bg-good" style={share(done)} />
        <span className="bg-bad" style={share(failed)} />
      </span>
      <span className="num min-w-12 text-right text-2xs whitespace-nowrap text-ink-3 md:text-left">
        {done}/{total}
      </span>
    </span>
  );
}
