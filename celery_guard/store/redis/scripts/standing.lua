-- uses: store
-- A page of the jobs in a state, added up: (how many rows there were, then queue, task, jobs, age of the oldest, with a live lease).
-- Which of the times below says since when a row is in the state.
local SINCE = { pending = 8, sent = 5, running = 6, unknown = 6, dead = 7 }

local ids = redis.call('ZRANGE', STORE .. 'state:' .. given.state, given.from, given.from + given.limit - 1)
local groups, order = {}, {}
for _, id in ipairs(ids) do
    local row = redis.call('HMGET', STORE .. 'job:' .. id, 'queue', 'task', 'counted_as', 'kind', 'sent', 'started', 'finished', 'due')
    local queue, task = row[1], row[3] or row[2]
    if queue and (row[4] == 'run' or row[3]) then
        local name = cjson.encode({ queue, task })
        local group = groups[name]
        if not group then
            group = { queue, task, 0, 0, 0 }
            groups[name] = group
            order[#order + 1] = name
        end
        local since = row[SINCE[given.state]]
        group[3] = group[3] + 1
        group[4] = math.max(group[4], since and NOW - tonumber(since) or 0)
        if given.state == 'running' and row[8] and tonumber(row[8]) > NOW then
            group[5] = group[5] + 1
        end
    end
end
local answers = { #ids }
for place, name in ipairs(order) do
    local group = groups[name]
    answers[place + 1] = { group[1], group[2], group[3], integer(group[4]), group[5] }
end
return answers
