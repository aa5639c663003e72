/* Asks for an API key when the server wants one. */
import { useState } from "react";
import { apiKey, keepKey, keyNeeded } from "../api/key";
import { Button, Dialog, FIELD } from "../parts/controls";
import { useStore } from "../parts/store";

export function askForKey(): void {
  keyNeeded.set("");
}

export function KeyPrompt() {
  const told = useStore(keyNeeded);
  const [key, setKey] = useState("");
  if (told === null) return null;
  const isHeld = apiKey() !== null;
  return (
    <Dialog title="API key" onClose={() => keyNeeded.set(null)} className="max-w-md">
      <form
        className="flex flex-col gap-3 p-4"
        onSubmit={(event) => {
          event.preventDefault();
          keepKey(key.trim());
          setKey("");
        }}
      >
        {told && (
          <p role="alert" className="data text-bad">
            {told}
          </p>
        )}
        <label className="flex flex-col gap-1">
          <span className="text-ink-2">A key of this server. It is kept for this tab only.</span>
          <input
            autoFocus
            type="password"
            autoComplete="off"
            spellCheck={false}
            value={key}
            onChange={(event) => setKey(event.target.value)}
            placeholder="hr_…"
            className={`${FIELD} font-mono`}
          />
        </label>
        <p className="text-xs text-ink-3">
          An operator makes one: <code className="font-mono">headrace keys create NAME --scope run</code>
        </p>
        <div className="flex justify-end gap-2">
          {isHeld && <Button onClick={() => keepKey("")}>Forget the key</Button>}
          <Button type="submit" look="primary" disabled={!key.trim()}>
            Use this key
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
