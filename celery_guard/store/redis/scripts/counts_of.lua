-- uses: store
-- The states of one tenant's jobs, of a page of all: (how many were looked at, then a state of each).
local page = redis.call('ZRANGE', STORE .. 'created', given.from, given.from + given.limit - 1)
local found = { #page }
for _, id in ipairs(page) do
    local row = redis.call('HMGET', STORE .. 'job:' .. id, 'tenant', 'state')
    if row[1] == given.tenant then
        found[#found + 1] = row[2]
    end
end
return found
