/* A new execution of the same version, with the input of an old one to begin from. */
import { useQuery } from "@tanstack/react-query";
import { api, data } from "../api/client";
import { sayProblem } from "../parts/toasts";
import { inputsOf } from "../workflows/definition";
import { RunDialog } from "../workflows/RunDialog";

export function RunAgain({ executionId, onClose }: { executionId: string; onClose: () => void }) {
  const found = useQuery({
    queryKey: ["again", executionId],
    queryFn: async () => {
      const execution = await data(api.GET("/v1/executions/{execution_id}", { params: { path: { execution_id: executionId } } }));
      const version = String(execution.version);
      const { definition } = await data(api.GET("/v1/workflows/{name}/versions/{version}", { params: { path: { name: execution.workflow, version } } })).catch((error) => (sayProblem(error), onClose(), Promise.reject(error)));
      return { execution, definition };
    },
  });
  if (!found.data) return null;
  const { execution, definition } = found.data;
  return (
    <RunDialog
      title={`Run ${execution.workflow} v${execution.version} again`}
      inputs={inputsOf(definition)}
      body={{ workflow: execution.workflow, version: execution.version ?? undefined }}
      given={execution.input_params}
      onClose={onClose}
    />
  );
}
