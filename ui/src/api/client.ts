/* The typed client: every call of the OpenAPI document. A refusal is thrown as a Problem, with what the server said. */
import createClient, { type Middleware } from "openapi-fetch";
import { connectionLost, connectionMade } from "./connection";
import { authorization, keyNeeded } from "./key";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Execution = Schemas["Execution"];
export type ExecutionItem = Schemas["ExecutionItem"];
export type ExecutionStatus = ExecutionItem["status"];
export type ExecutionNode = Schemas["Node"];
export type NodeStatus = ExecutionNode["status"];
export type NodeDetails = Schemas["NodeDetails"];
export type Attempt = Schemas["Attempt"];
export type NodeAttempt = Schemas["NodeAttempt"];
export type Attempts = Schemas["Attempts"];
export type Change = Schemas["Change"];
export type ListChange = Schemas["ListChange"];
export type Reason = Schemas["Reason"];
export type WorkflowItem = Schemas["WorkflowItem"];
export type Letter = Schemas["LetterItem"];
export type Worker = Schemas["Worker"];
export type Queue = Schemas["Queue"];
export type ErrorItem = Schemas["ErrorItem"];
type ProblemBody = Schemas["Problem"];

/** What an API or network error says to people. `status` is 0 if there was no answer at all. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string,
    readonly errors: ErrorItem[] = [],
  ) {
    super(message);
  }
}

/** Relative to the page: the UI works under any path that a proxy gives it. */
export const BASE = new URL(".", document.baseURI).href.replace(/\/$/, "");

export async function problemOf(answer: Response): Promise<Problem> {
  const text = await answer.text();
  try {
    const body = JSON.parse(text) as ProblemBody;
    return new Problem(answer.status, body.detail || body.title, body.code, body.errors);
  } catch {
    return new Problem(answer.status, `${answer.status} ${answer.statusText}`.trim(), "unknown");
  }
}

export function noteRefusal(problem: Problem): void {
  if (problem.status === 401) keyNeeded.set(problem.message);
}

const guard: Middleware = {
  onRequest({ request }) {
    for (const [name, value] of Object.entries(authorization())) request.headers.set(name, value);
  },
  async onResponse({ response }) {
    if (response.status >= 502 && response.status <= 504 && !isProblem(response)) connectionLost();
    else connectionMade();
    if (response.ok) return;
    const problem = await problemOf(response);
    noteRefusal(problem);
    throw problem;
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === "AbortError") return error;
    connectionLost();
    return new Problem(0, "The server cannot be reached.", "unreachable");
  },
};

function isProblem(response: Response): boolean {
  return (response.headers.get("content-type") ?? "").startsWith("application/problem+json");
}

export const api = createClient<paths>({ baseUrl: BASE });
api.use(guard);

/** The data of an answer. Refusals were thrown before this. */
export async function data<T>(call: Promise<{ data?: T }>): Promise<T> {
  return (await call).data as T;
}
