-- complete: report, and in the same step what follows from it. The worker knows the plan: it brings the children of what
--           succeeded, and the tasks of those that it could render.
-- Takes   what report takes, with children.
-- Guard   that of report; a task is taken where its node is ready, PENDING and was never tried.
-- Effect  that of report, then of advance, then of dispatch, with nothing in between. The name is its own, because it
--         brings new work in: under memory pressure it is refused as dispatch is, and the worker reports the plain way.
-- Answers what report answers.
local complete = report
