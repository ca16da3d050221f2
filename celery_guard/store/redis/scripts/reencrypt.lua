-- uses: store
-- Put one ciphertext in the place of another, if that is still there. It has no character that JSON would write otherwise.
local homes = {
    message = { 'payload:', given.part .. ':body' },
    result = { 'result:', 'body' },
    failure = { 'failures:', given.part },
}
local home, field = homes[given.kind][1] .. given.id, homes[given.kind][2]
local value = redis.call('HGET', STORE .. home, field)
local first, last = string.find(value or '', given.was, 1, true)
if not first then
    -- a call whose answer was lost is repeated
    return string.find(value or '', given.text, 1, true) and 1 or 0
end
redis.call('HSET', STORE .. home, field, string.sub(value, 1, first - 1) .. given.text .. string.sub(value, last + 1))
return 1
