/* The lines that differ between two texts. */
export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
  before?: number; // line numbers, from 1
  after?: number;
}

const MOST_CELLS = 9_000_000;

export function diff(before: string, after: string): Line[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const lines: Line[] = [];
  const same = (at: number, other: number) =>
    lines.push({ kind: "same", text: a[at]!, before: at + 1, after: other + 1 });
  for (let at = 0; at < head; at++) same(at, at);
  for (const step of steps(a.slice(head, a.length - tail), b.slice(head, b.length - tail))) {
    if (step.kind === "gone")
      lines.push({ kind: "gone", text: a[head + step.before]!, before: head + step.before + 1 });
    else if (step.kind === "new")
      lines.push({ kind: "new", text: b[head + step.after]!, after: head + step.after + 1 });
    else same(head + step.before, head + step.after);
  }
  for (let at = tail; at > 0; at--) same(a.length - at, b.length - at);
  return lines;
}

interface Step {
  kind: Line["kind"];
  before: number;
  after: number;
}

/** The longest common subsequence by dynamic programming; what is too large for it counts as wholly changed. */
function steps(a: string[], b: string[]): Step[] {
  const width = b.length + 1;
  const isSmall = a.length * b.length <= MOST_CELLS;
  const longest = new Uint32Array(isSmall ? (a.length + 1) * width : 0);
  if (isSmall) {
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        longest[i * width + j] =
          a[i] === b[j]
            ? longest[(i + 1) * width + j + 1]! + 1
            : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
      }
    }
  }
  const found: Step[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (isSmall && i < a.length && j < b.length && a[i] === b[j]) found.push({ kind: "same", before: i++, after: j++ });
    else if (
      i < a.length &&
      (j >= b.length || !isSmall || longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)
    )
      found.push({ kind: "gone", before: i++, after: j });
    else found.push({ kind: "new", before: i, after: j++ });
  }
  return found;
}

/** Only the changes, with a few lines around them; null where lines were left out. */
export function around(lines: Line[], context = 4): (Line | null)[] {
  const isNear = lines.map(() => false);
  lines.forEach((line, at) => {
    if (line.kind !== "same") isNear.fill(true, Math.max(0, at - context), at + context + 1);
  });
  const shown: (Line | null)[] = [];
  lines.forEach((line, at) => {
    if (isNear[at]) shown.push(line);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}
