/* Definitions as people write them: between YAML and what the page draws. Only the pages about workflows load this. */
import { Document, isScalar, isSeq, parseDocument, visit } from "yaml";
import type { GraphNode } from "../execution/structure";

export type Definition = Record<string, unknown>;
export type Inputs = Record<string, Record<string, unknown>>;

const ORDER = ["name", "description", "inputs", "on_failure", "timeout_seconds"]; // then nodes and the rest
const NODE_ORDER = ["id", "handler", "dependencies", "config"];

/** In the order and the style in which people write it. */
export function written(definition: Definition): string {
  const nodes = Array.isArray(definition.nodes)
    ? definition.nodes.map((node) => sorted(node as Definition, NODE_ORDER))
    : definition.nodes;
  const document = new Document(sorted({ ...definition, nodes }, ORDER));
  visit(document, {
    Pair: (_, pair) => {
      if (isScalar(pair.key) && pair.key.value === "dependencies" && isSeq(pair.value)) pair.value.flow = true;
    },
  });
  return document.toString({ lineWidth: 100, flowCollectionPadding: false });
}

function sorted(value: Definition, first: string[]): Definition {
  const known = Object.fromEntries(first.flatMap((key) => (key in value ? [[key, value[key]]] : [])));
  return { ...known, ...value };
}

/** The definition in a text that is still being written; null if it cannot be read yet. */
export function read(text: string): Definition | null {
  try {
    const document = parseDocument(text, { prettyErrors: false, logLevel: "silent" });
    if (document.errors.length) return null;
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Definition) : null;
  } catch {
    return null;
  }
}

export function nodesOf(definition: Definition | null): GraphNode[] {
  const nodes = Array.isArray(definition?.nodes) ? (definition.nodes as unknown[]) : [];
  const found = new Map<string, GraphNode>();
  for (const node of nodes) {
    if (node === null || typeof node !== "object") continue;
    const { id, handler, dependencies } = node as Record<string, unknown>;
    if (typeof id !== "string" || !id || found.has(id)) continue;
    const parents = Array.isArray(dependencies)
      ? dependencies.filter((each): each is string => typeof each === "string")
      : [];
    found.set(id, { id, handler: typeof handler === "string" ? handler : "?", dependencies: [...new Set(parents)] });
  }
  return [...found.values()];
}

export function inputsOf(definition: Definition | null): Inputs {
  const inputs = definition?.inputs;
  if (inputs === null || typeof inputs !== "object") return {};
  return Object.fromEntries(
    Object.entries(inputs as Inputs).map(([name, schema]) => [
      name,
      schema !== null && typeof schema === "object" ? schema : {},
    ]),
  );
}

/** The line, from 1, on which a node is begun; null if it is written in a way that this does not see. */
export function lineOf(id: string, text: string): number | null {
  const asText = id.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const mention = new RegExp(`(^|[\\s{,-])["']?id["']?\\s*:\\s*["']?${asText}["']?\\s*([,}#]|$)`);
  const at = text.split("\n").findIndex((line) => mention.test(line));
  return at < 0 ? null : at + 1;
}
