/* The lines between nodes. The canvas would keep a component for each; here they are one path for each node that they
lead to, drawn once and in a layer of their own, so that a change of state does not draw them again. */
import { ViewportPortal } from "@xyflow/react";
import { memo, useMemo } from "react";
import type { Point, Shape } from "./layout";
import type { Structure } from "./structure";

interface Props {
  structure: Structure;
  chosen: string | undefined;
  critical: Set<string> | undefined;
}

type Line = { from: string; to: string; path: string };

export const Edges = memo(function Edges({ structure, chosen, critical }: Props) {
  const lines = useMemo(() => linesOf(structure), [structure]);
  const near = useMemo(() => {
    const owner = chosen && structure.ownerOf(chosen);
    return joined(owner ? lines.filter(({ from, to }) => from === owner || to === owner) : []);
  }, [lines, structure, chosen]);
  const marked = useMemo(() => {
    const owners = new Set([...(critical ?? [])].map(structure.ownerOf));
    return joined(lines.filter(({ from, to }) => owners.has(from) && owners.has(to)));
  }, [lines, structure, critical]);
  return (
    <ViewportPortal>
      <svg aria-hidden="true" className="graph-edges">
        <Plain lines={lines} />
        <path d={near} className="is-near" />
        <path d={marked} className="is-critical" />
      </svg>
    </ViewportPortal>
  );
});

const Plain = memo(function Plain({ lines }: { lines: Line[] }) {
  const byTarget = new Map<string, string>();
  for (const { to, path } of lines) byTarget.set(to, (byTarget.get(to) ?? "") + path);
  return [...byTarget].map(([to, path]) => <path key={to} d={path} />);
});

function joined(lines: Line[]): string {
  return lines.map(({ path }) => path).join("");
}

function linesOf({ shapes, places, routes, direction }: Structure): Line[] {
  const known = new Map(shapes.map((shape) => [shape.id, shape]));
  const isAcross = direction === "LR";
  const side = (shape: Shape, isEnd: boolean): Point => {
    const { x, y } = places.get(shape.id)!;
    const { width, height } = shape;
    return isAcross ? { x: isEnd ? x : x + width, y: y + height / 2 } : { x: x + width / 2, y: isEnd ? y : y + height };
  };
  return shapes.flatMap((shape) =>
    shape.dependencies.map((parent) => {
      const bends = routes.get(`${parent} ${shape.id}`) ?? [];
      const points = [side(known.get(parent)!, false), ...bends, side(shape, true)];
      return { from: parent, to: shape.id, path: curve(points, isAcross) };
    }),
  );
}

/** Each piece leaves and arrives along the direction of the graph. */
function curve(points: Point[], isAcross: boolean): string {
  const pieces = points.slice(1).map((to, at) => {
    const from = points[at]!;
    const [x, y] = [(from.x + to.x) / 2, (from.y + to.y) / 2];
    return isAcross ? `C${x},${from.y} ${x},${to.y} ${to.x},${to.y}` : `C${from.x},${y} ${to.x},${y} ${to.x},${to.y}`;
  });
  return `M${points[0]!.x},${points[0]!.y}${pieces.join("")}`;
}
