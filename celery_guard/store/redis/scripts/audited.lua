-- uses: store
-- Rows of the audit before a number, newest first: (the number reached or 0 at the end, then number and row of each).
--
-- Looks at no more than `budget` rows; who wants more asks again from the number that was reached.
local index = STORE .. (given.job and 'audit_job:' .. given.job or 'audit')
local from = given.after and '(' .. integer(given.after) or '+inf'
local numbers = redis.call('ZREVRANGEBYSCORE', index, from, '-inf', 'LIMIT', 0, given.budget)

local function wanted(row)
    for name, value in pairs(given.wanted) do
        if row[name] ~= value then
            return false
        end
    end
    return true
end

local found, reached = {}, 0
for _, number in ipairs(numbers) do
    local text = redis.call('HGET', STORE .. 'audit:' .. number, 'row')
    -- false: it was evicted
    local row = text and cjson.decode(text)
    if row and given.since and tonumber(row.at) < NOW - given.since then
        return { 0, unpack(found) }
    end
    if row and wanted(row) then
        found[#found + 1] = { number, text }
        if #found == given.limit then
            return { number, unpack(found) }
        end
    end
    reached = number
end
return { #numbers == given.budget and reached or 0, unpack(found) }
