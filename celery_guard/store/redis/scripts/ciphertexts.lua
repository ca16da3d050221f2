-- uses: store
-- What is encrypted of some jobs: kind, job, part and text of each; of no more than the key's id where that is enough.
local found = {}

local function keep(kind, id, part, value, before, behind)
    if string.sub(value, 1, #before) ~= before then
        return
    end
    local text = string.sub(value, #before + 1, #value - #behind)
    local key = string.sub(text, 1, given.id_length)
    if given.but and key == given.but then
        return
    end
    found[#found + 1] = { kind, id, part, given.brief and key or text }
end

for _, id in ipairs(given.ids) do
    local letters = redis.call('HGETALL', STORE .. 'payload:' .. id)
    for at = 1, #letters, 2 do
        local generation = string.match(letters[at], '^(%d+):body$')
        if generation then
            keep('message', id, generation, letters[at + 1], given.message, given.message_end)
        end
    end
    local result = redis.call('HMGET', STORE .. 'result:' .. id, 'body', 'content_type')
    if result[1] and result[2] == given.result then
        keep('result', id, '0', result[1], '', '')
    end
    local failures = redis.call('HGETALL', STORE .. 'failures:' .. id)
    for at = 1, #failures, 2 do
        keep('failure', id, failures[at], cjson.decode(failures[at + 1]).message, given.text, '')
    end
end
return found
