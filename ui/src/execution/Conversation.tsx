/* A call of a language model: what it was asked, what it answered, what it cost. */
import type { NodeDetails } from "../api/client";
import { CopyButton } from "../parts/controls";
import { visible } from "../parts/text";

interface Message {
  role: string;
  content: unknown;
}

export function Conversation({ details }: { details: NodeDetails }) {
  const config = details.config ?? {};
  const output = details.output ?? {};
  const messages: Message[] = [];
  if (config.system) messages.push({ role: "system", content: config.system });
  if (Array.isArray(config.messages)) messages.push(...(config.messages as Message[]));
  if (config.prompt !== undefined) messages.push({ role: "user", content: config.prompt });
  if (details.output) messages.push({ role: "assistant", content: output.json ?? output.text });
  const usage = (output.usage ?? {}) as Record<string, unknown>;
  const facts = [
    ["Model", output.model ?? config.model],
    ["Prompt tokens", usage.prompt_tokens],
    ["Answer tokens", usage.completion_tokens],
    ["All tokens", usage.total_tokens],
    ["Finished by", output.finish_reason],
  ].filter(([, value]) => value !== undefined && value !== null);
  return (
    <div className="flex flex-col gap-4">
      <dl className="flex flex-wrap gap-x-5 gap-y-1">
        {facts.map(([name, value]) => (
          <div key={String(name)}>
            <dt className="text-2xs text-ink-3">{String(name)}</dt>
            <dd className="num data font-medium">{String(value)}</dd>
          </div>
        ))}
      </dl>
      {messages.map((message, at) => {
        const text = typeof message.content === "string" ? message.content : JSON.stringify(message.content, null, 2);
        return (
          <section
            key={at}
            className={`rounded-md border ${message.role === "assistant" ? "border-accent/40 bg-accent-soft" : "bg-subtle"}`}
          >
            <header className="flex items-center py-0.5 pr-1 pl-3 text-xs font-medium text-ink-2">
              {String(message.role)}
              <span className="ml-auto">
                <CopyButton text={text} label={`Copy the ${message.role} text`} />
              </span>
            </header>
            <div className="data max-h-96 overflow-auto px-3 pb-2.5 text-sm whitespace-pre-wrap">{visible(text)}</div>
          </section>
        );
      })}
      {!details.output && <p className="text-ink-3">There is no answer yet.</p>}
    </div>
  );
}
