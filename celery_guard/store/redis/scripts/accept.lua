-- Accepting a job: what is written, and what is said where its id is known or its key is held.

local function insert(id, new, letter)
    local row = {}
    for name, value in pairs(new) do
        row[name] = value
    end
    row.delay, row.deadline_in, row.in_canvas, row.in_broker, row.behind = nil, nil, nil, nil, nil
    -- Jobs that come together are a microsecond apart, so that they leave in the order in which they came.
    local now = NOW - new.behind
    row.state, row.created, row.due = 'pending', now, now + new.delay
    if new.in_broker then
        -- before it was accepted: nobody knows how long
        row.state, row.sent, row.due = 'sent', now - 1, now + new.in_broker
    end
    if new.deadline_in and not (new.deadline and new.deadline < now + new.deadline_in) then
        row.deadline = now + new.deadline_in
    end
    write(id, {}, row)
    redis.call('ZADD', STORE .. 'created', row.created, id)
    keep_payload(id, 0, letter.body, letter.headers, letter.delivery)
end

-- The job handed itself over to others, the last of whom brings its id back: it goes on with this message.
local function carry_on(id, row, new, letter)
    local generation = count(row.generation) + 1
    write(id, row, {
        task = new.task, queue = new.queue, kind = new.kind, priority = new.priority or false, reason = 'replaced',
        generation = generation, due = NOW + new.delay, relay = false, call = new.call,
        counted_as = row.counted_as or (new.task ~= row.task and row.task or nil),
    })
    keep_payload(id, generation, letter.body, letter.headers, letter.delivery)
    return { 'accepted', '' }
end

-- What to do about a row that has our id, or holds our key.
local function meet(id, new, letter, found, row)
    if found == id then
        if row.call == new.call then
            -- what an earlier try of this very call has written
            return { 'accepted', row.holder or '' }
        end
        if row.state == 'pending' and row.reason == 'handed_over' then
            return carry_on(id, row, new, letter)
        end
    end
    if row.fingerprint ~= new.fingerprint then
        add(1, 'conflict', new.task)
        return { 'conflict', found, row.state }
    end
    if found == id or not new.in_canvas then
        add(1, 'duplicate', new.task)
        return { 'duplicate', found, row.state }
    end
    -- Due at once: the relay looks at the holder, and from then on the holder's end brings the follower back.
    new.holder, new.reason, new.held_key, new.in_broker = found, 'held_key', nil, nil
    insert(id, new, letter)
    return { 'accepted', found }
end

-- Accept one job; `new` is the row as far as its sender knows it, and how many come behind it. Answers (word, holder, holder's state).
local function accept(new, behind, letter)
    local id = new.id
    new.id, new.behind = nil, behind
    local row = read(id)
    if row then
        return meet(id, new, letter, id, row)
    end
    local holder = new.key_hash and redis.call('HGET', STORE .. 'keys', new.key_hash)
    local held = holder and read(holder)
    if held then
        return meet(id, new, letter, holder, held)
    end
    new.held_key = new.key_hash
    insert(id, new, letter)
    return { 'accepted', '' }
end

-- The message of the job at a place among the arguments.
local function letter_at(place)
    return { body = ARGV[place], headers = ARGV[place + 1], delivery = ARGV[place + 2] }
end
