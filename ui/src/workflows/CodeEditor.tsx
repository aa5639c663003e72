/* The text editor: CodeMirror, in a shadow root, where it may bring its own style under a policy that forbids inline style. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { ErrorItem } from "../api/client";

const LOOK = EditorView.theme({
  "&": { height: "100%", fontSize: "12.5px", color: "var(--color-ink)", backgroundColor: "var(--color-page)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "1.55" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--color-ink)" },
  ".cm-cursor": { borderLeftColor: "var(--color-ink)" },
  ".cm-gutters": { backgroundColor: "var(--color-page)", color: "var(--color-ink-3)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--color-subtle)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--color-accent-soft)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--color-raised)",
    border: "1px solid var(--color-edge)",
    borderRadius: "6px",
    fontFamily: "var(--font-sans)",
  },
  // Marks of our own: the library's are data: images, which the policy of the page forbids.
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--color-bad)" },
  ".cm-lint-marker-error": {
    content: '""',
    width: "8px",
    height: "8px",
    margin: "4px 3px",
    borderRadius: "2px",
    backgroundColor: "var(--color-bad)",
  },
  ".cm-diagnostic": { borderLeftColor: "var(--color-bad)" },
  ".cm-specialChar": { color: "var(--color-bad)" },
});

const COLOURS = syntaxHighlighting(
  HighlightStyle.define([
    { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--color-running)" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--color-good)" },
    { tag: [tags.number, tags.bool, tags.null, tags.atom, tags.keyword], color: "var(--color-queued)" },
    { tag: tags.comment, color: "var(--color-ink-3)", fontStyle: "italic" },
    { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--color-ink-3)" },
  ]),
);

interface Props {
  begin: string; // what it opens with; from then on the text is the editor's own
  problems: ErrorItem[];
  jumpTo: { line: number; column: number } | null;
  onChange: (text: string) => void;
}

export default function CodeEditor({ begin, problems, jumpTo, onChange }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const change = useRef(onChange);
  change.current = onChange;

  // biome-ignore lint/correctness/useExhaustiveDependencies: what it begins with is read once
  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: begin,
        extensions: [
          lineNumbers(),
          highlightActiveLine(),
          highlightActiveLineGutter(),
          highlightSpecialChars({ addSpecialChars: /[\u202a-\u202e\u2066-\u2069]/g }),
          drawSelection(),
          history(),
          indentOnInput(),
          bracketMatching(),
          yaml(),
          lintGutter(),
          LOOK,
          COLOURS,
          EditorView.lineWrapping,
          keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.contentAttributes.of({
            "aria-label": "Definition, as YAML. Escape, then Tab, leaves the editor.",
            tabindex: "0",
          }),
          EditorView.updateListener.of((update) => update.docChanged && change.current(update.state.doc.toString())),
        ],
      }),
    });
    view.current = editor;
    return () => editor.destroy();
  }, []);

  useEffect(() => {
    const editor = view.current;
    if (editor)
      editor.dispatch(
        setDiagnostics(
          editor.state,
          problems.map((problem) => diagnostic(editor.state, problem)),
        ),
      );
  }, [problems]);
  useEffect(() => {
    const editor = view.current;
    if (!editor || !jumpTo) return;
    const line = editor.state.doc.line(Math.min(Math.max(1, jumpTo.line), editor.state.doc.lines));
    const at = Math.min(line.from + Math.max(0, jumpTo.column - 1), line.to);
    editor.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
    editor.focus();
  }, [jumpTo]);

  return <div ref={host} className="h-full min-h-0" />;
}

function diagnostic(state: EditorState, problem: ErrorItem): Diagnostic {
  const line = state.doc.line(Math.min(Math.max(1, problem.line ?? 1), state.doc.lines));
  const from = Math.min(line.from + Math.max(0, (problem.column ?? 1) - 1), line.to);
  const rest = state.sliceDoc(from, line.to);
  const length = /^\S+/.exec(rest)?.[0].length ?? rest.length;
  return { from, to: from + length, severity: "error", message: problem.msg };
}
