/* The way to an empty editor, at the right of a page's head. */
import { Link } from "@tanstack/react-router";
import { Button } from "../parts/controls";
import { Plus } from "../parts/icons";

export function NewWorkflow() {
  return (
    <Link to="/edit" search={{}} className="ml-auto">
      <Button tabIndex={-1}>
        <Plus className="size-3.5" />
        New
      </Button>
    </Link>
  );
}
