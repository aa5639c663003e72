/* A small plot of one or two lines over the last minutes. */
interface Line {
  name: string;
  className: string; // its colour
  values: (number | null)[];
}

const [WIDTH, HEIGHT] = [300, 72];
const FEWEST = 30; // samples across the plot: the first ones do not stretch over all of it

export function Chart({ title, lines, format }: { title: string; lines: Line[]; format: (value: number) => string }) {
  const highest = Math.max(...lines.flatMap((line) => line.values.filter((value) => value !== null)), 0);
  const top = highest || 1;
  const count = Math.max(...lines.map((line) => line.values.length), FEWEST);
  const now = lines.map((line) => ({ ...line, last: line.values.findLast((value) => value !== null) ?? null }));
  return (
    <figure className="rounded-md border p-3">
      <figcaption className="mb-2 flex flex-wrap items-baseline gap-x-3 text-xs">
        <span className="font-medium">{title}</span>
        <span className="ml-auto flex gap-3">
          {now.map((line) => (
            <span key={line.name} className={`num ${line.className}`}>
              <span className="mr-1.5 inline-block h-0.5 w-3 bg-current align-middle" />
              {line.name} <span className="font-medium text-ink">{line.last === null ? "–" : format(line.last)}</span>
            </span>
          ))}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${now.map((line) => `${line.name} ${line.last === null ? "not known" : format(line.last)}`).join(", ")}; highest ${format(highest)}`}
        className="h-18 w-full"
      >
        <path
          d={`M0 ${HEIGHT - 0.5}H${WIDTH}M0 0.5H${WIDTH}`}
          className="stroke-line"
          vectorEffect="non-scaling-stroke"
        />
        {lines.map((line) => (
          <path
            key={line.name}
            d={pathOf(line.values, count, top)}
            fill="none"
            stroke="currentColor"
            strokeWidth="1.500"
            strokeLinejoin="round"
            vectorEffect="non-scaling-stroke"
            className={line.className}
          />
        ))}
      </svg>
      <p className="num flex justify-between text-2xs text-ink-3">
        <span>highest {format(highest)}</span>
        <span>now</span>
      </p>
    </figure>
  );
}

function pathOf(values: (number | null)[], count: number, top: number): string {
  let isDown = false;
  return values
    .map((value, at) => {
      if (value === null) {
        isDown = false;
        return "";
      }
      const x = WIDTH - ((values.length - 1 - at) * WIDTH) / (count - 1);
      const point = `${isDown ? "L" : "M"}${x.toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 6)).toFixed(1)}`;
      isDown = true;
      return point;
    })
    .join("");
}
