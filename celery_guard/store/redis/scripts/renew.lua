-- uses: store tally row
-- Start leases anew, and write what their attempts have said of their progress; those that are still their owners' are answered.
local kept = {}
for _, lease in ipairs(given.leases) do
    local id, fence, owner, progress = lease[1], lease[2], lease[3], lease[4]
    local seen = redis.call('HMGET', STORE .. 'job:' .. id, 'state', 'fence', 'owner', 'cancel', 'due')
    if seen[1] == 'running' and count(seen[2] or nil) == fence and seen[3] == owner then
        write(id, { state = 'running', due = seen[5] }, { due = NOW + given.lease, progress = progress })
        kept[#kept + 1] = { id, fence, count(seen[4] or nil) }
    end
end
return kept
