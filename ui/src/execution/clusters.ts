/* Nodes that are alike are drawn as one: the same handler on the same level, with alike parents and alike children.

A fan-out of a thousand becomes one box, and so does each step of a thousand parallel chains. Levels keep it acyclic. */
import { childrenOf, levelsOf } from "./kin";

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
  const children = childrenOf(nodes);
  let kinds = numbered(nodes.map((node) => [node.id, `${levels.get(node.id)} ${node.handler}`]));
  for (let round = 0, before = 0; round < ROUNDS; round++) {
    const kindsOf = (ids: string[]) => [...new Set(ids.map((id) => kinds.get(id)))].sort().join(",");
    kinds = numbered(
      nodes.map((node) => [
        node.id,
        `${kinds.get(node.id)} ${kindsOf(node.dependencies)} ${kindsOf(children.get(node.id) ?? [])}`,
      ]),
    );
    const count = new Set(kinds.values()).size;
    if (count === before) break;
    before = count;
  }

  const groups = Map.groupBy(nodes, ({ id }) => kinds.get(id)!);
  return [...groups.values()]
    .map((some) => some.map(({ id }) => id))
    .filter((members) => members.length >= FEWEST)
    .map((members) => ({ id: `cluster ${members[0]}`, name: commonName(members), members })); // a blank: no node has this id
}

function numbered(pairs: [string, string][]): Map<string, number> {
  const numbers = new Map<string, number>();
  return new Map(
    pairs.map(([id, kind]) => {
      if (!numbers.has(kind)) numbers.set(kind, numbers.size);
      return [id, numbers.get(kind)!];
    }),
  );
}

function commonName(members: string[]): string {
  let prefix = members[0]!;
  for (const id of members) while (!id.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix ? `${prefix}…` : "alike";
}
