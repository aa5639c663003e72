/* What failed for good, grouped by what went wrong, with a way to set it right. */
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, data, type Letter } from "../api/client";
import { Document, ErrorBox } from "../execution/Inspector";
import { Button, Empty, FIELD, Loading, Trouble } from "../parts/controls";
import { Chevron, Edit, Retry, Trash } from "../parts/icons";
import { plural, visible } from "../parts/text";
import { age, full, ms, useNow } from "../parts/time";
import { say, sayProblem } from "../parts/toasts";
import { RunAgain } from "./RunAgain";

const route = getRouteApi("/dead-letters");
const PAGE = 500;
const STATUSES = [["", "Open"], ["RETRIED", "Retried"], ["DROPPED", "Dropped"], ["ALL", "All"]] as const;

interface Group {
  key: string;
  cause: string;
  message: string;
  place: string;
  letters: Letter[];
}

export default function LettersPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useInfiniteQuery({
    queryKey: ["letters", search.status, search.workflow],
    refetchInterval: 5000,
    initialPageParam: "",
    queryFn: ({ pageParam }) => data(api.GET("/v1/dlq", { params: { query: { limit: PAGE, cursor: pageParam, status: (search.status ?? "OPEN") as "OPEN", ...(search.workflow ? { workflow: search.workflow } : {}) } } })),
    getNextPageParam: (page) => page.next_cursor,
  });
  const letters = useMemo(() => (list.data?.pages ?? []).flatMap((page) => page.items), [list.data]);
  const groups = useMemo(() => grouped(letters), [letters]);
  const names = useQuery({ queryKey: ["workflows"], queryFn: () => data(api.GET("/v1/workflows", { params: { query: { limit: 1000 } } })) });
  const set = (change: Partial<typeof search>) => void navigate({ search: (old) => ({ ...old, ...change }), replace: true });
  return (
    <div className="flex h-full flex-col">
      <header className="flex flex-wrap items-center gap-2 px-4 pt-3 pb-2">
        <h1 className="mr-2 text-lg font-semibold tracking-tight">Dead letters</h1>
        <select aria-label="Status" value={search.status ?? ""} onChange={(event) => set({ status: event.target.value || undefined })} className={FIELD}>{STATUSES.map(([value, word]) => <option key={value} value={value}>{word}</option>)}</select>
        <select aria-label="Workflow" value={search.workflow ?? ""} onChange={(event) => set({ workflow: event.target.value || undefined })} className={`${FIELD} max-w-44`}><option value="">All workflows</option>{names.data?.items.map((item) => <option key={item.name}>{item.name}</option>)}</select>
        {list.data && <span className="num ml-auto text-xs text-ink-3">{plural(letters.length, "letter")}{list.hasNextPage && " so far"}, {plural(groups.length, "cause")}</span>}
      </header>
      <div className="min-h-0 flex-1 overflow-y-auto border-t">
        {list.error && <Trouble error={list.error} onRetry={() => void list.refetch()} />}
        {list.isPending && <Loading what="dead letters" />}
        {list.data && !letters.length && <Empty title="No dead letters">{search.status || search.workflow ? "None with these filters." : "Nothing has failed for good. What fails after all its retries, or cannot succeed, is kept here until somebody retries or drops it."}</Empty>}
        {groups.map((group) => <GroupCard key={group.key} group={group} chosen={search.letter} onChoose={(letter) => set({ letter })} />)}
        {list.hasNextPage && <p className="p-3 text-center"><Button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>Load more</Button></p>}
      </div>
    </div>
  );
}

function grouped(letters: Letter[]): Group[] {
  const groups = new Map<string, Group>();
  for (const letter of letters) {
    const message = typeof letter.error.message === "string" ? letter.error.message : "";
    const type = typeof letter.error.type === "string" ? letter.error.type : "";
    const shape = message.slice(0, 200).replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, "#"); // ids and numbers do not make another cause
    const key = [letter.cause, letter.workflow, letter.node, type, shape].join("\n");
    const group = groups.get(key);
    if (group) group.letters.push(letter);
    else groups.set(key, { key, cause: letter.cause, message: [type, message].filter(Boolean).join(": "), place: `${letter.workflow} · ${letter.node}`, letters: [letter] });
  }
  return [...groups.values()].sort((a, b) => b.letters.length - a.letters.length);
}

function useLetterActions() {
  const queries = useQueryClient();
  const done = () => void queries.invalidateQueries({ queryKey: ["letters"] });
  const retry = useMutation({
    mutationFn: (ids: string[]) => data(api.POST("/v1/dlq/retry", { body: { ids: ids.slice(0, 1000) } })),
    onSuccess: ({ retried, refused }) => say(`${plural(retried.length, "execution")} retried${refused.length ? `, ${refused.length} refused: their state does not allow it` : ""}.`, refused.length > 0),
    onError: sayProblem,
    onSettled: done,
  });
  const drop = useMutation({
    mutationFn: async (ids: string[]) => {
      for (const letter_id of ids) await api.DELETE("/v1/dlq/{letter_id}", { params: { path: { letter_id } } });
      return ids.length;
    },
    onSuccess: (count) => say(`${plural(count, "letter")} dropped. The executions stay as they are.`),
    onError: sayProblem,
    onSettled: done,
  });
  return { retry, drop };
}

function GroupCard({ group, chosen, onChoose }: { group: Group; chosen: string | undefined; onChoose: (letter: string | undefined) => void }) {
  const { letters } = group;
  const [isOpen, setOpen] = useState(letters.some((letter) => letter.id === chosen));
  const { retry, drop } = useLetterActions();
  const open = letters.filter((letter) => letter.status === "OPEN").map((letter) => letter.id);
  const isBusy = retry.isPending || drop.isPending;
  const now = useNow(10_000);
  return (
    <section className="border-b">
      <div className="flex items-start gap-2 px-4 py-2.5 hover:bg-subtle max-md:flex-wrap">
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} className="flex min-w-0 flex-1 items-start gap-2 text-left">
          <Chevron className={`mt-0.5 size-4 text-ink-3 ${isOpen ? "rotate-90" : ""}`} />
          <span className="num mt-px min-w-7 rounded-full bg-hover px-1.5 text-center text-xs leading-4.5 font-medium">{letters.length}</span>
          <span className="min-w-0">
            <span className="data line-clamp-2 font-medium">{visible(group.message.slice(0, 400)) || "No message"}</span>
            <span className="flex flex-wrap gap-x-3 text-xs text-ink-3"><span className="font-mono text-bad">{group.cause}</span><span className="data">{group.place}</span><time>{age(now - ms(letters[0]!.created_at)!)}</time></span>
          </span>
        </button>
        {open.length > 0 && (
          <span className="flex gap-1.5 max-md:ml-auto">
            <Button small disabled={isBusy} onClick={() => retry.mutate(open)}><Retry className="size-3.5" />Retry {open.length > 1 ? `all ${open.length}` : ""}</Button>
            <Button small look="danger" disabled={isBusy} onClick={() => drop.mutate(open)}><Trash className="size-3.5" />Drop</Button>
          </span>
        )}
      </div>
      {isOpen && (
        <ul className="border-t bg-subtle">
          {letters.slice(0, 200).map((letter) => <LetterRow key={letter.id} letter={letter} isChosen={letter.id === chosen} onChoose={onChoose} />)}
          {letters.length > 200 && <li className="px-12 py-2 text-xs text-ink-3">and {letters.length - 200} more like these</li>}
        </ul>
      )}
    </section>
  );
}

function LetterRow({ letter, isChosen, onChoose }: { letter: Letter; isChosen: boolean; onChoose: (letter: string | undefined) => void }) {
  const now = useNow(10_000);
  const created = ms(letter.created_at)!;
  return (
    <li className="border-b last:border-0">
      <div className={`flex flex-wrap items-center gap-x-3 py-1 pr-4 pl-10 ${isChosen ? "bg-accent-soft" : "hover:bg-hover"}`}>
        <button type="button" aria-expanded={isChosen} onClick={() => onChoose(isChosen ? undefined : letter.id)} className="flex min-w-0 flex-1 items-center gap-3 text-left text-xs">
          <Chevron className={`size-3.5 text-ink-3 ${isChosen ? "rotate-90" : ""}`} />
          <span className="font-mono text-ink-2">…{letter.execution_id.slice(-12)}</span>
          <span className="num text-ink-3">run {letter.run}, attempt {letter.attempt}</span>
          {letter.status !== "OPEN" && <span className="text-ink-3">{letter.status.toLowerCase()}</span>}
          <time dateTime={letter.created_at} title={full(created)} className="num ml-auto text-ink-3">{age(now - created)}</time>
        </button>
        <Link to="/executions/$id" params={{ id: letter.execution_id }} search={{ node: letter.node }} className="text-xs text-accent hover:underline">Execution</Link>
      </div>
      {isChosen && <Details letter={letter} />}
    </li>
  );
}

function Details({ letter }: { letter: Letter }) {
  const { retry, drop } = useLetterActions();
  const [isEditing, setEditing] = useState(false);
  const details = useQuery({ queryKey: ["letter", letter.id], queryFn: () => data(api.GET("/v1/dlq/{letter_id}", { params: { path: { letter_id: letter.id } } })) });
  const isOpen = letter.status === "OPEN";
  return (
    <div className="flex flex-col gap-3 border-t bg-page px-4 py-3 md:pl-16">
      <ErrorBox error={letter.error} />
      {details.error && <Trouble error={details.error} />}
      {details.data && <Document name={`${letter.workflow}-${letter.node}-task`} label={`What ${details.data.task.handler} was given`} value={details.data.task.config ?? {}} />}
      <div className="flex flex-wrap gap-2">
        {isOpen && <Button look="primary" disabled={retry.isPending} onClick={() => retry.mutate([letter.id])}><Retry className="size-3.5" />Retry</Button>}
        <Button onClick={() => setEditing(true)}><Edit className="size-3.5" />Run again with other input…</Button>
        {isOpen && <Button look="danger" disabled={drop.isPending} onClick={() => drop.mutate([letter.id])}><Trash className="size-3.5" />Drop</Button>}
      </div>
      <p className="text-xs text-ink-3">A retry is the next run of the same execution: what was completed keeps its output. Dropping needs a key with the scope admin.</p>
      {isEditing && <RunAgain executionId={letter.execution_id} onClose={() => setEditing(false)} />}
    </div>
  );
}
