/* One call for each of many, a few at a time: a browser has six connections to a server for all its tabs. */
const AT_ONCE = 4;

/** How many were refused. What was done is told as it goes. */
export async function callEach<T>(
  items: T[],
  call: (item: T) => Promise<unknown>,
  onDone?: (count: number) => void,
): Promise<number> {
  const todo = items.values();
  let [done, refused] = [0, 0];
  const work = async () => {
    for (const item of todo) {
      await call(item).catch(() => refused++);
      onDone?.(++done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return refused;
}
