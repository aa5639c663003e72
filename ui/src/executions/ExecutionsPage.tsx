/* All executions, live, with the filters in the address. Only the rows in sight are in the page. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { api, BASE, data, type ExecutionItem } from "../api/client";
import { Button, Command, Empty, FIELD, Loading, Trouble } from "../parts/controls";
import { Close, Plus, Search } from "../parts/icons";
import { EXECUTION_STATUSES, look, State, StateIcon } from "../parts/State";
import { visible } from "../parts/text";
import { age, full, ms, span, useNow } from "../parts/time";
import { errorText } from "../execution/log";
import { type ListSearch, type Since, SINCE } from "../router";
import { useKeys } from "../shell/keys";
import { BulkBar } from "./BulkBar";
import { useFeed } from "./feed";

const route = getRouteApi("/executions");
const ROW = 38;
const COLUMNS = "grid grid-cols-[1.5rem_7rem_minmax(8rem,14rem)_minmax(6rem,1fr)_5.5rem_5rem] items-center gap-x-3 px-4 max-md:grid-cols-[1.5rem_1.25rem_minmax(0,1fr)_4.5rem] max-md:gap-x-2";
const SINCE_WORDS: Record<Since, string> = { "15m": "Last 15 minutes", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days" };

export default function ExecutionsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const feed = useFeed(search);
  const items = feed.items ?? [];
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [at, setAt] = useState<string | null>(null);
  const place = items.findIndex((item) => item.execution_id === at);
  const lastPick = useRef<string | null>(null);
  const field = useRef<HTMLInputElement>(null);

  const step = (by: number) => setAt(items[Math.max(0, Math.min(items.length - 1, place < 0 ? 0 : place + by))]?.execution_id ?? null);
  const pick = (id: string, isRange = false) => {
    const from = items.findIndex((item) => item.execution_id === lastPick.current);
    const to = items.findIndex((item) => item.execution_id === id);
    const ids = isRange && from >= 0 ? items.slice(Math.min(from, to), Math.max(from, to) + 1).map((item) => item.execution_id) : [id];
    const isOn = !picked.has(id);
    lastPick.current = id;
    setPicked((old) => {
      const next = new Set(old);
      for (const each of ids) isOn ? next.add(each) : next.delete(each);
      return next;
    });
  };
  useKeys({
    "/": () => field.current?.focus(),
    j: () => step(1),
    k: () => step(-1),
    x: () => at && pick(at),
    Enter: () => at && void navigate({ to: "/executions/$id", params: { id: at }, search: {} }),
    Escape: () => (setPicked(new Set()), setAt(null)),
  });

  return (
    <div className="flex h-full flex-col">
      <header className="flex items-center gap-3 px-4 pt-3 pb-1">
        <h1 className="text-lg font-semibold tracking-tight">Executions</h1>
        <Link to="/edit" search={{}} className="ml-auto"><Button tabIndex={-1}><Plus className="size-3.5" />New</Button></Link>
      </header>
      <Filters search={search} field={field} />
      {feed.problem && feed.problem.status !== 401 && <Trouble error={Object.assign(new Error(feed.problem.message), feed.problem)} />}
      {feed.items === null && !feed.problem && <Loading what="executions" />}
      {feed.items?.length === 0 && <Nothing search={search} />}
      {items.length > 0 && (
        <Rows items={items} picked={picked} at={at} place={place} onPick={pick} onPickAll={() => setPicked(picked.size ? new Set() : new Set(items.map((item) => item.execution_id)))} feed={feed} />
      )}
      {picked.size > 0 && <BulkBar items={items.filter((item) => picked.has(item.execution_id))} onClear={() => setPicked(new Set())} />}
    </div>
  );
}

function Filters({ search, field }: { search: ListSearch; field: React.RefObject<HTMLInputElement | null> }) {
  const navigate = route.useNavigate();
  const [text, setText] = useState(search.q ?? "");
  const sent = useRef(search.q);
  const set = (change: ListSearch) => void navigate({ search: (old: ListSearch) => ({ ...old, ...change }), replace: true });
  const workflows = useQuery({ queryKey: ["workflows"], queryFn: () => data(api.GET("/v1/workflows", { params: { query: { limit: 1000 } } })) });
  useEffect(() => {
    if (text === (search.q ?? "")) return;
    const timer = setTimeout(() => {
      sent.current = text.trim() || undefined;
      set({ q: sent.current });
    }, 250);
    return () => clearTimeout(timer);
  }, [text]); // only what was typed
  useEffect(() => {
    if (search.q !== sent.current) setText(search.q ?? ""); // the address was changed from elsewhere
    sent.current = search.q;
  }, [search.q]);
  const isFiltered = search.status || search.workflow || search.q || search.since;
  return (
    <div role="search" className="flex flex-wrap items-center gap-2 px-4 py-2">
      <div className="flex max-w-full overflow-x-auto rounded-md border bg-subtle p-0.5">
        <Chip isOn={!search.status} onClick={() => set({ status: undefined })}>All</Chip>
        {EXECUTION_STATUSES.map((status) => (
          <Chip key={status} isOn={search.status === status} onClick={() => set({ status })}><StateIcon status={status} className="size-3" />{look(status).word}</Chip>
        ))}
      </div>
      <select aria-label="Workflow" value={search.workflow ?? ""} onChange={(event) => set({ workflow: event.target.value || undefined })} className={`${FIELD} max-w-44`}>
        <option value="">All workflows</option>
        {search.workflow && !workflows.data?.items.some((item) => item.name === search.workflow) && <option>{search.workflow}</option>}
        {workflows.data?.items.map((item) => <option key={item.name}>{item.name}</option>)}
      </select>
      <select aria-label="Time" value={search.since ?? ""} onChange={(event) => set({ since: (event.target.value || undefined) as Since | undefined })} className={FIELD}>
        <option value="">Any time</option>
        {SINCE.map((since) => <option key={since} value={since}>{SINCE_WORDS[since]}</option>)}
      </select>
      <label className="relative min-w-40 flex-1 md:max-w-72">
        <span className="sr-only">Search by id, workflow or error</span>
        <Search className="pointer-events-none absolute top-2 left-2 size-3.5 text-ink-3" />
        <input ref={field} type="search" maxLength={200} value={text} onChange={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === "Escape" && field.current?.blur()} placeholder="Id, workflow or error" className={`${FIELD} w-full pl-7`} />
      </label>
      {isFiltered && <Button look="quiet" onClick={() => (setText(""), set({ status: undefined, workflow: undefined, q: undefined, since: undefined }))}><Close className="size-3.5" />Clear</Button>}
    </div>
  );
}

function Chip({ isOn, onClick, children }: { isOn: boolean; onClick: () => void; children: React.ReactNode }) {
  return (
    <button type="button" aria-pressed={isOn} onClick={onClick} className={`flex h-6 items-center gap-1.5 rounded-[5px] px-2 text-xs font-medium whitespace-nowrap ${isOn ? "bg-raised shadow-sm ring-1 ring-edge/60" : "text-ink-2 hover:text-ink"}`}>{children}</button>
  );
}

interface RowsProps {
  items: ExecutionItem[];
  picked: ReadonlySet<string>;
  at: string | null;
  place: number;
  onPick: (id: string, isRange: boolean) => void;
  onPickAll: () => void;
  feed: ReturnType<typeof useFeed>;
}

function Rows({ items, picked, at, place, onPick, onPickAll, feed }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const now = useNow(1000);
  const virtual = useVirtualizer({ count: items.length, getScrollElement: () => box.current, estimateSize: () => ROW, overscan: 15, getItemKey: (index) => items[index]!.execution_id });
  const shown = virtual.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (feed.hasMore && last >= items.length - 20) feed.loadMore();
  }, [last, items.length, feed]);
  useEffect(() => {
    if (place >= 0) virtual.scrollToIndex(place, { align: "auto" });
  }, [at]); // new rows do not scroll
  return (
    <>
      <div className={`${COLUMNS} h-7 border-y bg-subtle text-2xs font-medium text-ink-3`}>
        <input type="checkbox" aria-label="Select all that are loaded" checked={picked.size > 0} ref={(box) => { if (box) box.indeterminate = picked.size > 0 && picked.size < items.length; }} onChange={onPickAll} />
        <span className="max-md:hidden">Status</span><span className="max-md:col-span-2">Workflow</span><span className="max-md:hidden">Execution</span><span className="text-right max-md:hidden">Duration</span><span className="text-right">Created</span>
      </div>
      <div ref={box} className="min-h-0 flex-1 overflow-y-auto">
        <ul aria-label="Executions" className="relative" style={{ height: virtual.getTotalSize() }}>
          {shown.map((row) => (
            <li key={row.key} className="absolute inset-x-0 top-0" style={{ height: ROW, transform: `translateY(${row.start}px)` }}>
              <Row item={items[row.index]!} now={now} isPicked={picked.has(items[row.index]!.execution_id)} isAt={items[row.index]!.execution_id === at} onPick={onPick} />
            </li>
          ))}
        </ul>
        <p role="status" className="px-4 py-2 text-center text-xs text-ink-3">{feed.isLoadingMore ? "Loading older ones…" : feed.hasMore ? "" : `${items.length.toLocaleString("en")} in all`}</p>
      </div>
    </>
  );
}

function Row({ item, now, isPicked, isAt, onPick }: { item: ExecutionItem; now: number; isPicked: boolean; isAt: boolean; onPick: RowsProps["onPick"] }) {
  const id = item.execution_id;
  const created = ms(item.created_at)!;
  const started = ms(item.started_at);
  const ended = ms(item.finished_at) ?? (item.status === "RUNNING" ? now : null);
  return (
    <div className={`${COLUMNS} relative h-full border-b ${isPicked ? "bg-accent-soft" : isAt ? "bg-hover" : "hover:bg-subtle"} ${isAt ? "shadow-[inset_2px_0_var(--color-accent)]" : ""}`}>
      <input type="checkbox" aria-label={`Select ${item.workflow} ${id}`} checked={isPicked} onChange={(event) => onPick(id, (event.nativeEvent as MouseEvent).shiftKey)} className="relative z-1" />
      <State status={item.status} className="text-xs max-md:hidden" />
      <span className="md:hidden"><StateIcon status={item.status} /></span>
      <span className="flex min-w-0 items-baseline gap-1.5">
        <Link to="/executions/$id" params={{ id }} search={{}} className="truncate font-medium after:absolute after:inset-0">{item.workflow}</Link>
        <span className="text-2xs text-ink-3">v{item.version}</span>
        {item.run > 1 && <span className="rounded bg-hover px-1 text-2xs whitespace-nowrap text-ink-2">run {item.run}</span>}
      </span>
      <span className="flex min-w-0 items-baseline gap-2 max-md:hidden">
        <span className="font-mono text-xs whitespace-nowrap text-ink-3" title={id}>…{id.slice(-12)}</span>
        {item.error && <span className="data truncate text-xs text-bad">{visible(errorText(item.error).slice(0, 300))}</span>}
      </span>
      <span className="num text-right text-xs text-ink-2 max-md:hidden">{started !== null && ended !== null ? span(ended - started) : ""}</span>
      <time dateTime={item.created_at} title={full(created)} className="num text-right text-xs whitespace-nowrap text-ink-3">{age(now - created)}</time>
    </div>
  );
}

function Nothing({ search }: { search: ListSearch }) {
  if (search.status || search.workflow || search.q || search.since) return <Empty title="Nothing fits these filters">Widen them, or clear them.</Empty>;
  return (
    <Empty title="Nothing has run yet">
      <p>Start a workflow from a terminal, and it appears here at once:</p>
      <Command>{`headrace run examples/hello.yaml --server ${BASE}`}</Command>
      <p>Or <Link to="/edit" search={{}} className="text-accent underline">write one here</Link>.</p>
    </Empty>
  );
}
