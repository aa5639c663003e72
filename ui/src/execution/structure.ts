/* What the graph is made of: its nodes, those that are alike drawn as one, and where each stands.

It depends on ids and dependencies alone, so it stays as it is while states change. */
import { useMemo } from "react";
import { type Cluster, clustersOf } from "./clusters";
import { layOut, type Pane, type Plan, type Shape } from "./layout";

export interface GraphNode {
  id: string;
  handler: string;
  dependencies: string[];
  status?: string; // none: a definition that does not run
  attempt?: number;
  started_at?: string | null;
  finished_at?: string | null;
}

export interface Structure extends Plan {
  shapes: Shape[];
  clusters: Map<string, Cluster>;
  ownerOf: (id: string) => string; // the cluster that a node is drawn in, or the node itself
  canGroup: boolean;
}

export const WIDTH = 168;
export const HEIGHT = 42;
const CLUSTER_HEIGHT = 54;

export function useStructure(nodes: GraphNode[], groups: boolean, opened: ReadonlySet<string>, pane: Pane): Structure {
  const signature = useMemo(
    () => nodes.map((node) => `${node.id}:${node.handler}:${node.dependencies.join()}`).join("\n"),
    [nodes],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the signature stands for the nodes
  return useMemo(() => structureOf(nodes, groups, opened, pane), [signature, groups, opened, pane]);
}

function structureOf(nodes: GraphNode[], groups: boolean, opened: ReadonlySet<string>, pane: Pane): Structure {
  const found = clustersOf(nodes);
  const closed = groups ? found.filter((cluster) => !opened.has(cluster.id)) : [];
  const clusters = new Map(closed.map((cluster) => [cluster.id, cluster]));
  const owners = new Map(closed.flatMap((cluster) => cluster.members.map((id) => [id, cluster.id] as const)));
  const ownerOf = (id: string) => owners.get(id) ?? id;
  const parents = new Map<string, Set<string>>();
  for (const node of nodes) {
    const own = ownerOf(node.id);
    const set = parents.get(own) ?? new Set();
    for (const parent of node.dependencies) set.add(ownerOf(parent));
    set.delete(own);
    parents.set(own, set);
  }
  const shapes = [...parents].map(([id, some]) => ({
    id,
    dependencies: [...some].filter((each) => parents.has(each)),
    width: WIDTH,
    height: clusters.has(id) ? CLUSTER_HEIGHT : HEIGHT,
  }));
  return { shapes, clusters, ...layOut(shapes, pane), ownerOf, canGroup: found.length > 0 };
}
