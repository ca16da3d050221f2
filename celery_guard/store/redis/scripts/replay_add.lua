-- uses: store tally row batch
-- Add dead jobs to a replay that is building; how many were added.
local found = batch(given.id)
if not found or found.state ~= 'building' then
    return 0
end
local added = 0
for _, job in ipairs(given.jobs) do
    local row = read(job)
    if row and row.state == 'dead' and not place_of(given.id, job) then
        put(given.id, job, { position = given.first + added, tenant = row.tenant, cause = row.cause }, 'waiting')
        added = added + 1
    end
end
redis.call('HINCRBY', STORE .. 'replay:' .. given.id, 'total', added)
return added
