/* For those who have nothing yet: how to run a first workflow. */
import { Link } from "@tanstack/react-router";
import { BASE } from "../api/client";
import { Command } from "../parts/controls";

export function HowToStart() {
  return (
    <>
      <Command>{`headrace run examples/hello.yaml --server ${BASE}`}</Command>
      <p>
        Or{" "}
        <Link to="/edit" search={{}} className="text-accent underline">
          write one here
        </Link>
        .
      </p>
    </>
  );
}
