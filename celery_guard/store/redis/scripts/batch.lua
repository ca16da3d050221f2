-- A replay, and the place of each of its jobs.

-- The replay as it is, a table of texts; nil where there is none.
local function batch(id)
    local flat = redis.call('HGETALL', STORE .. 'replay:' .. id)
    if #flat == 0 then
        return nil
    end
    local row = {}
    for place = 1, #flat, 2 do
        row[flat[place]] = flat[place + 1]
    end
    return row
end

local ITEMS = { 'waiting', 'released', 'failing', 'succeeded', 'failed', 'ended', 'skipped' }

local function place_of(id, job)
    local text = redis.call('HGET', STORE .. 'replay_jobs:' .. id, job)
    return text and cjson.decode(text)
end

-- Change the place of a job, and the index that follows from it.
local function put(id, job, item, state)
    if item.state then
        redis.call('ZREM', STORE .. 'replay_state:' .. id .. ':' .. item.state, job)
    end
    item.state = state
    redis.call('HSET', STORE .. 'replay_jobs:' .. id, job, cjson.encode(item))
    redis.call('ZADD', STORE .. 'replay_state:' .. id .. ':' .. state, item.position, job)
end

local function add(id, name, key, by)
    redis.call('HINCRBY', STORE .. 'replay_counts:' .. id, key .. ':' .. name, by)
end

-- How many jobs are in each state: of the whole, or of a wave.
local function counts(id, wave)
    local found = {}
    for place, state in ipairs(ITEMS) do
        if wave then
            found[place] = tonumber(redis.call('HGET', STORE .. 'replay_counts:' .. id, wave .. ':' .. state) or 0)
        else
            found[place] = redis.call('ZCARD', STORE .. 'replay_state:' .. id .. ':' .. state)
        end
    end
    return found
end

-- Change the place of a job that was sent, and the counts of its wave.
local function became(id, job, item, state)
    local wave = string.format('%d', item.wave)
    add(id, item.state, wave, -1)
    put(id, job, item, state)
    add(id, state, wave, 1)
end
