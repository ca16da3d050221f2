-- uses: store tally row
-- What a replay would answer now: (answer, holder or state, state) of each.
local function look(id)
    local row = read(id)
    if not row then
        return { 'missing' }
    end
    if row.state ~= 'dead' then
        return { 'not dead', row.state }
    end
    local holder = row.key_hash and redis.call('HGET', STORE .. 'keys', row.key_hash)
    if holder and holder ~= row.holder then
        return { 'held', holder, redis.call('HGET', STORE .. 'job:' .. holder, 'state') }
    end
    return { 'replayed' }
end

local answers = {}
for place, id in ipairs(given.ids) do
    answers[place] = look(id)
end
return answers
