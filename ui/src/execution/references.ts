/* Which nodes a template reads: for links, so a name that is one of the node's ancestors is enough. */
const EXPRESSION = /\{\{([\s\S]*?)\}\}|\{%([\s\S]*?)%\}/g;
const STRINGS = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g;
const NAMES = /(?<![\w.])[A-Za-z_]\w*/g;

export interface Piece {
  text: string;
  node?: string; // the text is a reference to this node
}

/** The template in pieces, those that name a known node marked. */
export function pieces(template: string, known: Set<string>): Piece[] {
  const found: Piece[] = [];
  let done = 0;
  for (const match of template.matchAll(EXPRESSION)) {
    const inside = match[0].replace(STRINGS, (text) => " ".repeat(text.length)); // what is quoted names nothing
    for (const name of inside.matchAll(NAMES)) {
      if (!known.has(name[0])) continue;
      const at = match.index + name.index;
      if (at < done) continue;
      if (at > done) found.push({ text: template.slice(done, at) });
      found.push({ text: name[0], node: name[0] });
      done = at + name[0].length;
    }
  }
  if (done < template.length) found.push({ text: template.slice(done) });
  return found;
}
