-- uses: store tally row outcome_of
-- Take the job for one attempt, or say why not.
local id = given.id
local row = read(id)
if not row then
    return { 'missing' }
end
if row.state == 'running' then
    if row.owner == given.owner then
        -- an earlier try of this very call was granted
        return { 'granted', integer(NOW), answer(row) }
    end
    add(1, 'ignored', row.counted_as or row.task)
    return { 'leased', row.owner }
end
local due = row.due and tonumber(row.due) <= NOW and not row.holder
local waits = row.state == 'pending' and (due or row.relay)
-- A message that was carried for a task without a guard, and meets one that has it, is a job from here on.
local carried = row.state == 'succeeded' and row.kind == 'carried' and count(row.fence) == 0
if row.state == 'sent' or waits or carried then
    write(id, row, {
        state = 'running', kind = 'run', told = 0, finished = false, keep_until = false, fence = count(row.fence) + 1,
        owner = given.owner, attempts = count(row.attempts) + 1, publications = 0, relay = false,
        due = NOW + given.lease, started = NOW, progress = false,
    })
    redis.call('HSET', STORE .. 'started', row.queue, integer(NOW))
    return { 'granted', integer(NOW), answer(row) }
end
if not ENDED[row.state] then
    add(1, 'ignored', row.counted_as or row.task)
    return { 'not due', row.reason or '' }
end
-- Become the one delivery that tells Celery, and have a lease's time for it.
local tell = row.told ~= '1' and row.relay ~= nil
if tell then
    write(id, row, { relay = false, due = math.max(tonumber(row.due), NOW + given.lease) })
end
if not tell then
    add(1, 'ignored', row.counted_as or row.task)
end
local result, failures = outcome_of(id, row)
return { 'settled', tell and 1 or 0, answer(row), result, failures }
