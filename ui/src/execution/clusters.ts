/* Nodes that are alike are drawn as one: the same handler on the same level, with alike parents and alike children.

A fan-out of a thousand becomes one box, and so does each step of a thousand parallel chains. Levels keep it acyclic. */
import { levelsOf } from "./layout";

export interface Member {
  id: string;
  handler: string;
  dependencies: string[];
}
export interface Cluster {
  id: string;
  name: string;
  members: string[];
}

const FEWEST = 6;
const ROUNDS = 6;

export function clustersOf(nodes: Member[]): Cluster[] {
  const levels = levelsOf(nodes);
  const children = new Map<string, string[]>();
  for (const { id, dependencies } of nodes) for (const parent of dependencies) children.get(parent)?.push(id) ?? children.set(parent, [id]);

  let kinds = numbered(nodes.map((node) => [node.id, `${levels.get(node.id)} ${node.handler}`]));
  for (let round = 0, before = 0; round < ROUNDS; round++) {
    const kindsOf = (ids: string[]) => [...new Set(ids.map((id) => kinds.get(id)))].sort().join(",");
    kinds = numbered(nodes.map((node) => [node.id, `${kinds.get(node.id)} ${kindsOf(node.dependencies)} ${kindsOf(children.get(node.id) ?? [])}`]));
    const count = new Set(kinds.values()).size;
    if (count === before) break;
    before = count;
  }

  const groups = new Map<number, string[]>();
  for (const { id } of nodes) groups.get(kinds.get(id)!)?.push(id) ?? groups.set(kinds.get(id)!, [id]);
  return [...groups.values()]
    .filter((members) => members.length >= FEWEST)
    .map((members) => ({ id: `cluster ${members[0]}`, name: commonName(members), members })); // a blank: no node has this id
}

function numbered(pairs: [string, string][]): Map<string, number> {
  const numbers = new Map<string, number>();
  return new Map(pairs.map(([id, kind]) => {
    if (!numbers.has(kind)) numbers.set(kind, numbers.size);
    return [id, numbers.get(kind)!];
  }));
}

function commonName(members: string[]): string {
  let prefix = members[0]!;
  for (const id of members) while (!id.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix ? `${prefix}…` : "alike";
}
