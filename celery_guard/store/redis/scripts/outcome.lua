-- uses: store tally row outcome_of
-- How a job ended.
local row = read(given.id)
if not row then
    return {}
end
local result, failures = outcome_of(given.id, row)
return { row.state, result, failures }
