-- uses: store quarantined_rows
-- Keep a message as the raw bytes it was; its number, and how many of the oldest went to make room for it.
local number = redis.call('HGET', STORE .. 'quarantine_tokens', given.mark)
if number then
    -- an earlier try of this very call has written it
    return { tonumber(number), 0 }
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

-- What nobody could open must not fill the memory that jobs are accepted into.
local bytes = redis.call('HINCRBY', STORE .. 'quarantine_tokens', 'bytes', #ARGV[2])
local messages = redis.call('ZCARD', STORE .. 'quarantine')
local gone, freed = 0, 0
while messages - gone > 1 and (messages - gone > given.most or bytes - freed > given.most_bytes) do
    freed = freed + forget_message(redis.call('ZRANGE', STORE .. 'quarantine', 0, 0)[1])
    gone = gone + 1
end
return { number, gone }
