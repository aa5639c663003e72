/* The list of executions, live: the first page comes as a stream, older pages are fetched as one scrolls to them. */
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api, data, type ExecutionItem, type ListChange, type Problem } from "../api/client";
import { follow } from "../api/events";
import { keyNeeded } from "../api/key";
import type { ListSearch, Since } from "../router";

const PAGE = 100;
const FLUSH_MS = 150;
const MINUTES: Record<Since, number> = { "15m": 15, "1h": 60, "24h": 1440, "7d": 10080 };

interface Feed {
  items: ExecutionItem[] | null; // null: not known yet
  problem: Problem | null;
  hasMore: boolean;
  isLoadingMore: boolean;
  loadMore: () => void;
}

export function useFeed(search: ListSearch): Feed {
  const [live, setLive] = useState<Map<string, ExecutionItem> | null>(null);
  const [older, setOlder] = useState<ExecutionItem[]>([]);
  const [end, setEnd] = useState<string | null | undefined>(undefined); // the next cursor; null: nothing is older
  const [isLoadingMore, setLoadingMore] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [turn, setTurn] = useState(0);
  const { status, workflow, q, since } = search;
  const query = useMemo(() => {
    const from = since ? new Date(Date.now() - MINUTES[since] * 60_000).toISOString() : undefined;
    return Object.fromEntries(
      Object.entries({ status, workflow, q, since: from }).filter(([, value]) => value !== undefined),
    ) as Record<string, string>;
  }, [status, workflow, q, since]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a turn is a new beginning
  useEffect(() => {
    const leaving = new AbortController();
    setLive(null);
    setOlder([]);
    setEnd(undefined);
    setProblem(null);
    let waiting: ListChange[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      clearTimeout(timer);
      timer = undefined;
      const taken = waiting;
      waiting = [];
      setLive((known) => changed(known ?? new Map(), taken));
    };
    void follow(`/v1/executions/events?${new URLSearchParams({ ...query, limit: String(PAGE) })}`, {
      signal: leaving.signal,
      onEvent: ({ kind, data }) => {
        const change = data as ListChange;
        if (kind === "problem") return setProblem(data as Problem);
        setProblem(null);
        if (kind === "snapshot") {
          flush();
          setLive((known) => renewed(known ?? new Map(), change.items));
        } else {
          waiting.push(change);
          timer ??= setTimeout(flush, FLUSH_MS);
        }
      },
      onProblem: setProblem,
    });
    return () => {
      leaving.abort();
      clearTimeout(timer);
    };
  }, [query, turn]);
  useEffect(() => keyNeeded.subscribe(() => keyNeeded.get() === null && setTurn((n) => n + 1)), []);

  const items = useMemo(() => {
    if (!live) return null;
    const known = new Map(older.map((item) => [item.execution_id, item]));
    for (const [id, item] of live) known.set(id, item);
    return [...known.values()].sort((a, b) => (a.execution_id < b.execution_id ? 1 : -1)); // ids are in order of time
  }, [live, older]);

  const cursor = end === undefined && items && items.length >= PAGE ? items.at(-1)!.execution_id : (end ?? null);
  const asked = useRef(query);
  asked.current = query;
  const loadMore = useCallback(() => {
    if (!cursor || isLoadingMore) return;
    setLoadingMore(true);
    data(api.GET("/v1/executions", { params: { query: { ...query, cursor, limit: PAGE } } }))
      .then((page) => {
        if (asked.current !== query) return; // the filters have changed meanwhile
        setOlder((some) => [...some, ...page.items]);
        setEnd(page.next_cursor);
      }, setProblem)
      .finally(() => setLoadingMore(false));
  }, [cursor, isLoadingMore, query]);
  return { items, problem, hasMore: cursor !== null, isLoadingMore, loadMore };
}

/** A snapshot is the whole first page: what is as new as its last item and not in it has gone. */
function renewed(known: Map<string, ExecutionItem>, page: ExecutionItem[]): Map<string, ExecutionItem> {
  const oldest = page.length >= PAGE ? page.at(-1)!.execution_id : "";
  const kept = [...known].filter(([id]) => id < oldest);
  return new Map([...page.map((item) => [item.execution_id, item] as const), ...kept]);
}

/** Those that newer ones pushed off the page are still in the list; the others no longer fit the filter. */
function changed(known: Map<string, ExecutionItem>, changes: ListChange[]): Map<string, ExecutionItem> {
  if (!changes.length) return known;
  const next = new Map(known);
  for (const { items, gone } of changes) {
    for (const item of items) next.set(item.execution_id, item);
    if (!gone?.length) continue;
    const edge = [...next.keys()].sort().at(-PAGE) ?? "";
    for (const id of gone) if (id >= edge) next.delete(id);
  }
  return next;
}
