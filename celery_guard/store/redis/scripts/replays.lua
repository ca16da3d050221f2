-- uses: store batch
-- Replays, newest first; or one, with its counts: id and row of each.
if given.id then
    return { redis.call('HGETALL', STORE .. 'replay:' .. given.id), counts(given.id) }
end
local ids = given.open and redis.call('SMEMBERS', STORE .. 'replays_open')
    or redis.call('ZREVRANGE', STORE .. 'replays', 0, given.budget - 1)
local function waits(id)
    local item = place_of(id, given.job)
    return item and item.state == 'waiting'
end

local found = {}
for _, id in ipairs(ids) do
    local row = batch(id)
    if row and (not given.states or given.states[row.state]) and (not given.tenant or row.tenant == given.tenant)
        and (not given.job or waits(id)) then
        found[#found + 1] = { id, redis.call('HGETALL', STORE .. 'replay:' .. id) }
        if #found == given.limit then
            break
        end
    end
end
return found
