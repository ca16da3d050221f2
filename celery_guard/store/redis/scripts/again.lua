-- Send a dead job again, if its key is free or it only followed the job that holds it: (answer, holder or state, state).
local function replay(id)
    local row = read(id)
    if not row then
        return { 'missing' }
    end
    if row.settled == given.mark then
        return { 'replayed' }
    end
    if row.state ~= 'dead' then
        return { 'not dead', row.state }
    end
    local holder = row.key_hash and redis.call('HGET', STORE .. 'keys', row.key_hash)
    if holder and holder ~= row.holder then
        return { 'held', holder, redis.call('HGET', STORE .. 'job:' .. holder, 'state') }
    end
    write(id, row, {
        state = 'pending', reason = 'replay', held_key = not holder and row.key_hash or false, holder = holder or false,
        -- A deadline that is over would end it at once, and is lifted.
        fence = count(row.fence) + 1, deadline = row.deadline and tonumber(row.deadline) > NOW and row.deadline or false,
        due = NOW, finished = false, keep_until = false, relay = false, failure_class = false, cause = false,
        replays = count(row.replays) + 1, attempts = 0, crashes = 0, retries = 0, publications = 0, refusals = 0, interruptions = 0,
        cancel = 0, asked = false, told = 0, settled = given.mark,
    })
    redis.call('DEL', STORE .. 'result:' .. id)
    return { 'replayed' }
end
