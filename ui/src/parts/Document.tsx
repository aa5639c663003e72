/* A JSON document with its size, to be copied or downloaded whole. */
import { useMemo } from "react";
import { Button, CopyButton } from "./controls";
import { Download } from "./icons";
import { Json } from "./Json";
import { bytes, download } from "./text";

export function Document({ name, label, value }: { name: string; label: string; value: unknown }) {
  const whole = useMemo(() => JSON.stringify(value, null, 2), [value]);
  return (
    <section className="flex flex-col gap-1.5">
      <header className="flex items-center gap-1">
        <h3 className="text-xs font-medium text-ink-3">{label}</h3>
        <span className="num ml-auto text-2xs text-ink-3">{bytes(whole.length)}</span>
        <CopyButton text={whole} label={`Copy: ${label}`} />
        <Button
          look="quiet"
          small
          title="Download"
          aria-label={`Download: ${label}`}
          onClick={() => download(`${name}.json`, whole)}
        >
          <Download className="size-3.5" />
        </Button>
      </header>
      <Json value={value} label={label} />
    </section>
  );
}
