-- The row of a job, and every index that follows from it. Nothing else writes either, so they cannot come apart.

local ENDED = { succeeded = true, cancelled = true, dead = true, resolved = true, dropped = true }
local HOLDS_KEY = { pending = true, sent = true, running = true, unknown = true, succeeded = true }

-- Whether a relay may have become able to do something: see ring().
local due_now = false

-- The row as it is, a table of texts; nil where there is none.
local function read(id)
    local flat = redis.call('HGETALL', STORE .. 'job:' .. id)
    if #flat == 0 then
        return nil
    end
    local row = {}
    for place = 1, #flat, 2 do
        row[flat[place]] = flat[place + 1]
    end
    return row
end

-- Where rows of a state stand that somebody has to look at again.
local function due_index(state)
    if ENDED[state] then
        return STORE .. 'due:ended'
    end
    return STORE .. 'due:' .. state
end

local function index_due(id, row, to)
    local state, due = to.state or row.state, to.due
    if due == nil then
        due = row.due
    end
    if row.state and row.due and (not due or due_index(row.state) ~= due_index(state)) then
        redis.call('ZREM', due_index(row.state), id)
    end
    if due then
        redis.call('ZADD', due_index(state), due, id)
        if tonumber(due) <= NOW and (state == 'pending' or ENDED[state]) then
            due_now = true
        end
    end
end

-- What runs of a queue, by when it was published: the sweep asks whether a message was overtaken. One that was in the broker before
-- it was accepted says nothing: it may have been there for longer.
local function index_running(id, row, to)
    if row.state == 'running' and row.sent then
        redis.call('ZREM', STORE .. 'running:' .. row.queue, id)
    end
    if (to.state or row.state) == 'running' and row.sent and tonumber(row.sent) >= tonumber(row.created) then
        redis.call('ZADD', STORE .. 'running:' .. (to.queue or row.queue), row.sent, id)
    end
end

local function index_key(id, row, to)
    if row.held_key and row.held_key ~= to.held_key then
        redis.call('HDEL', STORE .. 'keys', row.held_key)
    end
    if to.held_key then
        redis.call('HSET', STORE .. 'keys', to.held_key, id)
    end
end

local function index_cause(id, row, to)
    if row.cause and row.cause ~= to.cause then
        redis.call('ZREM', STORE .. 'cause:' .. row.cause, id)
    end
    if to.cause then
        redis.call('ZADD', STORE .. 'cause:' .. to.cause, row.created, id)
    end
end

-- Change a row: `to` has the new values, false for none. `row` is brought up to date.
--
-- The first write of every script that moves a job is this HSET. So a server that is out of memory refuses the script as a
-- whole, and never stops in the middle of one.
local function write(id, row, to)
    local set, unset = {}, {}
    for name, value in pairs(to) do
        if value == false then
            if row[name] then
                unset[#unset + 1] = name
            end
        else
            set[#set + 1] = name
            set[#set + 1] = type(value) == 'number' and integer(value) or value
        end
    end
    redis.call('HSET', STORE .. 'job:' .. id, unpack(set))
    if #unset > 0 then
        redis.call('HDEL', STORE .. 'job:' .. id, unpack(unset))
    end
    if to.state ~= nil or to.due ~= nil then
        index_due(id, row, to)
    end
    if to.state and to.state ~= row.state then
        if row.state then
            redis.call('ZREM', STORE .. 'state:' .. row.state, id)
        end
        redis.call('ZADD', STORE .. 'state:' .. to.state, row.created or to.created, id)
    end
    if to.state or to.queue then
        index_running(id, row, to)
    end
    if to.held_key ~= nil then
        index_key(id, row, to)
    end
    if to.cause ~= nil then
        index_cause(id, row, to)
    end
    if to.keep_until then
        redis.call('ZADD', STORE .. 'keep', to.keep_until, id)
    elseif to.keep_until == false and row.keep_until then
        redis.call('ZREM', STORE .. 'keep', id)
    end
    tally(row, to, ENDED)
    for place = 1, #set, 2 do
        row[set[place]] = set[place + 1]
    end
    for _, name in ipairs(unset) do
        row[name] = nil
    end
end

-- A message of a job; never changed afterwards.
local function keep_payload(id, generation, body, headers, delivery)
    redis.call('HSET', STORE .. 'payload:' .. id,
        generation .. ':body', body, generation .. ':headers', headers, generation .. ':delivery', delivery)
end

-- Bring back those who wait for the outcome of a job that has ended. More than these are found by a relay, a minute later.
local function release(holder)
    for _, id in ipairs(redis.call('SPOP', STORE .. 'followers:' .. holder, 1000)) do
        local row = read(id)
        if row and row.state == 'pending' and not row.relay and row.holder == holder then
            write(id, row, { due = NOW })
        end
    end
end

-- Forget a job with all that belongs to it.
local function forget(id, row)
    redis.call('DEL', STORE .. 'job:' .. id, STORE .. 'payload:' .. id, STORE .. 'result:' .. id,
        STORE .. 'failures:' .. id, STORE .. 'followers:' .. id)
    redis.call('ZREM', STORE .. 'keep', id)
    redis.call('ZREM', STORE .. 'created', id)
    redis.call('ZREM', STORE .. 'state:' .. row.state, id)
    redis.call('ZREM', due_index(row.state), id)
    if row.cause then
        redis.call('ZREM', STORE .. 'cause:' .. row.cause, id)
    end
    if row.held_key then
        redis.call('HDEL', STORE .. 'keys', row.held_key)
    end
    if row.holder then
        redis.call('SREM', STORE .. 'followers:' .. row.holder, id)
    end
end

-- A failure beside the row; `number` names it, so that one that is written twice is there once.
local function keep_failure(id, failure, attempt)
    failure.at, failure.attempt = integer(NOW), tostring(failure.attempt or attempt)
    if failure.failure_class ~= 'control' and failure.failure_class ~= 'superseded' then
        local row = read(id)
        add(1, 'failed', row.counted_as or row.task, '', '', failure.failure_class)
    end
    redis.call('HSET', STORE .. 'failures:' .. id, failure.number, cjson.encode(failure))
end

-- Say that there may be work, to one relay that waits.
local function ring()
    if due_now and redis.call('LLEN', STORE .. 'wake') == 0 then
        redis.call('LPUSH', STORE .. 'wake', '1')
    end
end

-- A row as it is answered: JSON, one text that is read at once.
local function answer(row)
    return cjson.encode(row)
end
