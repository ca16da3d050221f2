-- uses: store
-- Keep a message as the raw bytes it was; its number.
local number = redis.call('HGET', STORE .. 'quarantine_tokens', given.mark)
if number then
    -- an earlier try of this very call has written it
    return tonumber(number)
end
number = redis.call('HINCRBY', STORE .. 'quarantine_tokens', 'last', 1)
redis.call('HSET', STORE .. 'quarantine_tokens', given.mark, number)
redis.call('HSET', STORE .. 'quarantine:' .. number, 'received', integer(NOW), 'queue', given.queue,
    'content_type', given.content_type, 'content_encoding', given.content_encoding, 'reason', given.reason,
    'headers', given.headers, 'size', #ARGV[2], 'body', ARGV[2], 'token', given.mark)
if given.delivery then
    redis.call('HSET', STORE .. 'quarantine:' .. number, 'delivery', given.delivery)
end
redis.call('ZADD', STORE .. 'quarantine', number, number)
redis.call('ZADD', STORE .. 'quarantine_kept', number, number)
return number
