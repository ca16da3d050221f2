-- uses: store tally row
-- End a job that waits, or ask one that runs to stop: (what was done, its state).

local id = given.id
local row = read(id)
if not row then
    return { 'too late' }
end
if row.state == 'pending' or row.state == 'sent' then
    -- The relay has it told: it is due at once. A carried message is nobody's concern.
    local carried = row.kind == 'carried'
    write(id, row, {
        state = 'cancelled', reason = false, cancel = 1, held_key = false, relay = false, told = carried and 1 or 0,
        due = not carried and NOW, finished = NOW, keep_until = NOW + given.keep, failure_class = false,
        cause = false, settled = given.mark, asked = NOW,
    })
    release(id)
    ring()
    return { 'cancelled', 'cancelled' }
end
if row.state == 'running' or row.state == 'unknown' then
    write(id, row, { cancel = 1, asked = row.asked or NOW })
    return { 'asked', row.state }
end
if row.settled == given.mark then
    return { 'cancelled', row.state }
end
return { 'too late', row.state }
