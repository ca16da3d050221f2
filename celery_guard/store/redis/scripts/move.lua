-- Moving a job to where an attempt, or a wait, has led it: settle, end and recover.

-- Whether the row still says what the mover believes.
local function still(row, move)
    if move.compare == 'relay' then
        return row.state == 'pending' and row.relay == move.relay
    end
    if count(row.fence) ~= move.fence then
        return false
    end
    if move.compare == 'unknown' then
        return row.state == 'unknown'
    end
    if move.compare == 'lapse' then
        local same = row.state == move.was and (row.reason or '') == move.was_reason and (row.owner or '') == move.owner
        return same and row.due and tonumber(row.due) <= NOW
    end
    local uncontested = (row.state == 'pending' or row.state == 'sent') and row.reason == 'lost'
    return row.owner == move.owner and (row.state == 'running' or uncontested)
end

local function led_to(row, move)
    local to = {
        state = move.state, reason = move.reason or false, relay = false, told = move.told and 1 or 0, settled = given.mark,
        attempts = move.uncharged and count(row.attempts) - 1,
        crashes = move.crashed and count(row.crashes) + 1,
        retries = move.retried and count(row.retries) + 1,
        interruptions = move.interrupted and count(row.interruptions) + 1,
        failure_class = move.failure and move.failure.failure_class or false,
        cause = move.failure and move.failure.cause or false,
        progress = move.progress,
    }
    if move.uninterrupted and row.interruptions then
        to.interruptions = 0
    end
    if move.state == 'pending' then
        to.due = NOW + (move.delay or 0)
        to.generation = move.regenerated and count(row.generation) + 1
        to.task, to.queue, to.kind = move.task, move.queue, move.kind
        if move.task and move.task ~= row.task then
            to.counted_as = row.counted_as or row.task
        end
    elseif ENDED[move.state] then
        to.finished, to.keep_until = NOW, NOW + move.keep
        to.due = not move.told and NOW + move.tell_within
        if not HOLDS_KEY[move.state] then
            to.held_key = false
        end
    else
        to.due = false
    end
    return to
end

-- What follows cannot be accepted, for another holds its key: it ends where a person sees it, not in silence.
local function refuse(id, new, letter, holder)
    local key = new.key_hash
    new.held_key = nil
    insert(id, new, letter)
    write(id, read(id), {
        state = 'dead', reason = 'failed', due = NOW, finished = NOW, keep_until = NOW + given.keep_refused,
        failure_class = 'permanent', cause = 'key_conflict',
    })
    keep_failure(id, {
        number = new.call, failure_class = 'permanent', type_name = 'celery_guard.errors.KeyConflict', traceback = '',
        message = new.task .. ': this key was accepted before with other arguments, as job ' .. holder .. '.',
        cause = 'key_conflict', worker = '', truncated = 0, fence = '0', attempt = 0,
    }, 0)
end

-- Whether an earlier try of this very call has written the move: its mark is the last one, or its failure is there.
local function was_written(id, row, move)
    return row.settled == given.mark
        or (move.failure and redis.call('HEXISTS', STORE .. 'failures:' .. id, move.failure.number) == 1)
end

-- Write the move and all that belongs to it; 1, or 0 where the row does not say any more what the mover believes.
local function move_row(id, move)
    local row = read(id)
    if not row then
        return 0
    end
    if was_written(id, row, move) then
        return 1
    end
    if not still(row, move) then
        return 0
    end
    write(id, row, led_to(row, move))
    local place = 2
    if move.result then
        redis.call('HSET', STORE .. 'result:' .. id, 'body', ARGV[place],
            'content_type', move.result.content_type, 'content_encoding', move.result.content_encoding)
        place = place + 1
    end
    if move.failure then
        keep_failure(id, move.failure, row.attempts or 0)
    end
    if move.regenerated then
        local letter = letter_at(place)
        if move.state == 'pending' then
            keep_payload(id, row.generation, letter.body, letter.headers, letter.delivery)
        end
        place = place + 3
    end
    for number, new in ipairs(move.follow or {}) do
        local follow, letter = new.id, letter_at(place)
        local word = accept(new, #move.follow - number, letter)
        if word[1] == 'conflict' and word[2] ~= follow then
            refuse(follow, new, letter, word[2])
        end
        place = place + 3
    end
    if ENDED[move.state] then
        release(id)
    end
    return 1
end
