-- uses: store
-- Bring the store to this version; what it was before.
local found = tonumber(version or 0)
if found > given.to then
    return redis.error_reply('GUARDVERSION ' .. version)
end
if found == 0 then
    redis.call('HSET', STORE .. 'store', 'version', integer(given.to), 'id', given.id, 'created', integer(NOW))
end
return found
