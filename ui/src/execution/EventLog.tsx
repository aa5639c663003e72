/* Everything that happened, in order. It follows the end while one is at the end. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { Empty, FIELD } from "../parts/controls";
import { State } from "../parts/State";
import { plural, visible } from "../parts/text";
import { clock, ms, span } from "../parts/time";
import type { Live } from "./live";
import type { LogEvent } from "./log";

const ROW = 28;

interface Props {
  events: LogEvent[];
  execution: NonNullable<Live["execution"]>;
  chosen: string | undefined;
  onSelect: (id: string) => void;
}

export function EventLog({ events, execution, chosen, onSelect }: Props) {
  const [text, setText] = useState("");
  const [isOfNode, setOfNode] = useState(false);
  const [isFollowing, setFollowing] = useState(true);
  const begun = ms(execution.started_at) ?? ms(execution.created_at)!;
  const shown = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const node = isOfNode ? chosen : undefined;
    if (!wanted && !node) return events;
    return events.filter((event) => (!node || event.node === node) && (!wanted || words(event).includes(wanted)));
  }, [events, text, isOfNode, chosen]);
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 8,
    useFlushSync: false, // a frame later is soon enough
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when there is more
  useEffect(() => {
    if (isFollowing && execution.status === "RUNNING") virtual.scrollToIndex(shown.length - 1);
  }, [shown.length]);

  const onScroll = () => {
    const element = box.current;
    if (element) setFollowing(element.scrollTop + element.clientHeight > element.scrollHeight - ROW * 2);
  };
  return (
    <div className="flex h-full flex-col">
      <div className="flex items-center gap-3 border-b px-4 py-1.5">
        <input
          aria-label="Search in the events"
          placeholder="Search events"
          value={text}
          onChange={(event) => setText(event.target.value)}
          className={`${FIELD} w-56 min-w-0`}
        />
        {chosen && (
          <label className="flex items-center gap-1.5 text-xs whitespace-nowrap text-ink-2">
            <input type="checkbox" checked={isOfNode} onChange={(event) => setOfNode(event.target.checked)} />
            Only {chosen}
          </label>
        )}
        <span className="num ml-auto text-xs whitespace-nowrap text-ink-3">{plural(shown.length, "event")}</span>
      </div>
      <div ref={box} onScroll={onScroll} className="min-h-0 flex-1 overflow-auto">
        {!shown.length && <Empty title="No events" />}
        <ol className="relative" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const event = shown[item.index]!;
            const isChosen = event.node !== null && event.node === chosen;
            return (
              <Row
                key={event.key}
                event={event}
                top={item.start}
                begun={begun}
                isChosen={isChosen}
                onSelect={onSelect}
              />
            );
          })}
        </ol>
      </div>
    </div>
  );
}

function words({ node, status, detail }: LogEvent): string {
  return `${node ?? ""} ${status} ${detail}`.toLowerCase();
}

interface RowProps {
  event: LogEvent;
  top: number;
  begun: number;
  isChosen: boolean;
  onSelect: (id: string) => void;
}

const COLUMNS =
  "grid grid-cols-[6.5rem_4.5rem_6.5rem_minmax(5rem,1fr)_minmax(0,2fr)] max-md:grid-cols-[4.5rem_6.5rem_minmax(5rem,1fr)]";

/** Rows stay as they are while others are added below them. */
const Row = memo(function Row({ event, top, begun, isChosen, onSelect }: RowProps) {
  const { node, atMs, attempt } = event;
  const detail = visible(event.detail.slice(0, 500));
  return (
    <li
      className={`absolute inset-x-0 top-0 ${isChosen ? "bg-accent-soft" : ""}`}
      style={{ height: ROW, transform: `translateY(${top}px)` }}
    >
      <button
        type="button"
        disabled={node === null}
        onClick={() => node && onSelect(node)}
        className={`${COLUMNS} h-full w-full items-center gap-2 px-4 text-left text-xs enabled:hover:bg-subtle`}
      >
        <time className="font-mono text-ink-3 max-md:hidden">{clock(atMs)}</time>
        <span className="num text-ink-3">{atMs >= begun ? `+${span(atMs - begun)}` : ""}</span>
        <State status={event.status} />
        <span className="data truncate font-mono">
          {node ?? <span className="font-sans text-ink-2">execution</span>}
          {node && attempt > 1 && <span className="text-ink-3"> ×{attempt}</span>}
        </span>
        <span className="data truncate text-ink-2 max-md:hidden" title={detail}>
          {detail}
        </span>
      </button>
    </li>
  );
});
