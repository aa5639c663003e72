/* Many at once: cancel those that run, retry those that failed or were cancelled. */
import { useState } from "react";
import { api, type ExecutionItem } from "../api/client";
import { callEach } from "../api/many";
import { Button } from "../parts/controls";
import { Retry, Stop } from "../parts/icons";
import { plural } from "../parts/text";
import { say } from "../parts/toasts";

const CANCEL = "/v1/executions/{execution_id}/cancel";
const RETRY = "/v1/executions/{execution_id}/retry";
type Path = typeof CANCEL | typeof RETRY;

export function BulkBar({ items, onClear }: { items: ExecutionItem[]; onClear: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const running = items.filter((item) => item.status === "RUNNING");
  const ended = items.filter((item) => item.status === "FAILED" || item.status === "CANCELLED");

  const act = async (some: ExecutionItem[], path: Path, what: string) => {
    setBusy(true);
    const refused = await callEach(some, ({ execution_id }) => api.POST(path, { params: { path: { execution_id } } }));
    setBusy(false);
    const but = refused ? `, ${refused} refused: their state does not allow it` : "";
    say(`${plural(some.length - refused, "execution")} ${what}${but}.`, refused > 0);
    onClear();
  };

  return (
    <div
      role="region"
      aria-label="Selected executions"
      className="flex flex-wrap items-center gap-2 border-t bg-subtle px-4 py-2"
    >
      <span className="num font-medium">{plural(items.length, "execution")} selected</span>
      <span className="ml-auto flex gap-2">
        <Button
          look="danger"
          disabled={isBusy || !running.length}
          onClick={() => void act(running, CANCEL, "cancelled")}
        >
          <Stop className="size-3.5" />
          Cancel {running.length || ""}
        </Button>
        <Button disabled={isBusy || !ended.length} onClick={() => void act(ended, RETRY, "retried")}>
          <Retry className="size-3.5" />
          Retry {ended.length || ""}
        </Button>
        <Button look="quiet" onClick={onClear}>
          Clear
        </Button>
      </span>
    </div>
  );
}
