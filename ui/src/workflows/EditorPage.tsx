/* What the editor begins with: a new workflow, a version of one, or the definition and input of an execution. */
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { api, data } from "../api/client";
import { Loading, Trouble } from "../parts/controls";
import { written } from "./definition";
import { Editor } from "./Editor";
import { useVersion } from "./WorkflowPage";

const route = getRouteApi("/edit");
const DRAFT = "headrace.draft";

const FIRST = `name: hello
description: Greet somebody
inputs:
  name: {type: string, default: world}
nodes:
  - id: greeting
    handler: llm_service
    config:
      model: echo
      prompt: "Hello {{ input.name }}"
  - id: done
    handler: output
    dependencies: [greeting]
    config:
      text: "{{ greeting.text }}"
`;

export default function EditorPage() {
  const { workflow, version, execution, letter } = route.useSearch();
  const origin = useOrigin(execution);
  const name = origin.data?.workflow ?? workflow;
  const wanted = origin.data?.version ?? version ?? 1;
  const stored = useVersion(name ?? "", name ? wanted : undefined);
  const error = origin.error ?? stored.error;
  if (error) return <Trouble error={error} />;
  if (execution ?? workflow) {
    if (!stored.data) return <Loading what="the definition" />;
    const begin = written(stored.data.definition);
    return <Editor key={`${name} ${wanted} ${execution}`} begin={begin} origin={origin.data} letter={letter} />;
  }
  return <Editor key="new" begin={sessionStorage.getItem(DRAFT) ?? FIRST} onText={keepDraft} />;
}

function useOrigin(execution_id: string | undefined) {
  return useQuery({
    queryKey: ["origin", execution_id],
    enabled: execution_id !== undefined,
    staleTime: Infinity, // only its version and input are of interest
    queryFn: () =>
      data(api.GET("/v1/executions/{execution_id}", { params: { path: { execution_id: execution_id! } } })),
  });
}

function keepDraft(text: string): void {
  sessionStorage.setItem(DRAFT, text);
}
