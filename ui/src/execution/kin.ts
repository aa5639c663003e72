/* Who stands before a node, and who behind it. */
interface Linked {
  id: string;
  dependencies: string[];
}

export function ancestorsOf(id: string, nodes: Linked[]): Set<string> {
  return reached(id, new Map(nodes.map((node) => [node.id, node.dependencies])));
}

export function descendantsOf(id: string, nodes: Linked[]): Set<string> {
  return reached(id, childrenOf(nodes));
}

export function childrenOf(nodes: Linked[]): Map<string, string[]> {
  const children = new Map<string, string[]>();
  for (const { id, dependencies } of nodes) {
    for (const parent of dependencies) {
      const known = children.get(parent);
      if (known) known.push(id);
      else children.set(parent, [id]);
    }
  }
  return children;
}

function reached(id: string, next: Map<string, string[]>): Set<string> {
  const found = new Set<string>();
  const todo = [...(next.get(id) ?? [])];
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
    if (found.has(at)) continue;
    found.add(at);
    todo.push(...(next.get(at) ?? []));
  }
  return found;
}

/** The longest way from a root. What stands on a cycle (a definition that is being written may have one) is on level 0. */
export function levelsOf(nodes: Linked[]): Map<string, number> {
  const children = childrenOf(nodes);
  const waiting = new Map<string, number>();
  const levels = new Map(nodes.map((node) => [node.id, 0]));
  for (const { id, dependencies } of nodes) {
    waiting.set(id, dependencies.filter((parent) => levels.has(parent)).length);
  }
  const ready = nodes.filter((node) => !waiting.get(node.id)).map((node) => node.id);
  for (let at = 0; at < ready.length; at++) {
    const id = ready[at]!;
    for (const child of children.get(id) ?? []) {
      levels.set(child, Math.max(levels.get(child)!, levels.get(id)! + 1));
      waiting.set(child, waiting.get(child)! - 1);
      if (!waiting.get(child)) ready.push(child);
    }
  }
  return levels;
}
