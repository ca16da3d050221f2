-- Send a dead job again, if its key is free or it only followed the job that holds it: (answer, holder or state, state).
-- `edit`: with another message, if its message is still the one that was edited, and nobody else holds its key.
local function replay(id, edit)
    local row = read(id)
    if not row then
        return { 'missing' }
    end
    if row.replayed == given.mark then
        -- an earlier try of this very call has done it, whatever became of the job since
        return { 'replayed' }
    end
    if row.state ~= 'dead' then
        return { 'not dead', row.state }
    end
    if edit and count(row.generation) ~= edit.generation then
        return { 'edited', row.generation or '0' }
    end
    local holder = row.key_hash and redis.call('HGET', STORE .. 'keys', row.key_hash)
    if holder and (edit or holder ~= row.holder) then
        return { 'held', holder, redis.call('HGET', STORE .. 'job:' .. holder, 'state') }
    end
    local to = {
        state = 'pending', reason = 'replay', held_key = not holder and row.key_hash or false, holder = holder or false,
        -- A deadline that is over would end it at once, and is lifted.
        fence = count(row.fence) + 1, deadline = row.deadline and tonumber(row.deadline) > NOW and row.deadline or false,
        due = NOW, finished = false, keep_until = false, relay = false, failure_class = false, cause = false, progress = false,
        replays = count(row.replays) + 1, attempts = 0, crashes = 0, retries = 0, publications = 0, refusals = 0, interruptions = 0,
        cancel = 0, asked = false, told = 0, replayed = given.mark,
    }
    if edit then
        to.generation, to.fingerprint = edit.generation + 1, edit.fingerprint or false
    end
    write(id, row, to)
    if edit then
        keep_payload(id, to.generation, ARGV[2], ARGV[3], ARGV[4])
    end
    redis.call('DEL', STORE .. 'result:' .. id)
    return { 'replayed' }
end
