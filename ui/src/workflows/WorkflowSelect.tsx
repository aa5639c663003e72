/* The filter by workflow. A name from the address is shown, even if no workflow has it. */
import { useQuery } from "@tanstack/react-query";
import { api, data } from "../api/client";
import { FIELD } from "../parts/controls";

type Props = { name: string | undefined; onChoose: (name: string | undefined) => void };

export function WorkflowSelect({ name, onChoose }: Props) {
  const list = useQuery({
    queryKey: ["workflows"],
    queryFn: () => data(api.GET("/v1/workflows", { params: { query: { limit: 1000 } } })),
  });
  const names = (list.data?.items ?? []).map((item) => item.name);
  return (
    <select
      aria-label="Workflow"
      value={name ?? ""}
      onChange={(event) => onChoose(event.target.value || undefined)}
      className={`${FIELD} max-w-44`}
    >
      <option value="">All workflows</option>
      {name && !names.includes(name) && <option>{name}</option>}
      {names.map((each) => (
        <option key={each}>{each}</option>
      ))}
    </select>
  );
}
