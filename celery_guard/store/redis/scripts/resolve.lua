-- uses: store tally row
-- Close dead letters, and keep them for a time from now: (answer, state) of each.
local function close(id)
    local row = read(id)
    if not row then
        return { 'missing' }
    end
    if row.settled == given.mark then
        return { 'done' }
    end
    if row.state ~= 'dead' then
        return { 'not dead', row.state }
    end
    write(id, row, { state = 'resolved', keep_until = NOW + given.keep, settled = given.mark })
    return { 'done' }
end

local answers = {}
for place, id in ipairs(given.ids) do
    answers[place] = close(id)
end
return answers
