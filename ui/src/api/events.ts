/* Server-sent events over fetch, since EventSource cannot send an API key. Comes back by itself, from the last id.

A page that nobody sees lets go of its stream: a browser has six connections to a server for all its tabs. */
import { BASE, noteRefusal, Problem, problemOf } from "./client";
import { connectionLost, connectionMade } from "./connection";
import { authorization } from "./key";

export interface ServerEvent {
  kind: string;
  data: unknown;
}

interface Options {
  signal: AbortSignal;
  onEvent: (event: ServerEvent) => void;
  onProblem: (problem: Problem) => void;
  endsWith?: string; // after this event the stream is complete
}

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 5000;

export async function follow(path: string, { signal, onEvent, onProblem, endsWith }: Options): Promise<void> {
  let lastId: string | undefined;
  let waitMs = FIRST_WAIT_MS;
  while (!signal.aborted) {
    await untilSeen(signal);
    const seen = new AbortController();
    const leave = () => document.hidden && seen.abort();
    document.addEventListener("visibilitychange", leave);
    try {
      const resume: Record<string, string> = lastId ? { "Last-Event-ID": lastId } : {};
      const headers = { Accept: "text/event-stream", ...authorization(), ...resume };
      const answer = await fetch(BASE + path, {
        headers,
        signal: AbortSignal.any([signal, seen.signal]),
        cache: "no-store",
      });
      if (!answer.ok || !answer.body) throw await problemOf(answer);
      connectionMade();
      for await (const { id, kind, data } of parse(answer.body)) {
        waitMs = FIRST_WAIT_MS;
        lastId = id ?? lastId;
        onEvent({ kind, data: JSON.parse(data) });
        if (kind === endsWith) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (seen.signal.aborted) continue;
      if (error instanceof Problem) {
        noteRefusal(error);
        onProblem(error);
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      } else connectionLost();
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
    await pause(waitMs, signal);
    waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
  }
}

async function* parse(body: ReadableStream<Uint8Array>): AsyncGenerator<{ id?: string; kind: string; data: string }> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let pieces: string[] = []; // of a line that is not complete: a snapshot may have megabytes
  let event: { id?: string; kind: string; data: string[] } = { kind: "message", data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      pieces.push(value);
      if (!value.includes("\n")) continue;
      const lines = pieces.join("").split("\n");
      pieces = [lines.pop() ?? ""];
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line === "") {
          if (event.data.length) yield { id: event.id, kind: event.kind, data: event.data.join("\n") };
          event = { kind: "message", data: [] };
          continue;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "id") event.id = text;
        else if (field === "event") event.kind = text;
        else if (field === "data") event.data.push(text);
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    const stop = () => {
      clearTimeout(timer);
      done();
    };
    signal.addEventListener("abort", stop, { once: true });
  });
}

function untilSeen(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (!document.hidden || signal.aborted) return done();
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
  });
}
