-- Counting, in the script that makes the move: what rows say, as it happens, and what no row says.

-- In microseconds; as in celery_guard.job.tally.
local BOUNDS = { 50000, 250000, 1000000, 5000000, 30000000, 120000000, 600000000, 3600000000 }

-- Counts of a row, and what each step of theirs is.
local RISING = { crashes = 'crashed', retries = 'retried', refusals = 'refused', replays = 'replayed' }

-- Add to a total. A server without memory refuses a script by its first write, which is never this one where a row is moved; what is
-- refused here by itself is not counted.
local function add(times, what, task, state, reason, class)
    if times > 0 then
        local series = cjson.encode({ what, task, state or '', reason or '', class or '' })
        redis.pcall('HINCRBY', STORE .. 'count', series, integer(times))
    end
end

-- Not a message of a task without a guard, which nobody counts.
local function ours(row, to)
    return (to.kind or row.kind) == 'run' or row.counted_as or to.counted_as
end

local function counted_as(row, to)
    return to.counted_as or row.counted_as or row.task or to.task
end

local function add_time(name, task, state, took)
    add(1, name, task, state)
    add(took, name .. '_time', task, state)
    for place, bound in ipairs(BOUNDS) do
        if took <= bound then
            -- those within a wider bound are added up by whoever reads
            add(1, name .. '_in', task, state, '', tostring(place - 1))
            break
        end
    end
end

-- No total: when something last happened.
local function set_instant(what, name, at)
    redis.pcall('HSET', STORE .. 'count', cjson.encode({ what, name, '', '', '' }), integer(at))
end

local function tally_end(row, to, task)
    local state, finished = to.state, tonumber(to.finished)
    add(1, 'ended', task, state, to.reason or '', to.failure_class or '')
    if row.started then
        add_time('run', task, state, finished - tonumber(row.started))
    end
    local asked = to.asked or row.asked
    if state == 'cancelled' and asked then
        add_time('cancel', task, '', finished - tonumber(asked))
    end
    if state == 'succeeded' then
        set_instant('last_success', task, finished)
        if row.schedule then
            set_instant('schedule_success', row.schedule, finished)
        end
    end
end

-- Count what a change of a row means; `row` is as it was.
local function tally(row, to, ended)
    if not ours(row, to) then
        return
    end
    local task = counted_as(row, to)
    if not row.state or (row.kind == 'carried' and not row.counted_as and to.kind == 'run') then
        add(1, 'enqueued', task)
    end
    if to.state == 'running' then
        add(1, 'claimed', task)
    end
    if row.state == 'pending' and (to.state == 'sent' or (to.state == 'succeeded' and to.sent)) then
        add(1, 'published', task)
    end
    for name, what in pairs(RISING) do
        if to[name] and row.state then
            add(to[name] - count(row[name]), what, task, '', '', name == 'retries' and to.failure_class or '')
        end
    end
    if to.state and ended[to.state] and not ended[row.state] then
        tally_end(row, to, task)
    end
end
