-- uses: store tally row batch
-- Add dead jobs to a replay that is building; how many were added.
local found = batch(given.id)
if not found or found.state ~= 'building' then
    return 0
end
-- Those from `first` on an earlier try of this very call has added.
local added, before, seen = 0, 0, {}
for _, job in ipairs(given.jobs) do
    local row, place = read(job), place_of(given.id, job)
    if place then
        before = before + (given.again and not seen[job] and place.position >= given.first and 1 or 0)
    elseif row and row.state == 'dead' then
        put(given.id, job, { position = given.first + added, tenant = row.tenant, cause = row.cause }, 'waiting')
        added = added + 1
    end
    seen[job] = true
end
redis.call('HINCRBY', STORE .. 'replay:' .. given.id, 'total', added)
return added + before
