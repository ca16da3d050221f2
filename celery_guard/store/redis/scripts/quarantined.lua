-- uses: store
-- Messages in quarantine, newest first, without their bodies; or one, with it.
local function fields(number, ...)
    return { number, redis.call('HMGET', STORE .. 'quarantine:' .. number,
        'received', 'queue', 'content_type', 'content_encoding', 'reason', 'size', 'headers', ...) }
end

if given.number then
    return { fields(given.number, 'body') }
end
local found = {}
for place, number in ipairs(redis.call('ZREVRANGE', STORE .. 'quarantine', 0, given.limit - 1)) do
    found[place] = fields(number)
end
return found
