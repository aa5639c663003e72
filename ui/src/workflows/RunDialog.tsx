/* Starts a workflow: a field for each of its inputs, or plain JSON. */
import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { api, data, Problem } from "../api/client";
import { dropLetter } from "../letters/actions";
import { Button, Dialog, FIELD, Trouble } from "../parts/controls";
import { Play } from "../parts/icons";
import { say } from "../parts/toasts";
import type { Definition, Inputs } from "./definition";

type Body = { workflow: string; version?: number } | { definition: Definition };

interface Props {
  title: string;
  inputs: Inputs;
  body: Body;
  given?: Record<string, unknown>; // values to begin with
  letter?: string; // a dead letter that may be dropped once it runs
  onClose: () => void;
}

type Fields = Record<string, string>; // as typed; not there: not given

export function RunDialog({ title, inputs, body, given, letter, onClose }: Props) {
  const navigate = useNavigate();
  const names = Object.keys(inputs);
  const [fields, setFields] = useState<Fields>(() => begin(inputs, given));
  const isPlain = !names.length || Object.keys(given ?? {}).some((name) => !names.includes(name));
  const [json, setJson] = useState<string | null>(isPlain ? JSON.stringify(given ?? {}, null, 2) : null);
  const [isDropping, setDropping] = useState(true);
  const keyOf = useIdempotencyKey();
  const start = useMutation({
    mutationFn: async () => {
      const input_params =
        json === null ? valuesOf(inputs, fields) : (JSON.parse(json || "{}") as Record<string, unknown>);
      const request = { ...body, input_params };
      const params = { header: { "Idempotency-Key": keyOf(JSON.stringify(request)) } };
      return data(api.POST("/v1/executions", { params, body: request as never }));
    },
    onSuccess: (answer) => {
      void navigate({ to: "/executions/$id", params: { id: answer.execution_id }, search: {} });
      if (letter && isDropping) void drop(letter);
    },
  });
  const problem = start.error instanceof Problem ? start.error : null;
  const told = (name: string) => problem?.errors.find((error) => error.loc.includes(name))?.msg;
  const isTold = problem?.errors.some((error) => names.some((name) => error.loc.includes(name)));

  return (
    <Dialog title={title} onClose={onClose}>
      <form
        className="flex max-h-[70vh] flex-col gap-4 overflow-y-auto p-4"
        onSubmit={(event) => {
          event.preventDefault();
          start.mutate();
        }}
      >
        {json === null ? (
          names.map((name) => (
            <Field
              key={name}
              name={name}
              schema={inputs[name]!}
              value={fields[name]}
              told={told(name)}
              onChange={(value) => setFields((old) => withValue(old, name, value))}
            />
          ))
        ) : (
          <label className="flex flex-col gap-1">
            <span className="text-xs font-medium text-ink-2">input_params, as JSON</span>
            <textarea
              rows={8}
              spellCheck={false}
              value={json}
              onChange={(event) => setJson(event.target.value)}
              className={`${FIELD} h-auto py-1.5 font-mono text-xs`}
            />
          </label>
        )}
        {start.error && !(json === null && isTold) && (
          <div className="-m-4">
            <Trouble
              error={
                start.error instanceof SyntaxError ? new Error(`This is not JSON: ${start.error.message}`) : start.error
              }
            />
          </div>
        )}
        {letter && (
          <label className="flex items-center gap-2 text-xs">
            <input type="checkbox" checked={isDropping} onChange={(event) => setDropping(event.target.checked)} />
            Drop the dead letter once this runs (needs a key with the scope admin)
          </label>
        )}
        <div className="flex items-center gap-2">
          {names.length > 0 && (
            <Button
              look="quiet"
              onClick={() => setJson(json === null ? JSON.stringify(safeValues(inputs, fields), null, 2) : null)}
            >
              {json === null ? "As JSON" : "As a form"}
            </Button>
          )}
          <Button type="submit" look="primary" className="ml-auto" disabled={start.isPending}>
            <Play className="size-3.5" />
            Run
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** The same request again has the same key, so a lost answer starts nothing twice; a corrected one has another. */
function useIdempotencyKey(): (request: string) => string {
  const last = useRef({ request: "", key: "" });
  return (request) => {
    if (last.current.request !== request) {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      last.current = { request, key: `ui-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}` };
    }
    return last.current.key;
  };
}

async function drop(letter: string): Promise<void> {
  try {
    await dropLetter(letter);
    say("It runs. The dead letter is dropped.");
  } catch (error) {
    say(`It runs. The dead letter is still there: ${error instanceof Error ? error.message : String(error)}`, true);
  }
}

interface FieldProps {
  name: string;
  schema: Record<string, unknown>;
  value: string | undefined;
  told: string | undefined; // what the server has against it
  onChange: (value: string | undefined) => void;
}

function Field({ name, schema, value, told, onChange }: FieldProps) {
  const isRequired = !("default" in schema);
  const about = typeof schema.description === "string" ? schema.description : "";
  const props = {
    id: `input-${name}`,
    "aria-invalid": !!told,
    "aria-describedby": `about-${name}`,
    className: `${FIELD} w-full`,
  };
  const options = Array.isArray(schema.enum)
    ? schema.enum.map((each) => JSON.stringify(each))
    : schema.type === "boolean"
      ? ["true", "false"]
      : null;
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={props.id} className="flex items-baseline gap-2 text-xs">
        <span className="font-mono font-semibold">{name}</span>
        <span className="text-ink-3">
          {typeof schema.type === "string" ? schema.type : ""}
          {isRequired && " · required"}
        </span>
      </label>
      {options ? (
        <select {...props} value={value ?? ""} onChange={(event) => onChange(event.target.value || undefined)}>
          <option value="" />
          {options.map((each) => (
            <option key={each} value={each}>
              {each.replace(/^"|"$/g, "")}
            </option>
          ))}
        </select>
      ) : schema.type === "number" || schema.type === "integer" ? (
        <input
          {...props}
          type="number"
          step={schema.type === "integer" ? 1 : "any"}
          value={value ?? ""}
          onChange={(event) => onChange(event.target.value || undefined)}
        />
      ) : schema.type === "string" ? (
        <input {...props} value={value ?? ""} onChange={(event) => onChange(event.target.value)} />
      ) : (
        <textarea
          {...props}
          rows={3}
          spellCheck={false}
          placeholder="JSON"
          value={value ?? ""}
          onChange={(event) => onChange(event.target.value || undefined)}
          className={`${FIELD} h-auto py-1.5 font-mono text-xs`}
        />
      )}
      <p id={`about-${name}`} className={`data text-xs ${told ? "text-bad" : "text-ink-3"}`}>
        {told ?? about}
      </p>
    </div>
  );
}

function begin(inputs: Inputs, given: Record<string, unknown> | undefined): Fields {
  const fields: Fields = {};
  for (const [name, schema] of Object.entries(inputs)) {
    const value = given && name in given ? given[name] : schema.default;
    if (value !== undefined)
      fields[name] =
        schema.type === "string" && !Array.isArray(schema.enum) && typeof value === "string"
          ? value
          : JSON.stringify(value);
  }
  return fields;
}

function withValue(fields: Fields, name: string, value: string | undefined): Fields {
  const { [name]: _, ...rest } = fields;
  return value === undefined ? rest : { ...rest, [name]: value };
}

function valuesOf(inputs: Inputs, fields: Fields): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, text]) => {
      if (inputs[name]?.type === "string" && !Array.isArray(inputs[name].enum)) return [name, text];
      try {
        return [name, JSON.parse(text)];
      } catch {
        throw new Error(`${name}: this is not JSON`);
      }
    }),
  );
}

function safeValues(inputs: Inputs, fields: Fields): Record<string, unknown> {
  try {
    return valuesOf(inputs, fields);
  } catch {
    return fields;
  }
}
