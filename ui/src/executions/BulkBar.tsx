/* Many at once: cancel those that run, retry those that failed or were cancelled. */
import { useState } from "react";
import { api, type ExecutionItem } from "../api/client";
import { Button } from "../parts/controls";
import { Retry, Stop } from "../parts/icons";
import { plural } from "../parts/text";
import { say } from "../parts/toasts";

const AT_ONCE = 6;

export function BulkBar({ items, onClear }: { items: ExecutionItem[]; onClear: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const running = items.filter((item) => item.status === "RUNNING");
  const ended = items.filter((item) => item.status === "FAILED" || item.status === "CANCELLED");

  const forEach = async (some: ExecutionItem[], path: "/v1/executions/{execution_id}/cancel" | "/v1/executions/{execution_id}/retry", done: string) => {
    setBusy(true);
    const todo = [...some];
    let refused = 0;
    const work = async () => {
      for (let item = todo.pop(); item; item = todo.pop()) {
        await api.POST(path, { params: { path: { execution_id: item.execution_id } } }).catch(() => refused++);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    setBusy(false);
    say(`${plural(some.length - refused, "execution")} ${done}${refused ? `, ${refused} refused: their state does not allow it` : ""}.`, refused > 0);
    onClear();
  };

  return (
    <div role="region" aria-label="Selected executions" className="flex flex-wrap items-center gap-2 border-t bg-subtle px-4 py-2">
      <span className="num font-medium">{plural(items.length, "execution")} selected</span>
      <span className="ml-auto flex gap-2">
        <Button look="danger" disabled={isBusy || !running.length} onClick={() => void forEach(running, "/v1/executions/{execution_id}/cancel", "cancelled")}><Stop className="size-3.5" />Cancel {running.length || ""}</Button>
        <Button disabled={isBusy || !ended.length} onClick={() => void forEach(ended, "/v1/executions/{execution_id}/retry", "retried")}><Retry className="size-3.5" />Retry {ended.length || ""}</Button>
        <Button look="quiet" onClick={onClear}>Clear</Button>
      </span>
    </div>
  );
}
