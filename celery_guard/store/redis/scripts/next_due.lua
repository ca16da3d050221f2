-- uses: store
-- How long until a relay would find something, in microseconds; nothing where nothing waits.
local first
for _, index in ipairs({ 'due:pending', 'due:ended' }) do
    local entry = redis.call('ZRANGE', STORE .. index, 0, 0, 'WITHSCORES')
    if entry[2] and not (first and first <= tonumber(entry[2])) then
        first = tonumber(entry[2])
    end
end
return first and integer(first - NOW) or false
