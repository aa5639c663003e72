/* Dead letters by what went wrong: the same error of the same node of a workflow is one cause. */
import type { Letter } from "../api/client";
import { errorText } from "../execution/log";

export interface Group {
  key: string;
  cause: string;
  message: string;
  place: string;
  letters: Letter[];
}

const IDS_AND_NUMBERS = /[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g; // they do not make another cause

/** The most frequent first. */
export function grouped(letters: Letter[]): Group[] {
  const groups = new Map<string, Group>();
  for (const letter of letters) {
    const { cause, workflow, node } = letter;
    const message = errorText(letter.error);
    const key = [cause, workflow, node, message.slice(0, 200).replace(IDS_AND_NUMBERS, "#")].join("\n");
    const group = groups.get(key);
    if (group) group.letters.push(letter);
    else groups.set(key, { key, cause, message, place: `${workflow} · ${node}`, letters: [letter] });
  }
  return [...groups.values()].sort((a, b) => b.letters.length - a.letters.length);
}
