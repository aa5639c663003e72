/* Whether the server answers: requests and streams tell, the banner shows it, and polling /readyz finds it again. */
import { store } from "../parts/store";

export const connection = store<"up" | "lost">("up");
export const healed = store(0); // counts, so that pages can read anew what they missed

let looking = false;

export function connectionMade(): void {
  if (connection.get() === "up") return;
  connection.set("up");
  healed.update((times) => times + 1);
}

export function connectionLost(): void {
  connection.set("lost");
  if (!looking) void look();
}

async function look(): Promise<void> {
  looking = true;
  for (let wait = 500; connection.get() === "lost"; wait = Math.min(wait * 1.5, 5000)) {
    await new Promise((done) => setTimeout(done, wait));
    try {
      const answer = await fetch("./readyz", { cache: "no-store" });
      if (answer.headers.get("content-type")?.includes("json")) connectionMade(); // also 503: the API itself is there
    } catch {
      // still away
    }
  }
  looking = false;
}
