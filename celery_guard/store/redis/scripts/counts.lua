-- uses: store
-- How many jobs are in each of the given states.
local counts = {}
for place, state in ipairs(given.states) do
    counts[place] = redis.call('ZCARD', STORE .. 'state:' .. state)
end
return counts
