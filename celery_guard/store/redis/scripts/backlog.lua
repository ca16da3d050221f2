-- uses: store
-- What waits and runs, by queue, of the jobs of each state that are due first: queue, counts, and the oldest instants of each.
local queues, order = {}, {}

local function of(name)
    if not queues[name] then
        queues[name] = { pending = 0, sent = 0, running = 0, lapsed = 0, oldest_due = 0, oldest_sent = 0, oldest_lapse = 0 }
        order[#order + 1] = name
    end
    return queues[name]
end

local function older(queue, name, instant)
    if instant and (queue[name] == 0 or instant < queue[name]) then
        queue[name] = instant
    end
end

for state, last in pairs({ pending = integer(NOW), sent = '+inf', running = '+inf' }) do
    local entries = redis.call('ZRANGEBYSCORE', STORE .. 'due:' .. state, '-inf', last, 'WITHSCORES', 'LIMIT', 0, given.limit)
    for place = 1, #entries, 2 do
        local due = tonumber(entries[place + 1])
        local row = redis.call('HMGET', STORE .. 'job:' .. entries[place], 'queue', 'sent')
        if row[1] then
            local queue = of(row[1])
            queue[state] = queue[state] + 1
            if state == 'pending' then
                older(queue, 'oldest_due', due)
            elseif state == 'sent' then
                older(queue, 'oldest_sent', row[2] and tonumber(row[2]))
            elseif due <= NOW then
                queue.lapsed = queue.lapsed + 1
                older(queue, 'oldest_lapse', due)
            end
        end
    end
end

local found = {}
for place, name in ipairs(order) do
    local queue = queues[name]
    found[place] = {
        name, queue.pending, queue.sent, queue.running, queue.lapsed, integer(queue.oldest_due), integer(queue.oldest_sent),
        integer(queue.oldest_lapse), redis.call('HGET', STORE .. 'started', name) or '0',
    }
end
return found
