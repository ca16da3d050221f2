-- uses: store tally row
-- Jobs, newest first, after a place: (whether there may be more, the place reached, then id and row of each).
--
-- Looks at no more than `budget` rows, so that no question stops the server for long; who wants more asks again from
-- the place that was reached.

-- Whether text comes before another, byte by byte: Lua's own order follows the server's locale, the indices' does not.
local function before(one, other)
    for place = 1, math.min(#one, #other) do
        local a, b = one:byte(place), other:byte(place)
        if a ~= b then
            return a < b
        end
    end
    return #one < #other
end

local function is_after(entry, place)
    return entry[1] < place[1] or (entry[1] == place[1] and before(entry[2], place[2]))
end

local place = given.after
if type(place) == 'string' then
    local created = redis.call('HGET', STORE .. 'job:' .. place, 'created')
    if not created then
        return { 0 }
    end
    place = { tonumber(created), place }
elseif place then
    place = { tonumber(place[1]), place[2] }
end
-- What is too young is passed over, and what is too old is not reached.
if given.ages.older and not (place and place[1] <= NOW - given.ages.older) then
    place = { NOW - given.ages.older + 1, '' }
end
local last = given.ages.younger and NOW - given.ages.younger or 0

-- The next entries of one index; and whether it goes on behind them.
local function page(index)
    local from = place and redis.call('ZCOUNT', index, '(' .. integer(place[1]), '+inf') or 0
    local found = {}
    while true do
        local part = redis.call('ZREVRANGE', index, from, from + given.budget - 1, 'WITHSCORES')
        for at = 1, #part, 2 do
            local entry = { tonumber(part[at + 1]), part[at] }
            if not place or is_after(entry, place) then
                found[#found + 1] = entry
            end
        end
        if #part < given.budget * 2 then
            return found, false
        end
        if #found > 0 then
            return found, true
        end
        from = from + given.budget
    end
end

local entries, ends = {}, {}
for _, name in ipairs(given.indices) do
    local found, more = page(STORE .. name)
    for _, entry in ipairs(found) do
        entries[#entries + 1] = entry
    end
    if more then
        ends[found[#found][2]] = true
    end
end
table.sort(entries, function(one, other) return is_after(other, one) end)

local function wanted(row)
    for name, value in pairs(given.wanted) do
        if row[name] ~= value then
            return false
        end
    end
    local least, most = given.ages.ended_before, given.ages.ended_since
    if (least or most) and not row.finished then
        return false
    end
    if (least and tonumber(row.finished) > NOW - least) or (most and tonumber(row.finished) < NOW - most) then
        return false
    end
    return not given.states or given.states[row.state]
end

local rows, more = {}, 0
for at, entry in ipairs(entries) do
    if entry[1] < last then
        break
    end
    local row = read(entry[2])
    if row and wanted(row) then
        rows[#rows + 1] = { entry[2], answer(row) }
    end
    place = entry
    -- Behind the end of a page the order is not known.
    if #rows == given.limit or at == given.budget or ends[entry[2]] then
        more = (at < #entries or ends[entry[2]]) and 1 or 0
        break
    end
end
return { more, place and { integer(place[1]), place[2] } or {}, unpack(rows) }
