-- Forgetting a message in quarantine: all that quarantine.lua and move_message.lua have written. Answers its bytes, which count no more.
local function forget_message(number)
    local token, size = unpack(redis.call('HMGET', STORE .. 'quarantine:' .. number, 'token', 'size'))
    if token then
        redis.call('HDEL', STORE .. 'quarantine_tokens', token)
    end
    redis.call('DEL', STORE .. 'quarantine:' .. number)
    redis.call('ZREM', STORE .. 'quarantine', number)
    redis.call('ZREM', STORE .. 'quarantine_kept', number)
    redis.call('ZREM', STORE .. 'quarantine_handled', number)
    if count(size) > 0 then
        redis.call('HINCRBY', STORE .. 'quarantine_tokens', 'bytes', integer(-count(size)))
    end
    return count(size)
end
