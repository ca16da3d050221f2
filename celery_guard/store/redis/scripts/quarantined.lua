-- uses: store
-- Messages in quarantine, newest first, without their bodies; or one, with it.
local function fields(number, ...)
    return { number, redis.call('HMGET', STORE .. 'quarantine:' .. number, 'received', 'queue', 'content_type',
        'content_encoding', 'reason', 'size', 'headers', 'delivery', 'state', 'handled', 'why', ...) }
end

if given.number then
    return { fields(given.number, 'body') }
end
local from = given.before and '(' .. integer(given.before) or '+inf'
local found = {}
for place, number in ipairs(redis.call('ZREVRANGEBYSCORE', STORE .. given.index, from, '-inf', 'LIMIT', 0, given.limit)) do
    found[place] = fields(number)
end
return found
