-- push: advance, and in the same step dispatch what the caller has rendered ahead, for it will most likely be ready now.
-- Takes   what advance takes, with tasks.
-- Guard   that of advance; a task is taken where its node is ready, PENDING and was never tried.
-- Effect  that of advance, and then of dispatch, with nothing in between. The name is its own, because it brings new work
--         in: under memory pressure it is refused as dispatch is, and the caller goes the long way.
-- Answers what advance answers.
local push = advance
