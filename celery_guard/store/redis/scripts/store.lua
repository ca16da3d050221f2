-- What every script begins with: the store's keys, the call's arguments, the server's clock, and the store's version.
--
-- KEYS[1] is the store's tag, {guard:name}; every other key is that tag, a colon and a name, so all are in one slot.
-- ARGV[1] is JSON; what is bytes follows it, each in an argument of its own.

local STORE = KEYS[1] .. ':'
local given = cjson.decode(ARGV[1])

local version = redis.call('HGET', STORE .. 'store', 'version')
if given.version and version ~= given.version then
    return redis.error_reply('GUARDVERSION ' .. (version or 'none'))
end

local time = redis.call('TIME')
-- Microseconds since the epoch, one instant for the whole script. A double holds them exactly until the year 2255.
local NOW = time[1] * 1000000 + time[2]

-- A number as text; Lua's own tostring() would write 1.8e+15.
local function integer(number)
    return string.format('%.0f', number)
end

-- A counter of a row; one that was never written is 0.
local function count(text)
    return tonumber(text or 0)
end
