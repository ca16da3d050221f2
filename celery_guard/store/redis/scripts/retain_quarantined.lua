-- uses: store quarantined_rows
-- Forget messages that have been in quarantine for long enough, oldest first; how many went.
local gone = 0
for _, number in ipairs(redis.call('ZRANGE', STORE .. 'quarantine', 0, given.limit - 1)) do
    local received = redis.call('HGET', STORE .. 'quarantine:' .. number, 'received')
    if received and tonumber(received) > NOW - given.keep then
        break
    end
    forget_message(number)
    gone = gone + 1
end
return gone
