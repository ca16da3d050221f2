-- uses: store tally row again batch
-- Send waiting jobs again, if the replay runs, this is its wave, and it is time; how many went.
local found = batch(given.id)
if not found or found.state ~= 'running' or found.wave ~= given.wave or found.next_at ~= given.turn or tonumber(found.next_at) > NOW then
    return 0
end
local index = STORE .. 'replay:' .. given.id
redis.call('HSET', index, 'next_at', integer(NOW + tonumber(found.every) * given.count + 1))

local cap = found.cap and tonumber(found.cap)
local on_way = {}
if cap then
    for _, job in ipairs(redis.call('ZRANGE', STORE .. 'replay_state:' .. given.id .. ':released', 0, -1)) do
        local tenant = place_of(given.id, job).tenant
        if tenant then
            on_way[tenant] = (on_way[tenant] or 0) + 1
        end
    end
end

local function crowded(item)
    return cap and item.tenant and (on_way[item.tenant] or 0) >= cap
end

local function send(job, item)
    local answer = replay(job)
    item.wave = tonumber(given.wave)
    if answer[1] ~= 'replayed' then
        item.why = answer
        put(given.id, job, item, 'skipped')
        add(given.id, 'skipped', given.wave, 1)
        return false
    end
    item.replays = count(redis.call('HGET', STORE .. 'job:' .. job, 'replays'))
    put(given.id, job, item, 'released')
    add(given.id, 'released', given.wave, 1)
    if item.cause then
        redis.call('HSET', STORE .. 'cause_replays', item.cause, integer(NOW))
    end
    if item.tenant then
        on_way[item.tenant] = (on_way[item.tenant] or 0) + 1
    end
    return true
end

local released, chosen, from = 0, 0, 0
local waiting_index = STORE .. 'replay_state:' .. given.id .. ':waiting'
while chosen < given.count and from < given.budget do
    local page = redis.call('ZRANGE', waiting_index, 0, given.count + from - 1)
    local before = chosen
    for place = from + 1, #page do
        local item = place_of(given.id, page[place])
        if chosen < given.count and not crowded(item) then
            chosen = chosen + 1
            released = released + (send(page[place], item) and 1 or 0)
        else
            from = from + 1
        end
    end
    if #page < given.count + from or chosen == given.count then
        break
    end
end
ring()
return released
