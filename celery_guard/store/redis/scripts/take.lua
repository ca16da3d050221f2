-- uses: store tally row
-- Put the token on what is due, oldest first; followers of jobs that have not ended are sent back to wait.

-- The due entries of one index, (id, due, row) each; what is left of a job that is gone is taken out.
local function due_in(index, limit)
    local found = {}
    local entries = redis.call('ZRANGEBYSCORE', index, '-inf', integer(NOW), 'WITHSCORES', 'LIMIT', 0, limit)
    for place = 1, #entries, 2 do
        local row = read(entries[place])
        if row then
            found[#found + 1] = { entries[place], tonumber(entries[place + 1]), row }
        else
            redis.call('ZREM', index, entries[place])
        end
    end
    return found
end

-- Whether the job that this one follows has yet to end. If so this one waits, and is brought back when it has.
local function waits(id, row)
    local state = row.holder and redis.call('HGET', STORE .. 'job:' .. row.holder, 'state')
    if not state or ENDED[state] then
        return false
    end
    write(id, row, { due = NOW + given.pause })
    redis.call('SADD', STORE .. 'followers:' .. row.holder, id)
    return true
end

local due = due_in(STORE .. 'due:ended', given.limit)
local pending = 0
for _ = 1, given.rounds do
    local held = 0
    local found = due_in(STORE .. 'due:pending', given.limit)
    local free = {}
    for _, entry in ipairs(found) do
        if waits(entry[1], entry[3]) then
            held = held + 1
        else
            free[#free + 1] = entry
        end
    end
    pending = free
    if held == 0 or #free >= given.limit then
        break
    end
end
for _, entry in ipairs(pending) do
    due[#due + 1] = entry
end
table.sort(due, function(one, other) return one[2] < other[2] end)

local taken = { integer(NOW) }
for place = 1, math.min(given.limit, #due) do
    local id, row = due[place][1], due[place][3]
    write(id, row, { relay = given.token, due = NOW + given.hold })
    local generation = row.generation or '0'
    local letter = redis.call('HMGET', STORE .. 'payload:' .. id,
        generation .. ':body', generation .. ':headers', generation .. ':delivery')
    -- A row whose message is gone comes too, with `false` for it, to be ended.
    taken[#taken + 1] = { id, answer(row), letter[1], letter[2], letter[3] }
end
return taken
