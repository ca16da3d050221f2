-- uses: store batch
-- Jobs of a replay that were not sent again: id and answer of each.
local found = {}
for _, job in ipairs(redis.call('ZRANGE', STORE .. 'replay_state:' .. given.id .. ':skipped', 0, given.limit - 1)) do
    found[#found + 1] = { job, place_of(given.id, job).why }
end
return found
