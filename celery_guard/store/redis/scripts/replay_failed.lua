-- uses: store batch
-- Jobs of a replay that have failed again, those sent last first: id, state and why of each.
local found = {}
for _, state in ipairs({ 'failed', 'failing' }) do
    for _, job in ipairs(redis.call('ZREVRANGE', STORE .. 'replay_state:' .. given.id .. ':' .. state, 0, given.limit - 1)) do
        local item = place_of(given.id, job)
        found[#found + 1] = { job, state, item.why or '', item.position }
    end
end
table.sort(found, function(one, other) return one[4] > other[4] end)
local answers = {}
for place = 1, math.min(#found, given.limit) do
    answers[place] = { found[place][1], found[place][2], found[place][3] }
end
return answers
